"""Watching the pool: what happens to objects, as text/event-stream.

There is no log of what happened to objects, so a watch holds what its reader has not taken, and
that is bounded: a reader that falls behind by more than MAX_WAITING_BYTES is told so, and reads the
pool anew.
"""

from __future__ import annotations

import json
from collections import deque

from hyperbloom.api.endpoints.objects import object_form, served_objects
from hyperbloom.api.http.events import EventStream
from hyperbloom.api.http.request import STREAMED, Answer, Call
from hyperbloom.api.limits import MAX_WAITING_BYTES
from hyperbloom.api.problems import Problem
from hyperbloom.api.served import ServedPool
from hyperbloom.errors import ErrorKind
from hyperbloom.json_fields import hash_text
from hyperbloom.store.objects.records import Outcome, Verdict

__all__ = ["ObjectWatcher", "watch_objects"]

_KINDS = {
    Verdict.CREATED: "created",
    Verdict.CHANGED: "changed",
    Verdict.REMOVED: "removed",
    Verdict.MERGED: "removed",
}
BEHIND = Problem(
    ErrorKind.TOO_MANY, "the watch fell behind and has missed something; list the objects again"
)


def watch_objects(call: Call) -> Answer:
    """Everything that happens from now on: events `created`, `changed`, `removed`.

    Their data is `{"before": object or null, "after": object or null}`.
    """
    call.only_query()
    ObjectWatcher(call, served_objects(call).pool).begin()
    return STREAMED


class ObjectWatcher(EventStream):
    """One open watch: the producer of one response."""

    def __init__(self, call: Call, pool: ServedPool) -> None:
        super().__init__(call)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._unsubscribe = pool.subscribe(self._told)

    def started(self) -> None:
        """From here on nothing is missed."""
        self.write(b": watching objects\n\n")

    def caught_up(self) -> None:
        """Sends what has waited, until the reader is behind again."""
        while self._waiting and not self.paused and not self.over:
            event = self._waiting.popleft()
            self._waiting_bytes -= len(event)
            self.write(event)

    def released(self) -> None:
        """Lets go of the pool, and of what has waited."""
        self._unsubscribe()
        self._waiting.clear()

    def _told(self, outcome: Outcome, source: object) -> None:
        kind = _KINDS.get(outcome.verdict)
        if kind is None or self.over:
            return
        event = _event(kind, outcome)
        # What waits goes first, also in the turn in which the reader has caught up.
        if not self.paused and not self._waiting:
            self.write(event)
        elif self._waiting_bytes + len(event) <= MAX_WAITING_BYTES:
            self._waiting.append(event)
            self._waiting_bytes += len(event)
        else:
            self.end(BEHIND)


def _event(kind: str, outcome: Outcome) -> bytes:
    removed = outcome.verdict in (Verdict.REMOVED, Verdict.MERGED)
    form = {
        "before": None if outcome.before is None else object_form(outcome.before),
        "after": None if removed or outcome.after is None else object_form(outcome.after),
    }
    number = outcome.before.hash if outcome.before is not None else outcome.hash
    text = json.dumps(form, separators=(",", ":"), allow_nan=False)
    return f"event: {kind}\nid: {hash_text(number)}\ndata: {text}\n\n".encode("ascii")
