"""What is not kept of sketches yet, added up in memory: the *tail* of a set's log.

A tail goes on from the number up to which the set's sketch is kept (lmdb/kept_sketch.py), or from
the beginning. It begins anew when the kept one has gone on, or when a value behind that number was
removed. Its symbols are its own: what is handed out is a sum made of them.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from hyperbloom.sketches import add, no_symbols
from hyperbloom.store.limits import MAX_RECENT_IDS, MAX_SKETCH_BYTES
from hyperbloom.store.lmdb.kept_sketch import KeptSketch
from hyperbloom.store.sketches.log_pieces import LogPiece, Numbers
from hyperbloom.store.sketches.runs import id_heads

__all__ = ["FeedTails", "Tail", "Tails"]


class Tail:
    """The values of one set behind the number ``base``, as far as ``at``: their sketch and ids.

    ``ids_upto``: ids are there of the values up to this number (MAX_RECENT_IDS).
    """

    def __init__(self, prefix: bytes, base: int, removals: int, symbols: int) -> None:
        self.prefix, self.base, self.removals = prefix, base, removals
        self.at = self.ids_upto = base
        self.count = 0
        self.symbols = no_symbols(symbols)
        self._ids = 0
        self._heads: list[Numbers] = []
        self._seqs: list[Numbers] = []

    @property
    def nbytes(self) -> int:
        """Bytes of memory, nearly all of them."""
        return self.symbols.nbytes + sum(part.nbytes for part in (*self._heads, *self._seqs))

    def take(self, piece: LogPiece, key: bytes, *, with_ids: bool) -> None:
        """Add the values behind ``at``."""
        if not piece.keys:
            return
        ids, seqs = piece.ids(), piece.seqs()
        add(self.symbols, ids, key)
        has_all = self.ids_upto == self.at
        self.at = int(seqs[-1])
        self.count += len(seqs)
        if with_ids and has_all and self._ids + len(seqs) <= MAX_RECENT_IDS:
            self._heads.append(id_heads(ids))
            self._seqs.append(seqs)
            self._ids += len(seqs)
            self.ids_upto = self.at

    def find(self, wanted: Numbers) -> Iterator[tuple[int, int]]:
        """Of sorted heads of ids: (which one, the number of a value whose id begins so)."""
        if not len(wanted):
            return
        for heads, seqs in zip(self._heads, self._seqs, strict=True):
            places = np.minimum(np.searchsorted(wanted, heads), len(wanted) - 1)
            for hit in np.flatnonzero(wanted[places] == heads).tolist():
                yield int(places[hit]), int(seqs[hit])


class FeedTails:
    """The tails of a feed's sets by tag; `tries` counts how often one began anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_tag: dict[bytes, Tail] = {}
        self.distrusted: set[bytes] = set()
        """Prefixes of sets whose kept sketch is wrong: until it was made anew it is not used."""
        self.tries = 0

    @property
    def nbytes(self) -> int:
        return sum(tail.nbytes for tail in list(self.by_tag.values()))

    def tail(self, tag: bytes, prefix: bytes, kept: KeptSketch, symbols: int) -> Tail:
        """The tail of a set, begun anew if it does not go with what is kept now."""
        if not kept.upto:
            self.distrusted.discard(prefix)
        base = 0 if prefix in self.distrusted else kept.upto
        tail = self.by_tag.get(tag)
        if tail is not None and (tail.prefix, tail.base) == (prefix, base):
            if (tail.removals, tail.symbols.shape[1]) == (kept.removals, symbols):
                return tail
            self.tries += tail.removals != kept.removals
        tail = self.by_tag[tag] = Tail(prefix, base, kept.removals, symbols)
        return tail


class Tails:
    """The tails of all feeds, up to MAX_SKETCH_BYTES; those asked for longest ago give way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._feeds: OrderedDict[bytes, FeedTails] = OrderedDict()
        self._sizes: dict[bytes, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all tails take."""
        with self._lock:
            return sum(self._sizes.values())

    def distrusted(self, feed_key: bytes) -> frozenset[bytes]:
        """Prefixes of a feed's sets whose kept sketch was found to be wrong."""
        with self._lock:
            tails = self._feeds.get(feed_key)
        return frozenset() if tails is None else frozenset(tails.distrusted)

    def trust(self, feed_key: bytes, prefix: bytes) -> None:
        """Use what is kept of a set's sketch again: it is made anew."""
        with self._lock:
            tails = self._feeds.get(feed_key)
        if tails is not None:
            tails.distrusted.discard(prefix)

    @contextmanager
    def of(self, feed_key: bytes) -> Iterator[FeedTails]:
        """Those of a feed, for one thread at a time."""
        with self._lock:
            tails = self._feeds.setdefault(feed_key, FeedTails())
            self._feeds.move_to_end(feed_key)
        with tails.lock:
            try:
                yield tails
            finally:
                self._give_way(feed_key, tails)

    def _give_way(self, feed_key: bytes, tails: FeedTails) -> None:
        with self._lock:
            if self._feeds.get(feed_key) is tails:
                self._sizes[feed_key] = tails.nbytes
            while len(self._feeds) > 1 and sum(self._sizes.values()) > MAX_SKETCH_BYTES:
                oldest, _ = self._feeds.popitem(last=False)
                self._sizes.pop(oldest, None)
