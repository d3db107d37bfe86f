"""What a source may take of the process that reads it; seconds and bytes are set by the input."""

from __future__ import annotations

from typing import Final

__all__ = [
    "MAX_JSON_BYTES",
    "MAX_JSON_DEPTH",
    "MAX_JSON_PARTS",
    "MAX_LINE_BYTES",
    "MAX_ROW_BYTES",
    "MAX_VALIDATOR_BYTES",
    "MAX_VALUES",
    "MAX_VALUE_BYTES",
]

MAX_VALUE_BYTES: Final = 261_049
"""A value, where the node names no limit of its own: a longer one fits no frame."""

MAX_LINE_BYTES: Final = 300_000
"""A line, which is left out if it is longer: the longest value fits, and what is around it."""

MAX_ROW_BYTES: Final = 1_000_000
"""A row of a CSV, whose fields may hold line ends: without an end it would be all of the file."""

MAX_VALUES: Final = 5_000_000
"""Values of a source, each time that one is named. If many are new they are all in memory at once,
some 150 bytes each beside their own length; so are those that were known before."""

MAX_JSON_BYTES: Final = 64 << 20
"""A source in JSON, which is in memory as a whole: its bytes, its text and its objects."""

MAX_JSON_DEPTH: Final = 100
"""Arrays and objects within each other; the decoder calls itself for each."""

MAX_JSON_PARTS: Final = 2_000_000
"""Arrays and objects of a source: a short one takes some 250 bytes of memory."""

MAX_VALIDATOR_BYTES: Final = 200
"""An ETag or a Last-Modified of a server, which is kept and sent back; a longer one is not kept."""
