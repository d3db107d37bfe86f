"""What the connections of a pool hold of what came to them, counted for all of them together.

Each connection's part is bounded by itself, and strangers have many connections. Three things are
counted: bytes that were not taken yet; long messages that are being taken, read piece by piece from
their bytes; and offers that wait for the disk, whose objects are packed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Protocol

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.limits import (
    BUFFERED_BYTES_IN_ALL,
    LONG_MESSAGES,
    WAITING_BYTES_IN_ALL,
    WAITING_FLOOR_BYTES,
)

__all__ = ["PoolMemory"]


class Holder(Protocol):
    """A connection of the pool, as far as its memory goes."""

    network: str

    def close(self, why: CloseReason) -> None:
        """End it."""

    def room_came(self) -> None:
        """It may take its long message."""


class PoolMemory:
    """Of one node's pool."""

    def __init__(self) -> None:
        #: Bytes of offers that wait for the disk, of networks.
        self._waiting: Counter[str] = Counter()
        self._waiting_in_all = 0
        self._buffered: dict[Holder, int] = {}
        self._buffered_in_all = 0
        #: Who takes a long message, and who waits for that, a row for each network.
        self._taking: set[Holder] = set()
        self._rows: OrderedDict[str, deque[Holder]] = OrderedDict()

    def waits(self, network: str, size: int) -> None:
        """So much more waits for the disk, or less; of a connection that is gone, too."""
        self._waiting_in_all += size
        self._waiting[network] += size
        if not self._waiting[network]:
            del self._waiting[network]

    def is_behind(self, network: str) -> bool:
        """Whether connections of this network are not read for now."""
        if self._waiting_in_all <= WAITING_BYTES_IN_ALL:
            return False
        return self._waiting[network] > WAITING_FLOOR_BYTES

    def buffers(self, holder: Holder, size: int) -> None:
        """So many bytes of this connection were not taken yet; one that has too many goes."""
        self._buffered_in_all += size - self._buffered.get(holder, 0)
        self._buffered[holder] = size
        while self._buffered_in_all > BUFFERED_BYTES_IN_ALL:
            largest = self._largest()
            self._buffered_in_all -= self._buffered.pop(largest)
            largest.close(CloseReason("crowded", "messages wait that are too long for all"))

    def _largest(self) -> Holder:
        of_networks: Counter[str] = Counter()
        for holder, size in self._buffered.items():
            of_networks[holder.network] += size
        heaviest = max(of_networks, key=of_networks.__getitem__)
        return max(
            (one for one in self._buffered if one.network == heaviest),
            key=self._buffered.__getitem__,
        )

    def may_take_long(self, holder: Holder) -> bool:
        """Whether a long message may be taken now; else `room_came` is called when it may."""
        if holder in self._taking or (len(self._taking) < LONG_MESSAGES and not self._rows):
            self._taking.add(holder)
            return True
        self._rows.setdefault(holder.network, deque()).append(holder)
        return False

    def took_long(self, holder: Holder) -> None:
        """All of a long message is taken; the next one may."""
        self._taking.discard(holder)
        while self._rows and len(self._taking) < LONG_MESSAGES:
            network, row = self._rows.popitem(last=False)
            following = row.popleft()
            if row:
                self._rows[network] = row
            self._taking.add(following)
            following.room_came()

    def forget(self, holder: Holder) -> None:
        """The connection is gone."""
        self._buffered_in_all -= self._buffered.pop(holder, 0)
        row = self._rows.get(holder.network)
        if row is not None and holder in row:
            row.remove(holder)
            if not row:
                del self._rows[holder.network]
        self.took_long(holder)
