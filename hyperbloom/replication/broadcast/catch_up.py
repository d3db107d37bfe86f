"""From which peer a feed gets what it lacks: one at a time, for all of them would send the same.

A turn keeps other peers waiting. So those of a branch together, and of each key below it, keep
others waiting for CATCH_UP_LONGEST at the most; then as long has to pass for it to be forgotten. A
member with thousands of keys, each of which says that it differs, holds nobody up for longer.
"""

from __future__ import annotations

import math

from hyperbloom.replication.limits import (
    CATCH_UP_FIRST,
    CATCH_UP_LONGEST,
    CATCH_UP_SECONDS,
    MAX_LEFT_BRANCHES,
)
from hyperbloom.trust import Path
from hyperbloom.trust.path_memory import PathMemory

__all__ = ["CatchUp"]


class CatchUp:
    """Whose turn it is, by any object that stands for a peer; times are seconds of one clock."""

    def __init__(self) -> None:
        self._whose: object = None
        self._path: Path = ()
        self.until = self._longest = self._since = -math.inf
        #: The moments at which the turns that paths have had are forgotten.
        self._had: PathMemory[Path, float] = PathMemory(MAX_LEFT_BRANCHES)

    def begins(self, peer: object, path: Path, *, now: float) -> None:
        """This peer is asked for what differs."""
        self._count(now)
        self._whose, self._path, self.until = peer, path, now + CATCH_UP_FIRST
        self._longest, self._since = now + CATCH_UP_LONGEST, now

    def goes_on(self, peer: object, *, now: float) -> bool:
        """It sent values, or was asked; whether it is its turn, which lasts on if so.

        But it lasts no longer than CATCH_UP_LONGEST in all.
        """
        is_its = self.is_of(peer, now=now)
        if is_its:
            self.until = min(now + CATCH_UP_SECONDS, self._longest)
        return is_its

    def ends(self, peer: object, *, now: float) -> None:
        """Nothing more is awaited of this peer."""
        if self._whose is peer:
            self._count(now)
            self._whose, self.until = None, -math.inf

    def is_of(self, peer: object, *, now: float) -> bool:
        """Whether it is this peer's turn."""
        return self._whose is peer and now < self.until

    def is_of_another(self, peer: object, path: Path, *, now: float) -> bool:
        """Whether another one has the turn, and its branch has not had too much of it."""
        if self._whose in (None, peer) or now >= self.until:
            return False
        pairs = zip(self._path, path, strict=False)
        same = next((n for n, (one, two) in enumerate(pairs) if one != two), len(path))
        return self._kept_waiting(self._path[: same + 1], now) < CATCH_UP_LONGEST

    def _kept_waiting(self, path: Path, now: float) -> float:
        """Seconds for which this path, which has the turn, has kept others waiting of late."""
        had = self._had.get(path) or 0.0
        return max(0.0, had - self._since) + now - self._since

    def _count(self, now: float) -> None:
        """A turn is over: remember it."""
        if self._whose is None:
            return
        now = min(now, self.until)
        for depth in range(1, len(self._path) + 1):
            path = self._path[:depth]
            self._had.put(path, path, now + self._kept_waiting(path, now))
