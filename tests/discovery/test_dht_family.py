"""A node that went from one family of addresses to the other, with the table it had saved."""

from __future__ import annotations

import pytest
from simnet import SimNetwork

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.compact import NODE6_BYTES, NODE_BYTES, encode_contacts
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import FindNode, Get, GetPeers, Packet
from hyperbloom.discovery.dht.saved_state import SavedState, load_state
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_node import DhtNode

V4 = tuple(Contact(bytes([n]) * 20, Address(f"20.0.{n}.1", 6881)) for n in range(1, 6))
V6 = tuple(Contact(bytes([n]) * 20, Address(f"2a00:{n}::1", 6881)) for n in range(101, 106))
#: Where the node is now, who asks it, the table of then, and where nodes stand in an answer.
MOVES = [
    pytest.param("9.0.0.1", "9.0.0.2", V6, b"nodes", NODE_BYTES, id="IPv6 to IPv4"),
    pytest.param("2a01::1", "2a01:1::2", V4, b"nodes6", NODE6_BYTES, id="IPv4 to IPv6"),
]


class Asker:
    """A stranger with a socket, who keeps the datagrams as they come."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        self.network, self.address = network, Address(host, 4_000)
        self.got: list[bytes] = []
        network.attach(self.address, lambda data, sender: self.got.append(data))

    def ask(self, message, address: Address) -> bytes:
        packet = Packet(transaction_id=b"tt", message=message, node_id=b"a" * 20, read_only=True)
        before = len(self.got)
        self.network.send(encode_packet(packet), self.address, address)
        self.network.run(1.0)
        (answer,) = self.got[before:]
        return answer


def started(network: SimNetwork, host: str, known: tuple[Contact, ...]) -> tuple[DhtNode, Address]:
    state = SavedState(node_id=b"o" * 20, nodes=known).to_bytes()
    node = DhtNode(
        network.reactor(host), DhtSettings(), random_bytes=network.random_bytes, state=state
    )
    return node, node.listen(6881)


def bytes_of(name: bytes, answer: bytes) -> int:
    """The length of a byte string of an answer, read by hand."""
    _, found, rest = answer.partition(b"%d:%b" % (len(name), name))
    return int(rest.partition(b":")[0]) if found else 0


@pytest.mark.parametrize(("host", "asker", "saved", "name", "size"), MOVES)
@pytest.mark.parametrize("query", [FindNode, Get, GetPeers])
def test_answers_hold_whole_nodes(host, asker, saved, name, size, query) -> None:
    network = SimNetwork(seed=3)
    _, address = started(network, host, saved)
    place = {"info_hash" if query is GetPeers else "target": b"t" * 20}
    answer = Asker(network, asker).ask(query(**place), address)
    assert bytes_of(name, answer) % size == 0, "no other node can read this answer"
    decode_packet(answer)
    for contact in saved:
        assert contact.node_id not in answer


@pytest.mark.parametrize(("host", "asker", "saved", "name", "size"), MOVES)
def test_what_is_of_its_family_stays(host, asker, saved, name, size) -> None:
    network = SimNetwork(seed=3)
    kept = V6 if ":" in host else V4
    node, address = started(network, host, (*V4, *V6))
    assert node.status().nodes == len(kept)
    answer = Asker(network, asker).ask(FindNode(target=b"t" * 20), address)
    assert bytes_of(name, answer) == len(kept) * size
    assert set(load_state(node.save()).nodes) == set(kept)


def test_one_of_the_other_family_is_never_written() -> None:
    assert len(encode_contacts(V4)) == 5 * NODE_BYTES
    assert len(encode_contacts(V6, ipv6=True)) == 5 * NODE6_BYTES
    with pytest.raises(LocalProtocolError):
        encode_contacts((*V4, V6[0]))
    with pytest.raises(LocalProtocolError):
        encode_contacts((*V6, V4[0]), ipv6=True)
