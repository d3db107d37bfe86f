"""How many sequences of symbols a node holds in memory, of all feeds and peers together.

A sequence weighs up to 917 KB. Those of one set at one moment are one array, but a peer can have
values come and go between its questions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from hyperbloom.replication.limits import MAX_HELD_SKETCHES, MAX_TRIES

__all__ = ["SketchSlots"]


class SketchSlots:
    """The tries of this node that are under way, and the sequences that peers are answered from."""

    def __init__(self) -> None:
        self._tries: set[object] = set()
        self._held: OrderedDict[Callable[[], None], None] = OrderedDict()

    def begin_try(self, one: object) -> bool:
        """Whether this try may go on; if not, it asks again later."""
        if len(self._tries) >= MAX_TRIES and one not in self._tries:
            return False
        self._tries.add(one)
        return True

    def end_try(self, one: object) -> None:
        """This try is over; it may not have begun."""
        self._tries.discard(one)

    def hold(self, drop: Callable[[], None]) -> None:
        """A peer is answered from a sequence; `drop` is called when others need its place."""
        self._held[drop] = None
        self._held.move_to_end(drop)
        while len(self._held) > MAX_HELD_SKETCHES:
            oldest, _ = self._held.popitem(last=False)
            oldest()

    def release(self, drop: Callable[[], None]) -> None:
        """The peer needs its sequence no more; there may have been none."""
        self._held.pop(drop, None)
