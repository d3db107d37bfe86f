"""Values that local policy refused, kept so that peers stop sending them.

A peer knows what we lack from our Bloom filters alone. A refused value must be in them or it comes
again with every Sync, and a filter needs the value itself: its positions are hashes of the value
under seeds that change, which no stored hash gives. So the values are kept, as few as the limits
say, and those that came longest ago go first. Key: feed id, hash of the value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperbloom.keys import keyed_hash
from hyperbloom.store.limits import (
    MAX_REASON_BYTES,
    MAX_REFUSED_BYTES,
    MAX_REFUSED_VALUES,
    MAX_VALUE_BYTES,
)
from hyperbloom.store.lmdb.layout import REFUSED, U32, FeedState
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import RefusedRecord

__all__ = ["RememberRefused", "parse_refused_record"]

# When the room is used up a tenth of it is made free at once: looking for the oldest reads all.
_KEPT_TENTHS = 9


def parse_refused_record(key: bytes, data: bytes) -> RefusedRecord:
    """A record of the refused database; struct.error if it is too short."""
    last_seen, count, reason_bytes = REFUSED.unpack_from(data)
    value_at = REFUSED.size + reason_bytes
    return RefusedRecord(
        hash=key[U32.size :],
        value=data[value_at:],
        reason=data[REFUSED.size : value_at].decode(),
        count=count,
        last_seen=last_seen,
    )


@dataclass(frozen=True, slots=True)
class RememberRefused:
    """Keep refused values, each with the reason, at the time ``at`` (µs); count those known.

    At most MAX_REFUSED_VALUES and MAX_REFUSED_BYTES a feed, the oldest go. A value too long to be
    kept at all is left out. Result: None. Fails with NoSuchFeed.
    """

    feed_key: bytes
    refused: Sequence[tuple[bytes, str]]
    at: int

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        check_time("at", self.at)
        object.__setattr__(self, "refused", tuple(self.refused))
        for value, reason in self.refused:
            if not isinstance(value, bytes):
                raise TypeError("values must be bytes")
            if len(value) > MAX_VALUE_BYTES:
                raise ValueError(f"a value has at most {MAX_VALUE_BYTES} bytes, not {len(value)}")
            if len(reason.encode()) > MAX_REASON_BYTES:
                raise ValueError(f"a reason has at most {MAX_REASON_BYTES} bytes")

    @property
    def size(self) -> int:
        return sum(len(value) + OVERHEAD_BYTES for value, _ in self.refused) + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> None:
        feed = transaction.feed(self.feed_key)
        for value, reason in self.refused:
            self._remember(transaction, feed, value, reason.encode())
        if feed.refused > MAX_REFUSED_VALUES or feed.refused_bytes > MAX_REFUSED_BYTES:
            _make_room(transaction, feed)

    def _remember(
        self, transaction: WriteTransaction, feed: FeedState, value: bytes, reason: bytes
    ) -> None:
        key = feed.prefix + keyed_hash(value)
        known = transaction.get("refused", key)
        count = 0
        if known is None:
            feed.refused += 1
        else:
            _, count, _ = REFUSED.unpack_from(known)
            feed.refused_bytes -= len(known)
        data = REFUSED.pack(self.at, count + 1, len(reason)) + reason + value
        transaction.put("refused", key, data)
        feed.refused_bytes += len(data)


def _make_room(transaction: WriteTransaction, feed: FeedState) -> None:
    """Drop the oldest until a tenth of the room is free."""
    ages = sorted(
        (REFUSED.unpack_from(data)[0], key, len(data))
        for key, data in transaction.scan("refused", feed.prefix)
    )
    for _, key, size in ages:
        if (
            feed.refused <= MAX_REFUSED_VALUES * _KEPT_TENTHS // 10
            and feed.refused_bytes <= MAX_REFUSED_BYTES * _KEPT_TENTHS // 10
        ):
            return
        transaction.delete("refused", key)
        feed.refused -= 1
        feed.refused_bytes -= size
