"""Strikes and bans: an address that keeps breaking the protocol is not let in for a while."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from hyperbloom.replication.limits import MAX_STRUCK

__all__ = ["Strikes"]


@dataclass(slots=True)
class _Record:
    count: int
    last: float


class Strikes:
    """Counts violations by address. Times are seconds of any steady clock, given by the caller.

    An address with `most` strikes, none older than `memory` seconds before the next, is banned
    until `memory` seconds after its last one.
    """

    def __init__(self, *, most: int, memory: float) -> None:
        self.bound(most=most, memory=memory)
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def bound(self, *, most: int, memory: float) -> None:
        """Other bounds from now on, for what was counted before as well."""
        self._most = most
        self._memory = memory

    def strike(self, address: str, *, now: float) -> bool:
        """Count one violation; whether the address is banned now."""
        record = self._records.pop(address, None)
        if record is None or now - record.last > self._memory:
            record = _Record(0, now)
        record.count += 1
        record.last = now
        self._records[address] = record
        while len(self._records) > MAX_STRUCK:
            self._records.popitem(last=False)
        return record.count >= self._most

    def is_banned(self, address: str, *, now: float) -> bool:
        """Whether a connection from the address is to be turned away."""
        record = self._records.get(address)
        if record is None:
            return False
        if now - record.last > self._memory:
            del self._records[address]
            return False
        return record.count >= self._most
