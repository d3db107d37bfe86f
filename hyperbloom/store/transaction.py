"""One write transaction as the operations see it: databases by name, feeds read once.

Operations change a FeedState and its KeptSum; all that were used are written back together at the
end, so that many small appends to one feed read and write its records once.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import lmdb

from hyperbloom.store.errors import NoSuchFeed
from hyperbloom.store.lmdb.environment import Environment, MapFull
from hyperbloom.store.lmdb.layout import (
    ASIDE_TAGS,
    LOG_HEAD_BYTES,
    META_NEXT_FEED,
    META_SUM,
    META_UNSUMMED,
    U32,
    U64,
    FeedState,
    KeptSum,
)

__all__ = ["WriteTransaction", "no_such_feed", "read_value", "scan_prefix", "write"]

Result = TypeVar("Result")


def no_such_feed(feed_key: bytes) -> NoSuchFeed:
    """The error for a feed that the store does not hold."""
    return NoSuchFeed(f"the store holds no feed {feed_key.hex()}; join it first")


def read_value(
    txn: "lmdb.Transaction[bytes]", log: "lmdb._Database", prefix: bytes, seq: int
) -> bytes:
    """A value from the arrival log; lmdb.CorruptedError if it is missing."""
    data = txn.get(prefix + U64.pack(seq), db=log)
    if data is None:
        raise lmdb.CorruptedError(f"the log lacks record {seq}")
    return data[LOG_HEAD_BYTES:]


def scan_prefix(
    txn: "lmdb.Transaction[bytes]", database: "lmdb._Database", prefix: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """The records whose keys begin so, in order."""
    cursor = txn.cursor(database)
    if cursor.set_range(prefix):
        for key, data in cursor:
            if not key.startswith(prefix):
                return
            yield key, data


class WriteTransaction:
    """A write transaction with its feeds."""

    def __init__(self, txn: "lmdb.Transaction[bytes]", databases: dict[str, "lmdb._Database"]):
        self.txn = txn
        self.databases = databases
        self._feeds: dict[bytes, FeedState] = {}
        self._aside: dict[bytes, FeedState] = {}
        self._sums: dict[bytes, KeptSum] = {}

    def feed(self, feed_key: bytes) -> FeedState:
        """The feed's state, to be changed in place; NoSuchFeed."""
        state = self.find_feed(feed_key)
        if state is None:
            raise no_such_feed(feed_key)
        return state

    def find_feed(self, feed_key: bytes) -> FeedState | None:
        """The feed's state, or None."""
        state = self._feeds.get(feed_key)
        if state is None:
            data = self.txn.get(feed_key, db=self.databases["feeds"])
            if data is None:
                return None
            state = self._feeds[feed_key] = FeedState.unpack(data)
        return state

    def add_feed(self, feed_key: bytes, state: FeedState) -> None:
        """Let a feed be there from now on."""
        self._feeds[feed_key] = state

    def remove_feed(self, feed_key: bytes) -> None:
        """Remove a feed's record and its sum (and nothing else of it)."""
        feed = self.find_feed(feed_key)
        if feed is not None:
            self._remove_sum(feed)
            del self._feeds[feed_key]
        self.txn.delete(feed_key, db=self.databases["feeds"])

    def next_feed_id(self) -> int:
        """An id that no feed and no set kept aside had before."""
        number = self.get("meta", META_NEXT_FEED)
        feed_id: int = 1 if number is None else U32.unpack(number)[0]
        self.put("meta", META_NEXT_FEED, U32.pack(feed_id + 1))
        return feed_id

    def find_aside(self, feed: FeedState, tag: bytes) -> FeedState | None:
        """A set kept aside for a feed (see layout.py), to be changed in place; None without one."""
        return self.find_aside_at(feed.prefix + tag)

    def find_aside_at(self, key: bytes) -> FeedState | None:
        """The same by the key of its record: the feed's prefix and the tag."""
        state = self._aside.get(key)
        if state is None:
            data = self.get("aside", key)
            if data is not None:
                state = self._aside[key] = FeedState.unpack(data)
        return state

    def aside(self, feed: FeedState, tag: bytes) -> FeedState:
        """The same; an empty one is made if there is none."""
        state = self.find_aside(feed, tag)
        if state is None:
            state = FeedState(feed_id=self.next_feed_id(), settings=b"{}")
            self._aside[feed.prefix + tag] = state
        return state

    def remove_aside(self, feed: FeedState) -> list[FeedState]:
        """Remove the records and sums of all sets kept aside for a feed (and nothing else)."""
        removed = []
        for tag in ASIDE_TAGS:
            state = self.find_aside(feed, tag)
            if state is not None:
                removed.append(state)
                self._remove_sum(state)
                del self._aside[feed.prefix + tag]
                self.delete("aside", feed.prefix + tag)
        return removed

    def sum_of(self, state: FeedState) -> KeptSum:
        """The sum of a set's values, to be changed in place."""
        kept = self._sums.get(state.prefix)
        if kept is None:
            data = self.get("meta", META_SUM + state.prefix)
            kept = self._sums[state.prefix] = KeptSum() if data is None else KeptSum.unpack(data)
        return kept

    def _remove_sum(self, state: FeedState) -> None:
        self._sums.pop(state.prefix, None)
        for name in (META_SUM, META_UNSUMMED):
            self.delete("meta", name + state.prefix)

    def get(self, database: str, key: bytes) -> bytes | None:
        return self.txn.get(key, db=self.databases[database])

    def put(self, database: str, key: bytes, data: bytes) -> None:
        self.txn.put(key, data, db=self.databases[database])

    def delete(self, database: str, key: bytes) -> bool:
        return self.txn.delete(key, db=self.databases[database])

    def scan(self, database: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The records whose keys begin so, in order; nothing may be written meanwhile."""
        return scan_prefix(self.txn, self.databases[database], prefix)

    def delete_prefix(self, database: str, prefix: bytes, limit: int) -> int:
        """Delete at most so many records whose keys begin so; return how many."""
        deleted = 0
        cursor = self.txn.cursor(self.databases[database])
        found = cursor.set_range(prefix)
        while found and deleted < limit and cursor.key().startswith(prefix):
            found = cursor.delete()
            deleted += 1
        return deleted

    def write_feeds(self) -> None:
        """Write the feeds back, with their sums and digests; called once, at the end."""
        for database, states in (("feeds", self._feeds), ("aside", self._aside)):
            for key, state in states.items():
                kept = self._sums.get(state.prefix)
                if kept is not None:
                    state.digest = kept.digest(state.count)
                self.put(database, key, state.pack())
        for prefix, kept in self._sums.items():
            self.put("meta", META_SUM + prefix, kept.pack())


def write(environment: Environment, change: Callable[[WriteTransaction], Result]) -> Result:
    """Commit a change and return its result; it is called again if the map had to grow for it."""
    while True:
        try:
            with environment.write() as txn:
                transaction = WriteTransaction(txn, environment.databases)
                result = change(transaction)
                transaction.write_feeds()
            return result
        except MapFull:
            environment.grow()
