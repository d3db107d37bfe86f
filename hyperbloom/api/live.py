"""The node at a glance, again and again: what the status page lives on.

One frame is made for all readers, at most once a second, and only while somebody reads. A reader
that is behind is sent nothing until it has caught up, and then the newest frame: it costs the
memory of one.
"""

# mypy: disallow-untyped-calls=False
# (twisted.web has no annotations on its requests)
from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

from hyperbloom.api.call import STREAMED, Answer, Call
from hyperbloom.api.nodes import status_form
from hyperbloom.api.recent import ErrorForm

if TYPE_CHECKING:
    from hyperbloom.api.call import Context
    from hyperbloom.replication.status import PeerStatus

__all__ = [
    "ANSWER_SECONDS",
    "FRAME_SECONDS",
    "SHARED_SECONDS",
    "Frames",
    "LiveReader",
    "Step",
    "StepForm",
    "step",
    "watch_node",
]

#: How often a reader is sent a frame.
FRAME_SECONDS = 2.0
#: How long one frame is good enough for another reader.
SHARED_SECONDS = 1.0
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


@implementer(IPushProducer)
class LiveReader:
    """One reader of the frames: the producer of its response."""

    def __init__(self, call: Call, frames: Frames) -> None:
        self._request = call.request
        self._clock = call.context.clock
        self._frames = frames
        self._paused = self._over = False
        self._call: Any = None

    def begin(self) -> None:
        """Sends the head of the response and the first frame."""
        self._request.responseHeaders.setRawHeaders(b"content-type", [b"text/event-stream"])
        self._request.responseHeaders.setRawHeaders(b"cache-control", [b"no-store"])
        self._request.notifyFinish().addBoth(lambda _: self.stopProducing())
        self._request.registerProducer(self, True)
        self._send()

    def _send(self) -> None:
        if self._over:
            return
        self._call = self._clock.callLater(FRAME_SECONDS, self._send)
        if not self._paused:
            self._request.write(self._frames.newest())

    def pauseProducing(self) -> None:
        """The reader is behind: it is sent nothing."""
        self._paused = True

    def resumeProducing(self) -> None:
        """The reader has caught up: the next frame is for it, too."""
        self._paused = False

    def stopProducing(self) -> None:
        """The reader is gone."""
        self._over = True
        if self._call is not None and self._call.active():
            self._call.cancel()
