"""Feeds: their records, with their settings and figures, and how a feed is removed.

Key: the feed's public key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from hyperbloom.store.limits import DELETE_STEP
from hyperbloom.store.lmdb.layout import META_DROPPING, FeedState, parse_settings
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, FeedOperation, Unfinished, check_key
from hyperbloom.store.records import FeedRecord

__all__ = ["DropFeed", "PutFeed", "SweepDropped", "feed_record"]


def feed_record(feed_key: bytes, state: FeedState, left: int) -> FeedRecord:
    """A feed's state as the store gives it out; ``left`` values are not in its sum yet."""
    return FeedRecord(
        key=feed_key,
        count=state.count,
        bytes=state.size,
        digest=None if left else state.digest,
        digest_left=left,
        top_seq=state.top_seq,
        settings=parse_settings(state.settings),
    )


@dataclass(frozen=True, slots=True)
class PutFeed:
    """Add a feed, or give it other settings (a JSON object). Result: FeedRecord."""

    feed_key: bytes
    settings: Mapping[str, object]
    encoded: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        encoded = json.dumps(dict(self.settings), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "encoded", encoded.encode())

    @property
    def size(self) -> int:
        return len(self.encoded) + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> FeedRecord:
        feed = transaction.find_feed(self.feed_key)
        if feed is None:
            feed = FeedState(feed_id=transaction.next_feed_id(), settings=self.encoded)
            transaction.add_feed(self.feed_key, feed)
        feed.settings = self.encoded
        return feed_record(self.feed_key, feed, transaction.sum_of(feed).left)


@dataclass(frozen=True, slots=True)
class DropFeed(FeedOperation):
    """Remove a feed, if it is there: at once for every reader, its records bit by bit.

    The record goes and the id is noted in ``meta``, in one transaction; SweepDropped then removes
    what is under the id, and is done again when a writer starts. Result: None, when all is gone.
    """

    def apply(self, transaction: WriteTransaction) -> Unfinished | None:
        feed = transaction.find_feed(self.feed_key)
        if feed is None:
            return None
        for state in (feed, *transaction.remove_aside(feed)):
            transaction.put("meta", META_DROPPING + state.prefix, b"1")
        transaction.remove_feed(self.feed_key)
        transaction.delete_prefix("peers", self.feed_key, DELETE_STEP)
        transaction.delete_prefix("pending", self.feed_key, DELETE_STEP)
        return Unfinished(SweepDropped())


@dataclass(frozen=True, slots=True)
class SweepDropped:
    """Remove a step's worth of what dropped feeds left behind. Result: None, at the end."""

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> Unfinished | None:
        room = DELETE_STEP
        for key in [key for key, _ in transaction.scan("meta", META_DROPPING)]:
            prefix = key.removeprefix(META_DROPPING)
            for database in ("index", "log", "links", "refused", "sketches", "gone"):
                room -= transaction.delete_prefix(database, prefix, room)
                if room <= 0:
                    return Unfinished(self)
            transaction.delete("meta", key)
        return None
