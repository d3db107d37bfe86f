"""Strikes and bans: a member that keeps breaking the protocol is not let in for a while."""

from __future__ import annotations

from dataclasses import dataclass

from hyperbloom.connections.branches import Path, surplus_of
from hyperbloom.connections.limits import MAX_STRUCK

__all__ = ["Strikes"]


@dataclass(slots=True)
class _Record:
    count: int
    last: float
    path: Path


class Strikes:
    """Counts violations by who did it. Times are seconds of any steady clock, given by the caller.

    Whoever has `most` strikes, none older than `memory` seconds before the next, is banned
    until `memory` seconds after its last one.
    """

    def __init__(self, *, most: int, memory: float) -> None:
        self.bound(most=most, memory=memory)
        self._records: dict[bytes, _Record] = {}

    def bound(self, *, most: int, memory: float) -> None:
        """Other bounds from now on, for what was counted before as well."""
        self._most = most
        self._memory = memory

    def strike(self, who: bytes, path: Path, *, now: float) -> bool:
        """Count one violation; whether who did it, below this path, is banned now."""
        record = self._records.pop(who, None)
        if record is None or now - record.last > self._memory:
            record = _Record(0, now, path)
        record.count += 1
        record.last = now
        self._records[who] = record
        if len(self._records) > MAX_STRUCK:
            for one in surplus_of([*self._records], lambda who: self._records[who].path):
                del self._records[one]
        return record.count >= self._most

    def is_banned(self, who: bytes, *, now: float) -> bool:
        """Whether a connection of theirs is to be turned away."""
        record = self._records.get(who)
        if record is None:
            return False
        if now - record.last > self._memory:
            del self._records[who]
            return False
        return record.count >= self._most
