"""Counts of durations by size: cheap to fill (one bisection), summed up by who reads them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

__all__ = ["DURATIONS", "Histogram"]

#: Upper bounds, in seconds, of what is measured here: turns of the reactor and commits.
DURATIONS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """How many observations were at most each bound. One thread observes, any may read."""

    __slots__ = ("_counts", "bounds", "total")

    def __init__(self, bounds: Sequence[float] = DURATIONS) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        #: The sum of all observations.
        self.total = 0.0

    def observe(self, amount: float) -> None:
        """Count one."""
        self._counts[bisect_left(self.bounds, amount)] += 1
        self.total += amount

    def cumulative(self) -> list[int]:
        """How many were at most each bound; one more at the end: how many there were in all."""
        return list(accumulate(self._counts))
