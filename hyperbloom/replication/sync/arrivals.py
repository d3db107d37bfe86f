"""What a peer has sent and is not on disk yet, on its way there piece by piece.

A frame may hold 40,000 tiny values, and writing them takes a second. So the writer has a few pieces
of a key at a time, over all its connections, and none while the key rests: who comes meanwhile, or
inserts here, does not wait behind all of it. Each piece is charged to the key once it is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.python.failure import Failure

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.replication.limits import GROUPS_AHEAD
from hyperbloom.store import StoreError
from hyperbloom.store.operations import pieces_of, written_bytes
from hyperbloom.store.records import Appended

if TYPE_CHECKING:
    from hyperbloom.replication.sync.peer import Peering

__all__ = ["Arrivals"]


class Arrivals:
    """Values of one connection; `bytes` is what they weigh that are not on disk."""

    def __init__(self, peer: Peering) -> None:
        self._peer = peer
        self._pieces: deque[Sequence[bytes]] = deque()
        self._is_giving = False
        #: What was written in this turn of the reactor: the writer answers for a group at once.
        self._written = 0
        self.bytes = 0

    def add(self, values: Sequence[bytes]) -> None:
        """Values have come; they are written though the connection ends."""
        size = written_bytes(values)
        self.bytes += size
        self._peer.share.unwritten += size
        self._pieces.extend(pieces_of(values))
        self._go_on()

    def _go_on(self) -> None:
        """Give the writer what may be written now, unless that is going on."""
        if self._is_giving:
            return
        self._is_giving = True
        try:
            while self._pieces and self._has_room():
                self._write(self._pieces.popleft())
        finally:
            self._is_giving = False

    def _has_room(self) -> bool:
        """Whether the writer may have one more piece; if not, it is looked at again."""
        share, context = self._peer.share, self._peer.context
        rests = context.shares.rests(share)
        if not rests and share.writing < GROUPS_AHEAD * context.writer.figures.group_bytes:
            return True
        share.wait(self._go_on)
        if rests:
            share.wake_after_rest(context.clock)
        return False

    def _write(self, piece: Sequence[bytes]) -> None:
        peer, share, size = self._peer, self._peer.share, written_bytes(piece)
        share.writing += size

        def stored(appended: Appended) -> None:
            if appended.values:
                peer.brought_new(len(appended.values))

        def not_stored(failure: Failure) -> None:
            failure.trap(StoreError)
            why = f"values could not be stored: {failure.value}"
            peer.connection.close(CloseReason("store", why))

        def written(_: object) -> None:
            if not self._written:
                peer.context.clock.callLater(0, self._settle)
            self._written += size

        accepted = peer.feed.accept(piece, peer.remote_key)
        accepted.addCallbacks(stored, not_stored)
        accepted.addErrback(peer.job_failed)
        accepted.addBoth(written)

    def _settle(self) -> None:
        """Count what was written, and go on."""
        size, self._written = self._written, 0
        share = self._peer.share
        self.bytes -= size
        share.unwritten -= size
        share.writing -= size
        self._charge(size)
        share.wake()
        self._go_on()

    def _charge(self, size: int) -> None:
        """What storing values of this weight took; as much again if others are told of them.

        Those store them as well, each beside what it takes from here.
        """
        peer, context = self._peer, self._peer.context
        seconds = size * context.writer.figures.seconds_a_byte
        if any(other.remote_key != peer.remote_key for other in peer.feed.peers):
            seconds *= 2
        context.shares.charge(peer.share, seconds)
