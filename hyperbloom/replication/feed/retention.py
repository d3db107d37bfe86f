"""Retention: what is older, or more, than the feed's settings say is forgotten, oldest first.

The arrival log begins with what came first, so what is to go lies at its beginning. A run takes
steps of at most `FORGET_STEP` values with a pause behind each, until nothing is left to do. What it
forgets is remembered like everything that is forgotten (forgetting.py), or peers that keep it would
bring it back, as new.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.task import deferLater

from hyperbloom.replication.feed.background_task import BackgroundTask
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import RETENTION_PAUSE, SLICE_BYTES
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store.limits import FORGET_STEP
from hyperbloom.store.records import LogRecord

__all__ = ["Retention", "outdated"]


def outdated(
    records: Sequence[LogRecord], settings: FeedSettings, *, count: int, size: int, now: float
) -> list[bytes]:
    """The values at the beginning of a log that are to go, as far as `records` shows it.

    `count` and `size` (bytes) are the feed's; `now` is in seconds since 1970.
    """
    before = (now - settings.retain_age) * 1e6 if settings.retain_age else 0.0
    most, most_bytes = settings.retain_values, settings.retain_bytes
    found = []
    for record in records:
        is_old = record.received_at < before
        is_beyond = (most and count > most) or (most_bytes and size > most_bytes)
        if not is_old and not is_beyond:
            break
        found.append(record.value)
        count -= 1
        size -= len(record.value)
    return found


class Retention:
    """Keeps one feed within what its settings retain; `look` is called now and then."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._task = BackgroundTask(self._run, "keeping a feed within what it retains")
        #: Values forgotten since the start.
        self.forgotten = 0

    def look(self) -> None:
        """Begin a run, unless one is under way or everything is retained."""
        if not self._feed.settings.retains_all:
            self._task.begin()

    def stop(self) -> None:
        """End a run behind its step."""
        self._task.stop()

    async def _run(self) -> None:
        while await self._step():
            await deferLater(self._feed.context.clock, RETENTION_PAUSE)

    async def _step(self) -> bool:
        """Forget the first values that are to go; whether there may be more."""
        feed = self._feed
        piece = await feed.values.log_after(0, limit=FORGET_STEP, max_bytes=SLICE_BYTES)
        now, settings = feed.context.now(), feed.settings
        values = outdated(
            piece.records, settings, count=feed.values.count, size=feed.values.size, now=now
        )
        if not values:
            return False
        done = await feed.forgetting.forget(values)
        self.forgotten += done.count
        return len(values) == len(piece.records)
