"""Addresses that discovery found: dialled a few at a time, backed off from, kept if good."""

from __future__ import annotations

import pytest
from players import fired
from sim import SimEndpoints, pair
from twisted.logger import Logger, formatEvent

from hyperbloom.addresses import Address
from hyperbloom.keys import Identity
from hyperbloom.replication.limits import (
    FOUND_ATTEMPTS,
    FOUND_FAILURES,
    FOUND_REST_LONGEST,
    MAX_FOUND,
    Limits,
)
from hyperbloom.replication.net.discovered_peers import _Found
from hyperbloom.replication.settings import FeedSettings, NoisePolicy
from hyperbloom.store.records import PeerRecord
from hyperbloom.store.tables.peers import PutPeer


@pytest.fixture
def endpoints(network, monkeypatch):
    return SimEndpoints(network, monkeypatch)


def found_of(node, feed):
    return node.node.discovered[feed]


def states(node, feed):
    return {one.address: one.state for one in found_of(node, feed).status()}


def stored(node):
    return {record.address: record for record in node.store.peers()}


def shows_itself(network, node, feed, value=b"signed by me"):
    """The node sends a value that is new to its peers."""
    node.feed(feed).insert([value])
    network.run(1)


def test_a_found_peer_is_dialled_joined_and_kept(network, endpoints):
    owner, member, feed = pair(network)
    assert found_of(member, feed).add(Address("owner", 4365), source="dht")
    network.run(2)
    shows_itself(network, owner, feed)
    assert [peer.remote_key for peer in member.feed(feed).peers] == [owner.key]
    (told,) = found_of(member, feed).status()
    assert (told.state, told.key, told.source) == ("joined", owner.key, "dht")
    record = stored(member)["owner:4365"]
    assert (record.key, record.source, record.failures) == (owner.key, "dht", 0)
    assert record.last_seen == pytest.approx(network.now() * 1e6, abs=3e6)
    assert found_of(member, feed).addresses_of(owner.key) == [Address("owner", 4365)]


def test_a_handshake_alone_gets_no_address_kept(network, endpoints):
    owner, member, feed = pair(network)
    owner.context.noise = NoisePolicy.OFF
    member.feed(feed).insert([b"the member's"])
    owner.feed(feed).values.accept([b"known to both"], owner.key)
    member.feed(feed).values.accept([b"known to both"], owner.key)
    found_of(member, feed).add(Address("owner", 4365))
    network.run(10)
    assert states(member, feed) == {"owner:4365": "joined"}
    assert owner.values(feed) == member.values(feed)
    assert stored(member) == {}
    assert found_of(member, feed).addresses_of(owner.key) == []


@pytest.mark.parametrize("dialect", ["2", "1"])
def test_a_protected_stream_gets_the_address_kept_at_once(network, endpoints, dialect):
    identity = Identity(b"\1" * 32)
    settings = FeedSettings(key=identity.public_key, dialect=dialect)
    owner = network.add("owner", identity=identity, feeds=(settings,))
    member = network.add("member", feeds=(settings,))
    owner.invite(owner.key, member)
    found_of(member, owner.key).add(Address("owner", 4365))
    network.run(2)
    assert not owner.values(owner.key), "no value was needed"
    assert stored(member)["owner:4365"].key == owner.key
    assert found_of(member, owner.key).addresses_of(owner.key) == [Address("owner", 4365)]


@pytest.mark.parametrize("dialect", ["1", "draft"])
def test_unsigned_values_show_nothing(network, endpoints, dialect):
    identity = Identity(b"\1" * 32)
    feed = identity.public_key
    settings = FeedSettings(key=feed, dialect=dialect, noise="off")
    owner = network.add("owner", identity=identity, feeds=(settings,))
    member = network.add("member", feeds=(settings,))
    owner.invite(feed, member)
    found_of(member, feed).add(Address("owner", 4365))
    network.run(2)
    shows_itself(network, owner, feed)
    assert member.values(feed) == [b"signed by me"]
    assert stored(member) == {}


def test_an_address_is_not_kept_beside_a_configured_one_of_the_same_peer(network, endpoints):
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key, peers=("owner:4365",))
    member = network.add("member", feeds=(settings,))
    owner.invite(owner.key, member)
    network.run(2)
    shows_itself(network, owner, owner.key)
    (peering,) = member.feed(owner.key).peers
    assert peering.intake.is_shown
    network.cut(peering.connection.close.__self__.transport)
    found_of(member, owner.key).add(Address("owner", 1))
    network.run(0.5)
    shows_itself(network, owner, owner.key, b"and another")
    assert states(member, owner.key) == {"owner:1": "joined"}
    assert stored(member) == {}


def test_what_led_to_a_peer_is_dialled_at_the_next_start(network, endpoints):
    owner, member, feed = pair(network)
    found_of(member, feed).add(Address("owner", 4365))
    network.run(2)
    shows_itself(network, owner, feed)
    stopped = member.node.stopService()
    network.run(5)
    fired(stopped)
    assert not owner.feed(feed).peers
    member.node.startService()
    network.run(2)
    assert owner.feed(feed).peers


