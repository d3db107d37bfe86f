"""From the items of a lookup to the records that are believed, one of each publisher.

Opening an item takes a good part of a millisecond, and strangers decide how many there are. So a
`Reading` takes them one by one: who reads on the reactor takes a few a turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hyperbloom.discovery.dht.common.items import MutableItem
from hyperbloom.discovery.tracker.limits import MAX_ITEMS_READ
from hyperbloom.discovery.tracker.record import Record, RecordRefused, RefusalReason, open_value
from hyperbloom.discovery.tracker.topic import TopicKeys

__all__ = ["Reading", "read_records"]


class Reading:
    """Collects the records of one topic and minute; `refused` counts the others by reason."""

    def __init__(self, keys: TopicKeys, *, own: bytes) -> None:
        self.refused: Counter[RefusalReason] = Counter()
        self._keys = keys
        self._own = own
        self._by_publisher: dict[bytes, Record] = {}
        self._left = MAX_ITEMS_READ
        self._seen: set[bytes] = set()

    @property
    def records(self) -> tuple[Record, ...]:
        """The records taken so far, in the order of their items."""
        return tuple(self._by_publisher.values())

    def take(self, item: MutableItem) -> None:
        """Open one item. Equal values are opened once; beyond `MAX_ITEMS_READ` none is."""
        if item.value in self._seen or self._left <= 0:
            return
        self._left -= 1
        self._seen.add(item.value)
        try:
            self._add(open_value(item.value, self._keys))
        except RecordRefused as refused:
            self.refused[refused.reason] += 1

    def _add(self, record: Record) -> None:
        if record.publisher == self._own:
            raise RecordRefused(RefusalReason.OWN)
        if record.publisher in self._by_publisher:
            raise RecordRefused(RefusalReason.REPEATED)
        self._by_publisher[record.publisher] = record


def read_records(items: Iterable[MutableItem], keys: TopicKeys, *, own: bytes) -> Reading:
    """Read all items of a lookup at once; `own` is this node's public key, whose records are left
    out."""
    reading = Reading(keys, own=own)
    for item in items:
        reading.take(item)
    return reading
