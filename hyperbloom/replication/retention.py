"""Retention: what is older, or more, than the feed's settings say is forgotten, oldest first.

The arrival log begins with what came first, so what is to go lies at its beginning. A run takes
steps of at most `FORGET_STEP` values with a pause behind each, until nothing is left to do. What it
forgets is remembered like everything that is forgotten (forgetting.py), or peers that keep it would
bring it back, as new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.replication.limits import RETENTION_PAUSE, SLICE_BYTES
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import FORGET_STEP, LogRecord, NoSuchFeed

if TYPE_CHECKING:
    from hyperbloom.replication.feed import Feed

__all__ = ["Retention", "outdated"]

log = Logger()


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
        self._running: Deferred[None] | None = None
        #: Values forgotten since the start.
        self.forgotten = 0

    def look(self) -> None:
        """Begin a run, unless one is under way or everything is retained."""
        if self._running is None and not self._feed.settings.retains_all:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addBoth(self._over)

    def stop(self) -> None:
        """End a run behind its step."""
        if self._running is not None:
            self._running.cancel()

    def _over(self, result: object) -> None:
        self._running = None
        if isinstance(result, Failure) and not result.check(CancelledError, NoSuchFeed):
            log.failure("A feed could not be kept within what it retains", failure=result)

    async def _run(self) -> None:
        while await self._step():
            await deferLater(self._feed.context.clock, RETENTION_PAUSE)

    async def _step(self) -> bool:
        """Forget the first values that are to go; whether there may be more."""
        feed = self._feed
        piece = await feed.log_after(0, limit=FORGET_STEP, max_bytes=SLICE_BYTES)
        now, settings = feed.context.now(), feed.settings
        values = outdated(piece.records, settings, count=feed.count, size=feed.value_bytes, now=now)
        if not values:
            return False
        done = await feed.forgetting.forget(values)
        self.forgotten += done.count
        return len(values) == len(piece.records)
