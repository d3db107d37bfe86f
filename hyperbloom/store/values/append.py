"""Adding values to a feed."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from hyperbloom.store.limits import MAX_VALUE_BYTES, PIECE_BYTES, VALUE_COST_BYTES
from hyperbloom.store.lmdb.layout import LOG_HEAD, FeedState
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, Operation, check_key, check_time
from hyperbloom.store.records import Appended
from hyperbloom.store.values.value_set import add_values, forgotten_among, take_back

__all__ = ["AppendValues", "apply_run", "runs_of"]


@dataclass(frozen=True, slots=True)
class AppendValues:
    """Add values to a feed; those it has are left as they are, and those it forgot stay out.

    ``origin`` is the 32-byte key of the peer that brought them, ``received_at`` the time in µs.
    With ``restores`` forgotten values are added, too, and are no longer forgotten.
    Result: Appended. Fails with NoSuchFeed.
    """

    feed_key: bytes
    values: Sequence[bytes]
    origin: bytes
    received_at: int
    restores: bool = False
    size: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        check_key("origin", self.origin)
        check_time("received_at", self.received_at)
        values = tuple(self.values)
        if set(map(type, values)) - {bytes}:
            raise TypeError("values must be bytes")
        size = sum(map(len, values))
        if size > MAX_VALUE_BYTES and (longest := max(map(len, values))) > MAX_VALUE_BYTES:
            raise ValueError(f"a value has at most {MAX_VALUE_BYTES} bytes, not {longest}")
        object.__setattr__(self, "values", values)
        weight = size + VALUE_COST_BYTES * len(values) + OVERHEAD_BYTES
        object.__setattr__(self, "size", weight)

    def apply(self, transaction: WriteTransaction) -> Appended:
        feed = transaction.feed(self.feed_key)
        refused = _refused(transaction, feed, self.values, restores=self.restores)
        values = _without(self.values, refused)
        head = LOG_HEAD.pack(self.received_at, self.origin)
        first_seq = feed.top_seq + 1
        new, _ = add_values(transaction, feed, values, [head] * len(values))
        return Appended(
            values=list(new), first_seq=first_seq, top_seq=feed.top_seq, forgotten=len(refused)
        )


def apply_run(transaction: WriteTransaction, run: Sequence[Operation]) -> Sequence[object]:
    """Apply what `runs_of` gave; the result of each."""
    if len(run) == 1:
        return [run[0].apply(transaction)]
    return _append_together(transaction, [one for one in run if isinstance(one, AppendValues)])


def runs_of(
    operations: Sequence[Operation], most_bytes: int = PIECE_BYTES
) -> Iterator[Sequence[Operation]]:
    """The operations in their order; those next to one another that can be applied as one are.

    These append to one feed, and weigh at most `most_bytes` together, by default as one piece of
    what a peer has sent. Everything else is by itself.
    """
    start = size = 0
    for end, operation in enumerate(operations):
        size += operation.size
        if end > start and (size > most_bytes or not _go_together(operations[start], operation)):
            yield operations[start:end]
            start, size = end, operation.size
    if operations:
        yield operations[start:]


def _go_together(first: Operation, operation: Operation) -> bool:
    return (
        isinstance(first, AppendValues)
        and isinstance(operation, AppendValues)
        and first.feed_key == operation.feed_key
        and first.restores == operation.restores
    )


def _append_together(
    transaction: WriteTransaction, operations: Sequence[AppendValues]
) -> list[Appended]:
    """Apply operations on one feed as one, with the results that each would have by itself.

    So many who insert a value each share the way into the index, and the adding up.
    """
    feed, restores = transaction.feed(operations[0].feed_key), operations[0].restores
    values = list(chain.from_iterable(operation.values for operation in operations))
    refused = _refused(transaction, feed, values, restores=restores)
    parts = [_without(operation.values, refused) for operation in operations]
    heads = [LOG_HEAD.pack(operation.received_at, operation.origin) for operation in operations]
    top_seq, end_seq, start = feed.top_seq, feed.top_seq + 1, 0
    added, seqs = add_values(
        transaction,
        feed,
        list(chain.from_iterable(parts)),
        list(chain.from_iterable(map(repeat, heads, map(len, parts)))),
    )
    results = []
    for operation, part in zip(operations, parts, strict=True):
        # Numbers are given in the order of the operations.
        end_seq += len(part)
        end = bisect_left(seqs, end_seq, start)
        first_seq, top_seq = top_seq + 1, seqs[end - 1] if end > start else top_seq
        forgotten = len(refused.intersection(operation.values)) if refused else 0
        results.append(
            Appended(
                values=list(added[start:end]),
                first_seq=first_seq,
                top_seq=top_seq,
                forgotten=forgotten,
            )
        )
        start = end
    return results


def _refused(
    transaction: WriteTransaction, feed: FeedState, values: Sequence[bytes], *, restores: bool
) -> set[bytes]:
    """Which of the values are forgotten and stay out; with `restores` they are taken back."""
    forgotten = forgotten_among(transaction, feed, values)
    if forgotten and restores:
        take_back(transaction, feed, list(forgotten))
        return set()
    return forgotten


def _without(values: Sequence[bytes], refused: set[bytes]) -> Sequence[bytes]:
    return [value for value in values if value not in refused] if refused else values
