"""Timers that are set again and again: what a machine without a clock says is due next.

A call that waits in the reactor takes half a kilobyte, so what each of a thousand connections waits
for is in one heap (`Alarms`), and one call waits for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

__all__ = ["Alarm", "Alarms", "Timer", "Wakeable"]

log = Logger()

#: The place of an alarm that is not in the heap.
_NOWHERE = -1


class Timer:
    """Calls `wake` at the moment it was set to last, once."""

    __slots__ = ("_call", "_clock", "_wake", "moment")

    def __init__(self, clock: IReactorTime, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        #: What it is set to, in seconds of the clock; None: to nothing.
        self.moment: float | None = None
        self._call: IDelayedCall | None = None

    def set(self, moment: float | None) -> None:
        """Call at this moment, in seconds of the clock (one that is past: at once); None: never."""
        if moment == self.moment:
            return
        self.moment = moment
        if moment is None:
            if self._call is not None:
                self._call.cancel()
                self._call = None
            return
        wait = max(0.0, moment - self._clock.seconds())
        if self._call is None:
            self._call = self._clock.callLater(wait, self._run)
        else:
            self._call.reset(wait)

    def _run(self) -> None:
        self.moment = self._call = None
        self._wake()


class Wakeable(Protocol):
    """Whom an alarm wakes."""

    def wake(self) -> None:
        """The moment has come."""


class Alarm:
    """Has `Alarms` wake its owner at the moment it was set to, once; then it is set to nothing."""

    __slots__ = ("moment", "owner", "place")

    def __init__(self, owner: Wakeable) -> None:
        self.owner = owner
        #: What it is set to, in seconds of the clock; infinite: to nothing.
        self.moment = math.inf
        #: Where it is in the heap.
        self.place = _NOWHERE


class Alarms:
    """The alarms of many, with one timer: a heap in which each knows its place.

    So one that is set to something else, or to nothing, moves or goes at once, in logarithmic time.
    """

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        #: None is later than the two at twice its place plus 1 and plus 2.
        self._heap: list[Alarm] = []
        self._timer = Timer(clock, self._ring)

    def __len__(self) -> int:
        return len(self._heap)

    def set(self, alarm: Alarm, moment: float | None) -> None:
        """Wake the owner at this moment (one that is past: soon, not at once); None: never."""
        moment = math.inf if moment is None else moment
        if moment == alarm.moment:
            return
        if alarm.place != _NOWHERE:
            self._take_out(alarm)
        alarm.moment = moment
        if moment < math.inf:
            self._heap.append(alarm)
            self._rise(len(self._heap) - 1, alarm)
        self._set_timer()

    def _set_timer(self) -> None:
        self._timer.set(self._heap[0].moment if self._heap else None)

    def _ring(self) -> None:
        now = self._clock.seconds()
        due = []
        while self._heap and self._heap[0].moment <= now:
            due.append(self._heap[0])
            self._take_out(self._heap[0])
        for alarm in due:
            # One before it may have set it to something else, or to nothing.
            if alarm.moment == math.inf or alarm.place != _NOWHERE:
                continue
            alarm.moment = math.inf
            try:
                alarm.owner.wake()
            except Exception:
                # The others are woken all the same, as the reactor does.
                log.failure("What was due failed")
        self._set_timer()

    # The heap

    def _take_out(self, alarm: Alarm) -> None:
        """Remove it; the last one fills the gap."""
        place, alarm.place = alarm.place, _NOWHERE
        last = self._heap.pop()
        if last is not alarm:
            self._sink(place, last)

    def _rise(self, place: int, alarm: Alarm) -> None:
        """Put it there, or as far above as those there are later."""
        heap = self._heap
        while place and alarm.moment < (above := heap[(place - 1) // 2]).moment:
            heap[place] = above
            above.place = place
            place = (place - 1) // 2
        heap[place] = alarm
        alarm.place = place

    def _sink(self, place: int, alarm: Alarm) -> None:
        """Fill a gap with it: the earlier of those below go up first, as far as there are any."""
        heap = self._heap
        while (below := 2 * place + 1) < len(heap):
            if below + 1 < len(heap) and heap[below + 1].moment < heap[below].moment:
                below += 1
            heap[place] = heap[below]
            heap[place].place = place
            place = below
        self._rise(place, alarm)
