"""Feeds as discovery sees them: what their records would say, and what becomes of what is found."""

from __future__ import annotations

import hashlib

import pytest
from players import fired
from sim import SimEndpoints, pair

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.tracker.neighbourhood import Candidate
from hyperbloom.replication.settings import FeedSettings, NoisePolicy
from hyperbloom.service.searched_feeds import NodeFeeds


@pytest.fixture
def endpoints(network, monkeypatch):
    """Host names are IP addresses here, for records hold no names."""
    endpoints = SimEndpoints(network, monkeypatch)
    network.nodes = Renamed(network.nodes)
    return endpoints


class Renamed(dict):
    """Nodes by name, and by an address made of the name's place."""

    def __contains__(self, name):
        return super().__contains__(self.real(name))

    def __getitem__(self, name):
        return super().__getitem__(self.real(name))

    def real(self, name):
        names = list(self)
        return names[int(name.rpartition(".")[2]) - 1] if name.startswith("10.0.0.") else name


def swarms_of(node, seen_at=None, reach=Scope.LOOPBACK):
    return NodeFeeds(node.node, seen_at=lambda: seen_at, reach=lambda: reach)


def test_only_feeds_in_which_this_node_may_take_part_are_searched_for(network):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key),))
    assert set(swarms_of(owner)()) == set(), "its own feed is not in use yet"
    assert set(swarms_of(member)()) == set(), "it is not invited yet"
    swarms = swarms_of(member)
    owner.invite(owner.key, member, seconds=60)
    assert set(swarms_of(owner)()) == {owner.key}
    assert set(swarms()) == {owner.key}
    assert swarms()[owner.key] is swarms()[owner.key]
    network.run(61, step=1)
    assert set(swarms()) == set(), "its chain has expired"


def test_a_feed_that_was_left_is_searched_for_no_more(network):
    _, member, feed = pair(network)
    swarms = swarms_of(member)
    before = swarms()[feed]
    left = member.node.leave(feed)
    network.run(5)
    fired(left)
    assert set(swarms()) == set()
    fired(member.node.join(FeedSettings(key=feed)))
    assert swarms().get(feed) is not before


def test_a_candidate_is_dialled_and_becomes_a_neighbour(network, endpoints):
    owner, member, feed = pair(network)
    owner.context.noise = NoisePolicy.OFF  # a protected stream would show it at once
    swarm = swarms_of(member)()[feed]
    changes = []
    end = swarm.subscribe(lambda: changes.append(swarm.is_joined()))
    assert (swarm.is_joined(), list(swarm.neighbours())) == (False, [])
    address = Address("10.0.0.1", 4365)
    swarm.join(Candidate(node_id=owner.key, addresses=(address,)))
    network.run(2)
    assert swarm.is_joined()
    (neighbour,) = swarm.neighbours()
    assert (neighbour.node_id, neighbour.addresses) == (owner.key, ())
    owner.feed(feed).insert([b"signed by the owner"])
    network.run(1)
    (neighbour,) = swarm.neighbours()
    assert (neighbour.node_id, neighbour.addresses) == (owner.key, (address,))
    network.partition({"owner": 1})
    network.run(2)
    assert changes == [True, False]
    end()
    network.partition({"owner": 0})
    network.run(600, step=1)
    assert swarm.is_joined()
    assert changes == [True, False]


def test_this_nodes_own_record_is_not_dialled(network, endpoints):
    _, member, feed = pair(network)
    swarm = swarms_of(member)()[feed]
    swarm.join(Candidate(node_id=member.key, addresses=(Address("10.0.0.2", 4365),)))
    swarm.join(Candidate(node_id=b"x" * 32))
    assert endpoints.dialled == []


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "224.0.0.1", "::", "fe80::1", "0.1.2.3", "2002:7f00:1::", "nowhere.example"],
)
def test_what_nobody_can_dial_is_left(network, endpoints, host):
    _, member, feed = pair(network)
    swarms_of(member)()[feed].found(Address(host, 4365), source="swarm")
    network.run(1)
    assert endpoints.dialled == []


NEAR_AND_FAR = {
    "127.0.0.1": Scope.LOOPBACK,
    "169.254.169.254": Scope.LINK,
    "192.168.1.1": Scope.PRIVATE,
    "9.9.9.9": Scope.GLOBAL,
}


