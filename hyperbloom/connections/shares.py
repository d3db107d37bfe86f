"""What each peer uses of this node, by its path: a tree of shares.

A connection costs a peer nothing, and a key nothing but a link, so nothing that is scarce is given
out by connection or by key alone. It is shared out among branches first, within a branch among
those below it, and so on down to the key (`hyperbloom.trust.branch`). What is done for a key counts
as the use of its own share and of each branch above it: a new key has what its branch has left.
What was used is kept when a key leaves, so that coming again brings nothing either. It is kept
until it makes no difference any more (`Shares.forget_gone`).

On each level, who has used much gives way to those beside it who have used less. Everybody's work
is counted in seconds and forgotten by and by: what is used now in `USE_SECONDS`, what makes one
heavier than another in `WEIGHT_SECONDS`, so that a flood which gives way is not soon lighter than
whom it gave way to. Lighter is who has used less by a factor (`HEAVIER`): among equals turns are
enough. After a piece of work a share rests if lighter ones beside it are at work: the more they
use, the longer, so that it comes to `LEAST_PART` of the time at the least, and all strangers
together to `LEAST_PART_OF_STRANGERS`. The others are not only served first; the processor is left
to them, too. A share that is alone, or uses less than `FREE_PART` of a thread, never rests; a key
rests as long as its own share or any branch above it does.

Beside that there is the budget of `sync_rate` and `sync_burst`, which bounds a key's questions in
the long run, whether others are there or not. What peers hold in memory is in `rooms`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from hyperbloom.connections.branches import Branch, Path, Share, WorkBudget, surplus_of
from hyperbloom.connections.limits import (
    FREE_PART,
    LEAST_PART,
    LEAST_PART_OF_STRANGERS,
    MAX_SHARES,
    YIELD_FACTOR,
)
from hyperbloom.connections.rooms import Rooms
from hyperbloom.turns import Turns

__all__ = ["Share", "ShareLimits", "Shares"]


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

    @property
    def queued_bytes(self) -> int:
        """Of values of all peers that wait for the disk."""
        ...


class Shares:
    """The shares of all keys that are connected, and of those that were not long ago."""

    def __init__(self, clock: IReactorTime, limits: Callable[[], ShareLimits]) -> None:
        self._clock = clock
        self._limits = limits
        self.root = Branch(b"", None)
        self.root.is_shared = True
        self._branches: dict[Path, Branch] = {}
        #: The one that was joined longest ago first.
        self._shares: dict[Path, Share] = {}
        #: All together that have proved no key yet: they cost nothing, so they have one share.
        self.strangers = Share((), self.root, self._budget())
        #: What they hold in memory.
        self.rooms = Rooms(clock, lambda: self._limits().queued_bytes)

    def __len__(self) -> int:
        return len(self._shares)

    def join(self, path: Path) -> Share:
        """A connection of this path has become secure; `leave` is called when it ends."""
        share = self._shares.pop(path, None)
        if share is None:
            share = self._new_share(path)
        self._shares[path] = share
        share.connections += 1
        if len(self._shares) > MAX_SHARES:
            self._drop_some()
        return share

    def _new_share(self, path: Path) -> Share:
        parent = self.root
        for end in range(1, len(path) + 1):
            branch = self._branches.get(path[:end])
            if branch is None:
                branch = self._branches[path[:end]] = Branch(path[end - 1], parent)
                self._put_below(parent, path[: end - 1])
            parent = branch
        share = Share(path, parent, self._budget())
        self._put_below(parent, path)
        return share

    def _put_below(self, parent: Branch, path: Path) -> None:
        """There is one more below the branch with this path: its own share is one of many now."""
        parent.below += 1
        if parent.below > 1 and not parent.is_shared:
            parent.is_shared = True
            own = self._shares.get(path)
            if own is not None:
                own.take_over(parent)

    def _budget(self) -> WorkBudget:
        limits, now = self._limits(), self._clock.seconds()
        return WorkBudget(rate=limits.sync_rate, burst=limits.sync_burst, now=now)

    def leave(self, share: Share) -> None:
        """A connection is gone."""
        share.connections -= 1

    def forget_gone(self) -> None:
        """Drop the shares of keys that have no connection and owe nothing more."""
        now = self._clock.seconds()
        for share in list(self._shares.values()):
            if share.is_forgiven(now) and not self.rooms.has(share):
                del self._shares[share.path]
                self._lost_one(share)
        for path in sorted(self._branches, key=len, reverse=True):
            branch = self._branches[path]
            if not (branch.below or branch.sleepers) and branch.is_forgiven(now):
                del self._branches[path]
                self._lost_one(branch)

    def limits_changed(self) -> None:
        """Take over the rate and the burst that are set now."""
        limits = self._limits()
        for share in self._shares.values():
            share.budget.bound(rate=limits.sync_rate, burst=limits.sync_burst)

    def charge(self, share: Share, seconds: float) -> None:
        """Work of so many seconds was done for it."""
        now = self._clock.seconds()
        for one in share.line():
            if one.parent is not None and one.parent.is_shared:
                self._charge_one(one, one.parent, seconds, now)

    def _charge_one(self, one: Branch, parent: Branch, seconds: float, now: float) -> None:
        one.add(seconds, now)
        if parent.active is None:
            parent.active = OrderedDict()
        parent.active[one] = now
        parent.active.move_to_end(one)
        if one.part(now) <= FREE_PART:
            return
        least = LEAST_PART_OF_STRANGERS if one is self.strangers else LEAST_PART
        part = max(least, 1.0 - YIELD_FACTOR * parent.used_by_lighter(one, now))
        if part < 1.0:
            one.rests_until = max(one.rests_until, now) + seconds * (1.0 / part - 1.0)

    def was_a_strangers(self, share: Share, seconds: float, *, counted: float) -> None:
        """Work for a stranger turns out to be this share's; `counted` of it is given back to them.

        So who comes again and again with a key makes its own branch heavy, and not all newcomers.
        """
        now = self._clock.seconds()
        strangers = self.strangers
        strangers.add(-counted, now)
        strangers.rests_until -= counted * (1.0 / LEAST_PART_OF_STRANGERS - 1.0)
        self.charge(share, seconds)

    # Rests

    def rests(self, share: Share) -> float:
        """Seconds for which it rests from now on; 0: it does not."""
        one: Branch | None = share
        until = 0.0
        while one is not None:
            until = max(until, one.rests_until)
            one = one.parent
        return max(0.0, until - self._clock.seconds())

    def wake_after_rest(self, share: Share) -> None:
        """Wake those who wait for this share when the rest is over; once, however many ask.

        A branch has one timer, and those below it take turns: each may make it rest again.
        """
        if not share.is_asleep:
            share.is_asleep = True
            longest = max(share.line(), key=lambda one: one.rests_until)
            self._put_to_sleep(longest, share.path, lambda: self._woken(share))

    def wait_below(self, path: Path, go_on: Callable[[], None]) -> bool:
        """Whether a share of this path, which need not be there, would rest now.

        If so `go_on` is called when its turn has come after that.
        """
        one: Branch | None = next(
            (
                found
                for end in range(len(path), 0, -1)
                if (found := self._branches.get(path[:end])) is not None
            ),
            None,
        )
        longest = one
        while one is not None and longest is not None:
            longest = max(longest, one, key=lambda each: each.rests_until)
            one = one.parent
        if longest is None or longest.rests_until <= self._clock.seconds():
            return False
        self._put_to_sleep(longest, path, go_on)
        return True

    def _put_to_sleep(self, one: Branch, path: Path, go_on: Callable[[], None]) -> None:
        if one.sleepers is None:
            one.sleepers = Turns()
        one.sleepers.add(path, go_on)
        self._set_timer(one)

    def _set_timer(self, one: Branch) -> None:
        if one.wake_call is None:
            wait = max(0.0, one.rests_until - self._clock.seconds())
            one.wake_call = self._clock.callLater(wait, self._rested, one)

    def _rested(self, one: Branch) -> None:
        one.wake_call = None
        while one.sleepers:
            if one.rests_until > self._clock.seconds():
                # What those before them did was enough for another rest.
                self._set_timer(one)
                return
            one.sleepers.pop()()
        one.sleepers = None

    def _woken(self, share: Share) -> None:
        share.is_asleep = False
        share.wake(until=lambda: self.rests(share) > 0)
        if share.has_waiting and self.rests(share):
            self.wake_after_rest(share)

    # Which are kept

    def _drop_some(self) -> None:
        """Drop shares of the parent that has the most which are kept for nobody.

        A key without a connection goes first, and there are fewer connections than shares.
        """
        some = [
            share
            for share in self._shares.values()
            if not (share.connections or share.is_asleep or share.writing or self.rooms.has(share))
        ]
        for share in surplus_of(some, lambda one: one.path):
            del self._shares[share.path]
            self._lost_one(share)
            self._drop_empty(share.path)

    def _drop_empty(self, path: Path) -> None:
        """Drop the branches of a path that have nobody below, but not the first: it has weight."""
        for end in range(len(path), 1, -1):
            branch = self._branches[path[:end]]
            if branch.below or branch.sleepers:
                return
            del self._branches[path[:end]]
            self._lost_one(branch)

    def _lost_one(self, one: Branch) -> None:
        """There is one less below its parent."""
        parent = one.parent
        if parent is not None:
            parent.below -= 1
            if parent.active is not None:
                parent.active.pop(one, None)
                parent.active = parent.active or None
