"""`DhtNode`: on the simulated network, and on real sockets of 127.0.0.1."""

from __future__ import annotations

import json
import os
import random
import time

import pytest
from fake_nodes import FakeNode
from simnet import SimNetwork
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError
from twisted.internet.error import CannotListenError
from twisted.internet.selectreactor import SelectReactor

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.common.items import MAX_SEQ, MutableItem, sign_item
from hyperbloom.discovery.dht.limits import MAX_OPERATIONS
from hyperbloom.discovery.dht.saved_state import MAX_STATE_NODES, SavedState, load_state
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_node import RESOLVE_SECONDS, DhtNode
from hyperbloom.keys import Identity

OWNER = Identity(b"o" * 32)


def item(value: bytes = b"1:v", seq: int = MAX_SEQ, salt: bytes = b"s") -> MutableItem:
    return sign_item(OWNER, salt=salt, seq=seq, value=value)


def node_at(
    network: SimNetwork, host: str, *, state: bytes = b"", names=None, **settings
) -> DhtNode:
    reactor = network.reactor(host)
    if names is not None:
        reactor.nameResolver = names
    return DhtNode(
        reactor,
        DhtSettings(**settings),
        random_bytes=network.random_bytes,
        state=state,
    )


@pytest.fixture
def network() -> SimNetwork:
    network = SimNetwork(seed=21)
    network.machines(25)
    return network


def joined(network: SimNetwork, host: str = "9.0.0.1", **more) -> DhtNode:
    node = node_at(network, host, **more)
    node.listen(6881)
    assert network.wait(node.bootstrap([network.addresses[0]])) >= 10
    return node


class TestSimulated:
    def test_items(self, network: SimNetwork) -> None:
        writer, reader = joined(network), joined(network, "9.0.0.2", server=False)
        assert network.wait(writer.put_mutable(item())).found
        found = network.wait(reader.get_mutable(OWNER.public_key, b"s"))
        assert found.items == (item(),)
        assert 0 < found.holding <= found.answered <= found.asked

        report = network.wait(writer.put_immutable(b"l1:ai2ee"))
        assert report.found
        target = bytes.fromhex("c8c7ad48a4ec5a1bcbe7ba8cea0b2b0a2f1d4e20")
        assert network.wait(reader.get_immutable(target)).value is None

    def test_peers(self, network: SimNetwork) -> None:
        one, other = joined(network), joined(network, "9.0.0.2")
        info_hash = b"i" * 20
        assert network.wait(one.get_peers(info_hash)).peers == ()
        # Each names the same eight as closest, so of a small network not all are met.
        assert network.wait(one.announce_peer(info_hash, 80)).stored >= 8
        report = network.wait(other.announce_peer(info_hash, 1, implied_port=True))
        assert (report.asked, report.silent, report.refusals) == (report.stored, 0, {})
        found = network.wait(one.get_peers(info_hash)).peers
        assert set(found) == {Address("9.0.0.1", 80), Address("9.0.0.2", 6881)}

    def test_nobody_is_there(self) -> None:
        network = SimNetwork()
        node = node_at(network, "9.0.0.1")
        node.listen()
        assert network.wait(node.bootstrap([Address("8.8.8.8", 1)])) == 0
        assert network.wait(node.get_mutable(OWNER.public_key, b"")).items == ()
        report = network.wait(node.put_mutable(item()))
        assert (report.asked, report.found, report.others) == (0, False, ())
        assert network.wait(node.find_node(b"t" * 20)).nodes == ()

    @pytest.mark.parametrize(
        "wrong",
        [
            item(b"1001:" + b"x" * 1_001),
            item(b"not bencoded"),
            item(b"i01e"),
            MutableItem(
                public_key=OWNER.public_key, salt=b"", seq=1, value=b"1:v", signature=bytes(64)
            ),
        ],
    )
    def test_what_no_node_may_take_is_not_sent(self, wrong: MutableItem) -> None:
        network = SimNetwork()
        node = node_at(network, "9.0.0.1")
        with pytest.raises(LocalProtocolError):
            network.wait(node.put_mutable(wrong))
        with pytest.raises(LocalProtocolError):
            network.wait(node.put_immutable(b"x"))
        with pytest.raises(ValueError, match="port"):
            node.announce_peer(b"i" * 20, 0)
        with pytest.raises(ValueError, match="20 bytes"):
            node.get_peers(b"short")

    def test_too_much_at_once(self) -> None:
        network = SimNetwork()
        state = SavedState(nodes=(Contact(b"n" * 20, Address("8.8.8.8", 1)),)).to_bytes()
        node = node_at(network, "9.0.0.1", state=state)
        node.listen()
        waiting = [node.find_node(network.random_bytes(20)) for _ in range(MAX_OPERATIONS)]
        with pytest.raises(LocalProtocolError):
            network.wait(node.find_node(b"t" * 20))
        for each in waiting:
            network.wait(each)
        assert network.wait(node.find_node(b"t" * 20)).asked <= 1

    def test_cancelled(self, network: SimNetwork) -> None:
        node = joined(network)
        waiting = node.get_mutable(OWNER.public_key, b"s")
        assert node.status().operations == 1
        waiting.cancel()
        assert node.status().operations == 0
        with pytest.raises(CancelledError):
            network.wait(waiting)
        network.run(5)

    def test_stopped(self, network: SimNetwork) -> None:
        node = joined(network)
        waiting = node.get_mutable(OWNER.public_key, b"s")
        network.wait(node.stop())
        with pytest.raises(CancelledError):
            network.wait(waiting)
        assert node.address is None
        carried = network.carried["packets"]
        node.find_node(b"t" * 20).addErrback(lambda failure: None)
        assert network.carried["packets"] == carried
        network.wait(node.stop())

    def test_status(self, network: SimNetwork) -> None:
        node = joined(network)
        network.run(60)
        form = json.loads(json.dumps(node.status().as_json()))
        assert form["node_id"] == node.node_id.hex()
        assert (form["address"], form["external_address"]) == ("9.0.0.1:6881", "9.0.0.1:6881")
        assert form["nodes"] >= form["good_nodes"] >= 10
        assert form["counts"]["answers"] >= 10
        # The others see it at an address of the internet, so its id now fits that.
        again = node_at(network, "9.0.0.1", state=node.save())
        assert again.node_id == node.node_id


