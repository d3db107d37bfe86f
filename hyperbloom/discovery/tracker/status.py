"""How a topic's tracker is doing, as a picture for `status` and a tally that it is drawn from."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from hyperbloom.discovery.dht.reports import MutableLookup, PutReport
from hyperbloom.discovery.tracker.reading import Reading

__all__ = ["Tally", "TrackerStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerStatus:
    """One topic's tracker. Times are seconds since 1970, None: not yet.

    `records_seen` and `refused` (by reason) count since the start, `lookup_…` and `put_…` are the
    nodes of the last lookup and put. `reachable` tells whether the last record that this node put
    was read back from the DHT; None before the first put. `problem` is what failed last, None
    since the DHT answered.
    """

    topic_hash: bytes
    joined: bool
    records_seen: int
    records_now: int
    refused: dict[str, int]
    lookup_asked: int
    lookup_answered: int
    put_asked: int
    put_stored: int
    put_refused: int
    put_silent: int
    puts: int
    rate_limited: int
    candidates: int
    last_lookup: float | None
    last_publish: float | None
    reachable: bool | None
    problem: str | None

    def as_json(self) -> dict[str, Any]:
        """The same as a dict that `json` takes: bytes as hex."""
        return {**asdict(self), "topic_hash": self.topic_hash.hex()}


@dataclass(slots=True, kw_only=True)
class Tally:
    """What happened so far; the tracker's parts write into it."""

    records_seen: int = 0
    records_now: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    answered: int = 0
    put: PutReport | None = None
    puts: int = 0
    rate_limited: int = 0
    candidates: int = 0
    last_lookup: float | None = None
    last_publish: float | None = None
    problem: str | None = None

    def note_lookup(self, found: MutableLookup, reading: Reading, *, now: float) -> None:
        """A lookup ended, and its items were read."""
        self.asked = found.asked
        self.answered = found.answered
        self.records_now = len(reading.records)
        self.records_seen += len(reading.records)
        self.refused.update({reason.value: n for reason, n in reading.refused.items()})
        self.last_lookup = now
        self.problem = None

    def note_put(self, report: PutReport, *, now: float) -> None:
        """A put ended, whether anything was stored or not."""
        self.put = report
        self.puts += 1
        if report.found:
            self.last_publish = now

    def status(self, *, topic_hash: bytes, joined: bool) -> TrackerStatus:
        """The picture of this moment."""
        put = self.put
        return TrackerStatus(
            topic_hash=topic_hash,
            joined=joined,
            records_seen=self.records_seen,
            records_now=self.records_now,
            refused=dict(self.refused),
            lookup_asked=self.asked,
            lookup_answered=self.answered,
            put_asked=put.asked if put else 0,
            put_stored=put.stored if put else 0,
            put_refused=put.refused if put else 0,
            put_silent=put.silent if put else 0,
            puts=self.puts,
            rate_limited=self.rate_limited,
            candidates=self.candidates,
            last_lookup=self.last_lookup,
            last_publish=self.last_publish,
            reachable=put.found if put else None,
            problem=self.problem,
        )
