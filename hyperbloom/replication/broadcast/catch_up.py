"""From which peer a feed gets what it lacks: one at a time, for all of them would send the same."""

from __future__ import annotations

import math

from hyperbloom.replication.limits import CATCH_UP_FIRST, CATCH_UP_LONGEST, CATCH_UP_SECONDS

__all__ = ["CatchUp"]


class CatchUp:
    """Whose turn it is, by any object that stands for a peer; times are seconds of one clock."""

    def __init__(self) -> None:
        self._whose: object = None
        self.until = self._longest = -math.inf

    def begins(self, peer: object, *, now: float) -> None:
        """This peer is asked for what differs."""
        self._whose, self.until = peer, now + CATCH_UP_FIRST
        self._longest = now + CATCH_UP_LONGEST

    def goes_on(self, peer: object, *, now: float) -> bool:
        """It sent values, or was asked; whether it is its turn, which lasts on if so.

        But it lasts no longer than CATCH_UP_LONGEST in all.
        """
        is_its = self.is_of(peer, now=now)
        if is_its:
            self.until = min(now + CATCH_UP_SECONDS, self._longest)
        return is_its

    def ends(self, peer: object) -> None:
        """Nothing more is awaited of this peer."""
        if self._whose is peer:
            self._whose, self.until = None, -math.inf

    def is_of(self, peer: object, *, now: float) -> bool:
        """Whether it is this peer's turn."""
        return self._whose is peer and now < self.until

    def is_of_another(self, peer: object, *, now: float) -> bool:
        """Whether it is another one's."""
        return self._whose not in (None, peer) and now < self.until
