"""Keeping a sketch: the next RUN_VALUES values of a set are added to what is kept of it.

A SketchPiece adds them up step by step, beside the writer. KeepSketch writes what that came to. It
writes nothing if the piece holds no longer: if another was written before it, or if a value behind
what is kept was removed meanwhile. Then the piece is made anew.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hyperbloom.sketches import Symbols, add, no_symbols, sketch_key
from hyperbloom.store.errors import NoSuchFeed
from hyperbloom.store.limits import RUN_VALUES, SKETCH_STEP, SKETCH_STEP_BYTES, SKETCH_SYMBOLS
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.kept_sketch import RUN, SYMBOLS, KeptSketch, symbols_from
from hyperbloom.store.lmdb.layout import U64, FeedState
from hyperbloom.store.lmdb.transaction import ReadTransaction, WriteTransaction, read
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key
from hyperbloom.store.sketches.log_pieces import LogPiece, Numbers, read_piece
from hyperbloom.store.sketches.runs import MAX_OFFSET, id_heads, make_run
from hyperbloom.store.values.reading import settled_sets

__all__ = ["DropSketch", "KeepSketch", "SketchPiece", "can_be_read"]


_BYTES_LIKE_ONE = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeepSketch:
    """Add ``count`` values, up to the number ``upto``, to what is kept of a set's sketch.

    ``tag`` names the set (`settled_sets`), ``before`` is what was kept when its values were read,
    ``symbols`` is their sketch, ``run`` their run and its first number, for the feed's own values.
    Result: whether it was written. Fails with NoSuchFeed.
    """

    feed_key: bytes
    tag: bytes
    before: KeptSketch
    upto: int
    count: int
    symbols: Symbols
    run: tuple[int, bytes] | None

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)

    @property
    def size(self) -> int:
        """Less than its bytes: they are written in one piece, in a tenth of the time of values."""
        written = self.symbols.nbytes + (len(self.run[1]) if self.run else 0)
        return written // _BYTES_LIKE_ONE + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> bool:
        state = settled_sets(transaction, transaction.feed(self.feed_key)).get(self.tag)
        if state is None:
            return False
        kept, prefix = transaction.sketch_of(state), state.prefix
        if (kept.upto, kept.removals) != (self.before.upto, self.before.removals):
            return False
        symbols = self.symbols
        if kept.upto:
            record = transaction.get("sketches", prefix + SYMBOLS)
            before = symbols_from(record, kept.count + len(kept.gone))
            if before is None or kept.key != sketch_key(self.feed_key):
                transaction.remove_sketch(prefix)
                return False
            symbols = before + symbols
        else:
            # What may be there led nowhere: its record could not be read.
            transaction.delete_prefix("sketches", prefix, _ALL)
        kept.key = sketch_key(self.feed_key)
        kept.upto = self.upto
        kept.count += self.count
        transaction.put("sketches", prefix + SYMBOLS, symbols.tobytes())
        if self.run is not None:
            first, data = self.run
            transaction.put("sketches", prefix + RUN + U64.pack(first), data)
            _remove_empty_runs(transaction, prefix)
        return True


_ALL = 1 << 62


def _remove_empty_runs(transaction: WriteTransaction, prefix: bytes) -> None:
    """Remove the runs all of whose values are gone."""
    start = prefix + RUN
    cursor = transaction.cursor("sketches")
    keys = []
    if cursor.set_range(start):
        for key in cursor.iternext(values=False):
            if not key.startswith(start):
                break
            keys.append(key)
    log = transaction.cursor("log")
    for key, following in pairwise(keys):
        first, end = (prefix + one.removeprefix(start) for one in (key, following))
        if not log.set_range(first) or log.key() >= end:
            transaction.delete("sketches", key)


@dataclass(frozen=True, slots=True)
class DropSketch:
    """Remove what is kept of the sketch of one of a feed's sets: it is made anew.

    Result: None. Fails with NoSuchFeed.
    """

    feed_key: bytes
    tag: bytes

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> None:
        state = settled_sets(transaction, transaction.feed(self.feed_key)).get(self.tag)
        if state is not None:
            transaction.remove_sketch(state.prefix)


def can_be_read(
    transaction: ReadTransaction, feed_key: bytes, state: FeedState, kept: KeptSketch
) -> bool:
    """Whether what is kept of a set's sketch can be used, as far as it shows by itself."""
    record = transaction.get("sketches", state.prefix + SYMBOLS)
    return not kept.upto or (
        kept.key == sketch_key(feed_key) and symbols_from(record, kept.count) is not None
    )


class SketchPiece:
    """The next RUN_VALUES values of a set behind what is kept, added up step by step.

    Made by `SketchReader.begin_piece`. Memory: some 3 MB.
    """

    def __init__(
        self,
        environment: Environment,
        feed_key: bytes,
        tag: bytes,
        *,
        prefix: bytes,
        kept: KeptSketch,
    ) -> None:
        self._environment = environment
        self._feed_key, self._tag = feed_key, tag
        self._prefix = prefix
        self._kept = kept
        self._at = kept.upto
        self._symbols = no_symbols(SKETCH_SYMBOLS)
        self._heads: list[Numbers] = []
        self._seqs: list[Numbers] = []
        self._count = 0

    def step(self) -> KeepSketch | None:
        """Add some more (reads the store: in a thread); at the end, what is to be written.

        Raises NoSuchFeed if the feed was left meanwhile.
        """
        room = RUN_VALUES - self._count
        with read(self._environment) as transaction:
            state = settled_sets(transaction, transaction.feed(self._feed_key)).get(self._tag)
            if state is None or state.prefix != self._prefix:
                raise NoSuchFeed("the feed was left while its sketch was made")
            piece = read_piece(
                transaction,
                self._prefix,
                self._at,
                limit=min(SKETCH_STEP, room),
                max_bytes=SKETCH_STEP_BYTES,
            )
        was_cut = self._take(piece)
        if self._count < RUN_VALUES and not was_cut and not piece.is_last:
            return None
        return KeepSketch(
            feed_key=self._feed_key,
            tag=self._tag,
            before=self._kept,
            upto=self._at,
            count=self._count,
            symbols=self._symbols,
            run=self._run(),
        )

    def _take(self, piece: LogPiece) -> bool:
        """Add a piece; whether only a part of it, for a run holds no numbers so far apart."""
        if not piece.keys:
            return False
        ids, seqs = piece.ids(), piece.seqs()
        first = int(self._seqs[0][0] if self._seqs else seqs[0])
        fitting = int(np.searchsorted(seqs, np.uint64(first + MAX_OFFSET), side="right"))
        ids, seqs = ids[:fitting], seqs[:fitting]
        add(self._symbols, ids, sketch_key(self._feed_key))
        self._heads.append(id_heads(ids))
        self._seqs.append(seqs)
        self._count += len(seqs)
        self._at = int(seqs[-1]) if len(seqs) else self._at
        return fitting < len(piece.keys)

    def _run(self) -> tuple[int, bytes] | None:
        if self._tag or not self._count:
            return None
        seqs = np.concatenate(self._seqs)
        first = int(seqs[0])
        return first, make_run(np.concatenate(self._heads), seqs, first)
