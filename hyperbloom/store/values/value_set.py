"""One set of values inside a write transaction: its log, its index and its sums, kept in step.

A feed is one, and so is what is kept aside for a feed (forgetting.py). The three functions that
change a set change all of it; whoever writes a record anywhere else breaks what verify.py checks.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import lmdb

from hyperbloom.digests import SUM_MODULUS, element_sum
from hyperbloom.keys import keyed_hash
from hyperbloom.store.lmdb.layout import ASIDE_TAGS, LOG_HEAD_BYTES, U32, U64, FeedState
from hyperbloom.store.transaction import WriteTransaction, read_value
from hyperbloom.store.values.ordered_index import OrderedIndex

__all__ = [
    "add_values",
    "forgotten_among",
    "index_of",
    "log_heads",
    "oldest_records",
    "remove_values",
    "take_back",
]


def index_of(transaction: WriteTransaction, state: FeedState) -> OrderedIndex:
    """The index of a set; who inserts by it keeps its ``next_bucket``."""
    txn, log, prefix = transaction.txn, transaction.databases["log"], state.prefix
    return OrderedIndex(
        txn,
        transaction.databases["index"],
        prefix,
        lambda seq: read_value(txn, log, prefix, seq),
        state.next_bucket,
    )


def add_values(
    transaction: WriteTransaction, state: FeedState, values: Sequence[bytes], heads: Sequence[bytes]
) -> tuple[list[bytes], int]:
    """Add values that differ from one another, each with the head of its log record.

    The new ones in the order given, and the number of the first of them.
    """
    first_seq = state.top_seq + 1
    index = index_of(transaction, state)
    known = index.insert_batch(list(values), first_seq)
    state.next_bucket = index.next_bucket
    fresh = [
        (seq, value, head)
        for seq, (value, head) in enumerate(zip(values, heads, strict=True), first_seq)
        if value not in known
    ]
    if not fresh:
        return [], first_seq
    prefix, pack = state.prefix, U64.pack
    items = [(prefix + pack(seq), head + value) for seq, value, head in fresh]
    _, added = transaction.txn.cursor(transaction.databases["log"]).putmulti(items, overwrite=False)
    if added != len(items):
        raise lmdb.CorruptedError("the log has records beyond the feed's top number")
    new = [value for _, value, _ in fresh]
    state.top_seq = fresh[-1][0]
    state.count += len(new)
    state.size += sum(map(len, new))
    kept = transaction.sum_of(state)
    kept.total = (kept.total + element_sum(new)) % SUM_MODULUS
    return new, fresh[0][0]


def remove_values(
    transaction: WriteTransaction, state: FeedState, values: Sequence[bytes]
) -> list[tuple[bytes, bytes]]:
    """Remove those of these values that are there; each with the head of its log record.

    Their numbers are not given again.
    """
    index, log = index_of(transaction, state), transaction.databases["log"]
    kept = transaction.sum_of(state)
    keys = []
    for value in dict.fromkeys(values):
        seq = index.remove(value)
        if seq is not None:
            keys.append(state.prefix + U64.pack(seq))
    removed, summed = [], []
    for key in keys:
        data = transaction.txn.pop(key, db=log)
        if data is None:
            raise lmdb.CorruptedError("the index led to a record that is missing")
        value = data[LOG_HEAD_BYTES:]
        removed.append((value, data[:LOG_HEAD_BYTES]))
        if kept.counts(U64.unpack_from(key, U32.size)[0]):
            summed.append(value)
    state.count -= len(removed)
    state.size -= sum(len(value) for value, _ in removed)
    kept.left -= len(removed) - len(summed)
    kept.total = (kept.total - element_sum(summed)) % SUM_MODULUS
    return removed


def log_heads(
    transaction: WriteTransaction, state: FeedState, values: Sequence[bytes]
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
    transaction: WriteTransaction, feed: FeedState, values: Sequence[bytes]
) -> set[bytes]:
    """Those of these values that the feed has forgotten and is not to take in again."""
    whole, hashed = (transaction.find_aside(feed, tag) for tag in ASIDE_TAGS)
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
    """Remember no more that these were forgotten; those kept whole, with their log heads."""
    whole, hashed = (transaction.find_aside(feed, tag) for tag in ASIDE_TAGS)
    if hashed is not None and hashed.count:
        remove_values(transaction, hashed, [keyed_hash(value) for value in values])
    return [] if whole is None else remove_values(transaction, whole, values)
