"""The sums of sets that an older version wrote, made in the background.

Up to schema 3 a set had a sum of another kind. The step to schema 4 only notes, for each set that
has values, that none of them is in the new sum (KeptSum); the store opens at once. SumUp then goes
through the set's log in the order of arrival, a slice a transaction, so that others write in
between. A value that is added meanwhile has a higher number and counts at once; one that is removed
is taken out of the sum if it was in it. How far it came is written with the sum, in the same
transaction: after a crash it goes on from there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from hyperbloom.digests import EMPTY_DIGEST
from hyperbloom.store.limits import SUM_STEP, SUM_STEP_BYTES
from hyperbloom.store.lmdb.layout import (
    KEY_BYTES,
    LOG_HEAD_BYTES,
    META_SUM,
    META_UNSUMMED,
    U32,
    U64,
    FeedState,
    KeptSum,
)
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, Unfinished

__all__ = ["SumUp", "begin_sums"]


def begin_sums(transaction: WriteTransaction) -> None:
    """Note for each set of values that its sum is still to be made, from nothing."""
    for database in ("feeds", "aside"):
        for key, data in list(transaction.scan(database)):
            state = FeedState.unpack(data)
            state.digest = EMPTY_DIGEST
            transaction.put(database, key, state.pack())
            if state.count:
                kept = KeptSum(left=state.count, last=state.top_seq)
                transaction.put("meta", META_SUM + state.prefix, kept.pack())
                transaction.put("meta", META_UNSUMMED + state.prefix, key)


@dataclass(frozen=True, slots=True)
class SumUp:
    """Add a step's worth of values to the first sum that lacks some. Result: None, at the end."""

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> Unfinished | None:
        for name, key in transaction.scan("meta", META_UNSUMMED):
            state = _set_at(transaction, key)
            if state is None or not _add_step(transaction, state):
                transaction.delete("meta", name)
            return Unfinished(self)
        return None


def _set_at(transaction: WriteTransaction, key: bytes) -> FeedState | None:
    if len(key) == KEY_BYTES:
        return transaction.find_feed(key)
    return transaction.find_aside_at(key)


def _add_step(transaction: WriteTransaction, state: FeedState) -> bool:
    """Whether there may be more to add.

    There is no more, and something is left all the same, in a damaged store: its digest stays
    unknown, and verify.py says what is wrong.
    """
    kept = transaction.sum_of(state)
    if not kept.left:
        return False
    values = []
    size = 0
    for seq, value in _records(transaction, state, kept):
        values.append(value)
        kept.done = seq
        size += len(value)
        if len(values) >= min(SUM_STEP, kept.left) or size >= SUM_STEP_BYTES:
            break
    kept.add(values)
    kept.left -= len(values)
    return bool(values and kept.left)


def _records(
    transaction: WriteTransaction, state: FeedState, kept: KeptSum
) -> Iterator[tuple[int, bytes]]:
    """The records that are still to be added, as they are asked for."""
    cursor = transaction.cursor("log")
    if kept.done < kept.last and cursor.set_range(state.prefix + U64.pack(kept.done + 1)):
        end = state.prefix + U64.pack(kept.last)
        for key, data in takewhile(lambda item: item[0] <= end, cursor):
            yield U64.unpack_from(key, U32.size)[0], data[LOG_HEAD_BYTES:]
