"""Is a peer in sync? What this node knows of it, since when, and from what.

By digest, where both sides speak `set-digest`: at one moment the peer told count and digest of the
ranges that both keep, and they were those of the values here; those that either has forgotten may
count as if they were here (`Holding.agrees_with`), since nobody would send them. Two sets with
equal digests are the same set; to make others costs a member more than anybody can spend
(digests.py).

By Sync alone, where the peer lacks the extension: a full plan was asked of the peer and answered
without a value that was new here, the peer's own full plan was answered, and nothing waits to be
sent to it. The protocol says nothing at the end of an answer, so a plan counts as answered once
nothing has come for a while. A value that the peer has and this node lacks hides in one plan with
the probability of a false positive (`[sync] false_positive`), and in k plans in a row with its k-th
power, for each filter has a fresh seed; what the peer lacks hides with the rate of the peer's own
filters.

Nothing here does I/O: what happens is told to it, with the time.
"""

from __future__ import annotations

from collections.abc import Sequence

from hyperbloom.replication.reading.ranges import common, union
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import SyncState

__all__ = ["SyncEvidence"]


class SyncEvidence:
    """What the Syncs of one connection show of a peer; `kept` are the ranges this node keeps."""

    __slots__ = ("_answered", "_asked_at", "_kept", "_new_before")

    def __init__(self, kept: Sequence[KeyRange]) -> None:
        ranges = union(kept)
        # What is equal is one object for all peers.
        self._kept = kept if list(kept) == ranges else ranges
        self._answered: Sequence[KeyRange] = ()
        self._asked_at: float | None = None
        self._new_before = 0

    def plan_begins(self, *, at: float, new_values: int) -> None:
        """Our plan begins `at` (seconds since 1970), after the peer brought `new_values`."""
        self._asked_at = at
        self._new_before = new_values

    def sync_answered(self, bounds: KeyRange) -> None:
        """A Sync of the peer, about this range and without a limit, was answered to its end."""
        answered = union([*self._answered, bounds])
        self._answered = self._kept if answered == list(self._kept) else answered

    @property
    def peer_has_asked(self) -> bool:
        """Whether the peer's own plan has covered all that is kept here."""
        return bool(self._kept) and common(self._kept, self._answered) == list(self._kept)

    def plan_ends(self, *, new_values: int, all_sent: bool) -> SyncState | None:
        """Our plan is answered. None: it shows nothing, as the peer has not asked for all."""
        at, self._asked_at = self._asked_at, None
        if at is None:
            return None
        if new_values > self._new_before:
            return SyncState(in_sync=False, at=at, source="sync")
        if not (self.peer_has_asked and all_sent):
            return None
        return SyncState(in_sync=True, at=at, source="sync")
