"""The log as JSON, one object a line, for programs that collect logs (Loki, Vector, Fluent Bit).

Twisted's own JSON form (`twisted.logger.jsonFileLogObserver`) is made to be read back by Twisted:
it begins each event with a control character, and has a format in place of the sentence, a number
as the time and an object as the level. Collectors look for a sentence in `message`, the name of a
level in `level` and an RFC 3339 time in `timestamp` (Vector's names; Loki's agents are told them in
a line each); a traceback is in `exception`, as with structlog. Keywords of an event stand beside
these, as they do in the journal.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import IO, Any

from twisted.logger import FileLogObserver, ILogObserver, LogEvent, eventAsText, formatEvent

from hyperbloom.process.event_fields import event_fields

__all__ = ["json_line", "json_observer"]

_OWN_FIELDS = frozenset({"timestamp", "level", "logger", "message", "exception"})


def json_line(event: LogEvent) -> str:
    """One event as a line of JSON with its end; the traceback of a failure is in `exception`."""
    level = event.get("log_level")
    form: dict[str, Any] = {
        "timestamp": _moment(float(event.get("log_time", 0.0))),
        "level": "info" if level is None else level.name,
        "logger": str(event.get("log_namespace", "-")),
        "message": formatEvent(event),
    }
    if event.get("log_failure") is not None:
        whole = eventAsText(event, includeTimestamp=False, includeSystem=False)
        form["exception"] = whole.removeprefix(form["message"]).strip()
    fields = {name: value for name, value in event_fields(event) if name not in _OWN_FIELDS}
    # ASCII alone: some programs end a line at U+2028.
    return json.dumps({name: _sound(told) for name, told in (form | fields).items()}) + "\n"


def _sound(told: Any) -> Any:
    """Half a surrogate pair, as in the name of a file that is no UTF-8, is no text to others."""
    return told.encode("utf-8", "backslashreplace").decode() if isinstance(told, str) else told


def _moment(seconds: float) -> str:
    """Seconds since 1970 as `2026-11-22T15:04:05.678901Z`."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return text.removesuffix("+00:00") + "Z"


def json_observer(stream: IO[Any]) -> ILogObserver:
    """An observer that writes to a text stream."""
    return FileLogObserver(stream, json_line)
