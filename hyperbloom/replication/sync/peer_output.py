"""What is written to one peer: messages of its session, counted, and what it has not read yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hyperbloom.connections.branches import Share
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.rooms import Room
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.counters import Counters
from hyperbloom.replication.limits import MAX_UNSENT_BYTES
from hyperbloom.replication.reading.shared_slices import SignedValues
from hyperbloom.replication.sync.send_scheduler import SendScheduler
from hyperbloom.trust import TrustLink
from hyperbloom.wire import (
    Digest,
    DigestRequest,
    FilterOptions,
    Request,
    Session,
    Sync,
)
from hyperbloom.wire.credentials import signed_frames
from hyperbloom.wire.extension_messages import ExtensionMessage
from hyperbloom.wire.extensions.broadcast_tree import ValuesPull, ValuesTold
from hyperbloom.wire.extensions.reconcile import ID_BYTES
from hyperbloom.wire.extensions.renew_links import RenewedChain
from hyperbloom.wire.packing import pack_values

__all__ = ["Connection", "PeerOutput"]


class Connection(Protocol):
    """What a peer needs of its connection."""

    @property
    def name(self) -> str:
        """HOST:PORT of the peer."""
        ...

    @property
    def outgoing(self) -> bool:
        """Whether this node dialled."""
        ...

    def write(self, data: bytes, /) -> None:
        """Send bytes."""

    def look_again(self) -> None:
        """The peer may be behind no longer: go on taking frames."""

    def strike(self, what: str, /) -> None:
        """The peer broke a rule, in words."""

    def close(self, why: CloseReason, /) -> None:
        """End the connection."""

    def tell(self, kind: str, what: str, /) -> None:
        """A kind of event and what it was, for the log."""


class SentTo(Protocol):
    """Who keeps what the peer holds (`sync_driver.SyncDriver`)."""

    def peer_was_sent(self, size: int) -> None:
        """The peer holds values of so many bytes more from now on."""


class PeerOutput:
    """Everything that one peer is told; nothing any more after `stop`.

    `sent_to` is told of the values that the peer was sent.
    """

    __slots__ = (
        "_connection",
        "_context",
        "_counters",
        "_scheduler",
        "_sent_to",
        "_session",
        "_share",
        "_stopped",
        "_unsent",
    )

    def __init__(
        self,
        connection: Connection,
        session: Session,
        scheduler: SendScheduler,
        share: Share,
        counters: Counters,
        context: FeedContext,
        sent_to: SentTo,
    ) -> None:
        self._connection = connection
        self._session = session
        self._scheduler = scheduler
        self._share = share
        self._counters = counters
        self._context = context
        self._sent_to = sent_to
        self._unsent = 0
        self._stopped = False
        scheduler.output = self

    def stop(self) -> None:
        """Send nothing any more: the connection is over."""
        self._stopped = True
        self._scheduler.stopProducing()
        self.was_read()

    def was_read(self) -> None:
        """The transport has room: the peer has read what was sent."""
        if self._unsent:
            self._room.hold(self._share, -self._unsent)
            self._unsent = 0

    @property
    def has_room(self) -> bool:
        """Whether the key has read enough of what was sent to it, on all its connections.

        And whether its branch, and each above it, has.
        """
        room = self._room
        return room.of(self._share) < MAX_UNSENT_BYTES and room.allows(self._share)

    @property
    def _room(self) -> Room:
        return self._context.shares.rooms.unsent

    # Values

    def send_values(self, values: Sequence[bytes]) -> None:
        """Send values in as many signed Data as they need."""
        if self._stopped or not values:
            return
        for portion in pack_values(values):
            self._write(self._session.send_data(portion))
            self._count(len(portion), sum(map(len, portion)))

    def send_frames(self, frames: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Send values whose frames were signed for all peers of the feed."""
        if self._stopped or not frames:
            return
        for frame in frames:
            self._write(self._session.send_encoded_data(frame))
        self._count(len(values), sum(map(len, values)))

    def sign(self, values: Sequence[bytes]) -> SignedValues:
        """Values as they can be sent to this peer. May be called in a thread."""
        credentials = self._session.credentials
        frames = [] if credentials is None else signed_frames(credentials, values)
        return SignedValues(frames, len(values), sum(map(len, values)))

    async def send_answer(self, signed: SignedValues) -> None:
        """Send values that were asked for, one frame a turn: encrypting them counts as its work."""
        work_seconds = self._context.work_seconds
        for frame in signed.frames:
            await self._context.answer_turns.turn(self._share.path)
            if self._stopped:
                return
            begun = work_seconds()
            self._write(self._session.send_encoded_data(frame))
            self._context.shares.charge(self._share, work_seconds() - begun)
        self._count(signed.count, signed.size)

    def _write(self, data: bytes) -> None:
        """Send bytes, and count what the peer has not read while the connection is full."""
        if not self._scheduler.paused:
            self.was_read()
        self._connection.write(data)
        if self._scheduler.paused:
            self._unsent += len(data)
            self._room.hold(self._share, len(data))

    def _count(self, values: int, size: int) -> None:
        self._counters.values_out += values
        self._counters.moved_at = self._context.clock.seconds()
        self._sent_to.peer_was_sent(size)

    # Everything else

    def send_sync(self, sync: Sync) -> None:
        """Ask by a filter for what is missing here."""
        if not self._stopped:
            self._connection.write(self._session.send_sync(sync))
            self._counters.last_sync_sent = self._context.now()
            self._counters.syncs_sent += 1

    def send_request(self, request: Request) -> None:
        """Ask for all values of a range."""
        if not self._stopped:
            self._connection.write(self._session.send_request(request))

    def send_extension(self, message: ExtensionMessage) -> None:
        """Send a message of an extension; what a try by symbols takes is counted, and ids are."""
        if self._stopped:
            return
        data = self._session.send_extension(message)
        match message:
            case DigestRequest() | Digest() | RenewedChain():
                self._connection.write(data)
                return
            case ValuesTold(ids=ids):
                self._counters.ids_told += len(ids) // ID_BYTES
            case ValuesPull(ids=ids):
                self._counters.values_pulled += len(ids) // ID_BYTES
            case _:
                self._counters.sketch_bytes += len(data)
        self._write(data)

    def send_filter_options(self, options: FilterOptions) -> None:
        """Recommend filters of another kind."""
        if not self._stopped:
            self._connection.write(self._session.send_filter_options(options))

    def send_link(self, link: TrustLink) -> None:
        """Give the peer a link that was issued to it."""
        if not self._stopped:
            self._connection.write(self._session.send_link(link))
