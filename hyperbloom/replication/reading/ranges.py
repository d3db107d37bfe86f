"""Ranges of values in byte order, and sets of ranges: what lies in them, where they meet."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from hyperbloom.replication.settings import KeyRange

__all__ = ["ReadSlice", "ValueSlice", "common", "contains", "overlap", "union", "within"]


class ValueSlice(Protocol):
    """Values in ascending byte order, and where the rest of the range begins (None: no rest)."""

    @property
    def values(self) -> list[bytes]: ...
    @property
    def next_start(self) -> bytes | None: ...


#: (start, end) → the next values in byte order and where to go on (None: at the end).
ReadSlice = Callable[[bytes, bytes | None], ValueSlice]


def contains(bounds: KeyRange, value: bytes) -> bool:
    """Whether `value` lies in start ≤ value < end, byte by byte."""
    start, end = bounds
    return value >= start and (end is None or value < end)


def overlap(a: KeyRange, b: KeyRange) -> KeyRange | None:
    """The range common to both, or None where they do not meet."""
    start = max(a[0], b[0])
    ends = [end for end in (a[1], b[1]) if end is not None]
    end = min(ends) if ends else None
    return None if end is not None and end <= start else (start, end)


def union(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """The same values in as few ranges as there can be, in byte order."""
    found: list[KeyRange] = []
    for bounds in sorted(ranges, key=lambda bounds: bounds[0]):
        start, end = bounds
        last = found[-1] if found else None
        if last is None or (last[1] is not None and last[1] < start):
            found.append(bounds)
        elif last[1] is not None and (end is None or end > last[1]):
            found[-1] = (last[0], end)
    return found


def within(ranges: Sequence[KeyRange], values: Sequence[bytes]) -> list[bytes]:
    """The values that lie in one of the ranges, which are in order and apart (`union`)."""
    starts = [start for start, _ in ranges]
    places = ((value, bisect_right(starts, value) - 1) for value in values)
    return [v for v, place in places if place >= 0 and contains(ranges[place], v)]


def common(ours: Sequence[KeyRange], theirs: Sequence[KeyRange]) -> list[KeyRange]:
    """The values that lie in both, in as few ranges as there can be, in byte order."""
    met = [overlap(one, other) for one in ours for other in theirs]
    return union(bounds for bounds in met if bounds is not None)
