"""The node at a glance, again and again: what the status page lives on.

One frame is made for all readers, at most once a second, and only while somebody reads. A reader
that is behind is sent nothing until it has caught up, and then the newest frame: it costs the
memory of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from hyperbloom.api.endpoints.node import status_form
from hyperbloom.api.http.events import EventStream
from hyperbloom.api.http.request import STREAMED, Answer, Call
from hyperbloom.api.limits import FRAME_SECONDS, SHARED_SECONDS
from hyperbloom.api.monitoring.recent_errors import ErrorForm

if TYPE_CHECKING:
    from hyperbloom.api.monitoring.recent_errors import RecentErrors
    from hyperbloom.api.served import ServedDiscovery, ServedNode, ServedObjects
    from hyperbloom.replication.status import PeerStatus

__all__ = [
    "ANSWER_SECONDS",
    "StatusFrames",
    "StatusReader",
    "Step",
    "SyncStepForm",
    "step",
    "watch_node",
]

#: What an answer to a Sync may take; before that nothing can be said.
ANSWER_SECONDS = 2.0

#: How a peer stands: `asking`: our Sync is not answered yet, or none was sent; `receiving`: it had
#: something that was missing here, since our last Sync; `in-step`: it had nothing.
Step = Literal["asking", "receiving", "in-step"]


class SyncStepForm(TypedDict):
    """How the peers of a feed stand; `last_sync`: seconds since 1970, null: none yet."""

    peers: int
    in_step: int
    last_sync: float | None


def step(peer: PeerStatus, *, now: float) -> Step:
    """How a peer stands at `now`: by a comparison, else by what came since our last Sync."""
    compared = peer.in_sync_at if peer.in_sync else None
    if compared is not None and (peer.last_new is None or peer.last_new <= compared):
        return "in-step"
    asked = _asked_at(peer)
    if asked is None:
        return "asking"
    if peer.last_new is not None and peer.last_new >= asked:
        return "receiving"
    return "in-step" if now - asked >= ANSWER_SECONDS else "asking"


def _asked_at(peer: PeerStatus) -> float | None:
    """When the peer was last asked for what differs, in either way."""
    by_round = None if peer.last_round is None else peer.last_round.at
    return max((at for at in (peer.last_sync_sent, by_round) if at is not None), default=None)


def _steps(peers: Iterable[PeerStatus], now: float) -> dict[str, SyncStepForm]:
    found: dict[str, SyncStepForm] = {}
    for peer in peers:
        form = found.setdefault(peer.feed.hex(), {"peers": 0, "in_step": 0, "last_sync": None})
        form["peers"] += 1
        form["in_step"] += step(peer, now=now) == "in-step"
        moments = (form["last_sync"], _asked_at(peer), peer.in_sync_at)
        syncs = [moment for moment in moments if moment is not None]
        form["last_sync"] = max(syncs, default=None)
    return found


class StatusFrames:
    """Makes the frames for all readers of the status page.

    recent: what the log said last; the other arguments are those of the API's `Context`.
    """

    def __init__(
        self,
        node: ServedNode,
        *,
        discovery: ServedDiscovery | None,
        objects: ServedObjects | None,
        recent: RecentErrors | None,
        clock: Any,
    ) -> None:
        self._node = node
        self._discovery, self._objects = discovery, objects
        self._recent = recent
        self._clock = clock
        self._made: bytes = b""
        self._at = float("-inf")

    def newest(self) -> bytes:
        """A frame that is not older than `SHARED_SECONDS`, as an event."""
        moment = self._clock.seconds()
        if moment - self._at >= SHARED_SECONDS:
            text = json.dumps(self._frame(), separators=(",", ":"))
            self._made = f"event: node\ndata: {text}\n\n".encode()
            self._at = moment
        return self._made

    def _frame(self) -> dict[str, Any]:
        now = self._node.context.now()
        errors: list[ErrorForm] = [] if self._recent is None else self._recent.newest()
        return {
            "at": now,
            "status": status_form(self._node, self._discovery, self._objects),
            "steps": _steps(self._node.peers(), now),
            "errors": errors,
        }


def watch_node(call: Call) -> Answer:
    """The node at a glance, as an event every two seconds, for as long as the client stays."""
    call.only_query()
    StatusReader(call).begin()
    return STREAMED


class StatusReader(EventStream):
    """One reader of the frames: the producer of its response."""

    BEAT_SECONDS = FRAME_SECONDS

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._frames = call.context.status_frames

    def started(self) -> None:
        """Sends the first frame."""
        self.beat()

    def beat(self) -> None:
        """Sends a frame; a reader that is behind gets the one after it has caught up."""
        if not self.paused:
            self.write(self._frames.newest())
