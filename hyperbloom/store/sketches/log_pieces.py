"""Pieces of a set's log as sketches are made of them: numbers and values, nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hyperbloom.digests import value_ids
from hyperbloom.sketches import Ids, ids_from
from hyperbloom.store.lmdb.layout import LOG_HEAD_BYTES, U32, U64
from hyperbloom.store.lmdb.transaction import ReadTransaction

__all__ = ["NUMBERS", "LogPiece", "Numbers", "read_piece"]

Numbers = NDArray[np.uint64]
NUMBERS = np.dtype("<u8")

_LAST_SEQ = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Some values in the order of arrival; ``keys`` are those of the log.

    ``is_last``: there was none behind them.
    """

    keys: Sequence[bytes]
    values: Sequence[bytes]
    is_last: bool

    def ids(self) -> Ids:
        """The values' ids."""
        return ids_from(value_ids(self.values))

    def seqs(self) -> Numbers:
        """The values' numbers."""
        fields = np.dtype([("prefix", f"V{U32.size}"), ("seq", ">u8")])
        return np.frombuffer(b"".join(self.keys), fields)["seq"].astype(NUMBERS)


def read_piece(
    transaction: ReadTransaction, prefix: bytes, after_seq: int, *, limit: int, max_bytes: int
) -> LogPiece:
    """The records behind a number, up to the limits; one at least if there is one."""
    keys: list[bytes] = []
    values: list[bytes] = []
    if limit <= 0:
        return LogPiece(keys, values, is_last=False)
    cursor = transaction.cursor("log")
    if after_seq == _LAST_SEQ or not cursor.set_range(prefix + U64.pack(after_seq + 1)):
        return LogPiece(keys, values, is_last=True)
    for key, data in islice(cursor, limit):
        if not key.startswith(prefix):
            return LogPiece(keys, values, is_last=True)
        keys.append(key)
        values.append(data[LOG_HEAD_BYTES:])
        max_bytes -= len(data)
        if max_bytes <= 0:
            return LogPiece(keys, values, is_last=False)
    return LogPiece(keys, values, is_last=len(keys) < limit)
