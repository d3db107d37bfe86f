"""The jobs of one connection: broadcast, replies and our own Sync plan (see send_scheduler.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred

from hyperbloom.replication.broadcast.stream import StreamSlice
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import MAX_UNPACKED_FILTERS, PEER_KNOWN_VALUES
from hyperbloom.replication.schedule.plan import FILTER_BYTES, Asked, SyncPlan
from hyperbloom.replication.sync.peer_port import PeerPort
from hyperbloom.replication.sync.reply import Answer
from hyperbloom.wire import Request, Sync

__all__ = ["Broadcast", "FollowUps", "PlanJob", "Replies", "plan_of"]

T = TypeVar("T")

#: Seconds after which is looked again whether a peer that reads too little has read.
FULL_SECONDS = 0.1

#: Seconds after which an answer looks whether it has its turn, if it was not told so before.
PACED_SECONDS = 5.0


class Broadcast:
    """Sends what is stored from now on: where the peer stands in the feed's stream.

    `cursor` is the seq up to which the peer has been told. Values that the peer brought itself,
    or sent as well while they waited here, are left out.
    """

    __slots__ = ("_known", "_peer", "_stream", "cursor", "ready_at")

    def __init__(self, peer: PeerPort, cursor: int) -> None:
        self._peer = peer
        self._stream = peer.feed.stream
        self.cursor = cursor
        self.ready_at = 0.0
        #: Hashes of what the peer has of what it will come to; None: of nothing.
        self._known: deque[int] | None = None

    def tell(self) -> None:
        """The stream has more: send it now where that is possible, else when it is its turn."""
        stream, peer = self._stream, self._peer
        if self.cursor < stream.top and peer.scheduler.is_idle and peer.output.has_room:
            piece = stream.slice_after(self.cursor)
            if piece is not None:
                self._send(piece)
        if self.cursor < stream.top:
            peer.scheduler.add(self)

    def peer_has(self, values: Sequence[bytes]) -> None:
        """The peer sent these itself; worth remembering only while something waits for it."""
        if self.cursor < self._peer.feed.values.top_seq:
            if self._known is None:
                self._known = deque(maxlen=PEER_KNOWN_VALUES)
            self._known.extend(map(hash, values))

    async def step(self) -> bool:
        """Send the next slice; more is to come while the peer has not reached the stream's top."""
        stream, peer = self._stream, self._peer
        if self.cursor >= stream.top:
            return False
        shares, now = peer.context.shares, peer.context.clock.seconds()
        rest = shares.rests(peer.share)
        if rest or not peer.output.has_room:
            self.ready_at = now + (rest or FULL_SECONDS)
            return True
        await stream.turn(peer.path)
        piece = stream.slice_after(self.cursor)
        if piece is None:
            piece = await stream.read_after(self.cursor)
            shares.charge(peer.share, piece.seconds)
        self._send(piece)
        return self.cursor < stream.top

    def _send(self, piece: StreamSlice) -> None:
        """Send a slice, or leave it to the broadcast tree to tell its ids."""
        self.cursor = max(self.cursor, piece.last_seq)
        if self._peer.tree.pushes(piece):
            self._push(piece)
        if self.cursor >= self._peer.feed.values.top_seq:
            self._known = None

    def _push(self, piece: StreamSlice) -> None:
        """Send a slice as it is, or what of it the peer does not have."""
        peer, origin = self._peer, self._peer.remote_key
        if origin in piece.of or self._known:
            known = set(self._known or ())
            pairs = zip(piece.values, piece.origins, strict=True)
            peer.output.send_values([v for v, of in pairs if of != origin and hash(v) not in known])
        else:
            peer.output.send_frames(piece.frames, piece.values)


