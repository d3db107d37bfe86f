"""What the node writes to its log: everything from `log_level` up, in twistd's own format.

Twisted tells of every factory and port that starts and stops, the latter by its older log; that is
silenced here below warnings.
"""

from __future__ import annotations

import sys
from typing import IO, Any

from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    textFileLogObserver,
)
from twisted.python.logfile import LogFile

__all__ = ["log_observer"]

_QUIET = ("twisted.internet.protocol", "log_legacy")


def log_observer(level: str, logfile: str | None) -> ILogObserver:
    """An observer for `Application`: `level` as in `[node] log_level`, `logfile` as twistd's.

    Without a file, and for "-", it writes to standard output.
    """
    to_stdout = not logfile or logfile == "-"
    stream: IO[Any] = sys.stdout if to_stdout else LogFile.fromFullPath(logfile)
    levels = LogLevelFilterPredicate(defaultLogLevel=LogLevel.levelWithName(level))
    for namespace in _QUIET:
        levels.setLogLevelForNamespace(namespace, LogLevel.warn)
    observer: ILogObserver = FilteringLogObserver(textFileLogObserver(stream), [levels])
    return observer
