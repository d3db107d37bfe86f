"""Runs the broadcast tree of a feed: its one timer, and what it has its peers say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from hyperbloom.connections.timer import Timer
from hyperbloom.replication.broadcast.broadcast_tree import BroadcastTree, Command, Tell, TreeLink
from hyperbloom.replication.broadcast.catch_up import CatchUp
from hyperbloom.store.records import Appended
from hyperbloom.wire.extensions.broadcast_tree import LinkKind

__all__ = ["TreeDriver", "TreePeer"]


class TreePeer(Protocol):
    """A peer that speaks the extension, as far as the tree tells it something."""

    def tell(self, ids: Sequence[bytes]) -> None: ...
    def pull(self, kind: LinkKind, ids: Sequence[bytes]) -> None: ...


class TreeDriver:
    """The tree, its clock, and the peers of its links."""

    def __init__(self, clock: IReactorTime) -> None:
        self.tree = BroadcastTree()
        self.catch_up = CatchUp()
        self._clock = clock
        self._peers: dict[TreeLink, TreePeer] = {}
        self._timer = Timer(clock, self.run)

    def join(self, peer: TreePeer) -> TreeLink:
        """A peer that speaks the extension is secure."""
        link = self.tree.join()
        self._peers[link] = peer
        return link

    def leave(self, link: TreeLink) -> None:
        """It is gone."""
        del self._peers[link]
        self.tree.leave(link, now=self._clock.seconds())
        self.set_timer()

    def stored(self, appended: Appended, _: bytes) -> None:
        """Values are on disk."""
        self.tree.stored(appended.values, low=appended.first_seq, high=appended.top_seq)

    def run(self, *commands: Command) -> None:
        """Do this, and what is due."""
        for command in (*commands, *self.tree.wake(now=self._clock.seconds())):
            peer = self._peers.get(command.link)
            if peer is None:
                continue  # saying something to another one has ended this connection
            if isinstance(command, Tell):
                peer.tell(command.ids)
            else:
                peer.pull(command.kind, command.ids)
        self.set_timer()

    def set_timer(self) -> None:
        """One timer, at the next deadline."""
        self._timer.set(self.tree.next_deadline)
