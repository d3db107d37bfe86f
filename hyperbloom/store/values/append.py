"""Adding values to a feed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hyperbloom.store.limits import MAX_VALUE_BYTES, VALUE_COST_BYTES
from hyperbloom.store.lmdb.layout import LOG_HEAD
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import Appended
from hyperbloom.store.values.value_set import add_values, forgotten_among, take_back

__all__ = ["AppendValues"]


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
    size: int = field(init=False, repr=False, compare=False)

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
        values = list(dict.fromkeys(self.values))
        forgotten = forgotten_among(transaction, feed, values)
        if forgotten and self.restores:
            take_back(transaction, feed, list(forgotten))
            forgotten = set()
        elif forgotten:
            values = [value for value in values if value not in forgotten]
        head = LOG_HEAD.pack(self.received_at, self.origin)
        new, first_seq = add_values(transaction, feed, values, [head] * len(values))
        return Appended(
            values=new, first_seq=first_seq, top_seq=feed.top_seq, forgotten=len(forgotten)
        )
