"""Ranges of values in byte order, and the part of one that begins with a prefix."""

from __future__ import annotations

__all__ = ["narrowed"]


def narrowed(start: bytes, end: bytes | None, prefix: bytes | None) -> tuple[bytes, bytes | None]:
    """The part of a range whose values begin with a prefix; None: all of it.

    A range is its first value and the first one behind it (None: it goes to the last).
    """
    if not prefix:
        return start, end
    head = prefix.rstrip(b"\xff")
    if head:
        behind = head[:-1] + bytes([head[-1] + 1])
        end = behind if end is None else min(end, behind)
    return max(start, prefix), end
