"""Adding values to a feed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

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
        values, refused = _wanted(transaction, feed, self.values, restores=self.restores)
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
    feed = transaction.feed(operations[0].feed_key)
    values = list(chain.from_iterable(operation.values for operation in operations))
    wanted, refused = _wanted(transaction, feed, values, restores=operations[0].restores)
    heads = [LOG_HEAD.pack(operation.received_at, operation.origin) for operation in operations]
    top_seq = feed.top_seq
    if len(wanted) == len(values):
        own_heads: Sequence[bytes] = [
            head for head, one in zip(heads, operations, strict=True) for _ in one.values
        ]
    else:
        owners = _owners(operations)
        own_heads = [heads[owners[value]] for value in wanted]
    added, seqs = add_values(transaction, feed, wanted, own_heads)
    new, tops = _each_its_own(operations, added, seqs)
    results = []
    for operation, own, top in zip(operations, new, tops, strict=True):
        first_seq, top_seq = top_seq + 1, top or top_seq
        forgotten = len(refused.intersection(operation.values)) if refused else 0
        results.append(
            Appended(values=own, first_seq=first_seq, top_seq=top_seq, forgotten=forgotten)
        )
    return results


def _each_its_own(
    operations: Sequence[AppendValues], added: Sequence[bytes], seqs: Sequence[int]
) -> tuple[list[list[bytes]], list[int]]:
    """Of the values that are new, those of each operation and the last of their numbers, or 0."""
    tops = [0] * len(operations)
    if len(added) == sum(len(operation.values) for operation in operations):
        end = -1
        for number, operation in enumerate(operations):
            end += len(operation.values)
            tops[number] = seqs[end] if operation.values else 0
        return [list(operation.values) for operation in operations], tops
    owners = _owners(operations)
    new: list[list[bytes]] = [[] for _ in operations]
    for value, seq in zip(added, seqs, strict=True):
        number = owners[value]
        new[number].append(value)
        tops[number] = seq
    return new, tops


def _owners(operations: Sequence[AppendValues]) -> dict[bytes, int]:
    """Each value with the first operation that has it."""
    owners: dict[bytes, int] = {}
    for number, operation in enumerate(operations):
        for value in operation.values:
            owners.setdefault(value, number)
    return owners


def _wanted(
    transaction: WriteTransaction, feed: FeedState, values: Sequence[bytes], *, restores: bool
) -> tuple[Sequence[bytes], set[bytes]]:
    """Which of the values are to be added, each once, and which are refused as forgotten."""
    is_distinct = len(set(values)) == len(values)
    distinct = values if is_distinct else list(dict.fromkeys(values))
    forgotten = forgotten_among(transaction, feed, distinct)
    if not forgotten:
        return distinct, forgotten
    if restores:
        take_back(transaction, feed, list(forgotten))
        return distinct, set()
    return [value for value in distinct if value not in forgotten], forgotten