def named_in_a_record(swarm, *hosts, port=4365):
    addresses = tuple(Address(host, port) for host in hosts)
    swarm.join(Candidate(node_id=b"x" * 32, addresses=addresses))


@pytest.mark.parametrize("reach", [Scope.LOOPBACK, Scope.PRIVATE, Scope.GLOBAL])
def test_a_record_names_nothing_nearer_than_the_dht(network, endpoints, reach):
    _, member, feed = pair(network)
    named_in_a_record(swarms_of(member, reach=reach)()[feed], *NEAR_AND_FAR)
    network.run(10)
    dialled = {one.address.rpartition(":")[0] for one in member.node.discovered[feed].status()}
    assert dialled == {host for host, scope in NEAR_AND_FAR.items() if scope >= reach}


def test_who_says_that_it_is_near_dials_what_is_near(network, endpoints):
    """As in a network of one site whose nodes meet by the DHT of the internet."""
    _, member, feed = pair(network)
    member.node._advertise = ("100.64.0.7:4365",)
    named_in_a_record(swarms_of(member, reach=Scope.GLOBAL)()[feed], *NEAR_AND_FAR)
    network.run(10)
    dialled = {one.address.rpartition(":")[0] for one in member.node.discovered[feed].status()}
    assert dialled == {"192.168.1.1", "9.9.9.9"}


@pytest.mark.parametrize(
    ("port", "is_dialled"),
    [(0, False), (25, False), (1_023, False), (1_024, True), (80, True), (443, True)],
)
def test_ports_of_other_services_are_not_dialled_on_a_word(network, endpoints, port, is_dialled):
    _, member, feed = pair(network)
    swarm = swarms_of(member)()[feed]
    swarm.found(Address("9.9.9.9", port), source="swarm")
    named_in_a_record(swarm, "9.9.9.8", port=port)
    assert len(member.node.discovered[feed].status()) == 2 * is_dialled


def test_the_hashes_are_of_the_last_five_values(network):
    owner, member, feed = pair(network)
    swarm = swarms_of(owner)()[feed]
    assert list(swarm.recent_message_hashes()) == []
    values = [b"value %d" % number for number in range(7)]
    for value in values:
        owner.feed(feed).insert([value])
    expected = [hashlib.sha512(value).digest()[:32] for value in values[-5:]]
    assert list(swarm.recent_message_hashes()) == expected
    network.connect(member, owner, feed)
    network.run(10)
    assert set(swarms_of(member)()[feed].recent_message_hashes()) <= {
        hashlib.sha512(value).digest()[:32] for value in values
    }


def test_where_this_node_says_it_is(network):
    owner, _, feed = pair(network)
    swarm = swarms_of(owner, seen_at="192.0.2.9")()[feed]
    assert (swarm.own_port(), list(swarm.own_addresses())) == (None, [])
    owner.node.listening = lambda: [Address("0.0.0.0", 4365)]
    assert list(swarm.own_addresses()) == [Address("192.0.2.9", 4365)]
    assert swarm.own_port() == 4365
    owner.node.listening = lambda: [Address("192.0.2.1", 5000)]
    assert list(swarm.own_addresses()) == [Address("192.0.2.1", 5000)]
    owner.node._advertise = ("example.org:1", "198.51.100.2:6000")
    assert list(swarm.own_addresses()) == [Address("198.51.100.2", 6000)]
    owner.node._advertise = ("example.org:7000",)
    assert (swarm.own_port(), list(swarm.own_addresses())) == (
        7000,
        [Address("192.0.2.9", 7000)],
    )


def test_records_are_signed_by_the_key_that_the_node_proves_itself_with(network, tmp_path):
    owner = network.add("owner")
    owner.context.feed_keys.folder = tmp_path / "feed-keys"
    owner.node.ownership.create(alias="words", dialect="2")
    feed = owner.node.resolve("words")
    feed.insert([b"a"])
    swarms = swarms_of(owner)
    before = swarms()[feed.key]
    assert before.identity.public_key == feed.key
    owner.node.ownership.release(feed, expires=network.now() + 3_600)
    after = swarms()[feed.key]
    assert after is not before, "the search begins anew, with the other key"
    assert after.identity.public_key == owner.key
