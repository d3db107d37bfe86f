"""What the topic tracker needs of a DHT: to look mutable items up and to put one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from twisted.internet.defer import Deferred

from hyperbloom.discovery.items import MutableItem

__all__ = ["ItemStore", "MutableLookup", "PutReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutableLookup:
    """All distinct authentic items found, and how many nodes were asked and answered."""

    items: tuple[MutableItem, ...]
    asked: int
    answered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PutReport:
    """What became of a put: answers of the nodes asked, and what reading back showed.

    `stored` nodes acknowledged, `refused` answered with an error, `silent` not at all. `found`:
    the item was read back and seen; `others` are the other items read back under its target.
    """

    asked: int
    stored: int
    refused: int
    silent: int
    found: bool
    others: tuple[MutableItem, ...]


class ItemStore(Protocol):
    """Mutable items of the DHT (BEP-44), as one of its nodes reaches them."""

    def get_mutable(self, public_key: bytes, salt: bytes) -> Deferred[MutableLookup]:
        """Look all items of a key and salt up."""
        ...

    def put_mutable(self, item: MutableItem, *, cas: int | None) -> Deferred[PutReport]:
        """Put an item to the closest nodes and read it back."""
        ...
