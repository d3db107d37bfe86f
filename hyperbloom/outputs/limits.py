"""How much a process takes that writes a file for other tools."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_ALLOWED", "SLICE_BYTES", "SLICE_VALUES"]

SLICE_VALUES: Final = 10_000
"""Values that are read at once: one short transaction of the store, of some 2 ms."""

SLICE_BYTES: Final = 1 << 20
"""Bytes of values that are read at once, for long values; a file's text of them is some times as
long, and so is what Python keeps of both."""

MAX_ALLOWED: Final = 100_000
"""Values of an `allow_feed`. All are in memory while a file is written, some 200 bytes each, and
whoever may write to that feed can add to them."""
