"""Room for connections: by network, by key and in all, and what strangers and members get of it."""

from __future__ import annotations

import pytest
from players import refusals
from sim import pair
from twisted.internet.protocol import Factory, Protocol

from hyperbloom.addresses import network_of
from hyperbloom.connections.limits import NEWCOMERS_PART, STRANGERS_PART
from hyperbloom.connections.slots import Proof, Slots
from hyperbloom.keys import Identity
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import FeedSettings


class SilentFactory(Factory):
    """Connections that say nothing."""

    protocol = Protocol
    noisy = False

    def doStart(self):
        pass


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("local", "local"),
    ],
)
def test_whose_addresses_a_host_is_among(host, network):
    assert network_of(host) == network


def slots(**limits):
    bounds = Limits(**limits)
    return Slots(lambda: bounds)


def proof(key, *, branch=b"b", feed=b"f"):
    return Proof(feed=feed, path=(branch, key))


def take(room, one, network="n", **proved):
    """Let one in, and who has to go for it out; who that is."""
    gone = room.enter(one, network=network, dialled=False)
    if gone is None and proved:
        gone = room.prove(one, proof(**proved))
    if gone is not None:
        room.leave(gone)
    return gone


def test_two_thousand_strangers_of_one_v6_network_have_the_room_of_one():
    room = slots()
    hosts = [f"2001:db8::{number:x}" for number in range(2_000)]
    gone = [take(room, host, network_of(host)) for host in hosts]
    assert room.strangers == Limits().connections_per_address == 32
    assert gone == [None] * 32 + hosts[: 2_000 - 32]


def test_the_oldest_stranger_of_the_fullest_network_goes_first():
    room = slots(connections=8)
    assert [take(room, name, "flood") for name in "abc"] == [None] * 3
    assert take(room, "d", "honest") is None
    assert take(room, "e", "flood") == "a"
    assert take(room, "f", "third") == "b"
    assert room.strangers == 8 // STRANGERS_PART


def test_who_has_opened_a_feed_outlives_those_who_have_not():
    room = slots(connections_per_address=3)
    assert take(room, "honest") is None
    room.open("honest")
    gone = [take(room, number) for number in range(6)]
    assert gone == [None, None, 0, 1, 2, 3]
    room.open(4)
    room.open(5)
    assert [take(room, "a"), take(room, "b")] == ["honest", "a"]
    for name in ("dialled", "never there"):
        room.enter("dialled", network="n", dialled=True)
        room.open(name)
    assert room.strangers == 3


def test_strangers_never_drive_out_who_has_proved_a_key():
    room = slots(connections=16, connections_per_key=1)
    members = [f"member {number}" for number in range(15)]
    for number, member in enumerate(members):
        assert take(room, member, key=bytes([number]), branch=bytes([number])) is None
    gone = [take(room, f"stranger {number}", f"net {number}") for number in range(100)]
    assert gone == [None, *(f"stranger {number}" for number in range(99))]
    assert len(room) == 16


def test_members_never_fill_the_room_of_newcomers():
    room = slots(connections=2 * NEWCOMERS_PART)
    most = 2 * NEWCOMERS_PART - 2
    for number in range(most):
        assert take(room, number, key=bytes([number]), branch=bytes([number])) is None
    assert take(room, "one more", key=b"new", branch=b"new") == "one more"
    assert len(room) == most


def test_who_makes_keys_for_itself_makes_room_for_other_branches():
    room = slots(connections=32)
    for number in range(30):
        assert take(room, number, key=bytes([number]), branch=b"its own") is None
    assert take(room, "more", key=b"more", branch=b"its own") == "more"
    assert take(room, "honest", "m", key=b"honest", branch=b"honest") == 29
    assert take(room, "other", "m", key=b"other", branch=b"other") == 28


