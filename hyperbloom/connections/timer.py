"""One timer that is set again and again: what a machine without a clock says is due next."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

__all__ = ["Timer"]


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
