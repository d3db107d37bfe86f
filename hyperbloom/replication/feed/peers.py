"""The connected peers of a feed, and what is remembered of those that have gone."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.replication.counters import Counters
from hyperbloom.replication.feed.renewals import RenewalPeer
from hyperbloom.replication.limits import (
    LEAST_REPLY_SCALE,
    MAX_REPLY_SCALES,
    MAX_SALTED_KEYS,
    SALTED_PART,
    SALTED_SECONDS,
    SALTED_VALUE_SECONDS,
)
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import SyncRound, SyncState
from hyperbloom.store.records import Holding
from hyperbloom.trust import Path
from hyperbloom.trust.path_memory import PathMemory

__all__ = ["FeedPeer", "FeedPeers", "ReplyScales", "SaltedTries"]


class FeedPeer(RenewalPeer, Protocol):
    """A secure peer, as the feed, the node and those who wait for it see it."""

    @property
    def id(self) -> bytes: ...
    @property
    def name(self) -> str: ...
    @property
    def outgoing(self) -> bool: ...
    @property
    def is_protected(self) -> bool: ...
    @property
    def counters(self) -> Counters: ...

    # Whether it is in sync: what is known, what it told last and what was here, whether it can tell

    @property
    def sync_state(self) -> SyncState | None: ...
    @property
    def told(self) -> tuple[Holding, Holding] | None: ...
    @property
    def last_round(self) -> SyncRound | None: ...
    @property
    def can_compare(self) -> bool: ...

    def hurry(self) -> None: ...
    def request(self, bounds: KeyRange, limit: int | None = None) -> None: ...
    def tell(self) -> None: ...
    def close(self, why: CloseReason) -> None: ...


class ReplyScales:
    """By how much the replies asked of peers that cannot split them are shortened, by key.

    Such a peer dies on a reply that does not fit a frame. It is asked for less when it comes again,
    and with every full reply for more.
    """

    def __init__(self) -> None:
        self._scales: PathMemory[bytes, float] = PathMemory(MAX_REPLY_SCALES)

    def of(self, path: Path) -> float:
        """The part of an estimated reply to ask a peer for."""
        return self._scales.get(path[-1]) or 1.0

    def shorten(self, path: Path) -> bool:
        """A peer was lost while a reply was awaited; whether there is less to ask it for."""
        before = self.of(path)
        self._scales.put(path, path[-1], max(before / 4, LEAST_REPLY_SCALE))
        return before > LEAST_REPLY_SCALE

    def lengthen(self, path: Path) -> None:
        """A full reply of the peer arrived."""
        scale = (self._scales.pop(path[-1]) or 1.0) * 1.1
        if scale < 1:
            self._scales.put(path, path[-1], scale)


class SaltedTries:
    """Until when no further try with a salt begins with a peer, by its node or by this one.

    Such a try costs both sides a pass over all values. A key has one in SALTED_SECONDS; all keys
    of a branch, or below any other key of a chain, take SALTED_PART of the time together.
    """

    def __init__(self) -> None:
        self._until: OrderedDict[Path, float] = OrderedDict()

    def may_begin(self, path: Path, *, now: float) -> bool:
        """Whether the last ones were long enough ago; `now` in seconds of one clock."""
        return all(self._until.get(one, now) <= now for one in self._bounds(path))

    def begin(self, path: Path, values: int, *, now: float) -> None:
        """One begins, over so many values."""
        key, *others = self._bounds(path)
        self._until[key] = now + SALTED_SECONDS
        for one in others:
            self._until[one] = now + values * SALTED_VALUE_SECONDS / SALTED_PART
        for one in (key, *others):
            self._until.move_to_end(one)
        while len(self._until) > MAX_SALTED_KEYS:
            self._until.popitem(last=False)

    @staticmethod
    def _bounds(path: Path) -> list[Path]:
        """What bounds a path: its own key, and each key of it with all that is below."""
        return [(*path, b""), *(path[:end] for end in range(1, len(path) + 1))]


class FeedPeers:
    """The secure peers of one feed, in the order in which they came."""

    def __init__(self) -> None:
        self.reply_scales = ReplyScales()
        self.salted_tries = SaltedTries()
        #: Calls that wait until peers are in sync.
        self.waits = 0
        self._peers: dict[FeedPeer, None] = {}
        self._changed: list[Callable[[], None]] = []
        #: Rounds since the start and their bytes, by the way of `SyncRound`.
        self.rounds: Counter[str] = Counter()
        self.round_bytes: Counter[str] = Counter()
        #: What connections that are over have moved, and when the last of them had a sync.
        self._past = Counters()
        self._past_sync = 0.0

    def __len__(self) -> int:
        return len(self._peers)

    def __iter__(self) -> Iterator[FeedPeer]:
        return iter(list(self._peers))

    @property
    def keys(self) -> set[bytes]:
        """The keys that are connected."""
        return {peer.remote_key for peer in self._peers}

    @property
    def in_sync(self) -> int:
        """How many were in sync when that was seen last."""
        return sum(bool(peer.sync_state and peer.sync_state.in_sync) for peer in self._peers)

    @property
    def differing(self) -> int:
        """How many differed when that was seen last."""
        states = [peer.sync_state for peer in self._peers]
        return sum(state is not None and not state.in_sync for state in states)

    @property
    def last_sync(self) -> float:
        """When a peer was last compared with, or its question answered, in seconds since 1970.

        0: not since the start.
        """
        return max(self._past_sync, *map(_last_sync_with, self._peers), 0.0)

    @property
    def unprotected(self) -> int:
        """With how many of them the stream is not protected."""
        return sum(not peer.is_protected for peer in self._peers)

    @property
    def last_round(self) -> SyncRound | None:
        """How one of them was last asked for what differs, None: not yet."""
        rounds = [peer.last_round for peer in self._peers if peer.last_round is not None]
        return max(rounds, key=lambda one: one.at, default=None)

    def round_asked(self, one: SyncRound) -> None:
        """A peer was asked for what differs."""
        self.rounds[one.way] += 1
        self.round_bytes[one.way] += one.bytes

    def has_others_than(self, key: bytes) -> bool:
        """Whether somebody with another key is connected."""
        return any(peer.remote_key != key for peer in self._peers)

    def add(self, peer: FeedPeer) -> None:
        """Take a secure peer in."""
        self._peers[peer] = None
        self._tell()

    def remove(self, peer: FeedPeer) -> None:
        """The peer is gone."""
        if self._peers.pop(peer, self) is None:
            self._past.add(peer.counters)
            self._past_sync = max(self._past_sync, _last_sync_with(peer))
        self._tell()

    def when_changed(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` when a secure peer has come or gone; returns what ends that."""
        self._changed.append(changed)
        return lambda: self._changed.remove(changed)

    def _tell(self) -> None:
        for changed in list(self._changed):
            changed()

    def moved(self) -> Counters:
        """What has moved since the start, over connections that are open or over."""
        moved = Counters()
        for counters in (self._past, *(peer.counters for peer in self._peers)):
            moved.add(counters)
        return moved


def _last_sync_with(peer: FeedPeer) -> float:
    state = peer.sync_state
    return max(0.0 if state is None else state.at, peer.counters.last_sync_received or 0.0)