def test_a_peer_that_is_lost_is_dialled_again(network, endpoints):
    owner, member, feed = pair(network)
    found_of(member, feed).add(Address("owner", 4365))
    network.run(10)
    (peer,) = owner.feed(feed).peers
    network.cut(peer.connection.close.__self__.transport)
    network.run(5)
    assert owner.feed(feed).peers
    assert len(endpoints.dialled) == 2


def test_an_address_that_fails_rests_longer_each_time(network, endpoints):
    _, member, feed = pair(network)
    found = found_of(member, feed)
    for _ in range(3600):
        found.add(Address("nobody", 1))
        network.run(1, step=0.5)
    per_hour = len(endpoints.dialled)
    assert FOUND_ATTEMPTS * 4 <= per_hour <= FOUND_ATTEMPTS * 8
    assert states(member, feed) == {"nobody:1": "resting"}
    assert "partitioned" not in str(found.status()[0].problem)
    assert stored(member) == {}


def test_a_failed_stranger_is_not_dialled_again_unless_found_again(network, endpoints):
    _, member, feed = pair(network)
    found_of(member, feed).add(Address("nobody", 1))
    network.run(2 * FOUND_REST_LONGEST, step=5)
    assert len(endpoints.dialled) == FOUND_ATTEMPTS
    found_of(member, feed).add(Address("nobody", 1))
    network.run(0.1)
    assert len(endpoints.dialled) == FOUND_ATTEMPTS + 1


def test_what_once_led_to_a_peer_is_tried_for_long_and_then_forgotten(network, endpoints):
    owner, member, feed = pair(network)
    found_of(member, feed).add(Address("owner", 4365))
    network.run(2)
    shows_itself(network, owner, feed)
    endpoints.gone.add("owner")
    network.partition({"owner": 1})
    network.run(300, step=1)
    assert stored(member)["owner:4365"].failures > 0
    network.partition({"owner": 0})
    endpoints.gone.clear()
    network.run(600, step=1)
    assert owner.feed(feed).peers
    assert stored(member)["owner:4365"].failures == 0
    endpoints.gone.add("owner")
    network.partition({"owner": 1})
    network.run(FOUND_FAILURES * 2 * FOUND_REST_LONGEST, step=5)
    assert stored(member) == {}
    assert states(member, feed) == {"owner:4365": "resting"}


def test_no_more_are_dialled_at_a_time_than_the_limit_says(network, endpoints):
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key)
    member = network.add("member", feeds=(settings,), limits=Limits(found_peers=2))
    owner.invite(owner.key, member)
    endpoints.hanging.update({"a", "b", "c"})
    found = found_of(member, owner.key)
    for name in ("a", "b", "c", "owner"):
        found.add(Address(name, 1))
    assert endpoints.dialled == ["a", "b"]
    assert states(member, owner.key) == {
        "a:1": "dialling", "b:1": "dialling", "c:1": "waiting", "owner:1": "waiting",
    }  # fmt: skip
    endpoints.give_up("a")
    network.run(60)
    assert owner.feed(owner.key).peers, "who was found last is tried first"
    assert endpoints.most == 2


def liars_and_friend(network, endpoints, liars, *, source):
    """A member to whom silent addresses are named all the time, and once its owner's."""
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key)
    member = network.add("member", feeds=(settings,), limits=Limits(found_peers=4))
    owner.invite(owner.key, member)
    endpoints.hanging.update(address.host for address in liars)
    found = found_of(member, owner.key)
    for address in liars:
        found.add(address, source=source)
    found.add(Address("owner", 1), source="lan")
    for address in liars[::-1]:
        found.add(address, source=source)
    return owner


@pytest.mark.parametrize(
    "liars",
    [
        pytest.param([Address(f"liar{n}", 1) for n in range(40)], id="other sources"),
        pytest.param([Address(f"liar{n}", 1) for n in range(MAX_FOUND + 9)], id="beyond memory"),
    ],
)
def test_liars_of_one_source_leave_a_place_to_the_others(network, endpoints, liars):
    owner = liars_and_friend(network, endpoints, liars, source="tracker")
    endpoints.give_up(endpoints.dialled[0])
    network.run(5)
    assert owner.feed(owner.key).peers


def test_addresses_of_one_network_take_one_place_after_others(network, endpoints):
    """All come from one source; a machine with a /64 names as many addresses as it likes."""
    liars = [Address(f"2a02:db8:1::{n:x}", 4_000) for n in range(1, 40)]
    owner = liars_and_friend(network, endpoints, liars, source="lan")
    endpoints.give_up(endpoints.dialled[0])
    network.run(5)
    assert owner.feed(owner.key).peers


