"""What the node writes to its log: everything from `log_level` up, in twistd's own format or JSON.

Under systemd the journal gets it with fields (`hyperbloom.process.journal`). Twisted tells of every
factory and port that starts and stops, the latter by its older log; that is silenced here below
warnings.
"""

from __future__ import annotations

import sys
from typing import IO, Any

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    textFileLogObserver,
)
from twisted.python.logfile import LogFile
from zope.interface import implementer

from hyperbloom.process.journal import JournalObserver, is_journal
from hyperbloom.process.json_log import json_observer

__all__ = ["LevelledObserver", "log_observer"]

_QUIET = ("twisted.internet.protocol", "log_legacy")


@implementer(ILogObserver)
class LevelledObserver:
    """Hands events of a level and above to `observer`; the level may change while it is used."""

    def __init__(self, observer: ILogObserver, level: str) -> None:
        self._levels = LogLevelFilterPredicate()
        for namespace in _QUIET:
            self._levels.setLogLevelForNamespace(namespace, LogLevel.warn)
        self._observer: ILogObserver = FilteringLogObserver(observer, [self._levels])
        self.set_level(level)

    def __call__(self, event: LogEvent) -> None:
        """Called by Twisted's logger."""
        self._observer(event)

    def set_level(self, level: str) -> None:
        """From now on events of `level` (as in `[node] log_level`) and above."""
        self._levels.setLogLevelForNamespace("", LogLevel.levelWithName(level))


def log_observer(
    level: str, logfile: str | None, *, files: int, file_bytes: int, as_json: bool = False
) -> LevelledObserver:
    """An observer for `Application`: `level` as in `[node] log_level`, `logfile` as twistd's.

    `as_json`: one JSON object a line. The journal has its own fields in either case.

    A file that has reached `file_bytes` becomes `logfile`.1, the one before it .2 and so on; there
    are at most `files` (from 2) of them, the oldest is removed. Without a file, and for "-", it
    writes to standard output, or to the journal where that is what standard output leads to.
    """
    stream: IO[Any] = sys.stdout
    to_stdout = logfile is None or logfile in ("", "-")
    if logfile is not None and not to_stdout:
        # Twisted counts the files behind the one that is written.
        stream = LogFile.fromFullPath(logfile, rotateLength=file_bytes, maxRotatedFiles=files - 1)
    observer = json_observer(stream) if as_json else textFileLogObserver(stream)
    if to_stdout and is_journal(stream):
        observer = JournalObserver(fallback=observer)
    return LevelledObserver(observer, level)
