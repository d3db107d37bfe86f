"""What comes back from the DHT: what a lookup found, what became of a put, how a node is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.items import MutableItem

__all__ = [
    "AnnounceReport",
    "DhtStatus",
    "ImmutableLookup",
    "MutableLookup",
    "NodeLookup",
    "PeerLookup",
    "PutReport",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutableLookup:
    """What a lookup of a mutable item found.

    items: all distinct versions that any node holds, each authentic, in the order in which they
    came. asked, answered: nodes. holding: answers with an authentic item, the own store's among
    them.
    """

    items: tuple[MutableItem, ...]
    asked: int
    answered: int
    holding: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutReport:
    """What became of a put. That a node says that it stored an item proves nothing; `found` does.

    asked: nodes put to. stored, refused, silent: how many of them said so. found: whether a lookup
    afterwards brought the item back. others: the other items that it brought. refusals: error code
    → how many nodes said it. holding: answers of that lookup with an authentic item. looked_asked,
    looked_answered: nodes of the lookup before.
    """

    asked: int
    stored: int
    refused: int
    silent: int
    found: bool
    others: tuple[MutableItem, ...]
    refusals: Mapping[int, int]
    holding: int
    looked_asked: int
    looked_answered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLookup:
    """The closest nodes that answered, the closest first; asked, answered: nodes on the way."""

    nodes: tuple[Contact, ...]
    asked: int
    answered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImmutableLookup:
    """The bencoded value under a hash, or None where no node has it."""

    value: bytes | None
    asked: int
    answered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLookup:
    """Peers of an info hash, as nodes tell them: nothing proves that they are there."""

    peers: tuple[Address, ...]
    asked: int
    answered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceReport:
    """What became of an announcement; as in `PutReport`."""

    asked: int
    stored: int
    silent: int
    refusals: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DhtStatus:
    """A node at a glance; `counts`: what happened since the start, by name."""

    node_id: bytes
    server: bool
    address: str | None
    external_address: str | None
    nodes: int
    good_nodes: int
    items: int
    info_hashes: int
    operations: int
    counts: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        """For JSON; the id in hex."""
        return {**asdict(self), "node_id": self.node_id.hex()}