def test_addresses_that_do_not_answer_are_counted_and_not_told_one_by_one(
    network, endpoints, monkeypatch
):
    _, member, feed = pair(network)
    lines = []
    monkeypatch.setattr(member.node.connections.found, "_log", Logger(observer=lines.append))
    for number in range(100):
        found_of(member, feed).add(Address(f"nobody{number}", 1))
    network.run(55)
    assert len(lines) == 1
    network.run(10)
    (_, summed) = [formatEvent(line) for line in lines]
    assert "no-peer" in summed
    assert len(endpoints.dialled) > 100


def test_the_own_address_is_dialled_once(network, endpoints):
    _, member, feed = pair(network)
    found = found_of(member, feed)
    for _ in range(5):
        found.add(Address("member", 4365))
        network.run(600, step=1)
    assert endpoints.dialled == ["member"]
    assert states(member, feed) == {"member:4365": "own"}


def test_a_peer_with_another_connection_is_left_at_that(network, endpoints):
    owner, member, feed = pair(network)
    network.connect(owner, member, feed)
    network.run(2)
    found = found_of(member, feed)
    assert not found.add(Address("owner", 4365), key=owner.key)
    # Without the key, only the handshake tells who it is; the two keep one connection.
    found.add(Address("owner", 4365))
    network.run(30)
    assert len(owner.feed(feed).peers) == len(member.feed(feed).peers) == 1
    assert len(endpoints.dialled) <= 2


def test_configured_addresses_are_the_configurations(network, endpoints):
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key, peers=("owner:4365",))
    member = network.add("member", feeds=(settings,))
    owner.invite(owner.key, member)
    assert not found_of(member, owner.key).add(Address("owner", 4365))
    assert found_of(member, owner.key).status() == []


def test_strangers_do_not_drive_out_what_led_to_a_peer(network, endpoints):
    owner, member, feed = pair(network)
    member.context.writer.submit(
        PutPeer(PeerRecord(address="friend:1", feed_key=feed, key=b"k" * 32)), lambda _: None
    )
    stopped = member.node.stopService()
    network.run(1)
    fired(stopped)
    endpoints.hanging.add("friend")
    member.node.startService()
    network.run(30)
    endpoints.give_up("friend")
    network.run(30)
    endpoints.hanging.clear()
    for number in range(2 * MAX_FOUND):
        found_of(member, feed).add(Address(f"stranger{number}", 1))
    assert len(found_of(member, feed).status()) == MAX_FOUND
    assert "friend:1" in states(member, feed)
    assert owner.key not in {one.key for one in found_of(member, feed).status()}


def test_addresses_of_one_members_keys_make_room_for_those_of_others(network, endpoints):
    _, member, feed = pair(network)
    found = found_of(member, feed)

    def led_to_a_peer(host, *path):
        address, key = Address(host, 1), path[-1]
        record = PeerRecord(address=str(address), feed_key=feed, key=key)
        member.context.writer.submit(PutPeer(record), lambda _: None)
        known = _Found(address, record, shown=key, path=path, waiting=False, stored=True)
        found._found[address] = known

    led_to_a_peer("friend", b"f" * 32)
    for number in range(MAX_FOUND - 1):
        led_to_a_peer(f"many{number}", b"m" * 32, number.to_bytes(32, "big"))
    endpoints.hanging.add("new")
    assert found.add(Address("new", 1))
    assert states(member, feed)["new:1"] == "dialling"
    assert "friend:1" in states(member, feed)
    assert "many0:1" not in states(member, feed)
    assert len(states(member, feed)) == MAX_FOUND
    assert len(stored(member)) == MAX_FOUND - 1, "it is in the store no more"


def test_a_configured_address_in_another_spelling_is_not_dialled_twice(network, endpoints):
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key, peers=("[2001:DB8:0::1]:4365",))
    member = network.add("member", feeds=(settings,))
    assert not found_of(member, owner.key).add(Address("2001:db8::1", 4365))
    assert found_of(member, owner.key).add(Address("2001:db8::1", 4366))


def test_another_peer_at_a_found_address_is_a_peer_all_the_same(network, endpoints):
    owner, member, feed = pair(network)
    found_of(member, feed).add(Address("owner", 4365), key=b"x" * 32)
    network.run(2)
    assert found_of(member, feed).status()[0].key == owner.key
    shows_itself(network, owner, feed)
    assert stored(member)["owner:4365"].key == owner.key
    assert owner.feed(feed).peers


def test_leaving_a_feed_ends_its_dials(network, endpoints):
    owner, member, feed = pair(network)
    found_of(member, feed).add(Address("owner", 4365))
    found_of(member, feed).add(Address("nobody", 1))
    network.run(2)
    left = member.node.leave(feed)
    network.run(10)
    fired(left)
    assert feed not in member.node.discovered
    before = len(endpoints.dialled)
    network.run(600, step=1)
    assert len(endpoints.dialled) == before
    assert not owner.feed(feed).peers
