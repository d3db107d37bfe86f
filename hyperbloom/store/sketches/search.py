"""From ids to the values of a feed: by its runs, by what is in memory, at last by its log.

What a run or the memory gives is a guess (runs.py): the value is read, and its id compared.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from hyperbloom.digests import ID_BYTES, value_ids
from hyperbloom.sketches import Ids, ids_to_bytes
from hyperbloom.store.limits import RUN_VALUES, SKETCH_STEP, SKETCH_STEP_BYTES
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.kept_sketch import RUN
from hyperbloom.store.lmdb.layout import LOG_HEAD_BYTES, U64
from hyperbloom.store.lmdb.transaction import read
from hyperbloom.store.sketches.log_pieces import read_piece
from hyperbloom.store.sketches.runs import find_in, id_heads, parse_run
from hyperbloom.store.sketches.tails import Tail

__all__ = ["IdSearch"]

_RUNS_A_STEP = 8
_VALUES_A_STEP = 1_024


class IdSearch:
    """Looks for the values with these ids in the set with this prefix."""

    def __init__(self, environment: Environment, prefix: bytes, ids: Ids) -> None:
        self._environment = environment
        self._prefix = prefix
        heads = id_heads(ids)
        order = np.argsort(heads, kind="stable")
        self._heads = heads[order]
        raw = ids_to_bytes(ids)
        every = [raw[start : start + ID_BYTES] for start in range(0, len(raw), ID_BYTES)]
        self._ids = [every[place] for place in order.tolist()]
        self._missing = set(self._ids)
        self._found: dict[bytes, bytes] = {}

    @property
    def values(self) -> list[bytes]:
        """What was found so far."""
        return list(self._found.values())

    def look_in_runs(self) -> None:
        """Look in all runs, some of them in each transaction."""
        start = self._prefix + RUN
        key: bytes | None = start
        while key is not None and self._missing:
            key, found = self._look_in_some(start, key)
            self._read(found)

    def _look_in_some(self, start: bytes, key: bytes) -> tuple[bytes | None, list[tuple[int, int]]]:
        """What runs from this key on give, and the key to go on from."""
        found: list[tuple[int, int]] = []
        with read(self._environment, in_place=True) as transaction:
            if "sketches" not in transaction.databases:
                return None, found
            cursor = transaction.cursor("sketches")
            runs = islice(cursor, _RUNS_A_STEP) if cursor.set_range(key) else ()
            last = None
            for name, data in runs:
                last = bytes(name)
                if not last.startswith(start):
                    return None, found
                try:
                    (first,) = U64.unpack(last.removeprefix(start))
                    heads, offsets = parse_run(data, first)
                except (struct.error, ValueError):
                    continue  # damage: verify.py tells of it
                found += [
                    (which, first + int(offsets[place]))
                    for which, place in find_in(heads, self._heads)
                ]
                del heads, offsets
        return None if last is None else last + b"\0", found

    def look_in_tail(self, tail: Tail) -> None:
        """Look among the ids in memory."""
        if self._missing:
            self._read(list(tail.find(self._heads)))

    def look_in_log(self, after_seq: int) -> None:
        """Look through the next RUN_VALUES values behind a number."""
        left = RUN_VALUES
        while left > 0 and self._missing:
            with read(self._environment) as transaction:
                piece = read_piece(
                    transaction,
                    self._prefix,
                    after_seq,
                    limit=min(left, SKETCH_STEP),
                    max_bytes=SKETCH_STEP_BYTES,
                )
            self._keep(piece.values)
            if piece.is_last:
                return
            left -= len(piece.values)
            after_seq = int(piece.seqs()[-1])

    def _read(self, guesses: Sequence[tuple[int, int]]) -> None:
        """Read the values with these numbers, if what they are guessed to be is missing."""
        for start in range(0, len(guesses), _VALUES_A_STEP):
            values = []
            with read(self._environment) as transaction:
                for which, seq in guesses[start : start + _VALUES_A_STEP]:
                    if self._ids[which] in self._missing:
                        data = transaction.get("log", self._prefix + U64.pack(seq))
                        if data is not None:
                            values.append(data[LOG_HEAD_BYTES:])
            self._keep(values)

    def _keep(self, values: Iterable[bytes]) -> None:
        values = list(values)
        ids = value_ids(values)
        for number, value in enumerate(values):
            found = ids[number * ID_BYTES : (number + 1) * ID_BYTES]
            if found in self._missing:
                self._missing.discard(found)
                self._found[found] = value
