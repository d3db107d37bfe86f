"""The node at a glance, again and again: what the status page lives on.

One frame is made for all readers, at most once a second, and only while somebody reads. A reader
that is behind is sent nothing until it has caught up, and then the newest frame: it costs the
memory of one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from hyperbloom.api.endpoints.node import status_form
from hyperbloom.api.http.events import EventStream
from hyperbloom.api.http.request import STREAMED, Answer, Call
from hyperbloom.api.limits import FRAME_SECONDS, SHARED_SECONDS
from hyperbloom.api.monitoring.recent_errors import ErrorForm

if TYPE_CHECKING:
    from hyperbloom.api.monitoring.recent_errors import RecentErrors
    from hyperbloom.api.served import (
        ServedDiscovery,
        ServedIntegrations,
        ServedNode,
        ServedObjects,
    )
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

N = TypeVar("N", int, float)

#: What an answer to a Sync may take; before that nothing can be said.
ANSWER_SECONDS = 2.0

#: How a peer stands: `asking`: our Sync is not answered yet, or none was sent; `receiving`: it had
#: something that was missing here, since our last Sync; `in-step`: it had nothing.
Step = Literal["asking", "receiving", "in-step"]


class SyncStepForm(TypedDict):
    """How the peers of a feed stand; `last_sync`: seconds since 1970, null: none yet.

    `receiving`: from how many of them values come that were missing here. `expected`: how many
    values there will be at least, by what these told of themselves; null: none of them has.
    """

    peers: int
    in_step: int
    receiving: int
    expected: int | None
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
    return _greatest(peer.last_sync_sent, by_round)


def _steps(peers: Iterable[PeerStatus], now: float) -> dict[str, SyncStepForm]:
    found: dict[str, SyncStepForm] = {}
    for peer in peers:
        form = found.setdefault(
            peer.feed.hex(),
            {"peers": 0, "in_step": 0, "receiving": 0, "expected": None, "last_sync": None},
        )
        form["peers"] += 1
        stands = step(peer, now=now)
        form["in_step"] += stands == "in-step"
        if stands == "receiving":
            form["receiving"] += 1
            form["expected"] = _greatest(form["expected"], peer.expected)
        form["last_sync"] = _greatest(form["last_sync"], _asked_at(peer), peer.in_sync_at)
    return found


def _greatest(*found: N | None) -> N | None:
    """The greatest of those that there are."""
    return max((one for one in found if one is not None), default=None)


class StatusFrames:
    """Makes the frames for all readers of the status page.

    recent: what the log said last. arrived: how many values came to each feed lately. The other
    arguments are those of the API's `Context`.
    """

    def __init__(
        self,
        node: ServedNode,
        *,
        discovery: ServedDiscovery | None,
        objects: ServedObjects | None,
        recent: RecentErrors | None,
        arrived: Callable[[], Mapping[bytes, int]],
        clock: Any,
        integrations: ServedIntegrations | None = None,
    ) -> None:
        self._node = node
        self._discovery, self._objects = discovery, objects
        self._integrations = integrations
        self._recent, self._arrived = recent, arrived
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
            "status": status_form(self._node, self._discovery, self._objects, self._integrations),
            "steps": _steps(self._node.peers(), now),
            "busy": {feed.hex(): count for feed, count in self._arrived().items()},
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