class Replies:
    """Sends the peer what it asked for, in the order it asked, one slice a step."""

    __slots__ = ("_has_turn", "_keeps_filter", "_peer", "_waiting", "ready_at")

    def __init__(self, peer: PeerPort) -> None:
        self._peer = peer
        # A tuple, as few wait, and an empty one costs nothing.
        self._waiting: tuple[Answer, ...] = ()
        self._keeps_filter = self._has_turn = False
        self.ready_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, reply: Answer) -> None:
        """Put an answer behind those under way."""
        self._waiting += (reply,)
        self._peer.context.shares.rooms.asked.hold(self._peer.share, reply.weight)
        self._peer.scheduler.add(self)

    async def step(self) -> bool:
        """Send the next portion of the first answer; slow down a peer that asks too much.

        A key that has to rest gets nothing of what is at hand for others, either.
        """
        if not self._waiting:
            return False
        rest = self._peer.context.shares.rests(self._peer.share)
        is_paced = self._waiting[0].is_paced
        if is_paced and not self._has_turn and self._peer.pace.rests:
            self._peer.pace.wait(self._take_turn)
            self.ready_at = self._peer.context.clock.seconds() + PACED_SECONDS
            return True
        if rest or not self._peer.output.has_room:
            self.ready_at = self._peer.context.clock.seconds() + (rest or FULL_SECONDS)
            return True
        reply = self._waiting[0]
        self._has_turn = False
        work = self._paced_work if is_paced else self._peer.work
        signed = await reply.next_signed(work, self._peer.output.sign)
        self._keep_filter(reply)
        await self._peer.output.send_answer(signed)
        wait = self._peer.answered(reply.take_tested())
        self.ready_at = self._peer.context.clock.seconds() + wait if wait else 0.0
        if reply.done and self._waiting:
            self._forget_first()
            self._peer.answer_done(reply)
        return bool(self._waiting)

    def _take_turn(self) -> None:
        """Its work as that of a small message may be done now."""
        self._has_turn, self.ready_at = True, 0.0
        self._peer.scheduler.wake()

    def _paced_work(self, call: Callable[[], T]) -> Deferred[T]:
        """Do it in a thread, and count what it takes as the work of a small message."""
        peer = self._peer
        seconds: list[float] = []

        def timed() -> T:
            begun = peer.context.work_seconds()
            try:
                return call()
            finally:
                seconds.append(peer.context.work_seconds() - begun)

        def ended(outcome: Any) -> Any:
            peer.pace.spend(sum(seconds))
            return outcome

        return peer.work(timed).addBoth(ended)

    def _keep_filter(self, reply: Answer) -> None:
        """Keep the filter unpacked between the steps, if its key has not many of them."""
        share, room = self._peer.share, self._peer.context.shares.rooms.filters
        if reply.is_unfolded and not self._keeps_filter:
            has_room = room.of(share) < MAX_UNPACKED_FILTERS and room.allows(share)
            if not has_room or not self._waiting:
                reply.fold()
            else:
                room.hold(share, 1)
                self._keeps_filter = True

    def _forget_first(self) -> None:
        reply, *others = self._waiting
        self._waiting = tuple(others)
        reply.end()
        share, rooms = self._peer.share, self._peer.context.shares.rooms
        rooms.asked.hold(share, -reply.weight)
        if self._keeps_filter:
            self._keeps_filter = False
            rooms.filters.hold(share, -1)

    def drop(self) -> None:
        """The connection is over: nothing is answered any more."""
        self._peer.pace.forget(self._take_turn)
        while self._waiting:
            self._forget_first()


def plan_of(feed: Feed, filter_bytes: int = FILTER_BYTES) -> SyncPlan:
    """A fresh plan of what to ask a peer for, with filters of at most so many bytes."""
    context = feed.context
    return SyncPlan(
        feed.lacking,
        # What is forgotten is listed as well, or peers would send it with every Sync.
        read=feed.values.slices.settled,
        seed=lambda: int.from_bytes(context.random_bytes(4), "big"),
        false_positive=context.sync.false_positive,
        refused=feed.values.refused,
        filter_bytes=filter_bytes,
    )


class PlanJob:
    """Our own Sync plan with this peer, one filter a step.

    `waiting` are the questions that await an answer. `asked` is called when all filters are sent,
    with the seconds that making them took.
    """

    def __init__(
        self, peer: PeerPort, plan: SyncPlan, waiting: Asked, asked: Callable[[float], None]
    ) -> None:
        self._peer = peer
        self._plan = plan
        self._waiting = waiting
        self._asked = asked
        self._seconds = 0.0
        self.ready_at = 0.0

    async def step(self) -> bool:
        """Build the next filter in a thread and send it."""
        peer = self._peer
        clock = peer.context.clock
        if peer.owes_answers or self._waiting.is_full(now=clock.seconds()):
            self.ready_at = clock.seconds() + FULL_SECONDS
            return True
        limit = peer.reply_limit()
        begun = clock.seconds()
        sync = await peer.work(lambda: self._plan.next_sync(limit=limit))
        self._seconds += clock.seconds() - begun
        if sync is not None:
            peer.ask(sync)
        if self._plan.done:
            self._asked(self._seconds)
        return not self._plan.done


class FollowUps:
    """Asks for the rest where a reply of a peer that cannot split them was full."""

    __slots__ = ("_asked", "_next", "_peer")

    ready_at = 0.0

    def __init__(self, peer: PeerPort, asked: Asked) -> None:
        self._peer = peer
        self._asked = asked
        self._next: tuple[tuple[Sync | Request, int | None], ...] = ()

    def __len__(self) -> int:
        return len(self._next)

    def received(self, values: Sequence[bytes]) -> bool:
        """A Data came; if it was a full reply (then true) the next question follows."""
        following = self._asked.answered(values)
        if following is not None:
            self._next += (following,)
            self._peer.scheduler.add(self)
        return following is not None

    async def step(self) -> bool:
        """Send the next question."""
        if self._next:
            following, *others = self._next
            self._next = tuple(others)
            self._peer.ask(*following)
        return bool(self._next)
