"""One set of values inside a write transaction: its log, its index and its sums, kept in step.

A feed is one, and so is what is kept aside for a feed (forgotten.py). `add_values` and
`remove_values` alone change a set; whoever writes a record anywhere else breaks what verify.py
checks. What is kept of a set beside its records is told of every value that comes and goes, in the
same transaction: its figures and the sum behind its digest of both, its sketch of what goes, for
what comes is added to that later (kept_sketch.py). See `_added` and `_removed`.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import compress, islice, repeat
from operator import add
from typing import NamedTuple

import lmdb

from hyperbloom.keys import keyed_hash
from hyperbloom.store.lmdb.layout import ASIDE_TAGS, LOG_HEAD_BYTES, U64, FeedState, packed_range
from hyperbloom.store.lmdb.transaction import ReadTransaction, WriteTransaction
from hyperbloom.store.values.ordered_index import index_of

__all__ = [
    "Removed",
    "add_values",
    "forgotten_among",
    "log_heads",
    "oldest_records",
    "remove_values",
    "take_back",
]


class Removed(NamedTuple):
    """A value that was taken out of a set, with the number and the head of its log record."""

    seq: int
    value: bytes
    head: bytes


def add_values(
    transaction: WriteTransaction, state: FeedState, values: Sequence[bytes], heads: Sequence[bytes]
) -> tuple[Sequence[bytes], Sequence[int]]:
    """Add values, each with the head of its log record; of equal ones the first.

    The new ones in the order given, and their numbers: the i-th of ``values`` has i more than what
    follows the top number. Raises lmdb.CorruptedError if the log has records that the set does not
    know of.
    """
    first_seq = state.top_seq + 1
    index = index_of(transaction, state)
    known = index.insert_batch(list(values), first_seq)
    state.next_bucket = index.next_bucket
    seqs: Sequence[int] = range(first_seq, first_seq + len(values))
    keys = packed_range(first_seq, len(values))
    if known:
        is_new = [seq not in known for seq in seqs]
        values, heads = list(compress(values, is_new)), list(compress(heads, is_new))
        seqs, keys = list(compress(seqs, is_new)), list(compress(keys, is_new))
    if not values:
        return [], []
    # Made as they are put, which takes less than half of what a list of them would.
    items = zip(map(add, repeat(state.prefix), keys), map(add, heads, values), strict=True)
    _, added = transaction.cursor("log").putmulti(items, overwrite=False)
    if added != len(values):
        raise lmdb.CorruptedError("the log has records beyond the feed's top number")
    _added(transaction, state, seqs, values)
    return values, seqs


def remove_values(
    transaction: WriteTransaction, state: FeedState, values: Sequence[bytes]
) -> list[Removed]:
    """Remove those of these values that are there, and give them out.

    Their numbers are not given again. Raises lmdb.CorruptedError if a record is missing.
    """
    index, log = index_of(transaction, state), transaction.databases["log"]
    seqs = [seq for value in dict.fromkeys(values) if (seq := index.remove(value)) is not None]
    removed = []
    for seq in seqs:
        data = transaction.txn.pop(state.prefix + U64.pack(seq), db=log)
        if data is None:
            raise lmdb.CorruptedError("the index led to a record that is missing")
        removed.append(Removed(seq, data[LOG_HEAD_BYTES:], data[:LOG_HEAD_BYTES]))
    _removed(transaction, state, seqs, [each.value for each in removed])
    return removed


def _added(
    transaction: WriteTransaction, state: FeedState, seqs: Sequence[int], values: Sequence[bytes]
) -> None:
    """Tell all that is kept of a set of the values that came, in the order of their numbers."""
    state.top_seq = seqs[-1]
    state.count += len(values)
    state.size += sum(map(len, values))
    transaction.sum_of(state).add(values)


def _removed(
    transaction: WriteTransaction, state: FeedState, seqs: Sequence[int], values: Sequence[bytes]
) -> None:
    """Tell all that is kept of a set of the values that are gone, with the numbers they had."""
    state.count -= len(values)
    state.size -= sum(map(len, values))
    kept = transaction.sum_of(state)
    summed = [value for seq, value in zip(seqs, values, strict=True) if kept.counts(seq)]
    kept.left -= len(values) - len(summed)
    kept.take_out(summed)
    if values:
        transaction.sketch_of(state).take_out(seqs, values)


def log_heads(
    transaction: ReadTransaction, state: FeedState, values: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    """Those of these values that are there, each with the head of its log record."""
    find = index_of(transaction, state).find
    found: list[tuple[bytes, bytes]] = []
    for value in values:
        seq = find(value)
        data = None if seq is None else transaction.get("log", state.prefix + U64.pack(seq))
        if data is not None:
            found.append((value, data[:LOG_HEAD_BYTES]))
    return found


def oldest_records(
    transaction: WriteTransaction, state: FeedState, most: int
) -> Iterator[tuple[bytes, bytes]]:
    """The values that came first, with the heads of their log records.

    They are read as they are asked for; nothing may be written meanwhile.
    """
    for _, data in islice(transaction.scan("log", state.prefix), most):
        yield data[LOG_HEAD_BYTES:], data[:LOG_HEAD_BYTES]


def forgotten_among(
    transaction: ReadTransaction, feed: FeedState, values: Collection[bytes]
) -> set[bytes]:
    """Those of these values that the feed has forgotten and is not to take in again."""
    whole, hashed = [transaction.find_aside(feed, tag) for tag in ASIDE_TAGS]
    found: set[bytes] = set()
    if whole is not None and whole.count:
        find = index_of(transaction, whole).find
        found.update(value for value in values if find(value) is not None)
    if hashed is not None and hashed.count:
        find = index_of(transaction, hashed).find
        found.update(value for value in values if find(keyed_hash(value)) is not None)
    return found


def take_back(
    transaction: WriteTransaction, feed: FeedState, values: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    """Take values out of the two sets of forgotten ones; those kept whole, with their log heads."""
    whole, hashed = (transaction.find_aside(feed, tag) for tag in ASIDE_TAGS)
    if hashed is not None and hashed.count:
        remove_values(transaction, hashed, [keyed_hash(value) for value in values])
    found = [] if whole is None else remove_values(transaction, whole, values)
    return [(each.value, each.head) for each in found]
