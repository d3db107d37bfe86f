"""What is kept of a set's sketch (sketches.py), and how it lies in the database ``sketches``.

A sketch is a sum over the values of a set, so a part of it can be kept and the rest be added when
somebody asks. Kept is that of the values up to a number of the log, ``upto``, which goes on by
RUN_VALUES of them at a time, in the background. So an insert writes nothing here. What is removed
at or below ``upto`` is subtracted in the transaction that removes it.

=============== ================================================================================
key             data
=============== ================================================================================
id, ``k``       ``KEPT`` struct: key of the checks (16), upto, count, removals behind upto
id, ``s``       SKETCH_SYMBOLS symbols: the words of one kind behind one another, u32 little endian
id, ``r``, seq  a *run*: the first 8 bytes of the ids of the values with this number and behind, up
                to the next run, as u64 little endian, sorted; then how far behind this number each
                value's own is, u32 little endian
=============== ================================================================================

Runs lead from ids to values. They are of a feed's own values alone, for forgotten ones are never
sent. An entry stays when its value is removed; a run goes when all its values are gone.

All of it follows from the log. What cannot be read counts as not there, and is made anew.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hyperbloom.digests import value_ids
from hyperbloom.sketches import WORDS, Symbols, add, ids_from
from hyperbloom.store.limits import SKETCH_SYMBOLS

__all__ = ["KEPT", "RUN", "SYMBOLS", "KeptSketch", "symbols_from"]

KEPT: Final = b"k"
SYMBOLS: Final = b"s"
RUN: Final = b"r"

_KEPT = struct.Struct(">16sQQQ")
_WORD = np.dtype("<u4")
_SYMBOLS_BYTES = WORDS * SKETCH_SYMBOLS * _WORD.itemsize
_NUMBERS = 1 << 32


@dataclass(slots=True, eq=False, repr=False)
class KeptSketch:
    """The record of a kept sketch while a transaction works on it.

    ``count`` values have numbers up to ``upto``. ``removals`` says how often something behind
    ``upto`` was removed: who adds that up sees by it that he must begin again.
    """

    key: bytes = bytes(16)
    upto: int = 0
    count: int = 0
    removals: int = 0
    #: Values that are to be subtracted when the transaction ends.
    gone: list[bytes] = field(default_factory=list)

    def take_out(self, seqs: Sequence[int], values: Sequence[bytes]) -> None:
        """Values with these numbers are removed from the set."""
        kept = [value for seq, value in zip(seqs, values, strict=True) if seq <= self.upto]
        self.gone += kept
        self.count -= len(kept)
        self.removals += len(kept) < len(values)

    def without_gone(self, data: bytes | None) -> Symbols | None:
        """The symbols from their record, less what is gone; None if they cannot be read."""
        symbols = symbols_from(data, self.count + len(self.gone))
        if symbols is None:
            return None
        symbols = symbols.copy()
        add(symbols, ids_from(value_ids(self.gone)), self.key, sign=-1)
        self.gone.clear()
        return symbols

    def pack(self) -> bytes:
        return _KEPT.pack(self.key, self.upto, self.count, self.removals)

    @classmethod
    def unpack(cls, data: bytes) -> "KeptSketch":
        """Read a record; struct.error if it has another length."""
        return cls(*_KEPT.unpack(data))


def symbols_from(data: bytes | None, count: int) -> Symbols | None:
    """The symbols of a record, not to be written to.

    None if there is none, or it cannot be that of so many values: all of them are in symbol 0.
    """
    if data is None or len(data) != _SYMBOLS_BYTES:
        return None
    symbols: Symbols = np.frombuffer(data, _WORD).reshape(WORDS, SKETCH_SYMBOLS)
    return symbols if int(symbols[-1, 0]) == count % _NUMBERS else None
