"""The last warnings and errors of the log, for who looks at the node without its log."""

from __future__ import annotations

from collections import deque
from typing import TypedDict

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from zope.interface import implementer

from hyperbloom.api.limits import MAX_ERROR_CHARACTERS, MAX_ERRORS

__all__ = ["ErrorForm", "RecentErrors"]

_TOLD = (LogLevel.warn, LogLevel.error, LogLevel.critical)


class ErrorForm(TypedDict):
    """A line of the log at level warn or above; `at`: seconds since 1970."""

    at: float
    level: str
    source: str
    text: str


@implementer(ILogObserver)
class RecentErrors:
    """An observer for a `LogPublisher`, which calls it with every event of any thread."""

    def __init__(self) -> None:
        self._kept: deque[ErrorForm] = deque(maxlen=MAX_ERRORS)

    def __call__(self, event: LogEvent) -> None:
        """Keep an event if it is a warning or worse."""
        level = event.get("log_level")
        if level not in _TOLD:
            return
        text = " ".join(formatEvent(event).split())
        failure = event.get("log_failure")
        if failure is not None:
            text = f"{text}: {failure.type.__name__}"
        self._kept.append(
            {
                "at": float(event.get("log_time", 0.0)),
                "level": level.name,
                "source": str(event.get("log_namespace", "")),
                "text": text[:MAX_ERROR_CHARACTERS],
            }
        )

    def newest(self) -> list[ErrorForm]:
        """What is kept, newest first."""
        return [*self._kept][::-1]
