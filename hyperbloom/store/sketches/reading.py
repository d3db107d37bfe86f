"""Sketches of feeds (sketches.py): of the settled values, as they are at one moment.

What is kept on disk (lmdb/kept_sketch.py) and what is added up in memory (tails.py) are put
together in one read transaction. All that takes long is done in steps, for threads: no step reads
more than SKETCH_STEP values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperbloom.sketches import Ids, Symbols, no_symbols, sketch_key
from hyperbloom.store.limits import (
    FEW_SYMBOLS,
    RUN_VALUES,
    SKETCH_STEP,
    SKETCH_STEP_BYTES,
    SKETCH_SYMBOLS,
    SKETCH_TRIES,
)
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.kept_sketch import SYMBOLS, KeptSketch, symbols_from
from hyperbloom.store.lmdb.layout import FeedState
from hyperbloom.store.lmdb.transaction import ReadTransaction, read
from hyperbloom.store.records import SettledSketch
from hyperbloom.store.sketches.log_pieces import LogPiece, read_piece
from hyperbloom.store.sketches.passes import (
    RangeSketch,
    SaltedSketch,
    changing,
    no_digest,
)
from hyperbloom.store.sketches.search import IdSearch
from hyperbloom.store.sketches.tails import FeedTails, Tail, Tails
from hyperbloom.store.sketches.writing import DropSketch, SketchPiece, can_be_read
from hyperbloom.store.values.reading import ValueReader, holding_in, settled_sets

__all__ = ["SketchReader", "sketch_length"]


@dataclass(slots=True)
class _Part:
    """One of a feed's sets in a step: its state, what is kept, what is added to its tail."""

    tag: bytes
    state: FeedState
    kept: KeptSketch
    tail: Tail
    piece: LogPiece
    record: bytes | None = None

    def whole(self) -> Symbols | None:
        """The symbols of all values of the set; None if they cannot be that."""
        symbols, count = self.tail.symbols, self.tail.count
        if self.tail.base:
            kept = symbols_from(self.record, self.kept.count)
            if kept is None:
                return None
            symbols, count = symbols + kept, count + self.kept.count
        return symbols if count == self.state.count else None


def sketch_length(count: int) -> int:
    """How many symbols the sketch of so many values has of which nothing is kept."""
    half = 1 << max(0, count - 1).bit_length() >> 1
    return min(max(half, FEW_SYMBOLS), SKETCH_SYMBOLS)


