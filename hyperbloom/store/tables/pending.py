"""Invitations that nobody has used yet, as far as this node has seen.

Key: feed's key, the invited key. One is put when an invitation is made, and goes once the invited
key has shown itself, or the link has ended. A store from before has none: whoever was invited then
counts as having come.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hyperbloom.store.limits import MAX_LINKS_PER_ISSUER
from hyperbloom.store.lmdb.layout import KEY_BYTES, U64
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import PendingRecord

__all__ = ["DropPending", "PutPending", "parse_pending_record"]


def parse_pending_record(key: bytes, data: bytes) -> PendingRecord:
    """A record of the pending database; struct.error or ValueError if it cannot be read."""
    (invited_at,) = U64.unpack(data)
    feed_key, invited = key[:KEY_BYTES], key[KEY_BYTES:]
    check_key("key", invited)
    return PendingRecord(feed_key=feed_key, key=invited, invited_at=invited_at)


@dataclass(frozen=True, slots=True)
class PutPending:
    """A key was invited to a feed ``at`` (µs). Result: whether that is kept.

    It is not beyond MAX_LINKS_PER_ISSUER of a feed: no more links of one issuer are kept, either.
    """

    feed_key: bytes
    key: bytes
    at: int

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        check_key("key", self.key)
        check_time("at", self.at)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> bool:
        count = sum(1 for _ in transaction.scan("pending", self.feed_key))
        if count >= MAX_LINKS_PER_ISSUER:
            return False
        transaction.put("pending", self.feed_key + self.key, U64.pack(self.at))
        return True


@dataclass(frozen=True, slots=True)
class DropPending:
    """These keys have come to a feed, or may no more. Result: how many of them were pending."""

    feed_key: bytes
    keys: Sequence[bytes]

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        for key in self.keys:
            check_key("key", key)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> int:
        return sum(transaction.delete("pending", self.feed_key + key) for key in self.keys)
