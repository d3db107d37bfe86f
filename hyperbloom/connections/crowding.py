"""Keys that come again and again though they have all the connections they may have.

Letting one in costs a handshake, a place of the key's own and the work of ending another
connection. So who takes its own key's places may do so a few times at once and then now and then;
else the Handshake is turned away before anything of it is verified. It is counted by key and by
where it comes from: somebody elsewhere with the key's proof cannot use this up for its holder. But
a key that has done it from several networks of late has one place at a time from each of them, or
whoever has many addresses would have it many times at once.
"""

from __future__ import annotations

import math

from hyperbloom.connections.branches import Path, surplus_of
from hyperbloom.connections.limits import (
    CROWDED_AT_ONCE,
    CROWDED_OF_KEY,
    CROWDED_SECONDS,
    MAX_STRUCK,
)

__all__ = ["Crowding"]


class Crowding:
    """Counts places taken. Times are seconds of any steady clock, given by the caller."""

    def __init__(self) -> None:
        #: How many times of late, fewer by one every CROWDED_SECONDS, and when it was counted: of
        #: each key and network, and of each key (network "").
        self._taken: dict[tuple[bytes, str], tuple[float, float, Path]] = {}

    def took(self, path: Path, network: str, *, now: float) -> None:
        """A connection has taken the place of another one of its key, which ends this path."""
        key = path[-1]
        for who, most in (((key, network), math.inf), ((key, ""), 2.0 * CROWDED_OF_KEY)):
            taken = min(self._of_late(who, now) + 1.0, most)
            self._taken.pop(who, None)
            self._taken[who] = (taken, now, path)
        if len(self._taken) > MAX_STRUCK:
            for one in surplus_of([*self._taken], lambda who: self._taken[who][2]):
                del self._taken[one]

    def is_too_much(self, key: bytes, network: str, *, now: float) -> bool:
        """Whether a connection of theirs is to be turned away."""
        return self._over(key, network, now) > 0

    def wait(self, key: bytes, network: str, *, now: float) -> int:
        """Whole seconds until one is let in again."""
        return max(0, math.ceil(self._over(key, network, now) * CROWDED_SECONDS))

    def _over(self, key: bytes, network: str, now: float) -> float:
        at_once = CROWDED_AT_ONCE if self._of_late((key, ""), now) <= CROWDED_OF_KEY else 1
        return self._of_late((key, network), now) - (at_once - 1)

    def _of_late(self, who: tuple[bytes, str], now: float) -> float:
        taken, at, _ = self._taken.get(who, (0.0, now, ()))
        return max(0.0, taken - (now - at) / CROWDED_SECONDS)
