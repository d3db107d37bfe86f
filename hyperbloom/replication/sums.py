"""Count and digest of a feed's values in some ranges.

Of the whole feed the store keeps both. Of a part they are added up slice by slice, each in a short
read transaction, and remembered until the feed changes. A value that is stored meanwhile may count
or not: the sum is that of a set between what was here at the begin and what is here at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hyperbloom.replication.limits import MAX_KEPT_SUMS
from hyperbloom.replication.plan import ReadSlice
from hyperbloom.replication.reply import QUESTION_VALUES, VALUE_BYTES
from hyperbloom.replication.settings import WHOLE, KeyRange
from hyperbloom.store import FeedRecord, digest_sum

__all__ = ["Figures", "KeptSums", "Sum"]

_MODULUS = 1 << 256


@dataclass(frozen=True, slots=True)
class Figures:
    """How many values, and the sum of their hashes modulo 2^256 as 32 bytes, big endian."""

    count: int
    digest: bytes


class Sum:
    """An addition under way; `tested` counts its work in values of 64 bytes, as replies do."""

    def __init__(self, ranges: Sequence[KeyRange], *, read: ReadSlice) -> None:
        self._todo = deque(ranges)
        self._read = read
        self._count = self._total = 0
        self.tested = QUESTION_VALUES

    @property
    def done(self) -> bool:
        """Whether everything is added up."""
        return not self._todo

    @property
    def figures(self) -> Figures:
        """What was added up so far."""
        return Figures(self._count, (self._total % _MODULUS).to_bytes(32, "big"))

    def take_tested(self) -> int:
        """The work since the last time this was asked."""
        tested, self.tested = self.tested, 0
        return tested

    def step(self) -> None:
        """Add the next slice (reads the store: run it in a thread)."""
        if not self._todo:
            return
        start, end = self._todo.popleft()
        piece = self._read(start, end)
        self._count += len(piece.values)
        self._total += digest_sum(piece.values)
        self.tested += max(len(piece.values), sum(map(len, piece.values)) // VALUE_BYTES)
        if piece.next_start is not None:
            self._todo.appendleft((piece.next_start, end))


class KeptSums:
    """The sums of one feed that hold as long as its values stay as they are."""

    def __init__(self, record: Callable[[], FeedRecord]) -> None:
        self._record = record
        self._of: Figures | None = None
        self._kept: dict[tuple[KeyRange, ...], Figures] = {}

    def state(self) -> Figures:
        """The figures of the whole feed now: as long as they stay, its values do."""
        record = self._record()
        return Figures(record.count, record.digest)

    def find(self, ranges: Sequence[KeyRange]) -> Figures | None:
        """The figures of these ranges, if they are known."""
        now = self.state()
        if tuple(ranges) == (WHOLE,):
            return now
        if not ranges:
            return Figures(0, bytes(32))
        return self._kept.get(tuple(ranges)) if self._of == now else None

    def keep(self, ranges: Sequence[KeyRange], figures: Figures, *, of: Figures) -> None:
        """Remember a sum that was begun at the state `of`, unless values came meanwhile."""
        now = self.state()
        if of != now:
            return
        if self._of != now or len(self._kept) >= MAX_KEPT_SUMS:
            self._of, self._kept = now, {}
        self._kept[tuple(ranges)] = figures
