"""Watching a feed: its arrivals as text/event-stream, whatever the speed of the reader.

A watcher has no queue. It holds the arrival number up to which it has written, reads slices of the
arrival log behind it while the transport takes more, and is woken when something was stored. A slow
reader therefore costs one slice of memory and no value is left out.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web has no annotations on its requests)
from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from hyperbloom.api.call import STREAMED, Answer, Call
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.store import NoSuchFeed

if TYPE_CHECKING:
    from hyperbloom.api.node import ServedFeed
    from hyperbloom.store import LogRecord, LogSlice

__all__ = ["KEEP_ALIVE_SECONDS", "Watcher", "watch_values"]

#: A comment line this often lets both sides notice that the other is gone.
KEEP_ALIVE_SECONDS = 5.0
#: One turn's work: read, turned into text and handed to the transport in a few milliseconds.
SLICE_VALUES = 1_000
SLICE_BYTES = 262_144
MAX_SEQ = 2**64 - 1

FEED_LEFT = Problem(ProblemKind.UNKNOWN_FEED, "the feed was left")

log = Logger()


def watch_values(call: Call) -> Answer:
    """`start`, `end` (hex), `after` (arrival number; default: what arrives from now on).

    Events carry the arrival number as their id; a client that comes back with `Last-Event-ID` goes
    on behind it. Where the watch cannot go on, its last event is called `problem`.
    """
    call.only_query("start", "end", "after")
    feed = call.feed()
    start, end = call.range()
    after = call.number("after", feed.record().top_seq, 0, MAX_SEQ)
    resumed = call.request.getHeader(b"last-event-id")
    if resumed is not None and resumed.isdigit():
        after = min(int(resumed[:20]), MAX_SEQ)
    Watcher(call, feed, start, end, after).begin()
    return STREAMED


@implementer(IPushProducer)
class Watcher:
    """One open watch: the producer of one response."""

    def __init__(
        self, call: Call, feed: ServedFeed, start: bytes, end: bytes | None, after: int
    ) -> None:
        self._request = call.request
        self._clock = call.context.clock
        self._node = call.node
        self._feed = feed
        self._start, self._end = start, end
        self._seq = after
        self._paused = self._reading = self._over = False
        #: Something was stored since the last read began.
        self._woken = True
        self._unsubscribe = feed.subscribe(self._wake)
        # A node that keeps no copy of the range asks its peers for it as long as this is open.
        self._lose_interest = feed.take_interest(start, end)
        self._keep_alive: Any = None

    def begin(self) -> None:
        """Sends the head of the response and starts to read."""
        headers = self._request.responseHeaders
        headers.setRawHeaders(b"content-type", [b"text/event-stream"])
        headers.setRawHeaders(b"cache-control", [b"no-store"])
        self._request.notifyFinish().addBoth(lambda _: self.stopProducing())
        # The comment tells the client that nothing stored from now on will be missed.
        self._request.write(b": watching after %d\n\n" % self._seq)
        self._request.registerProducer(self, True)
        self._schedule_keep_alive()
        self._read()

    # What the transport says

    def pauseProducing(self) -> None:
        """The reader is behind: no more slices."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The reader has caught up."""
        self._paused = False
        self._read()

    def stopProducing(self) -> None:
        """The reader is gone."""
        if self._over:
            return
        self._over = True
        self._unsubscribe()
        self._lose_interest()
        if self._keep_alive is not None and self._keep_alive.active():
            self._keep_alive.cancel()

    # What the feed says

    def _wake(self, *_stored: object) -> None:
        self._woken = True
        self._read()

    def _read(self) -> None:
        if self._over or self._paused or self._reading or not self._woken:
            return
        self._reading, self._woken = True, False
        slice_ = self._feed.log_after(self._seq, limit=SLICE_VALUES, max_bytes=SLICE_BYTES)
        slice_.addCallbacks(self._write, self._fail)

    def _write(self, found: LogSlice) -> None:
        if self._over:
            return
        if found.records:
            self._seq = found.records[-1].seq
            self._woken = True
        text = "".join(self._event(record) for record in found.records if self._wanted(record))
        if text:
            self._request.write(text.encode("ascii"))
        # The next slice comes in another turn, so that a long log leaves the reactor to others.
        self._clock.callLater(0, self._again)

    def _again(self) -> None:
        self._reading = False
        self._read()

    def _wanted(self, record: LogRecord) -> bool:
        value = record.value
        return value >= self._start and (self._end is None or value < self._end)

    @staticmethod
    def _event(record: LogRecord) -> str:
        return (
            f'id: {record.seq}\ndata: {{"seq":{record.seq},"value":"{record.value.hex()}",'
            f'"origin":"{record.origin.hex()}","received_at":{record.received_at / 1e6:.6f}}}\n\n'
        )

    def _fail(self, failure: Failure) -> None:
        if self._over:
            return
        if failure.check(NoSuchFeed):
            self._end_response(FEED_LEFT)
            return
        log.failure("A watch ended early", failure)
        self._end_response(
            Problem(ProblemKind.UNEXPECTED, "the watch ended early; the node's log has the details")
        )

    def _end_response(self, problem: Problem) -> None:
        self.stopProducing()
        text = json.dumps(problem.as_json(), separators=(",", ":"))
        self._request.write(f"event: problem\ndata: {text}\n\n".encode("ascii"))
        self._request.unregisterProducer()
        self._request.finish()

    def _schedule_keep_alive(self) -> None:
        self._keep_alive = self._clock.callLater(KEEP_ALIVE_SECONDS, self._send_keep_alive)

    def _send_keep_alive(self) -> None:
        if self._node.feeds.get(self._feed.key) is not self._feed:
            self._end_response(FEED_LEFT)
            return
        if not self._paused:
            self._request.write(b":\n\n")
        self._schedule_keep_alive()
