"""What tests of sketches share: sketches made from nothing, and the node's chore in one call."""

import numpy as np

from hyperbloom.digests import value_ids
from hyperbloom.sketches import add, ids_from, no_symbols, sketch_key
from hyperbloom.store import Store
from hyperbloom.store.sketches import passes, reading, search, tails, verify, writing
from hyperbloom.store.sketches.writing import SketchPiece
from hyperbloom.store.writer import commit_group

FEED, ORIGIN = b"f" * 32, b"o" * 32
_MODULES = (
    passes, reading, search, tails, verify, writing,
)  # fmt: skip


def set_limits(setattr_, **limits) -> None:
    """Give limits of the store other values wherever sketches are made by them."""
    for module in _MODULES:
        for name, value in limits.items():
            if hasattr(module, name):
                setattr_(module, name, value)


def run(store: Store, operation):
    (result,) = commit_group(store.environment, [operation])
    if isinstance(result, BaseException):
        raise result
    return result


def ids(values):
    return ids_from(value_ids(values))


def anew(values, symbols: int, feed: bytes = FEED):
    """The sketch of these values, made from nothing."""
    made = no_symbols(symbols)
    add(made, ids(values), sketch_key(feed))
    return made


def held(store: Store, feed: bytes = FEED) -> list[bytes]:
    return store.range_slice(feed, limit=1 << 30, max_bytes=1 << 40).values


def settled(store: Store, feed: bytes = FEED) -> list[bytes]:
    return store.settled_slice(feed, limit=1 << 30, max_bytes=1 << 40).values


def sketch(store: Store, feed: bytes = FEED):
    """The sketch of a feed, after as many steps as that takes."""
    while (made := store.sketch_step(feed)) is None:
        pass
    return made


def keep_one(store: Store, feed: bytes = FEED) -> bool:
    """Do what is next to be done for what is kept of a feed's sketches; whether there was any."""
    work = store.begin_piece(feed)
    if isinstance(work, SketchPiece):
        while (operation := work.step()) is None:
            pass
        work = operation
    if work is not None:
        run(store, work)
    return work is not None


def keep(store: Store, feed: bytes = FEED) -> int:
    """Bring what is kept up to date; how many pieces that took."""
    pieces = 0
    while keep_one(store, feed):
        pieces += 1
    return pieces


def check(store: Store, feed: bytes = FEED) -> None:
    """What is kept and handed out is what comes of the values alone."""
    made, values, here = sketch(store, feed), settled(store, feed), held(store, feed)
    assert np.array_equal(made.symbols, anew(values, made.symbols.shape[1], feed))
    assert made.settled == store.holding(feed).settled
    assert made.top_seq == store.feed(feed).top_seq
    assert sorted(store.values_of(feed, ids(values))) == here
    assert store.verify().problems == []