def test_within_a_branch_it_goes_on_to_the_one_below_with_most():
    room = slots(connections=16, connections_per_address=16)

    def come(name, *path):
        assert room.enter(name, network="n", dialled=False) is None
        gone = room.prove(name, Proof(feed=b"f", path=path))
        if gone is not None:
            room.leave(gone)
        return gone

    for number in range(5):
        assert come(f"member {number}", b"group", b"member %d" % number) is None
    for number in range(7):
        assert come(f"flood {number}", b"group", b"hostile", b"key %d" % number) is None
    for number in range(3):
        assert come(f"honest {number}", b"honest", b"key %d" % number) is None
    assert come("newcomer", b"honest", b"one more") == "flood 6"
    assert come("member 5", b"group", b"member 5") == "flood 5"
    assert come("flood again", b"group", b"hostile", b"another") == "flood again"
    assert come("beside it", b"third", b"key") == "flood 4"


def test_a_key_loses_the_oldest_connection_where_it_has_most():
    room = slots(connections_per_key=3)
    assert take(room, "real", "home", key=b"k") is None
    assert [take(room, name, "relay", key=b"k") for name in "abc"] == [None, None, "a"]
    assert take(room, "d", "relay", key=b"k") == "b"
    assert take(room, "other feed", "relay", key=b"k", feed=b"g") is None


def test_who_is_dialled_takes_nobodys_room_and_is_never_taken():
    room = slots(connections=1, connections_per_key=1)
    assert take(room, "stranger") is None
    assert room.enter("dialled", network="n", dialled=True) == "stranger"
    room.leave("stranger")
    assert room.prove("dialled", proof(b"k")) is None
    assert room.enter("dialled too", network="n", dialled=True) is None
    assert room.prove("dialled too", proof(b"k")) is None
    assert take(room, "another") == "another"
    for name in ("dialled", "dialled too", "never there"):
        room.leave(name)
    assert (len(room), room.strangers) == (0, 0)


# In nodes


def test_strangers_of_one_address_make_room_for_each_other(network):
    owner, member, feed = pair(network, owner={"limits": Limits(connections_per_address=2)})
    stranger = network.add("stranger", feeds=(FeedSettings(key=feed),))
    for _ in range(4):
        network.connect(stranger, owner, owner.key, SilentFactory())
    network.connect(member, owner, feed)
    network.run(1)
    assert refusals(owner) == ["crowded", "crowded"]
    assert [peer.remote_key for peer in owner.feed(feed).peers] == [member.key]
    assert len(owner.node.connections) == 3


def test_members_are_let_in_beyond_what_one_address_may_have_of_strangers(network):
    owner = network.add("owner", limits=Limits(connections_per_address=1))
    settings = (FeedSettings(key=owner.key),)
    members = [network.add(f"m{i}", feeds=settings) for i in range(4)]
    for member in members:
        owner.invite(owner.key, member)
        member.name = "m0"
        network.connect(member, owner, owner.key)
        network.run(1)
    assert {peer.remote_key for peer in owner.feed(owner.key).peers} == {m.key for m in members}


def test_one_key_has_so_many_connections_and_loses_the_oldest(network):
    owner = network.add("owner", limits=Limits(connections_per_key=2))
    settings = (FeedSettings(key=owner.key),)
    identity = Identity(b"\2" * 32)
    members = [network.add(f"m{i}", feeds=settings, identity=identity) for i in range(3)]
    for member in members:
        owner.invite(owner.key, member)
        network.connect(member, owner, owner.key)
        network.run(1)
    assert refusals(owner) == ["crowded"]
    ids = {peer.id for peer in owner.feed(owner.key).peers}
    assert ids == {member.context.peer_id for member in members[1:]}


def test_dials_have_room_where_others_have_none(network):
    owner, member, feed = pair(network, owner={"limits": Limits(connections=1)})
    stranger = network.add("stranger", feeds=(FeedSettings(key=feed),))
    network.connect(stranger, owner, owner.key, SilentFactory())
    network.connect(owner, member, feed)
    network.run(1)
    assert [peer.remote_key for peer in owner.feed(feed).peers] == [member.key]
    assert refusals(owner) == ["crowded"]
