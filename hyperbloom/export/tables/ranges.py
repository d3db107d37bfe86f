"""Which rows each task reads.

In arrival order the sequence numbers are cut evenly: a cut costs nothing and the parts are alike,
for a value's length has nothing to do with when it came. In byte order nothing is known of how the
values lie, so the cuts are quantiles of a sample: the values of up to 10,000 numbers drawn evenly
from the log. (Keys interpolated between the first and the last gave parts 2.3 times the mean.)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from hyperbloom.store import Store
from hyperbloom.store.values.scan import sample_values

__all__ = [
    "TARGET_FILE_BYTES",
    "FeedRange",
    "SeqRange",
    "ValueRange",
    "cut_by_seq",
    "cut_by_value",
    "even_parts",
]

Item = TypeVar("Item")

TARGET_FILE_BYTES: Final = 128 * 1024 * 1024
_ROWS_WORTH_A_TASK: Final = 100_000
_FILES_A_TASK: Final = 4
"""Each further round of tasks costs 50 ms; a task that has to be done again, all its files."""
_SAMPLE: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRange:
    """The rows of one feed of one node with ``after_seq`` < seq <= ``last_seq``.

    ``rows`` and ``size`` (bytes) say how many about.
    """

    node: str
    feed: bytes
    after_seq: int
    last_seq: int
    rows: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeqRange(FeedRange):
    """The same in one snapshot."""

    path: Path


Range = TypeVar("Range", bound=FeedRange)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRange:
    """The rows of one feed of one snapshot with ``start`` <= value < ``end`` (None: no end)."""

    path: Path
    node: str
    feed: bytes
    start: bytes
    end: bytes | None


def cut_by_seq(
    ranges: Sequence[Range], *, cores: int, target_bytes: int = TARGET_FILE_BYTES
) -> list[list[Range]]:
    """Spread ranges over tasks of about equal bytes; small feeds share one, large ones are cut.

    As many tasks as keep the cores busy if there are rows enough to be worth it, and more if one
    had to write many files of ``target_bytes``: then so many that every round of tasks has one for
    each core, for all wait for the last round.
    """
    ranges = [piece for piece in ranges if piece.last_seq > piece.after_seq]
    if not ranges:
        return []
    rows = sum(piece.rows for piece in ranges)
    weights = [piece.size + piece.rows + 1 for piece in ranges]
    count = max(1, min(cores, math.ceil(rows / _ROWS_WORTH_A_TASK)))
    least = math.ceil(sum(weights) / target_bytes / _FILES_A_TASK)
    if least > count:
        count = math.ceil(least / cores) * cores
    share = sum(weights) / count
    tasks: list[list[Range]] = [[]]
    room = share
    for piece, weight in zip(ranges, weights, strict=True):
        rest, left = piece, float(weight)
        while left > room and len(tasks) < count:
            part, rest = _split(rest, room / left)
            if part is not None:
                tasks[-1].append(part)
            left -= room
            tasks.append([])
            room = share
        tasks[-1].append(rest)
        room -= left
    return [task for task in tasks if task]


def even_parts(
    items: Sequence[Item], count: int, *, weight: Callable[[Item], int]
) -> list[list[Item]]:
    """Spread items over up to ``count`` parts of about equal weights, none of them empty."""
    parts: list[list[Item]] = [[] for _ in range(min(len(items), count))]
    heap = [(0, number) for number in range(len(parts))]
    for item in sorted(items, key=weight, reverse=True):
        size, number = heapq.heappop(heap)
        parts[number].append(item)
        heapq.heappush(heap, (size + weight(item), number))
    return parts


def _split(piece: Range, part: float) -> tuple[Range | None, Range]:
    """The first ``part`` of a range (None if that is nothing), and the rest of it."""
    middle = piece.after_seq + int((piece.last_seq - piece.after_seq) * part)
    if middle <= piece.after_seq:
        return None, piece
    rows, size = int(piece.rows * part), int(piece.size * part)
    first = replace(piece, last_seq=middle, rows=rows, size=size)
    return first, replace(piece, after_seq=middle, rows=piece.rows - rows, size=piece.size - size)


def cut_by_value(whole: ValueRange, *, rows: int, top_seq: int, parts: int) -> list[ValueRange]:
    """Cut a range of values into up to ``parts`` with about as many rows each.

    ``rows`` and ``top_seq`` are the whole feed's. Few rows, as the sample tells, stay one part.
    """
    if parts < 2 or rows <= _ROWS_WORTH_A_TASK:
        return [whole]
    step = max(1, top_seq // _SAMPLE)
    with closing(Store.open_readonly(whole.path)) as store:
        sample = sample_values(store, whole.feed, range(1, top_seq + 1, step))
    inside = sorted(
        value
        for value in sample
        if value > whole.start and (whole.end is None or value < whole.end)
    )
    parts = min(parts, math.ceil(rows * len(inside) / len(sample) / _ROWS_WORTH_A_TASK))
    if parts < 2:
        return [whole]
    cuts = sorted({inside[len(inside) * part // parts] for part in range(1, parts)})
    starts, ends = [whole.start, *cuts], [*cuts, whole.end]
    return [replace(whole, start=start, end=end) for start, end in zip(starts, ends, strict=True)]
