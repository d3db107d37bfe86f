"""One write transaction as the operations see it: databases by name, feeds read once.

Operations change a FeedState; all changed ones are written back together at the end, so that many
small appends to one feed read and write its record once.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import lmdb

from hyperbloom.store.environment import Environment, MapFull
from hyperbloom.store.errors import NoSuchFeed
from hyperbloom.store.layout import (
    ASIDE_TAGS,
    LOG_HEAD_BYTES,
    META_NEXT_FEED,
    U32,
    U64,
    FeedState,
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
        """Remove a feed's record (and nothing else of it)."""
        self._feeds.pop(feed_key, None)
        self.txn.delete(feed_key, db=self.databases["feeds"])

    def next_feed_id(self) -> int:
        """An id that no feed and no set kept aside had before."""
        number = self.get("meta", META_NEXT_FEED)
        feed_id: int = 1 if number is None else U32.unpack(number)[0]
        self.put("meta", META_NEXT_FEED, U32.pack(feed_id + 1))
        return feed_id

    def find_aside(self, feed: FeedState, tag: bytes) -> FeedState | None:
        """A set kept aside for a feed (see layout.py), to be changed in place; None without one."""
        key = feed.prefix + tag
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
        """Remove the records of all sets kept aside for a feed (and nothing else of them)."""
        removed = []
        for tag in ASIDE_TAGS:
            state = self.find_aside(feed, tag)
            if state is not None:
                removed.append(state)
                del self._aside[feed.prefix + tag]
                self.delete("aside", feed.prefix + tag)
        return removed

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
        """Write the feeds back; called once, at the end."""
        for key, state in self._feeds.items():
            self.txn.put(key, state.pack(), db=self.databases["feeds"])
        for key, state in self._aside.items():
            self.txn.put(key, state.pack(), db=self.databases["aside"])


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
