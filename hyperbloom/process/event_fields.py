"""The keywords of a log event that stand beside its sentence, in the journal and in JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator

from twisted.logger import LogEvent

__all__ = ["FIELD_CHARACTERS", "event_fields"]

#: Longest text of a keyword that becomes a field; a longer one is only part of the message.
FIELD_CHARACTERS = 1_024

#: Keywords of Twisted's older log, which every event carries for those who read it that way.
_LEGACY = frozenset({"message", "time", "system", "format", "isError", "failure", "why"})


def event_fields(event: LogEvent) -> Iterator[tuple[str, str | int | float]]:
    """Name and value of each; texts and finite numbers alone, so that nothing larger gets in."""
    for name, value in event.items():
        if not isinstance(value, (str, int, float)) or name.startswith("log_") or name in _LEGACY:
            continue
        if isinstance(value, str) and len(value) > FIELD_CHARACTERS:
            continue
        yield name, value if isinstance(value, str) or math.isfinite(value) else str(value)
