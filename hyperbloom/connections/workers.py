"""Work in threads, for peers and for this node itself, in fair turn.

What is asked of the threads comes in slices of a few milliseconds to some tens. A thread that
becomes free takes turns between this node's own work and that for peers; among the peers it is the
turn of the branch that has used least of late and does not rest, within it of the one below it, and
so on down to a key (`shares`). A key has one slice under way at a time, however many connections it
has, and so has a branch while others beside it are at work: with both threads it would make each of
their slices wait, and they would use too little for it to rest. So nobody waits for long.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hyperbloom.connections.branches import Branch, Share
from hyperbloom.connections.shares import Shares

__all__ = ["THREADS", "InThread", "Workers"]

T = TypeVar("T")

#: Slices under way at a time; as many threads are enough, for Python runs in one at a time, and
#: only the disk and numpy beside it.
THREADS = 2


class InThread(Protocol):
    """Runs a blocking call beside the reactor."""

    def __call__(self, call: Callable[[], T], /) -> Deferred[T]: ...


class _Slice:
    """A call that waits for its turn, and what it has used in the end, in seconds."""

    def __init__(
        self,
        call: Callable[[], Any],
        work_seconds: Callable[[], float],
        cancelled: Callable[[Deferred[Any]], None] | None = None,
    ) -> None:
        self.result: Deferred[Any] = Deferred(cancelled)
        self.used = 0.0
        self._call = call
        self._work_seconds = work_seconds

    def run(self) -> Any:
        """In a thread: do it, and count what it takes."""
        begun = self._work_seconds()
        try:
            return self._call()
        finally:
            self.used = self._work_seconds() - begun


class Workers:
    """Gives slices to the threads. `work_seconds` is the processor time of the calling thread."""

    def __init__(
        self,
        in_thread: InThread,
        shares: Shares,
        clock: IReactorTime,
        work_seconds: Callable[[], float],
    ) -> None:
        self._in_thread = in_thread
        self._shares = shares
        self._clock = clock
        self._work_seconds = work_seconds
        self._own: deque[_Slice] = deque()
        self._rows: dict[Share, deque[_Slice]] = {}
        #: Of each branch those below it that have a slice which could be begun, the one that waits
        #: longest first.
        self._ready: dict[Branch, dict[Branch, None]] = {}
        self._at_work: set[Share] = set()
        #: Slices under way, of shares and of the branches above them.
        self._under_way: Counter[Branch] = Counter()
        self._running = 0
        self._own_was_last = False
        self._wake_call: IDelayedCall | None = None

    def own(self, call: Callable[[], T]) -> Deferred[T]:
        """Do this node's own work; fires with what `call` returns."""
        slice_ = _Slice(call, self._work_seconds)
        self._own.append(slice_)
        self._go_on()
        return slice_.result

    def work_for(self, share: Share, call: Callable[[], T]) -> Deferred[T]:
        """Do work that a peer has caused: it counts as what its key uses.

        Cancelled before its turn has come, it is not done, and what it holds is dropped.
        """
        slice_ = _Slice(call, self._work_seconds, cancelled=lambda _: self._drop(share, slice_))
        self._rows.setdefault(share, deque()).append(slice_)
        self._set_ready(share)
        self._go_on()
        return slice_.result

    def _drop(self, share: Share, slice_: _Slice) -> None:
        row = self._rows.get(share)
        if row is not None and slice_ in row:
            row.remove(slice_)
            if not row:
                del self._rows[share]
                self._unset_ready(share)

    def _set_ready(self, share: Share) -> None:
        if share in self._rows and share not in self._at_work:
            for one in share.line():
                if one.parent is not None:
                    self._ready.setdefault(one.parent, {}).setdefault(one)

    def _unset_ready(self, share: Share) -> None:
        for one in share.line():
            ready = self._ready.get(one.parent) if one.parent is not None else None
            if ready is None or one in self._ready:
                return
            ready.pop(one, None)
            if ready:
                return
            del self._ready[one.parent]  # type: ignore[arg-type]

    def _go_on(self) -> None:
        while self._running < THREADS:
            share = self._next_share()
            if self._own and (share is None or not self._own_was_last):
                self._own_was_last = True
                self._start(self._own.popleft(), None)
            elif share is not None:
                self._own_was_last = False
                row = self._rows[share]
                slice_ = row.popleft()
                if not row:
                    del self._rows[share]
                self._unset_ready(share)
                self._start(slice_, share)
            else:
                return

    def _next_share(self) -> Share | None:
        """Whose turn it is among the peers; the longest waiting of those that used the same."""
        now = self._clock.seconds()
        found, until = self._least_below(self._shares.root, now)
        if found is None and until < math.inf:
            self._wake_at(until)
        return found

    def _least_below(self, branch: Branch, now: float) -> tuple[Share | None, float]:
        """Whose turn it is below a branch; None: all that wait there rest, the first until then."""
        ready = self._ready.get(branch, {})
        until = min((one.rests_until for one in ready if one.rests_until > now), default=math.inf)
        awake = [
            one
            for one in ready
            if one.rests_until <= now
            and not (self._under_way[one] and branch.has_active_beside(one, now))
        ]
        while awake:
            least = min(awake, key=lambda one: one.part(now))
            if isinstance(least, Share):
                return least, until
            found, later = self._least_below(least, now)
            if found is not None:
                return found, until
            until = min(until, later)
            awake.remove(least)
        return None, until

    def _wake_at(self, when: float) -> None:
        if self._wake_call is not None and self._wake_call.active():
            if self._wake_call.getTime() <= when:
                return
            self._wake_call.cancel()
        self._wake_call = self._clock.callLater(max(0.0, when - self._clock.seconds()), self._go_on)

    def _start(self, slice_: _Slice, share: Share | None) -> None:
        self._running += 1
        if share is not None:
            self._at_work.add(share)
            self._under_way.update(share.line())

        def ended(outcome: Any) -> None:
            self._running -= 1
            if share is not None:
                self._at_work.discard(share)
                self._under_way -= Counter(share.line())
                self._set_ready(share)
                self._shares.charge(share, slice_.used)
            self._go_on()
            if not slice_.result.called:  # else it was cancelled meanwhile
                slice_.result.callback(outcome)

        self._in_thread(slice_.run).addBoth(ended)
