"""The node at a glance, again and again: what the status page lives on.

One frame is made for all readers, at most once a second, and only while somebody reads. A reader
that is behind is sent nothing until it has caught up, and then the newest frame: it costs the
memory of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from twisted.logger import Logger

from hyperbloom.api.endpoints.node import status_form
from hyperbloom.api.http.events import EventStream
from hyperbloom.api.http.request import STREAMED, Answer, Call
from hyperbloom.api.limits import FRAME_SECONDS, SHARED_SECONDS
from hyperbloom.api.monitoring.recent_errors import ErrorForm

if TYPE_CHECKING:
    from hyperbloom.api.http.request import Context
    from hyperbloom.replication.status import PeerStatus

__all__ = [
    "ANSWER_SECONDS",
    "Frames",
    "LiveReader",
    "Step",
    "StepForm",
    "step",
    "watch_node",
]

#: What an answer to a Sync may take; before that nothing can be said.
ANSWER_SECONDS = 2.0

#: How a peer stands: `asking`: our Sync is not answered yet, or none was sent; `receiving`: it had
#: something that was missing here, since our last Sync; `in-step`: it had nothing.
Step = Literal["asking", "receiving", "in-step"]

log = Logger()


class StepForm(TypedDict):
    """How the peers of a feed stand; `last_sync`: seconds since 1970, null: none yet."""

    peers: int
    in_step: int
    last_sync: float | None


def step(peer: PeerStatus, *, now: float) -> Step:
    """How a peer stands at `now`: by a comparison, else by what came since our last Sync."""
    compared = peer.in_sync_at if peer.in_sync else None
    if compared is not None and (peer.last_new is None or peer.last_new <= compared):
        return "in-step"
    asked = peer.last_sync_sent
    if asked is None:
        return "asking"
    if peer.last_new is not None and peer.last_new >= asked:
        return "receiving"
    return "in-step" if now - asked >= ANSWER_SECONDS else "asking"


def _steps(peers: Iterable[PeerStatus], now: float) -> dict[str, StepForm]:
    found: dict[str, StepForm] = {}
    for peer in peers:
        form = found.setdefault(peer.feed.hex(), {"peers": 0, "in_step": 0, "last_sync": None})
        form["peers"] += 1
        form["in_step"] += step(peer, now=now) == "in-step"
        moments = (form["last_sync"], peer.last_sync_sent, peer.in_sync_at)
        syncs = [moment for moment in moments if moment is not None]
        form["last_sync"] = max(syncs, default=None)
    return found


class Frames:
    """Makes the frames. `errors`: what the log said last."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._made: bytes = b""
        self._at = float("-inf")

    def newest(self) -> bytes:
        """A frame that is not older than `SHARED_SECONDS`, as an event."""
        context = self._context
        moment = context.clock.seconds()
        if moment - self._at >= SHARED_SECONDS:
            text = json.dumps(self._frame(), separators=(",", ":"))
            self._made = f"event: node\ndata: {text}\n\n".encode()
            self._at = moment
        return self._made

    def _frame(self) -> dict[str, Any]:
        context = self._context
        now, recent = context.now(), context.recent
        errors: list[ErrorForm] = [] if recent is None else recent.newest()
        return {
            "at": now,
            "status": status_form(context),
            "steps": _steps(context.node.peers(), now),
            "errors": errors,
        }


def watch_node(call: Call) -> Answer:
    """The node at a glance, as an event every two seconds, for as long as the client stays."""
    call.only_query()
    LiveReader(call, call.context.frames).begin()
    return STREAMED


class LiveReader(EventStream):
    """One reader of the frames: the producer of its response."""

    BEAT_SECONDS = FRAME_SECONDS

    def __init__(self, call: Call, frames: Frames) -> None:
        super().__init__(call)
        self._frames = frames

    def started(self) -> None:
        """Sends the first frame."""
        self.beat()

    def beat(self) -> None:
        """Sends a frame; a reader that is behind gets the one after it has caught up."""
        if not self.paused:
            self.write(self._frames.newest())
