"""An answer that goes on: text/event-stream (WHATWG HTML, 9.2) to a reader of any speed.

The transport says when the reader is behind and when it has caught up. What a stream does meanwhile
is its own affair; it must be bounded. A comment every few seconds lets both sides notice that the
other is gone, and a stream that cannot go on ends with an event called `problem`.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web has no annotations on its requests)
from __future__ import annotations

import json
from typing import Any, ClassVar

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from hyperbloom.api.http.request import Call
from hyperbloom.api.limits import KEEP_ALIVE_SECONDS
from hyperbloom.api.problems import Problem

__all__ = ["EventStream"]


@implementer(IPushProducer)
class EventStream:
    """The producer of one response; a subclass writes events while not `paused`."""

    #: How often `beat` is called, in seconds.
    BEAT_SECONDS: ClassVar[float] = KEEP_ALIVE_SECONDS

    def __init__(self, call: Call) -> None:
        self._request = call.request
        self._clock = call.context.clock
        self.paused = self.over = False
        self._beat: Any = None

    def begin(self) -> None:
        """Sends the head of the response; `started` comes next."""
        headers = self._request.responseHeaders
        headers.setRawHeaders(b"content-type", [b"text/event-stream"])
        headers.setRawHeaders(b"cache-control", [b"no-store"])
        self._request.notifyFinish().addBoth(lambda _: self.stopProducing())
        self._request.registerProducer(self, True)
        self._schedule()
        self.started()

    def write(self, data: bytes) -> None:
        """Hands text to the transport, unless the reader is gone."""
        if not self.over:
            self._request.write(data)

    def end(self, problem: Problem) -> None:
        """The last event says why there is no other; nothing if the reader is gone."""
        if self.over:
            return
        self.stopProducing()
        text = json.dumps(problem.as_json(), separators=(",", ":"))
        self._request.write(f"event: problem\ndata: {text}\n\n".encode("ascii"))
        self._request.unregisterProducer()
        self._request.finish()

    # What the transport says

    def pauseProducing(self) -> None:
        """The reader is behind."""
        self.paused = True

    def resumeProducing(self) -> None:
        """The reader has caught up."""
        self.paused = False
        if not self.over:
            self.caught_up()

    def stopProducing(self) -> None:
        """The reader is gone, or the stream has ended."""
        if self.over:
            return
        self.over = True
        if self._beat is not None and self._beat.active():
            self._beat.cancel()
        self.released()

    # For subclasses

    def started(self) -> None:
        """Called once the head is sent."""

    def caught_up(self) -> None:
        """Called when the reader takes more again."""

    def released(self) -> None:
        """Called once, at the end: lets go of what the stream held."""

    def beat(self) -> None:
        """Called every `BEAT_SECONDS`: a comment, unless the reader is behind."""
        if not self.paused:
            self.write(b":\n\n")

    def _schedule(self) -> None:
        self._beat = self._clock.callLater(self.BEAT_SECONDS, self._on_beat)

    def _on_beat(self) -> None:
        self._schedule()
        self.beat()
