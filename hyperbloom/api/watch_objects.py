"""Watching the pool: what happens to objects, as text/event-stream.

There is no log of what happened to objects, so a watch holds what its reader has not taken, and
that is bounded: a reader that falls behind by MAX_WAITING events is told so, and reads the pool
anew.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web has no annotations on its requests)
from __future__ import annotations

import json
from collections import deque
from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from hyperbloom.api.call import STREAMED, Answer, Call
from hyperbloom.api.node import ServedPool
from hyperbloom.api.objects import object_form, served_objects
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.watch import KEEP_ALIVE_SECONDS
from hyperbloom.store import Outcome, Verdict
from hyperbloom.store.object_forms import hash_text

__all__ = ["MAX_WAITING", "ObjectWatcher", "watch_objects"]

#: Events that wait for a slow reader; about as many kilobytes.
MAX_WAITING = 10_000

_KINDS = {
    Verdict.CREATED: "created",
    Verdict.CHANGED: "changed",
    Verdict.REMOVED: "removed",
    Verdict.MERGED: "removed",
}
BEHIND = Problem(
    ProblemKind.TOO_MANY, "the watch fell behind and has missed something; list the objects again"
)


def watch_objects(call: Call) -> Answer:
    """Everything that happens from now on: events `created`, `changed`, `removed`.

    Their data is `{"before": object or null, "after": object or null}`.
    """
    call.only_query()
    ObjectWatcher(call, served_objects(call).pool).begin()
    return STREAMED


@implementer(IPushProducer)
class ObjectWatcher:
    """One open watch: the producer of one response."""

    def __init__(self, call: Call, pool: ServedPool) -> None:
        self._request = call.request
        self._clock = call.context.clock
        self._waiting: deque[bytes] = deque()
        self._paused = self._over = False
        self._keep_alive: Any = None
        self._unsubscribe = pool.subscribe(self._told)

    def begin(self) -> None:
        """Sends the head of the response."""
        headers = self._request.responseHeaders
        headers.setRawHeaders(b"content-type", [b"text/event-stream"])
        headers.setRawHeaders(b"cache-control", [b"no-store"])
        self._request.notifyFinish().addBoth(lambda _: self.stopProducing())
        self._request.write(b": watching objects\n\n")
        self._request.registerProducer(self, True)
        self._schedule_keep_alive()

    def pauseProducing(self) -> None:
        """The reader is behind: events wait."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The reader has caught up."""
        self._paused = False
        while self._waiting and not self._paused and not self._over:
            self._request.write(self._waiting.popleft())

    def stopProducing(self) -> None:
        """The reader is gone."""
        if self._over:
            return
        self._over = True
        self._unsubscribe()
        self._waiting.clear()
        if self._keep_alive is not None and self._keep_alive.active():
            self._keep_alive.cancel()

    def _told(self, outcome: Outcome, source: object) -> None:
        kind = _KINDS.get(outcome.verdict)
        if kind is None or self._over:
            return
        event = _event(kind, outcome)
        if not self._paused:
            self._request.write(event)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(event)
        else:
            self._fall_behind()

    def _fall_behind(self) -> None:
        self.stopProducing()
        text = json.dumps(BEHIND.as_json(), separators=(",", ":"))
        self._request.write(f"event: problem\ndata: {text}\n\n".encode("ascii"))
        self._request.unregisterProducer()
        self._request.finish()

    def _schedule_keep_alive(self) -> None:
        self._keep_alive = self._clock.callLater(KEEP_ALIVE_SECONDS, self._send_keep_alive)

    def _send_keep_alive(self) -> None:
        if not self._paused:
            self._request.write(b":\n\n")
        self._schedule_keep_alive()


def _event(kind: str, outcome: Outcome) -> bytes:
    removed = outcome.verdict in (Verdict.REMOVED, Verdict.MERGED)
    form = {
        "before": None if outcome.before is None else object_form(outcome.before),
        "after": None if removed or outcome.after is None else object_form(outcome.after),
    }
    number = outcome.before.hash if outcome.before is not None else outcome.hash
    text = json.dumps(form, separators=(",", ":"), allow_nan=False)
    return f"event: {kind}\nid: {hash_text(number)}\ndata: {text}\n\n".encode("ascii")
