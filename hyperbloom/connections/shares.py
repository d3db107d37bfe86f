"""What each peer uses of this node, by its key: all its connections together have one share.

A connection costs a peer nothing, so nothing that is scarce is given out by connection. What a key
has used is kept when it leaves, so that coming again brings nothing either. It is kept until it
makes no difference any more (`Shares.forget_gone`).

Who has used much gives way to those who have used less. Everybody's work is counted in seconds and
forgotten by and by: what a key uses now in `USE_SECONDS`, what makes it heavier than another in
`WEIGHT_SECONDS`, so that a flood which gives way is not soon lighter than whom it gave way to.
Lighter is who has used less by a factor (`HEAVIER`): among equals turns are enough.
After a piece of work a key rests if lighter ones are at work: the more they use, the longer, so
that it comes to `LEAST_PART` of the time at the least, and all strangers together to
`LEAST_PART_OF_STRANGERS`. The others are not only served first; the processor is left to them, too.
A key that is alone, or uses less than `FREE_PART` of a thread, never rests.

Beside that there is the budget of `sync_rate` and `sync_burst`, which bounds a key's questions in
the long run, whether others are there or not.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hyperbloom.connections.limits import (
    ACTIVE_SECONDS,
    BEGINNING_SECONDS,
    FORGIVEN_AFTER,
    FORGIVEN_WEIGHT,
    FREE_PART,
    HEAVIER,
    LEAST_PART,
    LEAST_PART_OF_STRANGERS,
    MAX_SHARES,
    USE_SECONDS,
    WEIGHT_SECONDS,
    YIELD_FACTOR,
)

__all__ = ["Share", "ShareLimits", "Shares", "WorkBudget"]


class ShareLimits(Protocol):
    """The settings that a share is made by."""

    @property
    def sync_rate(self) -> float:
        """Values tested a second in the long run."""
        ...

    @property
    def sync_burst(self) -> float:
        """Values tested before `sync_rate` slows a key down."""
        ...


class WorkBudget:
    """A token bucket of values tested for one peer: `rate` a second, at most `burst` saved up."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, *, rate: float, burst: float, now: float) -> None:
        self.bound(rate=rate, burst=burst)
        self._tokens = burst
        self._at = now

    def bound(self, *, rate: float, burst: float) -> None:
        """Another rate and burst from now on."""
        self._rate = rate
        self._burst = burst

    def spend(self, amount: int, *, now: float) -> float:
        """Take `amount`; returns the seconds the peer has to wait before its next question."""
        self._tokens = self._saved(now) - amount
        self._at = now
        return max(0.0, -self._tokens / self._rate)

    def affords(self, amount: int, *, now: float) -> bool:
        """Whether `amount` could be taken at once."""
        return amount <= self._saved(now)

    def is_full(self, *, now: float) -> bool:
        """Whether it is as if nothing had ever been taken."""
        return self._saved(now) >= self._burst

    def _saved(self, now: float) -> float:
        return min(self._burst, self._tokens + (now - self._at) * self._rate)


