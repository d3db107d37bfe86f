"""What one peer is asked, and when: comparisons, Sync plans, and what both show.

A round begins when the peer is secure and again after every interval. Where both sides speak
`set-digest` it begins with a comparison, and equal digests end it. Else a plan is asked: filters of
all that is kept here, each with a fresh seed.

A false positive of a filter hides a value from its plan. Where the peer can be compared with, this
is seen once nothing moves any more, and the next plan follows at once; else the next round finds
it. What a plan without a comparison shows is `agreement`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall

from hyperbloom.bloom import estimate_count
from hyperbloom.replication.limits import (
    DOUBT_FACTOR,
    DOUBT_SECONDS,
    FULL_PLAN_SECONDS,
    SYNC_SHARE,
)
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.sync.digest_exchange import Comparing
from hyperbloom.replication.sync.plan import FILTER_BYTES, Asked
from hyperbloom.replication.sync.send_jobs import Sweep
from hyperbloom.replication.sync.sync_state import Agreement, SyncEvidence
from hyperbloom.wire import Sync

if TYPE_CHECKING:
    from hyperbloom.replication.sync.peer import Peering

__all__ = ["ANSWER_SECONDS", "Rounds"]

#: How long a peer that cannot split its replies has to answer one question, in seconds.
ANSWER_SECONDS = 5.0

#: A call that waits until the peer is in sync has it asked again so soon after the last time.
HURRY_SECONDS = 0.5

#: A peer that recommends smaller filters than this would have us send too many of them.
LEAST_FILTER_BYTES = 8_192


class Rounds:
    """The rounds of one connection, from `begin` to `stop`.

    `agreement` is what is known of whether the peer is in sync, None: nothing yet.
    """

    def __init__(self, peer: Peering, asked: Asked) -> None:
        self.agreement: Agreement | None = None
        self.comparing = Comparing(peer, self._compared)
        self._peer = peer
        self._asked = asked
        self._clock = peer.context.clock
        self._filter_bytes = FILTER_BYTES
        #: What the peer holds, in bytes, as far as its last filter and what it was sent tell.
        self._peer_bytes: float | None = None
        self._next: IDelayedCall | None = None
        self._sweep: Sweep | None = None
        self._settling: IDelayedCall | None = None
        self._evidence = SyncEvidence(peer.feed.kept)
        #: How long after a plan the peer is compared with; grows while the sums stay different.
        self._doubt = DOUBT_SECONDS
        self._over_at = self._clock.seconds()
        self._full_plan_at = self._over_at + FULL_PLAN_SECONDS
        self._stopped = False

    def begin(self, wait: float) -> None:
        """The first round begins after so many seconds, or with the peer's first Sync."""
        self._next = self._clock.callLater(wait, self._begin_round)

    def stop(self) -> None:
        """The connection is over."""
        self._stopped = True
        self.comparing.stop()
        for call in (self._next, self._settling):
            if call is not None and call.active():
                call.cancel()

    @property
    def is_in_sync(self) -> bool:
        """Whether the peer was in sync when that was seen last."""
        return self.agreement is not None and self.agreement.in_sync

    def hurry(self) -> None:
        """Somebody waits until this peer is in sync: do not wait for the interval."""
        rested = self._clock.seconds() - self._over_at >= HURRY_SECONDS
        if rested and self._next is not None and self._settling is None:
            self._next.cancel()
            self._next = self._clock.callLater(0, self._begin_round)

    # What is learnt of the peer

    def peer_takes(self, *, filter_bytes: int) -> None:
        """The peer recommends filters of so many bytes."""
        self._filter_bytes = min(FILTER_BYTES, max(filter_bytes, LEAST_FILTER_BYTES))

    def peer_asked(self, sync: Sync) -> None:
        """Learn from the peer's filter how much it holds, and let its first Sync start ours."""
        self._peer_bytes = None
        if sync.range is None:
            set_bits = int.from_bytes(sync.filter, "little").bit_count()
            theirs = estimate_count(set_bits, sync.size, sync.n)
            self._peer_bytes = theirs * self._peer.feed.mean_value_bytes
        if self._sweep is not None and self._peer_bytes is not None:
            self._sweep.consider(self._peer_bytes)
        elif self._next is not None and self._peer.figures.last_sync_sent is None:
            self._next.reset(0)

    def peer_was_sent(self, values: Sequence[bytes]) -> None:
        """The peer holds these, too, from now on."""
        if self._peer_bytes is not None:
            self._peer_bytes += sum(map(len, values))

    def peer_was_answered(self, bounds: KeyRange) -> None:
        """A Sync of the peer, about this range and without a limit, was answered to its end."""
        self._evidence.sync_answered(bounds)

    # A round

    def _begin_round(self) -> None:
        """See whether the peer holds the same, and begin a plan if not, or if that cannot be seen.

        Nothing where either is under way. Once in FULL_PLAN_SECONDS there is a plan all the same.
        """
        self._next = None
        if self._stopped or self._sweep is not None or self.comparing.is_asking:
            return
        if self.comparing.is_possible:
            self.comparing.ask()
        else:
            self._begin_plan()

    def _compared(self, agreement: Agreement | None, seconds: float) -> None:
        if self._stopped:
            return
        self.agreement = agreement or self.agreement
        due = self._clock.seconds() >= self._full_plan_at
        in_sync = agreement is not None and agreement.in_sync
        if in_sync:
            self._doubt = DOUBT_SECONDS
        if in_sync and not due:
            self._end_round(seconds)
        else:
            self._begin_plan()

    def _begin_plan(self) -> None:
        """Ask by a plan with a fresh seed a filter."""
        peer = self._peer
        self._full_plan_at = self._clock.seconds() + FULL_PLAN_SECONDS
        plan = peer.feed.plan(self._filter_bytes)
        if plan.done:
            self._end_round(0.0)
            return
        self._sweep = Sweep(peer, plan, self._asked)
        self._evidence.plan_begins(at=peer.context.now(), new_values=peer.figures.values_new)
        if self._peer_bytes is not None:
            self._sweep.consider(self._peer_bytes)
        peer.outflow.add(self._sweep)

    def plan_asked(self, seconds: float) -> None:
        """All filters of the plan are sent; making them took so many seconds."""
        self._sweep = None
        if not self._stopped and not self.comparing.is_possible:
            self._settling = self._clock.callLater(ANSWER_SECONDS, self._settle)
        self._end_round(seconds, planned=True)

    def _end_round(self, seconds: float, *, planned: bool = False) -> None:
        """The next one begins after the interval, with jitter; behind a plan, after a look.

        A large feed with many peers is asked less often, so that what takes `seconds` takes no more
        than `SYNC_SHARE` of the node's time.
        """
        peer = self._peer
        self._over_at = self._clock.seconds()
        peer.figures.sync_seconds += seconds
        if self._stopped:
            return
        least = seconds * len(peer.feed.peers) / SYNC_SHARE
        wait = peer.context.jittered(max(peer.context.sync.interval, least))
        if planned and self.comparing.is_possible and self._doubt < wait:
            self._look_later(max(self._doubt, least), until=self._over_at + wait)
            self._doubt *= DOUBT_FACTOR
        else:
            self._next = self._clock.callLater(wait, self._begin_round)

    def _look_later(self, wait: float, *, until: float) -> None:
        """See whether the plan has left a difference, `wait` seconds after the last value moved.

        `until` a moment, at the latest: while values are put all the time, none is the last.
        """
        clock, peer, before = self._clock, self._peer, self._values_moved

        def look() -> None:
            moves = peer.is_receiving or self._values_moved != before
            if moves and clock.seconds() < until:
                self._look_later(wait, until=until)
            else:
                self._begin_round()

        self._next = clock.callLater(max(min(wait, until - clock.seconds()), 0.0), look)

    @property
    def _values_moved(self) -> int:
        """Values that came from the peer and went to it."""
        return self._peer.figures.values_in + self._peer.figures.values_out

    def _settle(self) -> None:
        """The answers to our plan are in, as far as can be told: what do they show?"""
        peer = self._peer
        self._settling = None
        if self._stopped or self._sweep is not None:
            return
        if peer.awaits_reply or peer.is_receiving:
            self._settling = self._clock.callLater(ANSWER_SECONDS, self._settle)
            return
        shown = self._evidence.plan_ends(
            new_values=peer.figures.values_new, all_sent=not peer.is_sending
        )
        self.agreement = shown or self.agreement
