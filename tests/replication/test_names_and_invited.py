"""Which key a word means on a node, and which of the invited have not come."""

from __future__ import annotations

import pytest
from players import chain_of, fired
from sim import pair
from twisted.internet.defer import Deferred

from hyperbloom.keys import Identity
from hyperbloom.replication import petnames
from hyperbloom.replication.petnames import UnknownKey
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store.tables.names import NameTaken
from hyperbloom.store.tables.pending import PutPending

FAR = 10.0 * 86_400
STRANGER = Identity(b"s" * 32).public_key


def done(coroutine):
    return fired(Deferred.fromCoroutine(coroutine))


def failed(coroutine, kind):
    failures = []
    Deferred.fromCoroutine(coroutine).addErrback(failures.append)
    (failure,) = failures
    assert failure.check(kind), failure
    return str(failure.value)


# Words


def test_a_name_holds_over_a_restart_and_shows_beside_the_peer(network):
    owner, member, feed = pair(network)
    assert done(owner.node.names.name(member.key, "Zoe\u0308")) is None
    network.connect(member, owner, feed)
    network.run(2)
    assert [peer.name for peer in owner.node.peers()] == ["Zo\u00eb"]
    assert [peer.name for peer in member.node.peers()] == [None], "a name stays at home"
    again = network.restart("owner").node.names
    assert again.get(member.key) == "Zo\u00eb"
    assert again.named("ZO\u00cb") == member.key
    assert done(again.unname(member.key)) == "Zo\u00eb"
    assert (again.get(member.key), again.named("Zo\u00eb")) == (None, None)
    assert again.records() == []


def test_renaming_frees_the_name_and_a_taken_one_changes_nothing(network):
    names = network.add("one").node.names
    done(names.name(STRANGER, "alice"))
    assert done(names.name(STRANGER, "bob")) == "alice"
    assert names.named("alice") is None
    assert STRANGER.hex() in failed(names.name(b"x" * 32, "Bob"), NameTaken)
    assert names.get(b"x" * 32) is None
    with pytest.raises(NameTaken):
        names.check_new(b"x" * 32, "bob")
    with pytest.raises(ValueError, match="called bob already"):
        names.check_new(STRANGER, "carol")
    names.check_new(STRANGER, "BOB")
    names.check_new(b"x" * 32, "carol")


def test_a_key_is_found_whole_by_name_and_by_its_beginning(network):
    owner, member, feed = pair(network)
    names = owner.node.names
    assert done(names.find(STRANGER.hex().upper())) == STRANGER, "whole, though never seen"
    assert done(names.find(member.key.hex()[:16])) == member.key, "a member, by its link"
    assert done(names.find(owner.key.hex()[:17].upper())) == owner.key
    done(names.name(STRANGER, "alice"))
    assert done(names.find("Alice")) == STRANGER
    assert done(names.find(STRANGER.hex()[:16])) == STRANGER
    stranger = Identity(b"t" * 32).public_key
    told = failed(names.find(stranger.hex()[:63]), UnknownKey)
    assert told.endswith("give all 64 digits of the key")
    assert feed == owner.key


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("abcdef0", "too short for the beginning of a key"),
        ("abcdef0123456789"[:15], "give all 64 digits of the key, its first 16 or more"),
        ("ab" * 33, "a key has 64 hex digits"),
        ("bob", "no key is called 'bob' on this node"),
        ("", "no key is called ''"),
        ("0123456789012345", "no key that this node has seen begins with 0123456789012345"),
    ],
)
def test_what_nobody_is_meant_by_is_said(network, word, told):
    assert told in failed(network.add("one").node.names.find(word), UnknownKey)


def test_the_beginning_of_two_keys_means_neither_and_both_are_listed(network, monkeypatch):
    names = network.add("one").node.names
    twins = [bytes.fromhex("abcdef01abcdef01") + bytes([end]) * 24 for end in range(4)]
    done(names.name(twins[0], "alice"))
    for number, twin in enumerate(twins[1:]):
        done(names.name(twin, f"other {number}"))
    monkeypatch.setattr(petnames, "KEYS_NAMED", 2)
    told = failed(names.find("ABCDEF01ABCDEF01"), UnknownKey)
    assert told == (
        f"4 keys begin with ABCDEF01ABCDEF01: {twins[0].hex()} (alice), {twins[1].hex()} (other 0) "
        "and 2 more; give more digits"
    )
    assert done(names.find("abcdef01abcdef0101")) == twins[1]
    assert done(names.find("abcdef01abcdef01", among=[twins[2], b"z" * 32])) == twins[2]
    told = failed(names.find("abcdef01abcdef01", among=[], those="that is denied"), UnknownKey)
    assert told.startswith("no key that is denied begins with abcdef01abcdef01")


def test_a_peer_that_is_connected_is_found_though_no_link_is_kept(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(2)
    names = member.node.names
    member.store.keys_beginning = lambda digits: set()
    assert done(names.find(owner.key.hex()[:16])) == owner.key


# Invitations


def invited(node, feed):
    return set(node.feed(feed).trust.invited())


def test_who_was_invited_is_pending_until_it_comes(network):
    owner, member, feed = pair(network)
    trust = owner.feed(feed).trust
    assert owner.status(feed).invited == 0, "`pair` issues a link and makes no invitation"
    fired(trust.invite(STRANGER, expires=network.now() + FAR))
    assert trust.invited() == {STRANGER: pytest.approx(network.now())}
    assert owner.status(feed).invited == 1
    assert STRANGER in {found.key for found in trust.members()}, "it may write, should it come"
    fired(trust.invite(member.key, expires=network.now() + FAR))
    assert invited(owner, feed) == {STRANGER}, "who may write already is not pending"
    again = network.restart("owner")
    assert invited(again, feed) == {STRANGER}


def test_who_comes_is_pending_no_more_also_after_a_restart(network):
    owner = network.add("owner")
    feed = owner.key
    one = Identity(network.random.randbytes(32))
    link = fired(owner.feed(feed).trust.invite(one.public_key, expires=network.now() + FAR))
    member = network.add("member", feeds=(FeedSettings(key=feed),), identity=one)
    fired(member.feed(feed).trust.add_links([link.to_bytes()]))
    assert invited(owner, feed) == {member.key}
    network.connect(member, owner, feed)
    network.run(2)
    assert invited(owner, feed) == set()
    assert owner.store.pending(feed) == []
    assert invited(network.restart("owner"), feed) == set()


def test_who_has_invited_others_has_come(network):
    """A member may never dial this node; whom it has invited shows its link."""
    nodes, feed = chain_of(network, 2)
    _, one, two = nodes
    nodes[0].context.write(PutPending(feed, one.key, 5))
    owner = network.restart("n0")
    assert invited(owner, feed) == {one.key}
    network.connect(two, owner, feed)
    network.run(2)
    assert invited(owner, feed) == set()


def test_an_invitation_that_has_ended_or_is_denied_is_not_counted(network):
    owner = network.add("owner")
    feed, trust = owner.key, owner.feed(owner.key).trust
    fired(trust.invite(STRANGER, expires=network.now() + 60))
    other = Identity(b"o" * 32).public_key
    fired(trust.invite(other, expires=network.now() + FAR))
    done(owner.node.deny(other))
    assert invited(owner, feed) == {STRANGER}
    done(owner.node.allow(other))
    network.run(61)
    assert invited(owner, feed) == {other}
    trust.prune(before=network.now())
    assert [found.key for found in owner.store.pending(feed)] == [other]