class Share:
    """What one key uses. Bytes are of all its connections together.

    unwritten: values that wait for the disk, with what each costs there. writing: those of them
    that the writer has. asked: questions that wait
    for an answer. unsent: what was written to connections that are full. filters: how many of its
    filters are kept unpacked. rests_until: a moment, in seconds of the clock.
    """

    __slots__ = (
        "_began",
        "_used",
        "_used_at",
        "_waiting",
        "_wake_call",
        "_weight",
        "asked",
        "budget",
        "connections",
        "filters",
        "key",
        "rests_until",
        "unsent",
        "unwritten",
        "writing",
    )

    def __init__(self, key: bytes, budget: WorkBudget) -> None:
        self.key = key
        self.budget = budget
        self.connections = 0
        self.unwritten = self.writing = self.asked = self.unsent = self.filters = 0
        self.rests_until = 0.0
        self._used = self._weight = 0.0
        self._used_at = self._began = -math.inf
        #: In their order; None: nobody.
        self._waiting: dict[Callable[[], None], None] | None = None
        self._wake_call: IDelayedCall | None = None

    def part(self, now: float) -> float:
        """The part of the time that it has used of late: 1 is one thread, all the time.

        It is of the time since it began to work, if that was not long ago: others are to give way
        to a newcomer at once.
        """
        since = max(now - self._began, BEGINNING_SECONDS)
        window = USE_SECONDS * (1.0 - math.exp(-since / USE_SECONDS))
        return self._used * math.exp((self._used_at - now) / USE_SECONDS) / window

    def weight(self, now: float) -> float:
        """Seconds that it has used in the last minutes; who has more of them is heavier."""
        return self._weight * math.exp((self._used_at - now) / WEIGHT_SECONDS)

    def add(self, seconds: float, now: float) -> None:
        """It has used so much more."""
        if now - self._used_at > ACTIVE_SECONDS:
            self._began, self._used = now, 0.0
        else:
            self._used *= math.exp((self._used_at - now) / USE_SECONDS)
        self._used += seconds
        self._weight = self.weight(now) + seconds
        self._used_at = now

    def is_forgiven(self, now: float) -> bool:
        """Whether a new share would not be better for the key: it owes nothing more.

        No connection, nothing that waits or is under way, no rest, and little weight.
        """
        if self.connections or self._waiting is not None or self._wake_call is not None:
            return False
        if self.unwritten or self.writing or self.asked or self.unsent or self.filters:
            return False
        return (
            max(self._used_at, self.rests_until) + FORGIVEN_AFTER <= now
            and self.weight(now) <= FORGIVEN_WEIGHT
            and self.budget.is_full(now=now)
        )

    # Connections that take no more frames until there is room in the share

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once when the share has changed, those who wait longer first."""
        if self._waiting is None:
            self._waiting = {}
        self._waiting[go_on] = None

    def forget(self, go_on: Callable[[], None]) -> None:
        """Its connection is gone."""
        self._take_out(go_on)

    def wake(self) -> None:
        """Something has become free: whoever waits may look again."""
        for go_on in list(self._waiting or ()):
            if self._take_out(go_on):
                go_on()

    def _take_out(self, go_on: Callable[[], None]) -> bool:
        """It waits no more; whether it did."""
        if self._waiting is None or self._waiting.pop(go_on, self) is not None:
            return False
        self._waiting = self._waiting or None
        return True

    def wake_after_rest(self, clock: IReactorTime) -> None:
        """Wake those who wait when the rest is over; once, however many ask."""
        if self._wake_call is None:
            wait = max(0.0, self.rests_until - clock.seconds())
            self._wake_call = clock.callLater(wait, self._rested, clock)

    def _rested(self, clock: IReactorTime) -> None:
        self._wake_call = None
        for go_on in list(self._waiting or ()):
            if self.rests_until > clock.seconds():
                # What those before them did was enough for another rest.
                self.wake_after_rest(clock)
                return
            if self._take_out(go_on):
                go_on()


class Shares:
    """The shares of all keys that are connected, and of those that were not long ago."""

    def __init__(self, clock: IReactorTime, limits: Callable[[], ShareLimits]) -> None:
        self._clock = clock
        self._limits = limits
        self._shares: OrderedDict[bytes, Share] = OrderedDict()
        #: All together that have proved no key yet: they cost nothing, so they have one share.
        self.strangers = Share(b"", self._budget())
        #: Who has worked of late, with when it did last; the latest at the end.
        self._active: OrderedDict[Share, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._shares)

    def join(self, key: bytes) -> Share:
        """A connection of this key has become secure; `leave` is called when it ends."""
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = Share(key, self._budget())
        share.connections += 1
        self._shares.move_to_end(key)
        self._drop_oldest()
        return share

    def _budget(self) -> WorkBudget:
        limits, now = self._limits(), self._clock.seconds()
        return WorkBudget(rate=limits.sync_rate, burst=limits.sync_burst, now=now)

    def leave(self, share: Share) -> None:
        """A connection is gone."""
        share.connections -= 1

    def forget_gone(self) -> None:
        """Drop the shares of keys that have no connection and owe nothing more."""
        now = self._clock.seconds()
        for key in [key for key, share in self._shares.items() if share.is_forgiven(now)]:
            self._drop(key)

    def limits_changed(self) -> None:
        """Take over the rate and the burst that are set now."""
        limits = self._limits()
        for share in self._shares.values():
            share.budget.bound(rate=limits.sync_rate, burst=limits.sync_burst)

    def charge(self, share: Share, seconds: float) -> None:
        """Work of so many seconds was done for it."""
        now = self._clock.seconds()
        share.add(seconds, now)
        self._active[share] = now
        self._active.move_to_end(share)
        if share.part(now) <= FREE_PART:
            return
        least = LEAST_PART_OF_STRANGERS if share is self.strangers else LEAST_PART
        part = max(least, 1.0 - YIELD_FACTOR * self._used_by_lighter(share, now))
        if part < 1.0:
            share.rests_until = max(share.rests_until, now) + seconds * (1.0 / part - 1.0)

    def rests(self, share: Share) -> float:
        """Seconds for which it rests from now on; 0: it does not."""
        return max(0.0, share.rests_until - self._clock.seconds())

    def _used_by_lighter(self, share: Share, now: float) -> float:
        while self._active and now - next(iter(self._active.values())) > ACTIVE_SECONDS:
            self._active.popitem(last=False)
        most = share.weight(now) / HEAVIER
        return sum(other.part(now) for other in self._active if other.weight(now) < most)

    def _drop_oldest(self) -> None:
        # A key without a connection goes first, and there are fewer connections than shares.
        for key in list(self._shares) if len(self._shares) > MAX_SHARES else ():
            if not self._shares[key].connections:
                self._drop(key)
            if len(self._shares) <= MAX_SHARES:
                return

    def _drop(self, key: bytes) -> None:
        self._active.pop(self._shares.pop(key), None)
