"""One peer's part in the broadcast tree: what it is told, what it pulls, what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from hyperbloom.digests import ID_BYTES
from hyperbloom.replication.broadcast.broadcast_tree import TreeLink
from hyperbloom.replication.broadcast.stream import StreamSlice
from hyperbloom.replication.limits import SLICE_BYTES
from hyperbloom.replication.sync.peer_port import PeerPort
from hyperbloom.replication.sync.pulled_values import PulledValues
from hyperbloom.replication.sync.reply import ValuesById
from hyperbloom.sketches import ids_from
from hyperbloom.store.records import LogSlice
from hyperbloom.wire.extensions.broadcast_tree import (
    BROADCAST_TREE,
    LinkKind,
    ValuesPull,
    ValuesTold,
)
from hyperbloom.wire.limits import MAX_TOLD_IDS

__all__ = ["TreePart"]


def _each(ids: bytes) -> list[bytes]:
    return [ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)]


class TreePart:
    """A `TreePeer`, from `start` to `stop`; one without the extension is pushed everything."""

    __slots__ = ("_driver", "_link", "_peer")

    def __init__(self, peer: PeerPort) -> None:
        self._peer = peer
        self._driver = peer.feed.tree
        self._link: TreeLink | None = None

    def start(self) -> None:
        """The peer is secure."""
        feed = self._peer.feed
        if feed.speaks_broadcast_tree and BROADCAST_TREE in self._peer.remote.extensions:
            self._link = self._driver.join(self, self._peer.path)

    def stop(self) -> None:
        """The connection is over."""
        link, self._link = self._link, None
        self._driver.catch_up.ends(self._peer, now=self._now)
        if link is not None:
            self._driver.leave(link)

    # Values

    @property
    def _now(self) -> float:
        return self._peer.context.clock.seconds()

    def pushes(self, piece: StreamSlice) -> bool:
        """Whether to send the peer these values, whose ids are told to it otherwise."""
        if self._link is None or not self._driver.tree.is_used:
            return True
        pushes = self._driver.tree.pushes(self._link, piece.ids, now=self._now)
        if not pushes:
            self._driver.set_timer()
        return pushes

    def received(self, values: Sequence[bytes]) -> None:
        """The peer sent these."""
        driver = self._driver
        is_answer = driver.catch_up.goes_on(self._peer, now=self._now)
        if len(driver.tree):
            if is_answer:
                driver.tree.catches_up(until=driver.catch_up.until)
            pull = driver.tree.received(self._link, values, now=self._now, is_answer=is_answer)
            if pull is not None:
                driver.do(pull)

    def written(self, values: Sequence[bytes], kept: Sequence[bytes]) -> None:
        """Values of the peer are settled; `kept`: those that were new, which are on disk."""
        if self._peer.remote_key in self._peer.feed.context.denied:
            self.not_written(values)
        elif len(kept) < len(values):
            new = set(kept)
            self._driver.tree.kept_out([value for value in values if value not in new])

    def not_written(self, values: Sequence[bytes]) -> None:
        """Values of the peer could not be written."""
        self._driver.tree.not_stored(values, now=self._now)
        self._driver.set_timer()

    # What the peer says

    def take_told(self, told: ValuesTold, *, is_offered: bool) -> None:
        """The peer told ids; is_offered: it found out that they are lacking here."""
        if self._link is not None:
            self._wants(_each(told.ids), is_offered=is_offered)

    def take_pull(self, pull: ValuesPull) -> None:
        """The peer asks for values, or has the link push or tell."""
        if self._link is None:
            return
        feed = self._peer.feed
        places, others = self._driver.tree.pulled(self._link, pull.link, _each(pull.ids))
        store, key = feed.context.store, feed.key

        def read(after: int, most: int) -> LogSlice:
            return store.log_slice(key, after, limit=most, max_bytes=SLICE_BYTES)

        if places:
            self._peer.answer(PulledValues(places, read))
        if others:
            ids = ids_from(b"".join(others))
            find = ValuesById(ids, lambda some: store.values_of(key, some), is_paced=True)
            self._peer.answer(find)

    # What is found out by comparing

    def may_tell(self, ids: Sequence[bytes]) -> bool:
        """Whether the two tell each other so many ids, where they have found what differs."""
        return self._link is not None and self._driver.tree.is_used and len(ids) <= MAX_TOLD_IDS

    def wants(self, ids: Sequence[bytes]) -> None:
        """The peer holds these, and they are lacking here."""
        self._wants(ids, is_offered=True)

    def _wants(self, ids: Sequence[bytes], *, is_offered: bool) -> None:
        if self._link is not None:
            self._driver.tree.told(self._link, ids, now=self._now, is_offered=is_offered)
            self._driver.set_timer()

    def charge(self, seconds: float) -> None:
        """Work was done because of ids that the peer told."""
        self._peer.context.shares.charge(self._peer.share, seconds)
        self._peer.pace.spend(seconds)

    # What the tree has it say

    def tell(self, ids: Sequence[bytes]) -> None:
        """Tell the peer these ids, in byte order."""
        if ids:
            self._peer.output.send_extension(ValuesTold(ids=b"".join(ids)))

    def pull(self, kind: LinkKind, ids: Sequence[bytes]) -> None:
        """Ask the peer for these, in byte order."""
        self._peer.output.send_extension(ValuesPull(link=kind, ids=b"".join(ids)))
