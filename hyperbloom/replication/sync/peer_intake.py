"""The values that a peer has sent, on their way to the disk piece by piece.

A frame may hold 40,000 tiny values, and writing them takes a second. So the writer has a few pieces
of a key at a time, over all its connections, and none while the key rests: who comes meanwhile, or
inserts here, does not wait behind all of it. Each piece is charged to the key once it is on disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.python.failure import Failure

from hyperbloom.connections.branches import Share
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.replication.counters import Counters
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import GROUPS_AHEAD
from hyperbloom.replication.sync.peer_output import Connection
from hyperbloom.store import StoreError
from hyperbloom.store.operations import pieces_of, written_bytes
from hyperbloom.store.records import Appended

__all__ = ["PeerIntake"]


class Settling(Protocol):
    """Who is told what became of the values of a peer (`tree_part.TreePart`)."""

    def written(self, values: Sequence[bytes], kept: Sequence[bytes]) -> None: ...
    def not_written(self, values: Sequence[bytes]) -> None: ...


class PeerIntake:
    """Hands what one peer sends to the feed, and counts it against the share of its key.

    `connection` is ended where the store fails, `failed` is called where anything else does; `tree`
    is told what became of the values.
    `is_shown`: whether the holder of the key is known to be really there.
    """

    __slots__ = (
        "_connection",
        "_context",
        "_counters",
        "_failed",
        "_feed",
        "_is_giving",
        "_pieces",
        "_remote_key",
        "_share",
        "_tree",
        "_when_shown",
        "_written",
        "is_shown",
        "unwritten",
    )

    def __init__(
        self,
        feed: Feed,
        remote_key: bytes,
        share: Share,
        counters: Counters,
        *,
        connection: Connection,
        failed: Callable[[Failure], None],
        is_shown: bool,
        tree: Settling,
    ) -> None:
        self._feed = feed
        self._context = feed.context
        self._remote_key = remote_key
        self._share = share
        self._counters = counters
        self._connection = connection
        self._failed = failed
        self._tree = tree
        #: Values that wait for the disk, in bytes, with what each costs there.
        self.unwritten = 0
        #: What is not with the writer yet, with what each piece weighs; None: nothing.
        self._pieces: deque[tuple[Sequence[bytes], int]] | None = None
        self._is_giving = False
        #: What was written in this turn of the reactor: the writer answers for a group at once.
        self._written = 0
        #: Whether something showed that the key's holder is really there, and who waits for it.
        self.is_shown = is_shown
        self._when_shown: tuple[Callable[[], None], ...] = ()

    def take(self, values: Sequence[bytes]) -> None:
        """Values have come; they are written though the connection ends."""
        pieces = [(piece, written_bytes(piece)) for piece in pieces_of(values)]
        size = sum(weight for _, weight in pieces)
        self._counters.values_in += len(values)
        self._counters.moved_at = self._context.clock.seconds()
        self._counters.last_data = self._context.now()
        self.unwritten += size
        self._context.shares.rooms.unwritten.hold(self._share, size)
        if self._pieces is None:
            self._pieces = deque()
        self._pieces.extend(pieces)
        self._go_on()

    def _go_on(self) -> None:
        """Give the writer what may be written now, unless that is going on."""
        if self._is_giving:
            return
        self._is_giving = True
        try:
            while self._pieces and self._has_room():
                self._write(*self._pieces.popleft())
            if not self._pieces:
                self._pieces = None
        finally:
            self._is_giving = False

    def _has_room(self) -> bool:
        """Whether the writer may have one more piece; if not, it is looked at again."""
        share, context = self._share, self._context
        rests = context.shares.rests(share)
        if not rests and share.writing < GROUPS_AHEAD * context.writer.figures.group_bytes:
            return True
        share.wait(self._go_on)
        if rests:
            context.shares.wake_after_rest(share)
        return False

    def _write(self, piece: Sequence[bytes], size: int) -> None:
        self._share.writing += size

        def written(_: object) -> None:
            if not self._written:
                self._context.clock.callLater(0, self._settle)
            self._written += size

        accepted = self._feed.values.accept(piece, self._remote_key, path=self._share.path)
        accepted.addCallbacks(
            self._stored, self._not_stored, callbackArgs=(piece,), errbackArgs=(piece,)
        )
        accepted.addErrback(self._failed)
        accepted.addBoth(written)

    def _settle(self) -> None:
        """Count what was written, and go on."""
        size, self._written = self._written, 0
        self.unwritten -= size
        self._context.shares.rooms.unwritten.hold(self._share, -size)
        self._share.writing -= size
        self._charge(size)
        self._share.wake()
        self._go_on()

    def _stored(self, appended: Appended, piece: Sequence[bytes]) -> None:
        self._tree.written(piece, appended.values)
        if appended.values:
            self._counters.values_new += len(appended.values)
            self._counters.last_new = self._context.now()
            self._show()

    def _not_stored(self, failure: Failure, piece: Sequence[bytes]) -> None:
        self._tree.not_written(piece)
        failure.trap(StoreError)
        self._connection.close(CloseReason("store", f"values could not be stored: {failure.value}"))

    def _charge(self, size: int) -> None:
        """What storing values of this weight took; as much again if others are told of them.

        Those store them as well, each beside what it takes from here.
        """
        seconds = size * self._context.writer.figures.seconds_a_byte
        if self._feed.peers.has_others_than(self._remote_key):
            seconds *= 2
        self._context.shares.charge(self._share, seconds)

    def when_shown(self, call: Callable[[], None]) -> None:
        """Call once something shows that the holder of the peer's key is really there.

        Its Handshake does not: whoever it was made for can pass it on. A protected stream does, at
        once; without, a value that was new here and came signed by the key, as far as protocol 2
        can show it.
        """
        if self.is_shown:
            call()
        else:
            self._when_shown += (call,)

    def _show(self) -> None:
        if not self._feed.dialect.data_signed:
            return
        self.is_shown = True
        waiting, self._when_shown = self._when_shown, ()
        for call in waiting:
            call()
