"""A whole pool on its way to one peer: to a kin as INITIALIZE in parts, to another as CREATIONs.

The hashes are taken at once; the objects are read when their part is made. What changed meanwhile
is told by CHANGE as well, but a peer that never had the old version can do nothing with that, so
the new hash is put at the end of the row.

The JVM takes nothing of an INITIALIZE whose first object it has, and nothing of one in which it
cannot read one object, and does not answer some; of CREATIONs it takes each by itself. So to a peer
of another kind the objects go one by one, each read when it goes: what has changed since would be
an old version that comes after what was told of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

from hyperbloom.objects.limits import OBJECTS_PER_PART, PART_BYTES
from hyperbloom.objects.wire.payloads import Initialize, Version
from hyperbloom.store.objects.records import ObjectRecord

__all__ = ["PoolSync"]


class PoolSync:
    """The parts, one after the other. `read` gives those of some objects that are there."""

    def __init__(self, read: Callable[[Iterable[int]], list[ObjectRecord]]) -> None:
        self._hashes = array("q")
        #: Whether the hashes of the pool are known; nothing is to be sent before.
        self.ready = False
        self._read = read
        self._at = 0
        self._rest: list[ObjectRecord] = []

    def put_first(self, hashes: Iterable[int]) -> None:
        """The hashes of the pool as it was; what was added since stays behind them."""
        self._hashes = array("q", hashes) + self._hashes
        self.ready = True

    def add(self, number: int) -> None:
        """Send this object, too."""
        self._hashes.append(number)

    def next_part(self, t: int) -> Initialize | None:
        """The next part, at the time `t` (ms); None when no more objects are there."""
        while not self._rest and self._at < len(self._hashes):
            # No further than there are hashes: what is added later comes behind these.
            upto = min(self._at + OBJECTS_PER_PART, len(self._hashes))
            self._rest = self._read(self._hashes[self._at : upto])
            self._at = upto
        if not self._rest:
            return None
        count = self._fitting(self._rest)
        part, self._rest = self._rest[:count], self._rest[count:]
        return Initialize(
            t=t,
            objects=tuple(record.fields for record in part),
            respond=False,
            versions=tuple(map(_version, part)),
        )

    def next_object(self) -> ObjectRecord | None:
        """The next object as it is now; None when no more are there."""
        while self._at < len(self._hashes):
            found = self._read(self._hashes[self._at : self._at + 1])
            self._at += 1
            if found:
                return found[0]
        return None

    def _fitting(self, records: Sequence[ObjectRecord]) -> int:
        """How many of the records fit a part, at least one."""
        room = PART_BYTES
        for count, record in enumerate(records):
            room -= len(record.packed)
            if room < 0:
                return max(1, count)
        return len(records)


def _version(record: ObjectRecord) -> Version:
    return Version(hash=record.hash, stamp=record.stamp, ancestors=record.ancestors)
