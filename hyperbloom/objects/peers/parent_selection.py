"""Which nodes to be connected with: a choice without I/O.

PPPP 2 lets a node look for faster parents. Here a node keeps connections to as many of its known
addresses as its setting says. Now and then it tries one that it is not connected with, as one more;
once that has shown its latency, the slowest is left, unless it is only a little slower: changing
costs the sending of the whole pool. An address that fails, refuses or kicks is backed off from, and
another one is taken.

Latency is half of what a PING and its PONG take together, smoothed as TCP smooths (RFC 6298: an
eighth of each new measurement). Times are seconds of any steady clock, given by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hyperbloom.connections.dialing import retry_wait

__all__ = ["Latency", "ParentSelection"]

SMOOTHING: Final = 1 / 8
#: A parent is left for one whose latency is at most this part of its own, ...
WORTH_CHANGING: Final = 0.8
#: ... and this many seconds less: below it two parents are equally fast.
LEAST_GAIN: Final = 0.002
#: Measurements before a latency counts.
MEASUREMENTS: Final = 3


class Latency:
    """A smoothed latency in seconds; None until it was measured MEASUREMENTS times."""

    def __init__(self) -> None:
        self._smoothed: float | None = None
        self._count = 0

    @property
    def seconds(self) -> float | None:
        """The latency."""
        return self._smoothed if self._count >= MEASUREMENTS else None

    @property
    def latest(self) -> float | None:
        """The latency, however few measurements it has."""
        return self._smoothed

    def measured(self, round_trip: float) -> None:
        """A PONG came this many seconds after its PING."""
        latency = max(0.0, round_trip) / 2
        self._count += 1
        if self._smoothed is None:
            self._smoothed = latency
        else:
            self._smoothed += SMOOTHING * (latency - self._smoothed)


@dataclass(slots=True)
class _Candidate:
    failures: int = 0
    not_before: float = 0.0
    connected: bool = False
    dialling: bool = False
    latency: float | None = None
    order: int = 0

    @property
    def taken(self) -> bool:
        return self.connected or self.dialling


class ParentSelection:
    """The addresses, and what is known of each.

    wanted: parents to have. probe_seconds: between two tries of another one. retry_first and
    retry_longest bound the wait for an address that failed.
    """

    def __init__(
        self,
        addresses: Iterable[str],
        *,
        wanted: int,
        probe_seconds: float,
        retry_first: float,
        retry_longest: float,
    ) -> None:
        self._candidates = {address: _Candidate() for address in addresses}
        self._wanted = wanted
        self._probe_seconds = probe_seconds
        self._first, self._longest = retry_first, retry_longest
        self._next_probe: float | None = None
        self._openings = 0

    # What happened

    def opened(self, address: str) -> None:
        """The connection to it is open."""
        candidate = self._candidates[address]
        candidate.dialling, candidate.connected = False, True
        self._openings += 1
        candidate.order = self._openings

    def measured(self, address: str, latency: float | None) -> None:
        """What its latency is now, in seconds; None: not known yet."""
        self._candidates[address].latency = latency

    def ended(self, address: str, *, now: float, steady: bool) -> None:
        """The connection is over, or did not come about. `steady`: it was open for a while."""
        candidate = self._candidates[address]
        candidate.dialling = candidate.connected = False
        candidate.failures = 1 if steady else candidate.failures + 1
        wait = retry_wait(candidate.failures, first=self._first, longest=self._longest)
        candidate.not_before = now + wait

    # What to do

    def dial(self, *, now: float) -> Sequence[str]:
        """Addresses to dial now; they count as being dialled from here on."""
        taken = sum(candidate.taken for candidate in self._candidates.values())
        if self._next_probe is None:
            self._next_probe = now + self._probe_seconds
        room = self._wanted - taken
        if room <= 0 and now >= self._next_probe and taken < len(self._candidates):
            self._next_probe = now + self._probe_seconds
            room = max(0, 1 + room)
        chosen = self._free(now)[: max(0, room)]
        for address in chosen:
            self._candidates[address].dialling = True
        return chosen

    def _free(self, now: float) -> list[str]:
        """Those that may be dialled: the untried first, then the fastest known."""
        free = [
            (address, candidate)
            for address, candidate in self._candidates.items()
            if not candidate.taken and candidate.not_before <= now
        ]
        free.sort(key=lambda item: (item[1].failures, item[1].latency or 0.0))
        return [address for address, _ in free]

    def leave(self) -> str | None:
        """An open connection too many, the one to close; None while all is well.

        Nothing is left before every open one has shown its latency.
        """
        opened = [(a, c) for a, c in self._candidates.items() if c.connected]
        if len(opened) <= self._wanted or any(c.latency is None for _, c in opened):
            return None
        *older, newest = sorted(opened, key=lambda item: item[1].order)
        slowest = max(older, key=lambda item: item[1].latency or 0.0)
        return (slowest if _worth(slowest[1], newest[1]) else newest)[0]


def _worth(slow: _Candidate, fast: _Candidate) -> bool:
    one, other = slow.latency or 0.0, fast.latency or 0.0
    return other <= WORTH_CHANGING * one and one - other >= LEAST_GAIN
