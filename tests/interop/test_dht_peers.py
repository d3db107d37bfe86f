"""Our DHT node among six of libtorrent and five of bittorrent-dht, on 127.0.0.1."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Thread

import npm_peer
import pytest
from dht_peers import HOST, LOOKUP_SECONDS, LibtorrentNode, Nodes, RawAsker, bittorrent_dht
from twisted.internet.defer import Deferred

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.items import MAX_SEQ, MutableItem, sign_item
from hyperbloom.discovery.dht.common.messages import ErrorMessage, Response
from hyperbloom.discovery.dht.settings import EqualSeq
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.keys import Identity

pytestmark = pytest.mark.timeout(900)  # The set-up is part of the first test.

REQUIRE = "HYPERBLOOM_REQUIRE_NPM"

#: bittorrent-dht reads numbers as floating point, and drops in silence what is not exact there.
EXACT_SEQ = 2**53 - 1


@dataclass
class World:
    """All nodes, joined to each other; `ours` is a server of ours, `first` its address."""

    mine: Nodes
    ours: DhtNode
    first: Address
    libtorrent: list[LibtorrentNode] = field(default_factory=list)
    npm: npm_peer.NpmPeer | None = None
    npm_addresses: list[Address] = field(default_factory=list)

    @property
    def others(self) -> list[Address]:
        return [node.address for node in self.libtorrent] + self.npm_addresses

    def wait(self, deferred):
        return self.mine.wait(deferred)


def build(world: World) -> None:
    world.npm = bittorrent_dht()
    started = serve_while(world, lambda: world.npm.call("start", count=5))
    world.npm_addresses = [Address(HOST, port) for port in started["ports"]]
    know(world, world.npm_addresses)
    # One after the other: six that start at once keep a busy machine from answering anybody.
    for _ in range(6):
        node = serve_while(world, LibtorrentNode)
        world.libtorrent.append(node)
        for address in (world.first, *world.npm_addresses[:2], world.libtorrent[0].address):
            node.join(address)
        know(world, [node.address])
    know(world, world.others)
    assert world.ours.status().good_nodes >= 12


def know(world: World, addresses: list[Address]) -> None:
    """Until all that are there so far have answered ours, however late; each try is a lookup."""
    expected = 1 + len(world.others)
    for _ in range(20):
        world.wait(world.ours.bootstrap(addresses))
        if world.ours.status().good_nodes >= expected:
            return
    raise TimeoutError(f"{world.ours.status().good_nodes} of {expected} nodes answer")


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    mine = Nodes()
    ours = mine.start()
    world = World(mine, ours, ours.address)
    # A second of ours, so that one reads what the other wrote.
    try:
        other = mine.start()
        mine.wait(other.bootstrap([world.first]))
        build(world)
        yield world
    except npm_peer.UnavailableError as error:
        if os.environ.get(REQUIRE):
            pytest.fail(f"nodes of other programs are required here: {error}", pytrace=False)
        pytest.skip(f"nodes of other programs cannot run here: {error}")
    finally:
        if world.npm is not None:
            world.npm.stop()
        for node in world.libtorrent:
            node.stop()
        mine.stop()


@pytest.fixture
def asker() -> Iterator[RawAsker]:
    asker = RawAsker()
    yield asker
    asker.close()


def owner() -> Identity:
    return Identity(os.urandom(32))


def item(who: Identity, value: bytes, *, seq: int = MAX_SEQ, salt: bytes = b"salt") -> MutableItem:
    return sign_item(who, salt=salt, seq=seq, value=b"%d:%b" % (len(value), value))


def serve_while(world: World, call):
    """Run a blocking call in a thread while our nodes answer."""

    from twisted.internet.defer import Deferred

    done: Deferred[object] = Deferred()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            world.mine.reactor.callFromThread(done.errback, error)
        else:
            world.mine.reactor.callFromThread(done.callback, result)

    Thread(target=run, daemon=True).start()
    return world.mine.wait(done)


def test_all_are_known(world: World) -> None:
    assert world.ours.status().nodes == 12
    found = world.wait(world.ours.find_node(os.urandom(20)))
    assert {contact.address for contact in found.nodes} >= set(world.others)


def test_our_put_is_read_by_all(world: World) -> None:
    who = owner()
    one = item(who, b"from us", seq=3)
    report = world.wait(world.ours.put_mutable(one))
    assert report.found
    assert report.stored == report.asked >= 11
    assert report.holding >= 11
    for node in world.libtorrent[:3]:
        seq, value = serve_while(world, lambda node=node: node.get(who.public_key, b"salt"))
        assert (seq, value) == (3, b"from us")
    for index in range(5):
        found = serve_while(
            world,
            lambda index=index: world.npm.call(
                "get", node=index, target=one.target.hex(), salt=b"salt".hex()
            ),
        )
        assert found == {"value": b"from us".hex(), "seq": 3}


def test_theirs_is_read_by_us(world: World) -> None:
    who = owner()
    serve_while(world, lambda: world.libtorrent[2].put(who, b"lt", b"from libtorrent"))
    found = world.wait(world.ours.get_mutable(who.public_key, b"lt"))
    assert [(each.seq, each.value) for each in found.items] == [(1, b"15:from libtorrent")]

    serve_while(
        world,
        lambda: world.npm.call(
            "put", node=1, seed=who.seed.hex(), salt=b"bt".hex(), seq=7, value=b"from npm".hex()
        ),
    )
    found = world.wait(world.ours.get_mutable(who.public_key, b"bt"))
    assert [(each.seq, each.value) for each in found.items] == [(7, b"8:from npm")]
    assert found.holding >= 8


def test_immutable_items_both_ways(world: World) -> None:
    report = world.wait(world.ours.put_immutable(b"9:immutable"))
    assert report.found
    stored = serve_while(
        world, lambda: world.npm.call("putImmutable", node=0, value=b"by npm".hex())
    )
    found = world.wait(world.ours.get_immutable(bytes.fromhex(stored["target"])))
    assert found.value == b"6:by npm"


def test_the_longest_value(world: World) -> None:
    """1,000 bytes: bittorrent-dht takes them, libtorrent counts their length, too, and refuses."""
    one = item(owner(), b"x" * 1_000, seq=1)
    report = world.wait(world.ours.put_mutable(one))
    assert report.found
    assert report.refusals == {205: len(world.libtorrent)}
    assert report.stored == report.holding == 1 + len(world.npm_addresses)
    found = serve_while(
        world,
        lambda: world.npm.call("get", node=0, target=one.target.hex(), salt=b"salt".hex()),
    )
    assert found["value"] == (b"x" * 1_000).hex()


def test_peers_both_ways(world: World) -> None:
    info_hash = os.urandom(20)
    report = world.wait(world.ours.announce_peer(info_hash, 4_321))
    assert report.stored >= 5
    found = serve_while(world, lambda: world.npm.call("peers", node=3, infoHash=info_hash.hex()))
    assert f"{HOST}:4321" in found["peers"]
    serve_while(
        world, lambda: world.npm.call("announce", node=2, infoHash=info_hash.hex(), port=1_234)
    )
    peers = world.wait(world.ours.get_peers(info_hash)).peers
    assert {Address(HOST, 4_321), Address(HOST, 1_234)} <= set(peers)


@pytest.mark.parametrize("policy", EqualSeq)
def test_a_second_writer_sees_what_became_of_it(world: World, policy: EqualSeq) -> None:
    """With a node of ours under each policy among the others, the report tells who won where."""
    node = world.mine.start(equal_seq=policy)
    world.wait(node.bootstrap(world.others))
    who = owner()
    first, second = item(who, b"first"), item(who, b"second")
    assert world.wait(world.ours.put_mutable(first)).found
    report = world.wait(node.put_mutable(second, cas=MAX_SEQ))
    # Ours overwrite what others keep: both are found, and the writer is told of the other.
    assert report.found
    assert first in report.others
    assert report.refused + report.stored + report.silent == report.asked
    found = world.wait(world.ours.get_mutable(who.public_key, b"salt"))
    assert set(found.items) == {first, second}


# Below, nodes are asked by hand, and bittorrent-dht lists who asked as a node: the lookups of these
# tests wait for one that never answers.


def test_distinct_values_all_come_from_one_lookup(world: World, asker: RawAsker) -> None:
    """One on each node: of the greatest sequence number, or the greatest that npm can read."""
    who = owner()
    placed = []
    for number, address in enumerate(world.others):
        seq = MAX_SEQ if number < 6 else EXACT_SEQ
        one = item(who, b"value %d" % number, seq=seq)
        assert isinstance(serve_while(world, lambda o=one, a=address: asker.put(o, a)), Response)
        placed.append(one)
    found = world.wait(world.ours.get_mutable(who.public_key, b"salt"))
    assert set(found.items) == set(placed)
    assert len(found.items) == found.holding == 11


def test_a_second_writer(world: World, asker: RawAsker) -> None:
    """libtorrent keeps the first and says that all is well; npm refuses; ours as it is set."""
    who = owner()
    for address, seq, outcome in [
        (world.libtorrent[0].address, MAX_SEQ, "kept"),
        (world.npm_addresses[0], EXACT_SEQ, "refused"),
    ]:
        first, second = item(who, b"first", seq=seq), item(who, b"second", seq=seq)
        assert isinstance(asker.put(first, address), Response)
        answer = asker.put(second, address, cas=seq)
        assert asker.held(first, address) == b"first"
        if outcome == "kept":
            assert isinstance(answer, Response)
        else:
            assert isinstance(answer, ErrorMessage)
            assert answer.code == 302


def test_half_of_the_nodes_are_killed(world: World) -> None:
    """Runs last: it leaves a broken world behind."""
    who = owner()
    one = item(who, b"kept", seq=1)
    assert world.wait(world.ours.put_mutable(one)).found
    for node in world.libtorrent[3:]:
        node.stop()
    del world.libtorrent[3:]
    for index in (3, 4):
        world.npm.call("destroy", node=index)
    # Both are timers of one reactor: also on a machine that is busy, the lookup's own end comes
    # before one of half a second later.
    late: list[bool] = []
    timer = world.mine.reactor.callLater(LOOKUP_SECONDS + 0.5, late.append, True)
    lookup = world.ours.get_mutable(who.public_key, b"salt")
    found = world.wait(lookup.addCallback(lambda found: found if not late else None))
    assert found is not None
    if timer.active():
        timer.cancel()
    assert found.items == (one,)
    assert found.answered < found.asked
