"""What the tracker needs of a DHT: mutable items, got and put.

`DhtNode` is one; whoever tests the tracker may bring another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred

from hyperbloom.discovery.items import MutableItem

__all__ = ["ItemStore", "MutableLookup", "PutReport"]


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
    holding: int = 0


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
    refusals: Mapping[int, int] = field(default_factory=dict)
    holding: int = 0
    looked_asked: int = 0
    looked_answered: int = 0


class ItemStore(Protocol):
    """Gets and puts mutable items; both Deferreds fire within the time of the DHT's settings.

    Neither fails for what the network does: who asks an empty network gets an empty answer.
    """

    def get_mutable(self, public_key: bytes, salt: bytes) -> Deferred[MutableLookup]:
        """All distinct authentic versions of the item under this key and salt."""

    def put_mutable(self, item: MutableItem, *, cas: int | None) -> Deferred[PutReport]:
        """Put an item to the nodes closest to its target, and read it back.

        With `cas`, a node stores it only in place of a version with that sequence number.
        """
