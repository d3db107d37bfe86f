"""Nodes of the DHT that say what a test has them say, on the network of `simnet`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simnet import SimNetwork

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common import bencode
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import Get, Packet, Response
from hyperbloom.discovery.dht.common.node_id import make_node_id

TOKEN = b"tokn"


class FakeNode:
    """Answers what `answer` makes of a query: a message, raw bytes, or None for silence.

    `queries` has the packets that came. `node_id` may be anything.
    """

    def __init__(
        self,
        network: SimNetwork,
        answer: Callable[[Packet], Any] | None = None,
        *,
        node_id: bytes | None = None,
        address: Address | None = None,
    ) -> None:
        self.network = network
        self.address = address or Address(network.free_host(), 6881)
        self.node_id = node_id or make_node_id(self.address.host, network.random_bytes)
        self.answer = answer or (lambda packet: Response(nodes=(), token=TOKEN))
        self.queries: list[Packet] = []
        self.came: list[tuple[float, bytes, Address]] = []
        network.attach(self.address, self._receive)

    @property
    def contact(self) -> Contact:
        return Contact(self.node_id, self.address)

    def send(self, data: bytes, receiver: Address) -> None:
        self.network.send(data, self.address, receiver)

    def said(self, packet: Packet, message: Any) -> bytes:
        """The packet that answers one."""
        if isinstance(message, bytes):
            return message
        return encode_packet(
            Packet(
                transaction_id=packet.transaction_id,
                message=message,
                node_id=self.node_id,
            )
        )

    def _receive(self, data: bytes, sender: Address) -> None:
        self.came.append((self.network.clock.seconds(), data, sender))
        packet = decode_packet(data)
        self.queries.append(packet)
        message = self.answer(packet)
        if message is not None:
            self.send(self.said(packet, message), sender)


def raw_answer(packet: Packet, node_id: bytes, **fields: Any) -> bytes:
    """An answer whose fields are not checked."""
    body = {b"id": node_id} | {name.encode(): value for name, value in fields.items()}
    return bencode.encode({b"t": packet.transaction_id, b"y": b"r", b"r": body})


def is_get(packet: Packet) -> bool:
    return isinstance(packet.message, Get)
