"""A feed's sketch is kept on disk up to a number of its log, and goes on from there in quiet times.

Comparing by sketch (sketches.py) needs that of all values. What is behind the kept one is added up
in memory when a peer asks, so this is never urgent: it waits until few values have come for a
while, or until much is behind. It works in steps, in a thread, with a pause behind each; what they
come to is written in one transaction for each RUN_VALUES values.
"""

from __future__ import annotations

import math
from functools import partial

from twisted.internet.task import deferLater

from hyperbloom.replication.feed.background_task import BackgroundTask
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import (
    SKETCH_FAR_BEHIND,
    SKETCH_PAUSE,
    SKETCH_QUIET_SECONDS,
    SKETCH_QUIET_VALUES,
)
from hyperbloom.store import Operation, StoreError
from hyperbloom.store.limits import RUN_VALUES
from hyperbloom.store.sketches.writing import SketchPiece

__all__ = ["SketchKeeping"]


class SketchKeeping:
    """Keeps the sketch of one feed; `look` is called now and then, `stored` when values came."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._task = BackgroundTask(self._run, "keeping the sketch of a feed")
        #: How many values there are when there may be something to do.
        self._enough: float = 0

    def stored(self) -> None:
        """Look if as many values have come as are kept at a time."""
        if self._feed.values.count >= self._enough:
            self.look()

    def look(self) -> None:
        """Begin a run, unless one is under way or there is nothing to do.

        A store that fails tells those who need it.
        """
        try:
            lag = self._feed.context.store.sketch_lag(self._feed.key)
        except StoreError:
            return
        if lag >= RUN_VALUES:
            self._enough = math.inf
            self._task.begin()
        else:
            self._enough = self._feed.values.count + RUN_VALUES - lag

    def stop(self) -> None:
        """End a run behind its step."""
        self._task.stop()

    async def _run(self) -> None:
        feed = self._feed
        top_seq = -math.inf
        try:
            while True:
                top_seq = await self._quiet(top_seq)
                work = await feed.context.own_work(
                    partial(feed.context.store.begin_piece, feed.key)
                )
                if work is None:
                    return
                operation = await self._added_up(work) if isinstance(work, SketchPiece) else work
                if await feed.context.written(operation) is False:
                    # Values that were counted in are gone: others may go as well.
                    await deferLater(feed.context.clock, SKETCH_QUIET_SECONDS)
        finally:
            self._enough = feed.values.count + RUN_VALUES

    async def _added_up(self, piece: SketchPiece) -> Operation:
        while (operation := await self._feed.context.own_work(piece.step)) is None:
            await deferLater(self._feed.context.clock, SKETCH_PAUSE)
        return operation

    async def _quiet(self, top_seq: float) -> float:
        """Wait until few values came for a while; not if much is behind.

        `top_seq` is the last arrival when it was quiet before; returns what it is now.
        """
        values, store = self._feed.values, self._feed.context.store
        while (
            values.top_seq - top_seq > SKETCH_QUIET_VALUES
            and store.sketch_lag(self._feed.key) < SKETCH_FAR_BEHIND
        ):
            top_seq = values.top_seq
            await deferLater(self._feed.context.clock, SKETCH_QUIET_SECONDS)
        return values.top_seq
