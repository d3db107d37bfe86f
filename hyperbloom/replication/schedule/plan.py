"""Sync plans: how a feed of any size asks a peer for what is missing here.

A Bloom filter tells the peer what is here. One filter must fit one frame of at most 262,144
bytes, so a plan walks the ranges this node keeps in byte order and cuts them into consecutive
ranges whose filters fit: the first is open below, the last open above, and a set small enough
for one filter is asked without a range at all, as every peer of the protocol does. Every filter
has a fresh seed: a value hidden by a false positive shows itself in the next plan.

A bound between two ranges is the shortest byte string that separates the last value of one from
the first of the next, and a cut is made only where that bound is short: bounds travel in the
same frame as the filter.

When the peer has shown that it holds little (its own filter tells how many values are in it),
filters that list everything here cost more than the peer's whole set: `SyncPlan.collapse` asks
for the rest with one empty filter.

Two kinds of peers answer differently. One that splits its replies over many Data frames is asked
without a limit. One that cannot (npm 2.x) dies on a reply above one frame: it is asked with a
limit, and `Asked` remembers what was asked so that the rest is asked for where a reply was full.

Nothing here does I/O: a reader of slices and a source of seeds come in as arguments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hyperbloom.bloom import BloomFilter, capacity, optimal_parameters
from hyperbloom.replication.limits import OUTSTANDING_SYNCS, REPLY_BYTES
from hyperbloom.replication.reading.ranges import ReadSlice, contains, overlap
from hyperbloom.replication.settings import KeyRange
from hyperbloom.wire import Range, Request, Sync
from hyperbloom.wire.limits import SEND_FRAME_BYTES

__all__ = [
    "FILTER_BYTES",
    "MAX_BOUND_BYTES",
    "Asked",
    "SyncPlan",
    "reply_limit",
    "separator",
]

#: The longest bound a plan cuts at; two of them and the filter share one frame.
MAX_BOUND_BYTES = 4_096

#: What is left of a frame for the filter: bounds, numbers and tags take the rest.
FILTER_BYTES = SEND_FRAME_BYTES - 2 * MAX_BOUND_BYTES - 64

#: The smallest filter sent, in bits; an empty set has one too.
MIN_FILTER_BITS = 256


def separator(low: bytes, high: bytes) -> bytes:
    """The shortest byte string s with low < s ≤ high. `low` must be less than `high`."""
    for index, byte in enumerate(low):
        if high[index] != byte:
            return high[: index + 1]
    return high[: len(low) + 1]


def reply_limit(mean_bytes: float, scale: float = 1.0) -> int:
    """How many values to ask of a peer whose reply must fit one frame; at least one."""
    return max(1, int(REPLY_BYTES * scale / max(mean_bytes, 1.0)))


def _behind(value: bytes) -> bytes | None:
    """A short bound behind `value`, or None where there is none; the next one, where it is short.

    Behind a long value it skips those that share its first bytes: they come with the next plan.
    """
    if len(value) < MAX_BOUND_BYTES:
        return value + b"\0"
    head = value[:MAX_BOUND_BYTES].rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


class SyncPlan:
    """The Syncs of one round with one peer, made one at a time.

    `read` gives values in byte order, `seed` a fresh 32-bit number a filter. `refused` are values
    that local policy keeps out; they are put into the filters so that they are not sent again.
    """

    def __init__(
        self,
        ranges: Sequence[KeyRange],
        *,
        read: ReadSlice,
        seed: Callable[[], int],
        false_positive: float,
        refused: Sequence[bytes] = (),
        filter_bytes: int = FILTER_BYTES,
    ) -> None:
        self._todo = deque(ranges)
        self._whole = len(self._todo) == 1 and self._todo[0] == (b"", None)
        self._read = read
        self._seed = seed
        self._false_positive = false_positive
        self._refused = sorted(refused)
        self._per_filter = capacity(filter_bytes, false_positive)
        self._collapsed = False
        self.sent_bytes = 0

    @property
    def done(self) -> bool:
        """Whether every range has been asked."""
        return not self._todo

    def collapse(self) -> None:
        """Ask for all that is left with one empty filter a range."""
        self._collapsed = True

    def next_sync(self, *, limit: int | None = None) -> Sync | None:
        """The next Sync (reads the store: run it in a thread), or None when all is asked."""
        if not self._todo:
            return None
        start, end = self._todo.popleft()
        values: list[bytes] = []
        cut = end
        if not self._collapsed:
            values, cut = self._take(start, end)
        if cut is not None and cut != end:
            self._todo.appendleft((cut, end))
        whole = self._whole and start == b"" and cut is None
        return self._sync(values, None if whole else (start, cut), limit)

    def _take(self, start: bytes, end: bytes | None) -> tuple[list[bytes], bytes | None]:
        """Values from `start` that fill one filter, and the bound after them."""
        values: list[bytes] = []
        position: bytes | None = start
        while position is not None:
            piece = self._read(position, end)
            position = piece.next_start
            first = max(self._per_filter - len(values), 0)
            for index in range(first, len(piece.values)):
                before = piece.values[index - 1] if index else values[-1]
                bound = separator(before, piece.values[index])
                if len(bound) <= MAX_BOUND_BYTES:
                    return values + piece.values[:index], bound
            values += piece.values
        return values, end

    def _sync(self, values: list[bytes], bounds: KeyRange | None, limit: int | None) -> Sync:
        inside = [v for v in self._refused if bounds is None or contains(bounds, v)]
        size, n = optimal_parameters(len(values) + len(inside), self._false_positive)
        bloom = BloomFilter(min(max(size, MIN_FILTER_BITS), FILTER_BYTES * 8), n, self._seed())
        bloom.add(values)
        bloom.add(inside)
        data = bloom.to_bytes()
        self.sent_bytes += len(data)
        return Sync(
            filter=data,
            size=bloom.size,
            n=bloom.n,
            seed=bloom.seed,
            limit=limit,
            range=None if bounds is None else Range(start=bounds[0], end=bounds[1]),
        )


@dataclass(frozen=True, slots=True)
class _Question:
    message: Sync | Request
    deadline: float
    wanted: int | None

    @property
    def bounds(self) -> KeyRange:
        if isinstance(self.message, Request):
            return self.message.start, self.message.end
        bounds = self.message.range
        return (b"", None) if bounds is None else (bounds.start, bounds.end)

    def next_from(self, start: bytes, got: int) -> tuple[Sync | Request, int | None] | None:
        """The same question for what lies behind a full reply of `got` values."""
        wanted = None if self.wanted is None else self.wanted - got
        limit = self.message.limit
        rest = overlap(self.bounds, (start, None))
        if rest is None or limit is None or (wanted is not None and wanted <= 0):
            return None
        limit = limit if wanted is None else min(limit, wanted)
        if isinstance(self.message, Request):
            return replace(self.message, start=rest[0], limit=limit), wanted
        bounds = Range(start=rest[0], end=rest[1])
        return replace(self.message, range=bounds, limit=limit), wanted


class Asked:
    """What was asked, with a limit, of a peer that answers in one Data a question, in order.

    Where a reply is as long as its limit, the next question asks for what lies behind it. An answer
    retires the questions before it; a question without an answer (the peer says nothing when it has
    nothing) retires at its deadline.
    """

    __slots__ = ("_questions",)

    def __init__(self) -> None:
        self._questions: tuple[_Question, ...] = ()

    def is_full(self, *, now: float) -> bool:
        """Whether the next question has to wait for an answer or a deadline."""
        self._retire(now)
        return len(self._questions) >= OUTSTANDING_SYNCS

    def is_waiting(self, *, now: float) -> bool:
        """Whether an answer is still due."""
        self._retire(now)
        return bool(self._questions)

    def ask(self, message: Sync | Request, *, deadline: float, wanted: int | None = None) -> None:
        """Remember a question with a limit; `wanted` values are enough in all (None: all)."""
        if len(self._questions) >= 2 * OUTSTANDING_SYNCS:
            self._questions = self._questions[1:]
        self._questions += (_Question(message, deadline, wanted),)

    def answered(self, values: Sequence[bytes]) -> tuple[Sync | Request, int | None] | None:
        """Take a Data's values; the question that asks on and what it wants, or None."""
        ends = (values[0], values[-1])
        inside = [all(contains(one.bounds, end) for end in ends) for one in self._questions]
        if True not in inside:
            return None
        first = inside.index(True)
        question = self._questions[first]
        self._questions = self._questions[first + 1 :]
        if question.message.limit is None or len(values) < question.message.limit:
            return None
        start = _behind(values[-1])
        return None if start is None else question.next_from(start, len(values))

    def _retire(self, now: float) -> None:
        while self._questions and self._questions[0].deadline <= now:
            self._questions = self._questions[1:]
