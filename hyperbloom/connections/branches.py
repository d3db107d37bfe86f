"""The parts of the tree of shares (`shares`): branches, and at their ends the keys' own shares."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from twisted.internet.interfaces import IDelayedCall

from hyperbloom.connections.limits import (
    ACTIVE_SECONDS,
    BEGINNING_SECONDS,
    FORGIVEN_AFTER,
    FORGIVEN_WEIGHT,
    HEAVIER,
    USE_SECONDS,
    WEIGHT_SECONDS,
)
from hyperbloom.turns import Turns

__all__ = ["Branch", "Path", "Share", "WorkBudget", "surplus_of"]

Path = tuple[bytes, ...]
"""The keys from a branch's own down to the peer's (`hyperbloom.trust.Path`)."""

T = TypeVar("T")

#: Fewer than so many below one parent are not looked at one by one.
FEW = 8


def surplus_of(some: Sequence[T], path: Callable[[T], Path]) -> Sequence[T]:
    """Who gives way where there are too many: an eighth of those below the parent with the most.

    ``some``: the oldest first, who go first. So whoever makes many keys pushes out what is kept of
    them, and of nobody else. It is an eighth so that this is not looked for each time.
    """
    depth = 0
    while some:
        groups: dict[Path, list[T]] = {}
        for one in some:
            groups.setdefault(path(one)[depth : depth + 1], []).append(one)
        most = max(groups.values(), key=len)
        if len(most) < FEW or len({path(one) for one in most}) == 1:
            break
        some, depth = most, depth + 1
    return some[: max(1, len(some) // 8)]


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


class Branch:
    """What all below one beginning of their paths use together. rests_until: seconds of the clock.

    Those below it are other branches, and the share of the branch's own key.
    """

    __slots__ = (
        "_began",
        "_used",
        "_used_at",
        "_weight",
        "active",
        "below",
        "is_shared",
        "key",
        "parent",
        "rests_until",
        "sleepers",
        "wake_call",
    )

    def __init__(self, key: bytes, parent: Branch | None) -> None:
        self.key = key
        self.parent = parent
        #: How many there are below it, and whether there ever was more than one at a time.
        self.below = 0
        self.is_shared = False
        #: Who below it has worked of late, with when it did last; the latest at the end.
        self.active: OrderedDict[Branch, float] | None = None
        #: What is called one by one when it has rested, in turns by path; None: nothing.
        self.sleepers: Turns[Callable[[], None]] | None = None
        self.wake_call: IDelayedCall | None = None
        self.rests_until = 0.0
        self._used = self._weight = 0.0
        self._used_at = self._began = -math.inf

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
        """It has used so much more; less than nothing is given back."""
        if now - self._used_at > ACTIVE_SECONDS:
            self._began, self._used = now, 0.0
        else:
            self._used *= math.exp((self._used_at - now) / USE_SECONDS)
        self._used = max(0.0, self._used + seconds)
        self._weight = max(0.0, self.weight(now) + seconds)
        self._used_at = now

    def take_over(self, other: Branch) -> None:
        """It has used what the other one has."""
        self._used, self._weight = other._used, other._weight
        self._used_at, self._began = other._used_at, other._began

    def used_by_lighter(self, one: Branch, now: float) -> float:
        """What those below it use now that have used less than this one of them."""
        active = self.active
        if active is None:
            return 0.0
        while active and now - next(iter(active.values())) > ACTIVE_SECONDS:
            active.popitem(last=False)
        most = one.weight(now) / HEAVIER
        return sum(other.part(now) for other in active if other.weight(now) < most)

    def has_active_beside(self, one: Branch, now: float) -> bool:
        """Whether another one below it than this has worked of late."""
        active: OrderedDict[Branch, float] = self.active or OrderedDict()
        latest = next((other for other in reversed(active) if other is not one), None)
        return latest is not None and now - active[latest] <= ACTIVE_SECONDS

    def is_forgiven(self, now: float) -> bool:
        """Whether a new one would not be better: it has no rest any more, and little weight."""
        return (
            max(self._used_at, self.rests_until) + FORGIVEN_AFTER <= now
            and self.weight(now) <= FORGIVEN_WEIGHT
        )


class Share(Branch):
    """What one key uses, over all its connections.

    writing: those of its values that the writer has, in bytes with what each costs on disk.
    While its branch has nobody else below it the branch's use is its own, and is counted there.
    """

    __slots__ = ("_waiting", "budget", "connections", "is_asleep", "path", "writing")

    def __init__(self, path: Path, parent: Branch, budget: WorkBudget) -> None:
        super().__init__(path[-1] if path else b"", parent)
        self.path = path
        self.budget = budget
        self.connections = self.writing = 0
        #: Whether it is among the sleepers of itself or of a branch above it.
        self.is_asleep = False
        #: In their order; None: nobody.
        self._waiting: dict[Callable[[], None], None] | None = None

    def part(self, now: float) -> float:
        """As of a branch."""
        counted = self._counted
        return super().part(now) if counted is self else counted.part(now)

    def weight(self, now: float) -> float:
        """As of a branch."""
        counted = self._counted
        return super().weight(now) if counted is self else counted.weight(now)

    @property
    def _counted(self) -> Branch:
        parent = self.parent
        return self if parent is None or parent.is_shared else parent

    def line(self) -> Iterator[Branch]:
        """Itself and each branch above it, without the root of them all."""
        one: Branch = self
        while one.parent is not None:
            yield one
            one = one.parent

    def is_forgiven(self, now: float) -> bool:
        """Whether a new share would not be better for the key: it owes nothing more.

        No connection, nothing that waits or is under way, no rest, and little weight.
        """
        if self.connections or self._waiting is not None or self.is_asleep or self.writing:
            return False
        return super().is_forgiven(now) and self.budget.is_full(now=now)

    # Connections that take no more frames until there is room in the share

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` once when the share has changed, those who wait longer first."""
        if self._waiting is None:
            self._waiting = {}
        self._waiting[go_on] = None

    @property
    def has_waiting(self) -> bool:
        """Whether any connection waits."""
        return self._waiting is not None

    def forget(self, go_on: Callable[[], None]) -> None:
        """Its connection is gone."""
        self._take_out(go_on)

    def wake(self, *, until: Callable[[], bool] = lambda: False) -> None:
        """Something has become free: whoever waits may look again, `until` there is an end."""
        for go_on in list(self._waiting or ()):
            if until():
                return
            if self._take_out(go_on):
                go_on()

    def _take_out(self, go_on: Callable[[], None]) -> bool:
        """It waits no more; whether it did."""
        if self._waiting is None or self._waiting.pop(go_on, self) is not None:
            return False
        self._waiting = self._waiting or None
        return True
