"""Count and digest of a feed's values in some ranges: of those here, and of all that are settled.

Of the whole feed the store keeps both. Of a part they are added up slice by slice, each in a short
read transaction, and remembered until the feed changes. A value that is stored meanwhile may count
or not: the sum is that of a set between what was here at the begin and what is here at the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hyperbloom.digests import EMPTY_DIGEST, SUM_MODULUS, element_sum, set_digest
from hyperbloom.replication.limits import MAX_KEPT_SUMS
from hyperbloom.replication.reading.slices import FeedSlices
from hyperbloom.replication.settings import WHOLE, KeyRange
from hyperbloom.store.records import Holding, SetFigures

__all__ = ["NOTHING", "QUESTION_VALUES", "VALUE_BYTES", "RangeDigests", "RangeSum"]

#: What a question costs by itself, counted in values read: reading it, a turn in a thread.
QUESTION_VALUES = 500

#: Bytes of a value that counts as one value read; a longer one costs time by its bytes.
VALUE_BYTES = 64

_EMPTY = SetFigures(0, EMPTY_DIGEST)
NOTHING = Holding(here=_EMPTY, settled=_EMPTY)
"""What there is where there is nothing."""


class _Tally:
    """How many values, and the sum of their elements (digests.py)."""

    def __init__(self) -> None:
        self.count = self.total = 0

    def add(self, count: int, total: int) -> None:
        self.count += count
        self.total = (self.total + total) % SUM_MODULUS

    def figures(self) -> SetFigures:
        return SetFigures(self.count, set_digest(self.count, self.total))


class RangeSum:
    """An addition under way; `tested` counts its work in values of 64 bytes, as replies do."""

    def __init__(self, ranges: Sequence[KeyRange], slices: FeedSlices) -> None:
        self._todo = deque(
            (is_here, start, end) for is_here in (False, True) for start, end in ranges
        )
        self._slices = slices
        self._here, self._settled = _Tally(), _Tally()
        self.tested = QUESTION_VALUES

    @property
    def done(self) -> bool:
        """Whether everything is added up."""
        return not self._todo

    @property
    def holding(self) -> Holding:
        """What was added up so far."""
        return Holding(here=self._here.figures(), settled=self._settled.figures())

    def take_tested(self) -> int:
        """The work since the last time this was asked."""
        tested, self.tested = self.tested, 0
        return tested

    def step(self) -> None:
        """Add the next slice that is not empty (reads the store: run it in a thread)."""
        while self._todo and not self._add_slice():
            pass

    def _add_slice(self) -> bool:
        is_here, start, end = self._todo.popleft()
        piece = (self._slices.here if is_here else self._slices.forgotten)(start, end)
        if piece.next_start is not None:
            self._todo.appendleft((is_here, piece.next_start, end))
        total = element_sum(piece.values)
        for tally in (self._here, self._settled) if is_here else (self._settled,):
            tally.add(len(piece.values), total)
        self.tested += max(len(piece.values), sum(map(len, piece.values)) // VALUE_BYTES)
        return bool(piece.values)


class RangeDigests:
    """The sums of one feed that hold as long as its values stay as they are.

    `state` tells of the whole feed as it is now: as long as that stays, its values do. It is None
    while the feed's own digest is being computed; then no sum is known, and none is kept.
    """

    def __init__(self, state: Callable[[], Holding | None]) -> None:
        self.state = state
        self._now: Holding | None = None
        self._of: Holding | None = None
        self._kept: dict[tuple[KeyRange, ...], Holding] = {}

    def find(self, ranges: Sequence[KeyRange]) -> Holding | None:
        """What there is in these ranges, if it is known.

        As long as the feed stays as it is, all who ask for the whole of it get the same object.
        """
        now = self.state()
        if now is None:
            return None
        if tuple(ranges) == (WHOLE,):
            if self._now != now:
                self._now = now
            return self._now
        if not ranges:
            return NOTHING
        return self._kept.get(tuple(ranges)) if self._of == now else None

    def keep(self, ranges: Sequence[KeyRange], holding: Holding, *, of: Holding) -> None:
        """Remember a sum that was begun at the state `of`, unless values came meanwhile."""
        now = self.state()
        if now is None or of != now:
            return
        if self._of != now or len(self._kept) >= MAX_KEPT_SUMS:
            self._of, self._kept = now, {}
        self._kept[tuple(ranges)] = holding
