"""What nodes say to each other: the messages of KRPC (BEP-5, BEP-44) as types.

A packet carries one message: a query, a response or an error. Whose it is, the transaction and what
else stands at the packet's top belong to `Packet`. Types refuse with `ValueError` what the protocol
refuses of a query in any case; what a server has to answer with an error of its own (a salt or
value too long, a wrong signature) they hold as it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import ID_BYTES, Contact
from hyperbloom.keys import PUBLIC_KEY_BYTES, SIGNATURE_BYTES

__all__ = [
    "AnnouncePeer",
    "ErrorMessage",
    "FindNode",
    "Get",
    "GetPeers",
    "Message",
    "Packet",
    "Ping",
    "PutImmutable",
    "PutMutable",
    "Query",
    "Response",
    "UnknownQuery",
]

HIGHEST_PORT = 65_535


def _check_id(name: str, value: bytes) -> None:
    if len(value) != ID_BYTES:
        raise ValueError(f"{name} has {ID_BYTES} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """Are you there?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindNode:
    """Which nodes do you know that are closest to `target`?"""

    target: bytes

    def __post_init__(self) -> None:
        _check_id("a target", self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetPeers:
    """Which peers have announced themselves under `info_hash`?"""

    info_hash: bytes

    def __post_init__(self) -> None:
        _check_id("an info hash", self.info_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncePeer:
    """The sender is a peer of `info_hash`, at `port`, or where it sends from if that is implied."""

    info_hash: bytes
    token: bytes
    port: int
    implied_port: bool

    def __post_init__(self) -> None:
        _check_id("an info hash", self.info_hash)
        if not (self.implied_port or 1 <= self.port <= HIGHEST_PORT):
            raise ValueError(f"a port lies in 1 … {HIGHEST_PORT}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """Which item is stored under `target`? With `seq`: its value only if it is newer."""

    target: bytes
    seq: int | None = None

    def __post_init__(self) -> None:
        _check_id("a target", self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutImmutable:
    """Store this bencoded value under its hash. Deployed nodes send `target` along, or do not."""

    token: bytes
    value: bytes
    target: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PutMutable:
    """Store this version of an item; with `cas`, only in place of that sequence number."""

    token: bytes
    public_key: bytes
    salt: bytes
    seq: int
    value: bytes
    signature: bytes
    cas: int | None = None
    target: bytes | None = None

    def __post_init__(self) -> None:
        if len(self.public_key) != PUBLIC_KEY_BYTES:
            raise ValueError(f"a public key has {PUBLIC_KEY_BYTES} bytes")
        if len(self.signature) != SIGNATURE_BYTES:
            raise ValueError(f"a signature has {SIGNATURE_BYTES} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownQuery:
    """A query that this node does not know, or whose arguments it cannot take: `problem`."""

    problem: str | None = None


Query: TypeAlias = (
    Ping | FindNode | GetPeers | AnnouncePeer | Get | PutImmutable | PutMutable | UnknownQuery
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer to any query: each has its own part of these, and `None` is for what is absent.

    nodes: of either family. token: for a put or an announcement to the same node. peers: of an
    info hash. value: bencoded `v`; public_key, seq, signature: of a mutable item.
    """

    nodes: tuple[Contact, ...] | None = None
    nodes6: tuple[Contact, ...] | None = None
    token: bytes | None = None
    peers: tuple[Address, ...] | None = None
    value: bytes | None = None
    public_key: bytes | None = None
    seq: int | None = None
    signature: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMessage:
    """A query was not granted."""

    code: int
    text: str = ""


Message: TypeAlias = Query | Response | ErrorMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """One datagram.

    transaction_id: chosen by who asks, echoed by who answers. node_id: the sender's; `None` in
    errors. read_only: the sender answers no queries (BEP-43). version: of the sender's program, 4
    bytes. observed: where the sender sees the receiver (BEP-42).
    """

    transaction_id: bytes
    message: Message
    node_id: bytes | None = None
    read_only: bool = False
    version: bytes | None = None
    observed: Address | None = None
