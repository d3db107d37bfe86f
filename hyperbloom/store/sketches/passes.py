"""Sketches that are made on the spot, from nothing, step by step: with a salt, or of ranges."""

from collections import deque
from collections.abc import Sequence

from hyperbloom.digests import SUM_MODULUS, element_sum, set_digest, value_ids
from hyperbloom.sketches import add, ids_from, no_symbols, salted, sketch_key
from hyperbloom.store.errors import StoreError
from hyperbloom.store.limits import SKETCH_STEP, SKETCH_STEP_BYTES, SKETCH_TRIES
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.transaction import read
from hyperbloom.store.records import SetFigures, SettledSketch
from hyperbloom.store.sketches.log_pieces import LogPiece, read_piece
from hyperbloom.store.values.reading import ValueReader, holding_in, settled_sets

__all__ = ["RangeSketch", "SaltedSketch", "changing", "no_digest"]


def no_digest() -> StoreError:
    """Why there is no sketch while a digest is made: it could not be said what it is of."""
    return StoreError("the digest of this feed is being computed; ask for its sketch later")


def changing() -> StoreError:
    """Why a sketch was given up."""
    return StoreError(
        "values of this feed were removed each time its sketch was added up; ask again later, or "
        "look at the store with `hyperbloom verify`"
    )


class SaltedSketch:
    """The sketch of a feed's settled values, each id of which is mixed with a salt (16 bytes).

    It goes through both logs in the order of arrival, and is that of the moment at which it is
    through. Made by `SketchReader.salted_sketch`. ``looked_at`` counts values.
    """

    def __init__(
        self, environment: Environment, feed_key: bytes, salt: bytes, symbols: int
    ) -> None:
        self._environment = environment
        self._feed_key, self._salt = feed_key, salt
        self._key = sketch_key(feed_key)
        self._size = symbols
        self._tries = 0
        self.looked_at = 0
        self._begin()

    def _begin(self) -> None:
        self._symbols = no_symbols(self._size)
        #: Up to which number each set was read, by its prefix, and how many values that were.
        self._at: dict[bytes, int] = {}
        self._counts: dict[bytes, int] = {}

    def step(self) -> SettledSketch | None:
        """Add some values (reads the store: in a thread). None: call again.

        Raises NoSuchFeed, and StoreError while a digest is being computed, or if values were
        removed during each of SKETCH_TRIES passes.
        """
        with read(self._environment) as transaction:
            feed = transaction.feed(self._feed_key)
            holding = holding_in(transaction, feed)
            if holding is None:
                raise no_digest()
            sets = {one.prefix: one.count for one in settled_sets(transaction, feed).values()}
            pieces: dict[bytes, LogPiece] = {}
            room = SKETCH_STEP
            for prefix in sets:
                pieces[prefix] = read_piece(
                    transaction,
                    prefix,
                    self._at.get(prefix, 0),
                    limit=room,
                    max_bytes=SKETCH_STEP_BYTES,
                )
                room -= len(pieces[prefix].values)
        for prefix, piece in pieces.items():
            self._take(prefix, piece)
        if not all(piece.is_last for piece in pieces.values()):
            return None
        if self._counts == sets:
            return SettledSketch(
                symbols=self._symbols, settled=holding.settled, top_seq=feed.top_seq
            )
        self._tries += 1
        if self._tries >= SKETCH_TRIES:
            raise changing()
        self._begin()
        return None

    def _take(self, prefix: bytes, piece: LogPiece) -> None:
        self._counts[prefix] = self._counts.get(prefix, 0) + len(piece.values)
        self.looked_at += len(piece.values)
        if piece.values:
            add(self._symbols, salted(piece.ids(), self._salt), self._key)
            self._at[prefix] = int(piece.seqs()[-1])


class RangeSketch:
    """The sketch of a feed's settled values in some ranges [start, end), which lie apart.

    It is that of a set between what was there at the begin and what is there at the end; count and
    digest are of the same values. Made by `SketchReader.range_sketch`.
    """

    def __init__(
        self,
        values: ValueReader,
        feed_key: bytes,
        ranges: Sequence[tuple[bytes, bytes | None]],
        symbols: int,
    ) -> None:
        self._values = values
        self._feed_key = feed_key
        self._key = sketch_key(feed_key)
        self._todo = deque(ranges)
        self._symbols = no_symbols(symbols)
        self._total = 0
        self.looked_at = 0

    def step(self) -> SettledSketch | None:
        """Add some values (reads the store: in a thread). None: call again. Raises NoSuchFeed."""
        if self._todo:
            start, end = self._todo.popleft()
            piece = self._values.settled_slice(
                self._feed_key, start, end, limit=SKETCH_STEP // 2, max_bytes=SKETCH_STEP_BYTES
            )
            if piece.next_start is not None:
                self._todo.appendleft((piece.next_start, end))
            if piece.values:
                add(self._symbols, ids_from(value_ids(piece.values)), self._key)
                self._total = (self._total + element_sum(piece.values)) % SUM_MODULUS
                self.looked_at += len(piece.values)
        if self._todo:
            return None
        with read(self._values.environment) as transaction:
            top_seq = transaction.feed(self._feed_key).top_seq
        count = self.looked_at
        return SettledSketch(
            symbols=self._symbols,
            settled=SetFigures(count, set_digest(count, self._total)),
            top_seq=top_seq,
        )