class SketchReader(ValueReader):
    """Reads sketches. What names a feed raises NoSuchFeed if the store does not hold it."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tails = Tails()

    def sketch_step(self, feed_key: bytes) -> SettledSketch | None:
        """Go on to add up the sketch of a feed's settled values; None: call again.

        It has `sketch_length` symbols. With nothing new it takes a millisecond, else 20 ms for
        SKETCH_STEP values. Raises StoreError while a digest of the feed is being computed, and if
        that was begun SKETCH_TRIES times in vain.
        """
        with self.tails.of(feed_key) as tails:
            with read(self.environment) as transaction:
                feed = transaction.feed(feed_key)
                holding = holding_in(transaction, feed)
                if holding is None:
                    raise no_digest()
                parts = _next_parts(transaction, settled_sets(transaction, feed), tails)
                is_last = all(part.piece.is_last for part in parts)
                for part in parts if is_last else ():
                    if part.tail.base:
                        part.record = transaction.get("sketches", part.state.prefix + SYMBOLS)
            if tails.tries >= SKETCH_TRIES:
                tails.tries = 0
                raise changing()
            for part in parts:
                part.tail.take(part.piece, sketch_key(feed_key), with_ids=not part.tag)
            if not is_last:
                return None
            symbols = _sum_of(parts, tails)
        if symbols is None:
            return None
        return SettledSketch(symbols=symbols, settled=holding.settled, top_seq=feed.top_seq)

    def salted_sketch(self, feed_key: bytes, salt: bytes, symbols: int) -> SaltedSketch:
        """Begin a sketch of so many symbols, of the settled values' ids mixed with a salt."""
        return SaltedSketch(self.environment, feed_key, salt, symbols)

    def range_sketch(
        self, feed_key: bytes, ranges: Sequence[tuple[bytes, bytes | None]], symbols: int
    ) -> RangeSketch:
        """Begin a sketch of so many symbols, of the settled values in ranges that lie apart."""
        return RangeSketch(self, feed_key, ranges, symbols)

    def values_of(self, feed_key: bytes, ids: Ids) -> list[bytes]:
        """The values with these ids that the feed holds, in any order (in a thread).

        Ids are 16 bytes, shape (n, 4) in words of 32 bits. Unknown ids are left out, and values
        that came behind more than RUN_VALUES others since anybody asked for the sketch.
        """
        with self.tails.of(feed_key) as tails:
            with read(self.environment) as transaction:
                feed = transaction.feed(feed_key)
                kept = transaction.sketch_of(feed)
            search = IdSearch(self.environment, feed.prefix, ids)
            if kept.upto:
                search.look_in_runs()
            after_seq = kept.upto
            tail = tails.by_tag.get(b"")
            if tail is not None and tail.prefix == feed.prefix and tail.base <= kept.upto:
                search.look_in_tail(tail)
                after_seq = max(after_seq, tail.ids_upto)
        search.look_in_log(after_seq)
        return search.values

    def sketch_lag(self, feed_key: bytes) -> int:
        """How many values of a set of the feed are not in what is kept of its sketch, at most."""
        with read(self.environment) as transaction:
            sets = settled_sets(transaction, transaction.feed(feed_key)).values()
            return max(state.count - transaction.sketch_of(state).count for state in sets)

    def begin_piece(self, feed_key: bytes) -> SketchPiece | DropSketch | None:
        """What is next to be done for what is kept of a feed's sketches, if anything is."""
        with read(self.environment) as transaction:
            distrusted = self.tails.distrusted(feed_key)
            sets = settled_sets(transaction, transaction.feed(feed_key))
            for tag, state in sets.items():
                kept = transaction.sketch_of(state)
                if kept.upto and (
                    state.prefix in distrusted
                    or not can_be_read(transaction, feed_key, state, kept)
                ):
                    self.tails.trust(feed_key, state.prefix)
                    return DropSketch(feed_key, tag)
                if state.count - kept.count >= RUN_VALUES:
                    return SketchPiece(
                        self.environment, feed_key, tag, prefix=state.prefix, kept=kept
                    )
        return None


def _next_parts(
    transaction: ReadTransaction, sets: Mapping[bytes, FeedState], tails: FeedTails
) -> list[_Part]:
    """The next values behind each tail, SKETCH_STEP of them in all."""
    kept_of = {tag: transaction.sketch_of(state) for tag, state in sets.items()}
    length = SKETCH_SYMBOLS
    if not any(kept.upto for kept in kept_of.values()):
        length = sketch_length(sum(state.count for state in sets.values()))
    parts, room = [], SKETCH_STEP
    for tag, state in sets.items():
        kept = kept_of[tag]
        tail = tails.tail(tag, state.prefix, kept, length)
        piece = read_piece(
            transaction, state.prefix, tail.at, limit=room, max_bytes=SKETCH_STEP_BYTES
        )
        room -= len(piece.values)
        parts.append(_Part(tag, state, kept, tail, piece))
    return parts


def _sum_of(parts: Sequence[_Part], tails: FeedTails) -> Symbols | None:
    """The sum over all sets; None if one is wrong, which is begun anew, from nothing."""
    total = no_symbols(parts[0].tail.symbols.shape[1])
    for part in parts:
        symbols = part.whole()
        if symbols is None:
            tails.tries += 1
            tails.distrusted.add(part.state.prefix)
            del tails.by_tag[part.tag]
            return None
        total += symbols
    tails.tries = 0
    return total
