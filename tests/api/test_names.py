"""What the operator calls keys, and keys that are given by less than their digits, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.invitation import decode_invitation
from hyperbloom.keys import Identity

FRIEND = Identity(b"\x01" * 32).public_key
OTHER = Identity(b"\x02" * 32).public_key
FAR = 4_000_000_000.0


def refused(call: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value


def test_a_key_is_named_renamed_and_unnamed(served):
    client = served.client()
    assert client.name_key(FRIEND, "alice") == {"key": FRIEND.hex(), "name": "alice", "was": None}
    assert client.names() == [{"key": FRIEND.hex(), "name": "alice", "named_at": 1.0}]
    again = client.name_key("alice", "Alice Smith")
    assert again == {"key": FRIEND.hex(), "name": "Alice Smith", "was": "alice"}
    gone = client.unname_key("Alice Smith")
    assert gone == {"key": FRIEND.hex(), "name": None, "was": "Alice Smith"}
    assert client.names() == []
    assert client.unname_key(FRIEND)["was"] is None


def test_names_that_are_none_or_taken_are_refused(served):
    client = served.client()
    client.name_key(FRIEND, "alice")
    taken = refused(lambda: client.name_key(OTHER, "alice"))
    assert taken.kind is ProblemKind.CONFLICT
    assert FRIEND.hex() in taken.detail
    for name in ("", "x" * 65, "deadbeef", "a\u202eb", "a:1"):
        assert refused(lambda name=name: client.name_key(OTHER, name)).kind is (
            ProblemKind.BAD_REQUEST
        )


@pytest.mark.parametrize("name", ["a/b", "a?b#c", "100 %", "Zo\u00eb"])
def test_any_name_can_stand_in_a_path(served, name):
    client = served.client()
    client.name_key(FRIEND, name)
    client.deny(name)
    assert client.allow(name) == {"key": FRIEND.hex(), "name": name, "was_denied": True}
    assert client.unname_key(name)["was"] == name


def test_a_key_is_given_by_its_name_or_its_beginning(served):
    client, node = served.client(), served.node
    node.names.seen.add(FRIEND)
    short = FRIEND.hex()[:16]
    assert client.deny(short.upper())["key"] == FRIEND.hex()
    assert [one["name"] for one in client.denied()] == [None]
    client.name_key(short, "alice")
    assert client.deny("alice", "why") == {"key": FRIEND.hex(), "name": "alice", "new": False}
    assert [one["name"] for one in client.denied()] == ["alice"]
    assert client.allow(short)["was_denied"] is True
    node.noise[FRIEND] = 5
    assert [one["name"] for one in client.noise_keys()] == ["alice"]
    assert client.forget_noise("alice") == {
        "key": FRIEND.hex(),
        "name": "alice",
        "was_remembered": True,
    }
    assert list(client.values_by("alice")) == [[]]
    step = next(client.forget({"by": "alice"}))
    assert (step["by"], step["by_name"]) == (FRIEND.hex(), "alice")
    assert node.own.forgetting.steps[-1].origin == FRIEND
    assert next(client.undo_forgetting({"by": short}))["by"] == FRIEND.hex()
    assert next(client.forget({"start": ""}))["by"] is None
    issued = client.issue_link("alice", expires=FAR)
    assert (issued["trustee"], issued["trustee_name"]) == (FRIEND.hex(), "alice")


def test_a_beginning_that_nobody_has_changes_nothing(served):
    client = served.client()
    for ask in (
        lambda: client.deny("01234567"),
        lambda: client.name_key("nobody", "alice"),
        lambda: client.invite("01234567", expires=FAR),
        lambda: client.issue_link("nobody", expires=FAR),
        lambda: next(client.forget({"by": "nobody"})),
        lambda: next(client.values_by("nobody")),
        lambda: client.forget_noise("01234567"),
        lambda: client.allow("01234567"),
    ):
        assert refused(ask).kind is ProblemKind.UNKNOWN_PEER
    assert not served.node.denied_keys
    assert not served.node.own.raw_links


def test_the_list_says_which_beginning_is_meant(served):
    """What is taken off a list needs digits enough for that list alone."""
    client, node = served.client(), served.node
    twin = FRIEND[:8] + bytes(24)
    node.names.seen.update((FRIEND, twin))
    client.deny(FRIEND)
    node.noise[FRIEND] = 5
    assert refused(lambda: client.deny(FRIEND.hex()[:16])).kind is ProblemKind.UNKNOWN_PEER
    assert client.allow(FRIEND.hex()[:16])["key"] == FRIEND.hex()
    assert client.forget_noise(FRIEND.hex()[:16])["key"] == FRIEND.hex()


def test_an_invitation_names_its_trustee(served):
    client = served.client()
    answer = client.invite(FRIEND, expires=FAR, name="alice")
    assert (answer["trustee"], answer["trustee_name"]) == (FRIEND.hex(), "alice")
    assert len(decode_invitation(answer["invitation"]).links) == 1
    assert client.invite("alice", expires=FAR)["trustee"] == FRIEND.hex()
    taken = refused(lambda: client.invite(OTHER, expires=FAR, name="alice"))
    assert taken.kind is ProblemKind.CONFLICT
    bad = refused(lambda: client.invite(OTHER, expires=FAR, name="deadbeef"))
    assert bad.kind is ProblemKind.BAD_REQUEST
    assert len(served.node.own.raw_links) == 2, "nothing was issued to the other"


def test_a_node_does_not_invite_itself(served):
    client = served.client()
    own = served.node.identity.public_key
    for ask in (client.invite, client.issue_link):
        told = refused(lambda ask=ask: ask(own, expires=FAR))
        assert told.kind is ProblemKind.BAD_REQUEST
        assert "`hyperbloom key` prints it there" in told.detail


def test_a_member_names_who_has_invited_it(served):
    inviter = served.node.identity
    line = served.client().invite(FRIEND, expires=FAR)["invitation"]
    served.node.identity = Identity(b"\x01" * 32)
    client = served.client()
    joined = client.accept(line, inviter_name="bob")
    assert (joined["inviter"], joined["inviter_name"]) == (inviter.public_key.hex(), "bob")
    assert client.names()[0]["key"] == inviter.public_key.hex()
    assert client.accept(line)["inviter_name"] == "bob"


def test_what_arrives_says_what_its_source_is_called(served):
    client, own = served.client(), served.node.identity.public_key
    client.put([b"one"])
    assert client.arrivals_page().arrivals[0].origin_name is None
    client.name_key(own, 'the "laptop"')
    assert client.arrivals_page().arrivals[0].origin_name == 'the "laptop"'
    watched = client.watch(after=0)
    next(watched)
    arrival = next(watched)
    assert (arrival.value, arrival.origin, arrival.origin_name) == (b"one", own, 'the "laptop"')
    watched.close()


def test_peers_are_waited_for_by_name(served):
    client, key = served.client(), served.node.connected[0].key
    client.name_key(key, "alice")
    (peer,) = client.wait_synced(["alice"], timeout=5)["peers"]
    assert peer["name"] == "alice", "as it was asked for"
    assert served.node.calls[-1][2] == [key.hex()]