def test_the_reach_is_that_of_the_nodes_that_answer() -> None:
    network = SimNetwork()
    hosts = ["127.0.0.1", "10.0.0.1", "9.9.9.9"]
    fakes = [FakeNode(network, address=Address(host, 6881)) for host in hosts]
    elsewhere = SavedState(nodes=(Contact(b"e" * 20, Address("8.8.8.8", 1)),))
    node = node_at(network, "127.0.0.2", state=elsewhere.to_bytes())
    node.listen(6881)
    assert node.reach is Scope.GLOBAL, "nobody has said that it is not the internet"
    for fake, reach in zip(fakes, (Scope.LOOPBACK, Scope.PRIVATE, Scope.GLOBAL), strict=True):
        network.wait(node.bootstrap([fake.address]))
        assert node.reach is reach
    network.detach(fakes[-1].address)
    network.run(3600)
    assert node.reach is Scope.PRIVATE


class NamesLater:
    """A resolver that knows no name until `address` is set."""

    address = None

    def resolveHostName(self, receiver, host, port, **_):
        if self.address is not None:
            receiver.addressResolved(IPv4Address("UDP", self.address, port))
        receiver.resolutionComplete()


class TestBootstrap:
    def starting(self, network: SimNetwork) -> tuple[DhtNode, NamesLater]:
        names = NamesLater()
        node = node_at(network, "9.0.0.1", names=names)
        node.listen(6881)
        assert network.wait(node.bootstrap([Address("router.example", 6881)])) == 0
        return node, names

    def test_a_machine_that_is_up_before_its_network(self, network: SimNetwork) -> None:
        node, names = self.starting(network)
        network.run(RESOLVE_SECONDS + 1)
        assert node.status().nodes == 0
        names.address = network.addresses[0].host
        network.run(RESOLVE_SECONDS + 10)
        assert node.status().nodes >= 5

    def test_no_name_is_asked_for_after_the_end(self, network: SimNetwork) -> None:
        node, names = self.starting(network)
        network.wait(node.stop())
        names.address = network.addresses[0].host
        network.run(2 * RESOLVE_SECONDS)
        assert node.status().nodes == 0


class TestSavedState:
    def test_a_restart_needs_no_bootstrap(self, network: SimNetwork) -> None:
        node = joined(network)
        assert network.wait(node.put_mutable(item())).found
        state = node.save()
        network.wait(node.stop())
        network.run(60)
        again = node_at(network, "9.0.0.1", state=state)
        assert again.node_id == node.node_id
        again.listen(6881)
        assert network.wait(again.bootstrap([])) >= 10
        assert network.wait(again.get_mutable(OWNER.public_key, b"s")).items == (item(),)

    @pytest.mark.parametrize(
        "damaged",
        [
            b"",
            b"{",
            b"\xff\xfe",
            b"[]",
            b"null",
            b"7",
            b"[" * 100_000,
            b'{"version":2,"id":"00","nodes":[]}',
            b'{"version":1,"id":7,"nodes":7}',
            b'{"version":1,"id":"zz","nodes":[7,[],["a"],["zz","1.2.3.4",1],[1,2,3]]}',
        ],
    )
    def test_a_damaged_one_is_an_empty_one(self, damaged: bytes) -> None:
        assert load_state(damaged) == SavedState()
        node_at(SimNetwork(), "9.0.0.1", state=damaged)

    def test_what_can_be_read_is_used(self) -> None:
        good = Contact(b"g" * 20, Address("9.9.9.9", 7))
        rows = [
            [b"g".hex() * 20, "9.9.9.9", 7],
            [b"g".hex() * 19, "9.9.9.9", 7],
            [b"g".hex() * 20, "example.org", 7],
            [b"g".hex() * 20, "0.0.0.0", 7],
            [b"g".hex() * 20, "9.9.9.9", 0],
            [b"g".hex() * 20, "9.9.9.9", 65_536],
            [b"g".hex() * 20, "9.9.9.9", "7"],
            [b"g".hex() * 20, "9.9.9.9"],
        ]
        data = json.dumps({"version": 1, "id": None, "nodes": rows}).encode()
        assert load_state(data) == SavedState(nodes=(good,))

    def test_cut_short_anywhere(self) -> None:
        chance = random.Random(1)
        contacts = tuple(
            Contact(chance.randbytes(20), Address(f"9.9.9.{n}", n + 1)) for n in range(5)
        )
        whole = SavedState(node_id=b"i" * 20, nodes=contacts).to_bytes()
        assert load_state(whole) == SavedState(node_id=b"i" * 20, nodes=contacts)
        for end in range(len(whole)):
            assert load_state(whole[:end]) == SavedState()

    def test_nodes_are_bounded(self) -> None:
        contact = Contact(b"g" * 20, Address("9.9.9.9", 7))
        data = SavedState(nodes=(contact,) * (MAX_STATE_NODES + 1)).to_bytes()
        assert len(load_state(data).nodes) == MAX_STATE_NODES


