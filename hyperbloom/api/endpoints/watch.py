"""Watching a feed: its arrivals as text/event-stream, whatever the speed of the reader.

A watcher has no queue. It holds the arrival number up to which it has written, reads slices of the
arrival log behind it while the transport takes more, and is woken when something was stored. A slow
reader therefore costs one slice of memory and no value is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.api.http.events import EventStream
from hyperbloom.api.http.request import BOUNDS, STREAMED, Answer, Call, range_of
from hyperbloom.api.limits import MAX_SEQ, SLICE_BYTES, SLICE_VALUES
from hyperbloom.api.problems import Problem
from hyperbloom.api.schemas.bodies import BoundsForm, WatchForm
from hyperbloom.errors import ErrorKind
from hyperbloom.replication.reading.arrivals import arrival_text
from hyperbloom.store import NoSuchFeed

if TYPE_CHECKING:
    from hyperbloom.api.served import ServedFeed
    from hyperbloom.store.records import LogRecord, LogSlice

__all__ = ["Watcher", "post_watch_range", "watch_values"]

FEED_LEFT = Problem(ErrorKind.UNKNOWN_FEED, "the feed was left")

log = Logger()


def watch_values(call: Call) -> Answer:
    """`start`, `end`, `prefix` (hex), `after` (arrival number; left out: what comes from now on).

    Events carry the arrival number as their id; a client that comes back with `Last-Event-ID` goes
    on behind it. Where the watch cannot go on, its last event is called `problem`.
    """
    call.only_query(*BOUNDS, "after")
    after = call.number("after", -1, 0, MAX_SEQ)
    return _watch(call, call.bounds(), None if after < 0 else after)


def post_watch_range(call: Call) -> Answer:
    """`{"start"?, "end"?, "prefix"?, "after"?}`: the same watch, for bounds too long for a path."""
    form = call.body(WatchForm)
    return _watch(call, form, form.get("after"))


def _watch(call: Call, bounds: BoundsForm, after: int | None) -> Answer:
    feed = call.feed()
    start, end = range_of(bounds)
    resumed = call.request.getHeader(b"last-event-id")
    if resumed is not None and resumed.isdigit():
        after = min(int(resumed[:20]), MAX_SEQ)
    Watcher(
        call, feed, start, end, feed.values.record().top_seq if after is None else after
    ).begin()
    return STREAMED


class Watcher(EventStream):
    """One open watch: the producer of one response."""

    def __init__(
        self, call: Call, feed: ServedFeed, start: bytes, end: bytes | None, after: int
    ) -> None:
        super().__init__(call)
        self._node = call.node
        self._feed = feed
        self._start, self._end = start, end
        self._seq = after
        self._reading = False
        #: Something was stored since the last read began.
        self._woken = True
        self._unsubscribe = feed.values.subscribe(self._wake)
        # A node that keeps no copy of the range asks its peers for it as long as this is open.
        self._lose_interest = feed.take_interest(start, end)

    def started(self) -> None:
        """Begins to read."""
        # The comment tells the client that nothing stored from now on will be missed.
        self.write(b": watching after %d\n\n" % self._seq)
        self._read()

    def caught_up(self) -> None:
        """Goes on reading."""
        self._read()

    def released(self) -> None:
        """Lets go of the feed."""
        self._unsubscribe()
        self._lose_interest()

    def beat(self) -> None:
        """A comment, or the end if the feed was left."""
        if self._node.feeds.get(self._feed.key) is not self._feed:
            self.end(FEED_LEFT)
        else:
            super().beat()

    # What the feed says

    def _wake(self, *_stored: object) -> None:
        self._woken = True
        self._read()

    def _read(self) -> None:
        if self.over or self.paused or self._reading or not self._woken:
            return
        self._reading, self._woken = True, False
        slice_ = self._feed.values.log_after(self._seq, limit=SLICE_VALUES, max_bytes=SLICE_BYTES)
        slice_.addCallbacks(self._take, self._fail)

    def _take(self, found: LogSlice) -> None:
        if self.over:
            return
        if found.records:
            self._seq = found.records[-1].seq
            self._woken = True
        text = "".join(self._event(record) for record in found.records if self._wanted(record))
        if text:
            self.write(text.encode("ascii"))
        # The next slice comes in another turn, so that a long log leaves the reactor to others.
        self._clock.callLater(0, self._again)

    def _again(self) -> None:
        self._reading = False
        self._read()

    def _wanted(self, record: LogRecord) -> bool:
        value = record.value
        return value >= self._start and (self._end is None or value < self._end)

    def _event(self, record: LogRecord) -> str:
        text = arrival_text(record, self._node.names.get(record.origin))
        return f"id: {record.seq}\ndata: {text}\n\n"

    def _fail(self, failure: Failure) -> None:
        if self.over:
            return
        if failure.check(NoSuchFeed):
            self.end(FEED_LEFT)
            return
        log.failure("A watch ended early", failure)
        self.end(
            Problem(ErrorKind.UNEXPECTED, "the watch ended early; the node's log has the details")
        )
