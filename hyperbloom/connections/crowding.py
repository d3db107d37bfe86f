"""Keys that come again and again though they have all the connections they may have.

Letting one in costs a handshake, a place of the key's own and the work of ending another
connection. So who takes its own key's places may do so a few times at once and then now and then;
else the Handshake is turned away before anything of it is verified. It is counted by key and by
where it comes from: somebody elsewhere with the key's proof cannot use this up for its holder.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from hyperbloom.connections.limits import CROWDED_AT_ONCE, CROWDED_SECONDS, MAX_STRUCK

__all__ = ["Crowding"]


class Crowding:
    """Counts places taken. Times are seconds of any steady clock, given by the caller."""

    def __init__(self) -> None:
        #: How many times of late, fewer by one every CROWDED_SECONDS, and when it was counted.
        self._taken: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def took(self, who: bytes, *, now: float) -> None:
        """A connection has taken the place of another one of its key."""
        taken = self._of_late(who, now) + 1.0
        self._taken[who] = (taken, now)
        self._taken.move_to_end(who)
        while len(self._taken) > MAX_STRUCK:
            self._taken.popitem(last=False)

    def is_too_much(self, who: bytes, *, now: float) -> bool:
        """Whether a connection of theirs is to be turned away."""
        return self._of_late(who, now) > CROWDED_AT_ONCE - 1

    def wait(self, who: bytes, *, now: float) -> int:
        """Whole seconds until one is let in again."""
        over = self._of_late(who, now) - (CROWDED_AT_ONCE - 1)
        return max(0, math.ceil(over * CROWDED_SECONDS))

    def _of_late(self, who: bytes, now: float) -> float:
        taken, at = self._taken.get(who, (0.0, now))
        return max(0.0, taken - (now - at) / CROWDED_SECONDS)