class Real:
    """Nodes on a reactor of their own."""

    def __init__(self) -> None:
        self.reactor = SelectReactor()
        self.reactor.startRunning(installSignalHandlers=False)
        self.nodes: list[DhtNode] = []

    def start(self, interface: str = "127.0.0.1", **settings) -> DhtNode:
        node = DhtNode(self.reactor, DhtSettings(**settings), random_bytes=os.urandom)
        node.listen(0, interface)
        self.nodes.append(node)
        return node

    def wait(self, deferred, seconds: float = 240.0):
        results = []
        deferred.addBoth(results.append)
        ends = time.monotonic() + seconds
        while not results:
            if time.monotonic() > ends:
                raise TimeoutError
            self.reactor.iterate(0.02)
        if hasattr(results[0], "raiseException"):
            results[0].raiseException()
        return results[0]


@pytest.fixture
def real():
    real = Real()
    yield real
    for node in real.nodes:
        real.wait(node.stop())
    real.reactor.stop()
    real.reactor.iterate(0)


class TestRealSockets:
    def test_nodes_find_each_other_and_items(self, real: Real) -> None:
        nodes = [real.start() for _ in range(24)]
        for node in nodes[1:]:
            assert real.wait(node.bootstrap([nodes[0].address])) >= 1
        report = real.wait(nodes[3].put_mutable(item()))
        assert report.found
        assert report.stored == report.asked >= 12
        assert real.wait(nodes[20].get_mutable(OWNER.public_key, b"s")).items == (item(),)
        assert nodes[3].external_address == nodes[3].address

    def test_half_of_them_die(self, real: Real) -> None:
        nodes = [real.start(query_seconds=0.3, lookup_seconds=3.0) for _ in range(24)]
        for node in nodes[1:]:
            real.wait(node.bootstrap([nodes[0].address]))
        assert real.wait(nodes[1].put_mutable(item())).found
        for node in nodes[2::2]:
            real.wait(node.stop())
        found = real.wait(nodes[1].get_mutable(OWNER.public_key, b"s"))
        assert found.items == (item(),)
        assert found.answered < found.asked

    def test_ipv6(self, real: Real) -> None:
        try:
            first = real.start("::1")
        except CannotListenError as error:
            pytest.skip(f"this machine has no IPv6 loopback ({error})")
        nodes = [first, *(real.start("::1") for _ in range(9))]
        for node in nodes[1:]:
            real.wait(node.bootstrap([first.address]))
        assert real.wait(nodes[2].put_mutable(item())).found
        assert real.wait(nodes[9].get_mutable(OWNER.public_key, b"s")).items == (item(),)
        assert nodes[9].external_address.host == "::1"

    def test_a_node_of_the_other_family_costs_nothing(self, real: Real) -> None:
        """A table saved on an IPv6 interface names nodes that an IPv4 socket cannot write to.

        They are not asked at all: the one node is the one that was joined through.
        """
        state = SavedState(nodes=(Contact(b"s" * 20, Address("2620:fe::fe", 1)),)).to_bytes()
        node = DhtNode(
            real.reactor,
            DhtSettings(query_seconds=0.2, lookup_seconds=1.0),
            random_bytes=os.urandom,
            state=state,
        )
        node.listen(0, "127.0.0.1")
        real.nodes.append(node)
        other = real.start()
        assert real.wait(node.bootstrap([other.address])) == 1
        assert other.node_id in {c.node_id for c in real.wait(node.find_node(b"t" * 20)).nodes}

    def test_a_port_in_use(self, real: Real) -> None:
        first = real.start()
        second = DhtNode(real.reactor, DhtSettings(), random_bytes=os.urandom)
        with pytest.raises(CannotListenError):
            second.listen(first.address.port, "127.0.0.1")
        assert second.address is None

    def test_a_bootstrap_node_by_name(self, real: Real) -> None:
        """`localhost` is resolved by the machine itself, without asking anybody."""
        first, second = real.start(), real.start()
        assert real.wait(second.bootstrap([Address("localhost", first.address.port)])) == 1
