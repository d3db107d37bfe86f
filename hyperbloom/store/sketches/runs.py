"""Runs: from the id of a value to its number in the log (lmdb/kept_sketch.py).

An id is looked up by its first 8 bytes in each run, which numpy does for many ids at once and
without reading all of the run. What is found is a guess: the value may be gone, or another one.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hyperbloom.sketches import Ids
from hyperbloom.store.sketches.log_pieces import NUMBERS, Numbers

__all__ = ["ENTRY_BYTES", "MAX_OFFSET", "find_in", "id_heads", "make_run", "parse_run"]

_OFFSETS = np.dtype("<u4")
ENTRY_BYTES = NUMBERS.itemsize + _OFFSETS.itemsize
MAX_OFFSET = (1 << 32) - 1
"""How far behind the first number of a run its last one may be."""


def id_heads(ids: Ids) -> Numbers:
    """The first 8 bytes of ids, little endian."""
    return np.ascontiguousarray(ids).view(NUMBERS)[:, 0]


def make_run(heads: Numbers, seqs: Numbers, first: int) -> bytes:
    """The record of a run whose key has the number ``first``."""
    order = np.argsort(heads, kind="stable")
    offsets = (seqs - np.uint64(first))[order].astype(_OFFSETS)
    return heads[order].astype(NUMBERS).tobytes() + offsets.tobytes()


def parse_run(data: bytes, first: int) -> tuple[Numbers, "NDArray[np.uint32]"]:
    """The heads in a run, sorted, and the offset of each; views of the record.

    Raises ValueError if it has no length that a run can have.
    """
    count, rest = divmod(len(data), ENTRY_BYTES)
    if rest:
        raise ValueError(f"the run from number {first} has {len(data)} bytes")
    return (
        np.frombuffer(data, NUMBERS, count),
        np.frombuffer(data, _OFFSETS, count, count * NUMBERS.itemsize),
    )


def find_in(heads: Numbers, wanted: Numbers) -> Iterator[tuple[int, int]]:
    """Where the ``wanted`` heads stand among sorted ones: (which of the wanted, position)."""
    places = np.searchsorted(heads, wanted)
    inside = np.minimum(places, max(0, len(heads) - 1))
    if not len(heads):
        return
    for which in np.flatnonzero(heads[inside] == wanted).tolist():
        place = int(places[which])
        while place < len(heads) and heads[place] == wanted[which]:
            yield which, place
            place += 1
