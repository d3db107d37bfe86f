"""What a peer that was told ids asks for, read where it is in the arrival log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from hyperbloom.digests import ID_BYTES, value_ids
from hyperbloom.replication.broadcast.broadcast_tree import Place
from hyperbloom.replication.limits import SLICE_VALUES
from hyperbloom.replication.reading.range_digests import QUESTION_VALUES, VALUE_BYTES
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.sync.reply import PORTION_BYTES, Alone
from hyperbloom.store.records import LogSlice

__all__ = ["PulledValues"]

#: (number, most values) → the arrivals behind that number, oldest first.
ReadLog = Callable[[int, int], LogSlice]

#: Memory of a question beside its ids.
_WEIGHT = 1_024


class PulledValues(Alone):
    """An `Answer`: the values of these ids, as far as they are still where they were."""

    about: KeyRange | None = None
    was_cut = False
    is_unfolded = False
    is_paced = True

    def __init__(self, places: Sequence[Place], read: ReadLog) -> None:
        self._ids = {value_id for _, _, value_id in places}
        self._spans = _joined(places)
        self._read = read
        self.weight = len(places) * ID_BYTES + _WEIGHT
        self.tested = QUESTION_VALUES

    @property
    def done(self) -> bool:
        """Whether nothing is left to be sent."""
        return not self._spans

    def fold(self) -> None:
        """There is nothing to drop."""

    def take_tested(self) -> int:
        """The work since the last time this was asked."""
        tested, self.tested = self.tested, 0
        return tested

    def next_portion(self, *, most_steps: int = 64) -> list[bytes]:
        """The next values (reads the store: run it in a thread)."""
        portion: list[bytes] = []
        weight = 0
        for _ in range(most_steps):
            if self.done or weight >= PORTION_BYTES:
                break
            values = self._next_wanted()
            portion += values
            weight += sum(map(len, values))
        return portion

    def _next_wanted(self) -> list[bytes]:
        low, high = self._spans.popleft()
        piece = self._read(low - 1, min(high - low + 1, SLICE_VALUES))
        values = [record.value for record in piece.records if record.seq <= high]
        if values and piece.last_seq < high:
            self._spans.appendleft((piece.last_seq + 1, high))
        self.tested += 1 + max(len(values), sum(map(len, values)) // VALUE_BYTES)
        ids = value_ids(values)
        return [
            v for n, v in enumerate(values) if ids[n * ID_BYTES : (n + 1) * ID_BYTES] in self._ids
        ]


def _joined(places: Sequence[Place]) -> deque[tuple[int, int]]:
    """The spans of the log that hold them, in order, those that touch as one."""
    spans: deque[tuple[int, int]] = deque()
    for low, high, _ in sorted(places):
        if spans and low <= spans[-1][1] + 1:
            spans[-1] = spans[-1][0], max(high, spans[-1][1])
        else:
            spans.append((low, high))
    return spans
