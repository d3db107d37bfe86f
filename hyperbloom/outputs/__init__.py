"""A feed's values as files of the tools that people run.

Each format is a small function from entries in order to bytes in slices, so that memory is one
slice (docs/outputs.md). What a value is, is decided in `entries`; what a format cannot hold is left
out and counted in `selection`; what never comes out is said by `allow`.
"""

from __future__ import annotations

from hyperbloom.outputs.allow import Allowed
from hyperbloom.outputs.formats import FORMATS
from hyperbloom.outputs.formats.format import Format, Rendering
from hyperbloom.outputs.selection import Counts
from hyperbloom.outputs.set_names import DEFAULT_SET_NAME, check_set_name

__all__ = [
    "DEFAULT_SET_NAME",
    "FORMATS",
    "Allowed",
    "Counts",
    "Format",
    "Rendering",
    "check_set_name",
]
