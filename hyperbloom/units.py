"""Durations, moments and sizes as people write and read them."""

from __future__ import annotations

import datetime as dt
import math
import re

__all__ = [
    "format_duration",
    "format_moment",
    "format_size",
    "parse_duration",
    "parse_expiry",
    "parse_size",
]

_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PART = re.compile(r"(\d+(?:\.\d+)?)([wdhms])", re.ASCII)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?[wdhms])+", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)", re.ASCII | re.IGNORECASE)
_SIZE_UNITS: dict[str, float] = {
    "b": 1,
    **{f"{prefix}b": 1_000**power for power, prefix in enumerate("kmg", 1)},
    **{f"{prefix}ib": 1_024**power for power, prefix in enumerate("kmg", 1)},
}
#: A century: longer durations are slips of the hand, and stay far from where a date overflows.
_LONGEST = 36_525 * 86_400


def parse_duration(text: str) -> float:
    """Seconds of a text such as `30d`, `12h`, `45m`, `90s` or `1d12h`.

    Raises `ValueError` with a sentence for a person on anything else, zero and more than a
    century included.
    """
    compact = text.strip().lower()
    if not _DURATION.fullmatch(compact):
        raise ValueError(f"{text!r} is not a duration: write for example 30d, 12h, 45m or 90s")
    seconds = math.fsum(float(n) * _SECONDS[unit] for n, unit in _PART.findall(compact))
    if not 0 < seconds <= _LONGEST:
        raise ValueError(f"{text!r} is not a duration between a moment and 100 years")
    return seconds


def parse_expiry(text: str, *, now: float) -> float:
    """Seconds since 1970 at which something expires: a duration from `now`, or a date.

    A date is ISO 8601 (`2031-05-01`, `2031-05-01T12:00:00Z`); without an offset it is UTC. Raises
    `ValueError` with a sentence for a person, also for a date that is over. `never` is infinity.
    """
    if text.strip().lower() == "never":
        return math.inf
    if _DURATION.fullmatch(text.strip().lower()):
        return now + parse_duration(text)
    try:
        moment = dt.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a duration (30d, 12h, 45m, 90s) nor a date (2031-05-01)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    expires = moment.timestamp()
    if expires <= now:
        raise ValueError(f"{text} is in the past")
    return expires


def format_duration(seconds: float) -> str:
    """A duration by its two largest units, rounded to the second of them: `2d 3h`, `45s`.

    Half a unit more or less is nothing to a person, and a month that began a moment ago is `30d`.
    From 100 days on there are days alone.
    """
    left = int(max(0.0, seconds))
    for least, smaller in ((100 * _SECONDS["d"], "d"), (_SECONDS["d"], "h"), (_SECONDS["h"], "m")):
        if left >= least:
            left = int(left / _SECONDS[smaller] + 0.5) * _SECONDS[smaller]
            break
    parts: list[str] = []
    for unit, size in _SECONDS.items():
        if unit == "w":
            continue
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0")) or "0s"


def format_moment(seconds: float) -> str:
    """A moment (seconds since 1970) in UTC to the minute; `never` for infinity."""
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "never" if seconds > 0 else "always past"


def parse_size(text: str) -> float:
    """Bytes of a text such as `500 KiB`, `2 MB` or `1.5 GiB`; KB, MB and GB are powers of 1,000.

    Raises `ValueError` with a sentence for a person on anything else.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].lower() not in _SIZE_UNITS:
        raise ValueError(f"{text!r} is not a size: write for example 500 KiB, 2 MB or 1.5 GiB")
    return float(found[1]) * _SIZE_UNITS[found[2].lower()]


def format_size(count: float) -> str:
    """A number of bytes in binary units: `512 B`, `1.5 KiB`, `3.2 GiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
