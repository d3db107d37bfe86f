"""What a stream reader asks of whatever holds nodes' arrival logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from hyperbloom.export.source.offsets import FeedName, Look, Mark
from hyperbloom.export.tables.ranges import FeedRange
from hyperbloom.export.tables.rows import Rows

__all__ = ["Arrivals"]


class Arrivals(Protocol):
    """The arrival logs of nodes' feeds. Every method may raise a HyperbloomError.

    It is made anew in every process: in the driver's for planning, in the tasks' for reading.
    """

    def begin(self) -> None:
        """Called before a query's first batch; raises if there is nothing that can be followed."""

    def tops(self) -> Mapping[FeedName, int]:
        """The highest arrival number of each feed that there is now."""

    def look(self, name: FeedName, seq: int) -> Look:
        """What a feed's log says at this number; 0 is before the first."""

    def read(self, piece: FeedRange, end: Mark) -> Iterator[Rows]:
        """The rows of a range, in the order of their numbers.

        ``end`` is where the batch ends for this feed: with it a log is known for the same one.
        """

    def close(self) -> None:
        """Let go of what is open."""
