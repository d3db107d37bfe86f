"""How late the reactor is: a call that is due twice a second, and how long after that it comes."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime

from hyperbloom.store.histogram import Histogram

__all__ = ["LOOK_SECONDS", "LagMeter"]

#: How often it is looked at: what holds the reactor for long is met, and looking costs nothing.
LOOK_SECONDS = 0.5


class LagMeter:
    """Measures from `start` to `stop`; `seconds` holds what it found."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.seconds = Histogram()
        self._worst = 0.0
        self._due = 0.0
        self._call: Any = None

    def start(self) -> None:
        """Begin to look."""
        self._due = self._clock.seconds() + LOOK_SECONDS
        self._call = self._clock.callLater(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._call is not None and self._call.active():
            self._call.cancel()

    def take_worst(self) -> float:
        """The latest that it was since this was called last, in seconds."""
        worst, self._worst = self._worst, 0.0
        return worst

    def _look(self) -> None:
        late = max(0.0, self._clock.seconds() - self._due)
        self.seconds.observe(late)
        self._worst = max(self._worst, late)
        self.start()
