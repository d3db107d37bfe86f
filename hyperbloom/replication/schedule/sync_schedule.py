"""When a peer is asked, and in which way: a machine without I/O.

What happens goes in, with the time (`now`, in seconds of one clock) and with what stands at that
moment (`Situation`). What is to be done comes out: at most one command, and the moment at which
`wake` is to be called (`next_deadline`). `sync_driver` runs the commands.

    state        event                                               next state
    RESTING      the time has come, or the peer's first Sync         COMPARING, or else PLANNING
    COMPARING    equal digests                                       RESTING
    COMPARING    different digests                                   RECONCILING, or else PLANNING
    COMPARING    the same, of a new peer that has only what it got   RESTING
    COMPARING    no answer in DIGEST_SECONDS                         PLANNING
    RECONCILING  what differs is known and on its way                RESTING
    RECONCILING  it does not decode                                  RECONCILING, salted, or else
                                                                     PLANNING
    RECONCILING  nothing came for SKETCH_SECONDS, or it is too much  PLANNING
    PLANNING     all filters of the plan are sent                    RESTING

A round begins when the peer is secure, and again after every interval. Where both sides speak
`set-digest` it begins with a comparison, and equal digests end it. Else this side
looks for what differs, in the way that `choose_way` (sync_commands.py) finds. Once in
FULL_PLAN_SECONDS there is a plan all the same.

Symbols show what differs, and no more than that: only digests tell afterwards that both sides hold
the same. A try
that does not decode is followed by one with a salt, and that by a plan, at once. A try that found
nothing it could move, though the digests still differ, has the next round take the next of these
steps; and after SKETCH_ROUNDS rounds by symbols whose digests never were equal there is a plan.
While the peer has a try under way, which brings both sides what they lack, this side begins none.

A false positive of a filter hides a value from its plan. Where the peer can be compared with, that
is seen once nothing moves any more, and the next plan follows at once; else the next round finds
it. What a plan shows without a comparison is for `SyncEvidence` to say, once the answers are in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from hyperbloom.replication.limits import (
    AWAITED_SECONDS,
    CATCH_UP_LONGEST,
    CATCH_UP_SECONDS,
    DIGEST_SECONDS,
    DOUBT_FACTOR,
    DOUBT_SECONDS,
    FULL_PLAN_SECONDS,
    LEAST_RATE,
    MAX_TRY_SYMBOLS,
    SKETCH_ROUNDS,
    SKETCH_SECONDS,
    SYNC_SHARE,
)
from hyperbloom.replication.schedule.plan import FILTER_BYTES
from hyperbloom.replication.schedule.sketch_try import (
    SYMBOL_BYTES,
    SketchOutcome,
    first_block,
    first_symbols,
)
from hyperbloom.replication.schedule.sync_commands import (
    BeginPlan,
    BeginSketch,
    ChangeWay,
    Command,
    CompareDigests,
    Situation,
    Way,
    choose_way,
)
from hyperbloom.replication.schedule.sync_state import SyncEvidence
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import SyncState

__all__ = ["ANSWER_SECONDS", "SyncSchedule"]

#: How long a peer that cannot split its replies has to answer one question, in seconds.
ANSWER_SECONDS = 5.0

#: A call that waits until the peer is in sync has it asked again so soon after the last time.
HURRY_SECONDS = 0.5

#: A peer that recommends smaller filters than this would have us send too many of them.
LEAST_FILTER_BYTES = 8_192

_MAX_NUMBER = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class _Look:
    """Nothing may have moved for `wait` seconds before the next round; `until` at the latest."""

    wait: float
    until: float

    def is_due_at(self, now: float, situation: Situation) -> float:
        """When nothing will have moved for so long, if nothing moves from now on."""
        moves = situation.is_receiving or situation.is_sending
        return (now if moves else situation.moved_at) + self.wait


@dataclass(slots=True)
class _Resting:
    until: float
    look: _Look | None = None


@dataclass(slots=True)
class _Comparing:
    number: int
    until: float
    is_answered: bool = False


@dataclass(slots=True)
class _Reconciling:
    until: float
    first: int
    most: int
    is_salted: bool


@dataclass(slots=True)
class _Planning:
    way: Way


class _Rung(IntEnum):
    """What differing digests are met with, one after the other while they stay different."""

    SKETCH = 0
    SALTED = 1
    PLAN = 2


@dataclass(slots=True)
class _Awaited:
    """Values that this side lacks by the last comparison, and so has asked for.

    `before`: of the peer's values how many were new here before. `until`: how long they are waited
    for at the longest, come what may.
    """

    lacking: int = 0
    before: int = 0
    until: float = 0.0
    came: int = 0

    def still_comes(self, values_new: int, *, now: float) -> bool:
        """Whether some have come since this was asked last, and some have not.

        While a long answer comes the interval ends as well, and to ask again then would have much
        of it sent twice.
        """
        before, self.came = self.came, values_new - self.before
        return before < self.came < self.lacking and now < self.until


class SyncSchedule:
    """The rounds of one connection, from `begin` to `stop`; `kept` are the ranges kept here.

    `interval` says how long to rest after a round, given the least time to rest (both in seconds).
    `state` is what is known of whether the peer is in sync, None: nothing yet.
    """

    __slots__ = (
        "_awaited",
        "_doubt",
        "_evidence",
        "_filter_bytes",
        "_full_plan_at",
        "_gives_way_until",
        "_interval",
        "_number",
        "_over_at",
        "_patient_until",
        "_peer_bytes",
        "_phase",
        "_rung",
        "_settles_at",
        "_sketch_rounds",
        "state",
    )

    def __init__(
        self, kept: Sequence[KeyRange], *, interval: Callable[[float], float], now: float
    ) -> None:
        self.state: SyncState | None = None
        self._interval = interval
        self._phase: _Resting | _Comparing | _Reconciling | _Planning | None = None
        self._number = 0
        self._filter_bytes = FILTER_BYTES
        #: What the peer holds, in bytes, as far as its last filter and what it was sent tell.
        self._peer_bytes: float | None = None
        #: When the answers to the last plan are in, as far as can be told.
        self._settles_at: float | None = None
        self._evidence = SyncEvidence(kept)
        self._awaited = _Awaited()
        #: How long after a plan the peer is compared with; grows while the digests stay different.
        self._doubt = DOUBT_SECONDS
        self._rung = _Rung.SKETCH
        #: Rounds by symbols since the digests were equal, or the last plan.
        self._sketch_rounds = 0
        #: Until when a new peer that has no more than it was sent is not asked for what differs.
        self._patient_until = now
        #: Until when this peer is not asked while another one is, None: it does not wait.
        self._gives_way_until: float | None = None
        self._over_at = now
        self._full_plan_at = now + FULL_PLAN_SECONDS

    @property
    def next_deadline(self) -> float | None:
        """When to call `wake`; None before `begin`, after `stop`, and while a plan is asked."""
        ends = None if isinstance(self._phase, _Planning | None) else self._phase.until
        return min((at for at in (ends, self._settles_at) if at is not None), default=None)

    @property
    def is_planning(self) -> bool:
        """Whether filters of a plan are still to be sent."""
        return isinstance(self._phase, _Planning)

    @property
    def is_comparing(self) -> bool:
        """Whether a digest is awaited, or being compared with."""
        return isinstance(self._phase, _Comparing)

    @property
    def is_reconciling(self) -> bool:
        """Whether a try by symbols is under way."""
        return isinstance(self._phase, _Reconciling)

    # What happens

    def begin(self, wait: float, *, now: float) -> None:
        """The peer is secure: the first round begins after `wait`, or with its first Sync."""
        self._phase = _Resting(now + wait)
        self._patient_until = now + wait + self._interval(0.0)

    def stop(self) -> None:
        """The connection is over: nothing is asked any more."""
        self._phase = self._settles_at = None

    def wake(self, *, now: float, situation: Situation) -> Command | None:
        """Time has passed: do what is due at `now`."""
        if self._settles_at is not None and self._settles_at <= now:
            self._settle(now, situation)
        match self._phase:
            case _Comparing(until=until) if until <= now:
                return self._learn(None, 0.0, now, situation)
            case _Reconciling(until=until) if until <= now:
                return self.sketch_over(SketchOutcome.REFUSED, 0.0, now=now, situation=situation)
            case _Resting(until=until, look=look) if until <= now:
                if look is not None and (due := look.is_due_at(now, situation)) <= now:
                    return self._begin_round(now, situation)
                if look is not None and now < look.until:
                    self._phase = _Resting(min(due, look.until), look)
                elif self._awaited.still_comes(situation.values_new, now=now):
                    wait = self._interval(0.0)
                    self._rest_and_look(min(DOUBT_SECONDS, wait), now + wait, now)
                else:
                    return self._begin_round(now, situation)
        return None

    def hurry(self, *, now: float) -> None:
        """Somebody waits until this peer is in sync: do not wait for the interval.

        But what was asked for last may still be coming, and is not asked for again: first nothing
        may have moved for DOUBT_SECONDS, as behind any first plan.
        """
        if self._settles_at is not None or now - self._over_at < HURRY_SECONDS:
            return
        match self._phase:
            case _Resting(look=None):
                self._phase = _Resting(now)
            case _Resting():
                self._look_soon(now)

    def _look_soon(self, now: float) -> None:
        match self._phase:
            case _Resting(until=until, look=look) if look is not None and look.wait > DOUBT_SECONDS:
                self._phase = _Resting(
                    min(until, now + DOUBT_SECONDS), replace(look, wait=DOUBT_SECONDS)
                )

    def filters_recommended(self, filter_bytes: int) -> None:
        """The peer recommends filters of so many bytes."""
        self._filter_bytes = min(FILTER_BYTES, max(filter_bytes, LEAST_FILTER_BYTES))

    def peer_asked(
        self, peer_bytes: float | None, *, now: float, situation: Situation
    ) -> ChangeWay | None:
        """A Sync of the peer came; the first one lets our first round begin.

        `peer_bytes`: what the peer holds, as its filter tells about; None: the Sync is of a range.
        """
        self._peer_bytes = peer_bytes
        match self._phase:
            case _Planning(way=way) if peer_bytes is not None:
                better = self._choose_way(situation)
                if way is Way.FILTERS and better is not way:
                    self._phase = _Planning(better)
                    return ChangeWay(way=better)
            case _Resting(look=look) if not situation.was_asked:
                self._phase = _Resting(now, look)
        return None

    def peer_was_sent(self, size: int) -> None:
        """The peer holds values of so many bytes more from now on."""
        if self._peer_bytes is not None:
            self._peer_bytes += size

    def peer_was_answered(self, bounds: KeyRange) -> None:
        """A Sync of the peer, about this range and without a limit, was answered to its end."""
        self._evidence.sync_answered(bounds)

    def digest_came(self, number: int, *, now: float) -> bool:
        """Whether this digest is the one that is awaited: then there is time to compare it."""
        match self._phase:
            case _Comparing(number=awaited, is_answered=False) if awaited == number:
                self._phase = _Comparing(number, now + DIGEST_SECONDS, is_answered=True)
                return True
        return False

    def compared(
        self,
        number: int,
        state: SyncState | None,
        seconds: float,
        *,
        now: float,
        situation: Situation,
        counts: tuple[int, int] | None = None,
    ) -> Command | None:
        """The digest of this number was compared with ours, which took so many seconds.

        `state` None: both keep nothing in common, or one does not know its digest. `counts`: of the
        values that are settled here and there.
        """
        match self._phase:
            case _Comparing(number=awaited) if awaited == number:
                return self._learn(state, seconds, now, situation, counts)
        return None

    def peer_tried(self, *, now: float) -> None:
        """A try of the peer is over: what it brings is on its way, and then both may be the same.

        This side may have met a difference meanwhile, and rests the longer for it.
        """
        if self._doubt < self._interval(0.0):
            self._look_soon(now)

    def symbols_failed(self) -> None:
        """The peer's try by symbols came to nothing, so ours would not help either."""
        self._rung = _Rung.PLAN

    def sketch_moved(self, awaited: int, *, now: float) -> None:
        """A step of the try was made, or so many symbols were asked for: there is time for more.

        What comes of them meanwhile brings no more time, or a peer could draw it out.
        """
        match self._phase:
            case _Reconciling() as phase:
                more = SKETCH_SECONDS + awaited * SYMBOL_BYTES / LEAST_RATE
                phase.until = max(phase.until, now + more)

    def sketch_over(
        self, outcome: SketchOutcome, seconds: float, *, now: float, situation: Situation
    ) -> Command | None:
        """The try by symbols has ended; it took so many seconds here."""
        phase = self._phase
        if not isinstance(phase, _Reconciling):
            return None
        match outcome:
            case SketchOutcome.UNDECODED if not phase.is_salted and situation.may_salt:
                return self._begin_sketch(phase.first, phase.most, now, is_salted=True)
            case SketchOutcome.UNDECODED | SketchOutcome.REFUSED:
                return self._begin_plan(now, situation)
            case SketchOutcome.NOTHING:
                self._rung = _Rung.PLAN if phase.is_salted else _Rung.SALTED
            case SketchOutcome.TAKEN:
                self._rung = _Rung.SKETCH
        self._sketch_rounds += 1
        self._end_round(seconds, now, situation, is_planned=True)
        return None

    def plan_asked(self, seconds: float, *, now: float, situation: Situation) -> None:
        """All filters of the plan are sent; making them took so many seconds."""
        if self.is_planning:
            if not situation.can_compare and self._settles_at is None:
                self._settles_at = now + ANSWER_SECONDS
            self._end_round(seconds, now, situation, is_planned=True)

    # A round: a comparison, a try by symbols, a plan; or one after the other

    def _begin_round(self, now: float, situation: Situation) -> Command | None:
        self._awaited = _Awaited()
        if not situation.can_compare:
            return self._begin_plan(now, situation)
        self._number = (self._number + 1) & _MAX_NUMBER
        self._phase = _Comparing(self._number, now + DIGEST_SECONDS)
        return CompareDigests(number=self._number)

    def _learn(
        self,
        state: SyncState | None,
        seconds: float,
        now: float,
        situation: Situation,
        counts: tuple[int, int] | None = None,
    ) -> Command | None:
        """A comparison is over (`state` None: without a result): go on with what follows."""
        self.state = state or self.state
        is_same = state is not None and state.in_sync
        if is_same:
            self._doubt = DOUBT_SECONDS
            self._gives_way_until = None
        if state is None or now >= self._full_plan_at:
            return self._begin_plan(now, situation)
        if is_same:
            self._rung, self._sketch_rounds, self._patient_until = _Rung.SKETCH, 0, now
            self._end_round(seconds, now, situation)
            return None
        return self._bring_together(counts, now, situation)

    def _bring_together(
        self, counts: tuple[int, int] | None, now: float, situation: Situation
    ) -> Command | None:
        """The digests differ: by symbols, or by a plan; later, while another peer is asked.

        But a peer that has no more than it was sent has nothing for us as far as can be told: it
        has come for what is here. That is seen once it has its answer, or after the interval.
        """
        if counts is not None:
            lacking = counts[1] - counts[0]
            self._awaited = _Awaited(lacking, situation.values_new, now + AWAITED_SECONDS)
        if counts is not None and counts[1] <= situation.values_sent and now < self._patient_until:
            self._rest_and_look(DOUBT_SECONDS, self._patient_until, now)
            return None
        if situation.another_brings and self._gives_way(now):
            return None
        is_used_up = self._rung is _Rung.PLAN or self._sketch_rounds >= SKETCH_ROUNDS
        if is_used_up or not situation.can_reconcile or counts is None:
            return self._begin_plan(now, situation)
        if situation.is_reconciled:
            self._sketch_rounds += 1
            self._end_round(0.0, now, situation, is_planned=True)
            return None
        is_salted = self._rung is _Rung.SALTED
        first = first_symbols(*counts)
        if first is None or not situation.keeps_anything or (is_salted and not situation.may_salt):
            return self._begin_plan(now, situation)
        if self._choose_way(situation, first) is not Way.SKETCH:
            return self._begin_plan(now, situation)
        here, there = counts
        plans_bytes = situation.filters_bytes * (1 + there / here)
        most = min(MAX_TRY_SYMBOLS, int(plans_bytes / SYMBOL_BYTES))
        return self._begin_sketch(first_block(first, there), most, now, is_salted=is_salted)

    def _gives_way(self, now: float) -> bool:
        """Whether to look again soon: there may be nothing left to ask this peer for."""
        if self._gives_way_until is None:
            self._gives_way_until = now + CATCH_UP_LONGEST
        if now >= self._gives_way_until:
            return False
        self._phase = _Resting(now + CATCH_UP_SECONDS)
        return True

    def _begin_sketch(self, first: int, most: int, now: float, *, is_salted: bool) -> Command:
        self._gives_way_until = None
        self._phase = _Reconciling(now + SKETCH_SECONDS, first, most, is_salted)
        return BeginSketch(first=first, most=most, is_salted=is_salted)

    def _begin_plan(self, now: float, situation: Situation) -> Command | None:
        self._full_plan_at = now + FULL_PLAN_SECONDS
        self._gives_way_until = None
        self._rung, self._sketch_rounds, self._patient_until = _Rung.SKETCH, 0, now
        if not situation.keeps_anything:
            self._end_round(0.0, now, situation)
            return None
        self._evidence.plan_begins(at=situation.at, new_values=situation.values_new)
        way = self._choose_way(situation)
        self._phase = _Planning(way)
        return BeginPlan(way=way, filter_bytes=self._filter_bytes)

    def _choose_way(self, situation: Situation, symbols: int | None = None) -> Way:
        return choose_way(
            peer_bytes=self._peer_bytes,
            filters_bytes=situation.filters_bytes,
            sketch_bytes=None if symbols is None else symbols * SYMBOL_BYTES,
        )

    def _end_round(
        self, seconds: float, now: float, situation: Situation, *, is_planned: bool = False
    ) -> None:
        """The next one begins after the interval; behind a plan, after a look.

        A large feed with many peers is asked less often, so that what takes `seconds` takes no more
        than `SYNC_SHARE` of the node's time.
        """
        self._over_at = now
        least = seconds * situation.peers / SYNC_SHARE
        wait = self._interval(least)
        if is_planned and situation.can_compare and self._doubt < wait:
            self._rest_and_look(max(self._doubt, least), now + wait, now)
            self._doubt *= DOUBT_FACTOR
        else:
            self._phase = _Resting(now + wait)

    def _rest_and_look(self, wait: float, until: float, now: float) -> None:
        """See whether the plan has left a difference, `wait` seconds after the last value moved.

        `until` a moment, at the latest: while values are put all the time, none is the last.
        """
        self._phase = _Resting(max(min(now + wait, until), now), _Look(wait, until))

    def _settle(self, now: float, situation: Situation) -> None:
        """The answers to our plan are in, as far as can be told: what do they show?"""
        self._settles_at = None
        if self.is_planning:
            return
        if situation.awaits_reply or situation.is_receiving:
            self._settles_at = now + ANSWER_SECONDS
            return
        shown = self._evidence.plan_ends(
            new_values=situation.values_new, all_sent=not situation.is_sending
        )
        self.state = shown or self.state
