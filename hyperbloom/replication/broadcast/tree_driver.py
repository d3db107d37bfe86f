"""Runs the broadcast tree of a feed: its one timer, and what it has its peers say.

What is due is done in pieces, which take turns with those of other feeds. The time of a piece is
charged to those who told the ids that were looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hyperbloom.connections.timer import Timer
from hyperbloom.replication.broadcast.broadcast_tree import BroadcastTree, Command, Tell, TreeLink
from hyperbloom.replication.broadcast.catch_up import CatchUp
from hyperbloom.replication.context import FeedContext
from hyperbloom.store.records import Appended
from hyperbloom.trust import Path
from hyperbloom.wire.extensions.broadcast_tree import LinkKind

__all__ = ["TreeDriver", "TreePeer"]


class TreePeer(Protocol):
    """A peer that speaks the extension, as far as the tree tells it something."""

    def tell(self, ids: Sequence[bytes]) -> None: ...
    def pull(self, kind: LinkKind, ids: Sequence[bytes]) -> None: ...

    def charge(self, seconds: float) -> None:
        """Work was done because of ids that it told. It may be gone by then."""


class TreeDriver:
    """The tree, its clock, and the peers of its links."""

    def __init__(self, context: FeedContext) -> None:
        self.tree = BroadcastTree()
        self.catch_up = CatchUp()
        self._context = context
        self._peers: dict[TreeLink, TreePeer] = {}
        self._timer = Timer(context.clock, self._run)
        self._awaits_turn = False

    def join(self, peer: TreePeer, path: Path) -> TreeLink:
        """A peer that speaks the extension is secure."""
        link = self.tree.join(path)
        self._peers[link] = peer
        return link

    def leave(self, link: TreeLink) -> None:
        """It is gone."""
        self.tree.leave(link)
        if not link.told:
            del self._peers[link]
        self.set_timer()

    def stored(self, appended: Appended, _: bytes) -> None:
        """Values are on disk."""
        self.tree.stored(appended.values, low=appended.first_seq, high=appended.top_seq)

    def do(self, command: Command) -> None:
        """Have the peer of a link say something."""
        if command.link.is_gone:
            return  # saying something to another one has ended this connection
        peer = self._peers[command.link]
        if isinstance(command, Tell):
            peer.tell(command.ids)
        else:
            peer.pull(command.kind, command.ids)

    def set_timer(self) -> None:
        """One timer, at the next deadline."""
        if not self._awaits_turn:
            self._timer.set(self.tree.next_deadline)

    def _run(self) -> None:
        """Do what is due, as far as this turn has room for it."""
        self._awaits_turn = False
        context, turns = self._context, self._context.waking_turns
        while (at := self.tree.next_deadline) is not None and at <= context.clock.seconds():
            if not turns.take((self,)):
                self._awaits_turn = True
                turns.wait((self,), self._run)
                return
            begun = context.work_seconds()
            for command in self.tree.wake(now=context.clock.seconds()):
                self.do(command)
            self._charge(context.work_seconds() - begun)
        self.set_timer()

    def _charge(self, seconds: float) -> None:
        """Share out what a piece has taken among those who told the ids it was about."""
        work = self.tree.take_work()
        total = work.total()
        for link, ids in work.items():
            peer = self._peers.get(link)
            if peer is not None:
                peer.charge(seconds * ids / max(1, total))
            if link.is_gone and not link.told:
                self._peers.pop(link, None)
