"""Is what is kept of a set's sketch that of its values, and do its runs lead to all of them?

Both are made anew from the log, as far as they go (lmdb/kept_sketch.py). An entry of a run whose
value is gone is right.
"""

import struct
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hyperbloom.digests import value_ids
from hyperbloom.sketches import add, ids_from, no_symbols, sketch_key
from hyperbloom.store.limits import SKETCH_STEP, SKETCH_STEP_BYTES, SKETCH_SYMBOLS
from hyperbloom.store.lmdb.kept_sketch import KEPT, RUN, SYMBOLS, KeptSketch, symbols_from
from hyperbloom.store.lmdb.layout import U32, U64, FeedState
from hyperbloom.store.lmdb.transaction import ReadTransaction
from hyperbloom.store.sketches.log_pieces import NUMBERS, Numbers
from hyperbloom.store.sketches.runs import id_heads, parse_run

__all__ = ["SketchVerification"]


class SketchVerification:
    """Looks at the sketch of one set; `add` every record of its log in order, then `finish`."""

    def __init__(
        self,
        transaction: ReadTransaction,
        state: FeedState,
        feed_key: bytes,
        *,
        has_runs: bool,
        problem: Callable[[str], None],
    ) -> None:
        self._transaction = transaction
        self._state = state
        self._prefix = state.prefix
        self._key = sketch_key(feed_key)
        self._problem = problem
        self._kept = self._read_kept()
        self._symbols = no_symbols(SKETCH_SYMBOLS)
        self._runs = self._read_runs() if has_runs else None
        self._run: tuple[int, Numbers, Numbers] | None = None
        self._seqs: list[int] = []
        self._values: list[bytes] = []
        self._size = self._count = 0

    def _read_kept(self) -> KeptSketch:
        if "sketches" not in self._transaction.databases:
            return KeptSketch()
        data = self._transaction.get("sketches", self._prefix + KEPT)
        try:
            kept = KeptSketch() if data is None else KeptSketch.unpack(data)
        except struct.error:
            self._problem("what is kept of its sketch cannot be read")
            return KeptSketch()
        if kept.upto and kept.key != self._key:
            self._problem("its sketch was made for another feed")
        if kept.upto > self._state.top_seq:
            self._problem(
                f"its sketch goes on to {kept.upto}, beyond the top number {self._state.top_seq}"
            )
        return kept

    def _read_runs(self) -> Numbers:
        """The first numbers of all runs."""
        firsts = []
        if self._kept.upto:
            start = self._prefix + RUN
            for key, data in self._transaction.scan("sketches", start):
                if len(key) != len(start) + U64.size:
                    self._problem(f"the run at {key.hex()} is malformed")
                    continue
                (first,) = U64.unpack_from(key, U32.size + len(RUN))
                firsts.append(first)
                self._check_run(first, data)
        return np.array(firsts, NUMBERS)

    def _check_run(self, first: int, data: bytes) -> None:
        try:
            heads, _ = parse_run(data, first)
        except ValueError as error:
            self._problem(str(error))
            return
        if (heads[1:] < heads[:-1]).any():
            self._problem(f"the run from number {first} is not sorted")

    def add(self, seq: int, value: bytes) -> None:
        """A record of the log."""
        if seq > self._kept.upto:
            return
        self._seqs.append(seq)
        self._values.append(value)
        self._size += len(value)
        if len(self._seqs) >= SKETCH_STEP or self._size >= SKETCH_STEP_BYTES:
            self._add_batch()

    def finish(self) -> None:
        """All records were added: name what is wrong."""
        self._add_batch()
        kept = self._kept
        if not kept.upto:
            return
        if kept.count != self._count:
            self._problem(f"its sketch is of {kept.count} values and comes to {self._count}")
        record = self._transaction.get("sketches", self._prefix + SYMBOLS)
        symbols = symbols_from(record, kept.count)
        if symbols is None:
            self._problem("the symbols of its sketch cannot be read")
        elif not np.array_equal(symbols, self._symbols):
            self._problem("its sketch is not that of its values")

    def _add_batch(self) -> None:
        if not self._seqs:
            return
        ids = ids_from(value_ids(self._values))
        add(self._symbols, ids, self._key)
        self._count += len(self._seqs)
        if self._runs is not None:
            self._look_up(self._runs, np.array(self._seqs, NUMBERS), id_heads(ids))
        self._seqs, self._values, self._size = [], [], 0

    def _look_up(self, runs: Numbers, seqs: Numbers, heads: Numbers) -> None:
        """Whether the runs lead to the values with these numbers, which ascend."""
        places = np.searchsorted(runs, seqs, side="right")
        for place in np.unique(places).tolist():
            here = places == place
            missing = seqs[here]
            if place:
                missing = missing[~self._are_in_run(int(runs[place - 1]), missing, heads[here])]
            for seq in missing.tolist():
                self._problem(f"log record {seq} is missing in the runs of its sketch")

    def _are_in_run(self, first: int, seqs: Numbers, heads: Numbers) -> NDArray[np.bool_]:
        if self._run is None or self._run[0] != first:
            self._run = first, *self._by_number(first)
        _, numbers, there = self._run
        if not len(numbers):
            return np.zeros(len(seqs), np.bool_)
        places = np.minimum(np.searchsorted(numbers, seqs), len(numbers) - 1)
        found: NDArray[np.bool_] = (numbers[places] == seqs) & (there[places] == heads)
        return found

    def _by_number(self, first: int) -> tuple[Numbers, Numbers]:
        """The numbers that a run leads to, sorted, and the head of each."""
        data = self._transaction.get("sketches", self._prefix + RUN + U64.pack(first))
        try:
            heads, offsets = parse_run(data or b"", first)
        except ValueError:
            heads, offsets = parse_run(b"", first)  # that it is malformed was said
        order = np.argsort(offsets, kind="stable")
        return offsets[order].astype(NUMBERS) + np.uint64(first), heads[order]
