"""Transactions as the store's rooms see them: databases by name, feeds by key.

A read transaction looks up what it is asked for. A write transaction reads each feed once:
operations change its FeedState, its KeptSum and its KeptSketch, and all that were used are written
back together at the end, so that many small appends to one feed read and write its records once.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import lmdb

from hyperbloom.store.errors import NoSuchFeed
from hyperbloom.store.limits import DELETE_STEP
from hyperbloom.store.lmdb.environment import Environment, MapFull
from hyperbloom.store.lmdb.kept_sketch import KEPT, SYMBOLS, KeptSketch
from hyperbloom.store.lmdb.layout import (
    ASIDE_TAGS,
    LOG_HEAD_BYTES,
    META_NEXT_FEED,
    META_SCHEMA,
    META_SUM,
    META_UNSUMMED,
    SUMMED_SCHEMA,
    U32,
    U64,
    FeedState,
    KeptSum,
)

__all__ = ["ReadTransaction", "Reader", "WriteTransaction", "read", "write"]

Result = TypeVar("Result")


class ReadTransaction:
    """The store at one moment. Raises struct.error for a record that is none."""

    def __init__(self, txn: "lmdb.Transaction[bytes]", databases: dict[str, "lmdb._Database"]):
        self.txn = txn
        self.databases = databases

    def get(self, database: str, key: bytes) -> bytes | None:
        """The record at this key, or None."""
        return self.txn.get(key, db=self.databases[database])

    def cursor(self, database: str) -> "lmdb.Cursor[bytes]":
        """A cursor over a database."""
        return self.txn.cursor(self.databases[database])

    def scan(self, database: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """The records whose keys begin so, in order; nothing may be written meanwhile."""
        if database not in self.databases:  # a snapshot of an earlier version may lack it
            return
        cursor = self.cursor(database)
        if cursor.set_range(prefix):
            for key, data in cursor:
                if not key.startswith(prefix):
                    return
                yield key, data

    def feed(self, feed_key: bytes) -> FeedState:
        """The feed's state; raises NoSuchFeed."""
        state = self.find_feed(feed_key)
        if state is None:
            raise NoSuchFeed(f"the store holds no feed {feed_key.hex()}; join it first")
        return state

    def find_feed(self, feed_key: bytes) -> FeedState | None:
        """The feed's state, or None."""
        data = self.get("feeds", feed_key)
        return None if data is None else FeedState.unpack(data)

    def find_aside(self, feed: FeedState, tag: bytes) -> FeedState | None:
        """A set kept aside for a feed (layout.py), or None."""
        return self.find_aside_at(feed.prefix + tag)

    def find_aside_at(self, key: bytes) -> FeedState | None:
        """The same by the key of its record: the feed's prefix and the tag."""
        data = self.get("aside", key)
        return None if data is None else FeedState.unpack(data)

    def sum_of(self, state: FeedState) -> KeptSum:
        """The sum of a set's values."""
        data = self.get("meta", META_SUM + state.prefix)
        return KeptSum() if data is None else KeptSum.unpack(data)

    def unsummed(self, state: FeedState) -> int:
        """How many of a set's values are not in its digest: none, or it is not known yet."""
        if not state.count:
            return 0
        if self.schema < SUMMED_SCHEMA:
            return state.count
        return 0 if any(state.digest) else self.sum_of(state).left

    def sketch_of(self, state: FeedState) -> KeptSketch:
        """What is kept of a set's sketch; nothing if that cannot be read (kept_sketch.py)."""
        if "sketches" not in self.databases:
            return KeptSketch()
        data = self.get("sketches", state.prefix + KEPT)
        try:
            return KeptSketch() if data is None else KeptSketch.unpack(data)
        except struct.error:
            return KeptSketch()

    @property
    def schema(self) -> int:
        """The version of the store's schema; 0 if it does not say so."""
        version = self.get("meta", META_SCHEMA) or b""
        return int.from_bytes(version, "big") if len(version) == U32.size else 0

    def value_at(self, prefix: bytes, seq: int) -> bytes:
        """A value from the arrival log of a set; raises lmdb.CorruptedError if it is missing."""
        data = self.get("log", prefix + U64.pack(seq))
        if data is None:
            raise lmdb.CorruptedError(f"the log lacks record {seq}")
        return data[LOG_HEAD_BYTES:]


class WriteTransaction(ReadTransaction):
    """A write transaction. The states it gives out are to be changed in place."""

    def __init__(self, txn: "lmdb.Transaction[bytes]", databases: dict[str, "lmdb._Database"]):
        super().__init__(txn, databases)
        self._feeds: dict[bytes, FeedState] = {}
        #: None: there is none; most feeds have forgotten nothing, and each operation asks.
        self._aside: dict[bytes, FeedState | None] = {}
        self._sums: dict[bytes, KeptSum] = {}
        self._sketches: dict[bytes, KeptSketch] = {}

    def find_feed(self, feed_key: bytes) -> FeedState | None:
        """The feed's state, or None."""
        state = self._feeds.get(feed_key) or super().find_feed(feed_key)
        if state is not None:
            self._feeds[feed_key] = state
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

    def find_aside_at(self, key: bytes) -> FeedState | None:
        """A set kept aside, by the key of its record: the feed's prefix and the tag."""
        if key not in self._aside:
            self._aside[key] = super().find_aside_at(key)
        return self._aside[key]

    def aside(self, feed: FeedState, tag: bytes) -> FeedState:
        """A set kept aside for a feed; an empty one is made if there is none."""
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
                self._aside[feed.prefix + tag] = None
                self.delete("aside", feed.prefix + tag)
        return removed

    def sum_of(self, state: FeedState) -> KeptSum:
        """The sum of a set's values."""
        kept = self._sums.get(state.prefix)
        if kept is None:
            kept = self._sums[state.prefix] = super().sum_of(state)
        return kept

    def sketch_of(self, state: FeedState) -> KeptSketch:
        """What is kept of a set's sketch; it is written back at the end."""
        kept = self._sketches.get(state.prefix)
        if kept is None:
            kept = self._sketches[state.prefix] = super().sketch_of(state)
        return kept

    def remove_sketch(self, prefix: bytes) -> None:
        """Remove all that is kept of a set's sketch."""
        self._sketches.pop(prefix, None)
        while self.delete_prefix("sketches", prefix, DELETE_STEP) == DELETE_STEP:
            pass

    def _remove_sum(self, state: FeedState) -> None:
        self._sums.pop(state.prefix, None)
        self._sketches.pop(state.prefix, None)
        for name in (META_SUM, META_UNSUMMED):
            self.delete("meta", name + state.prefix)

    def put(self, database: str, key: bytes, data: bytes) -> None:
        """Put a record, in place of one that is there."""
        self.txn.put(key, data, db=self.databases[database])

    def delete(self, database: str, key: bytes) -> bool:
        """Delete a record; whether it was there."""
        return self.txn.delete(key, db=self.databases[database])

    def delete_prefix(self, database: str, prefix: bytes, limit: int) -> int:
        """Delete at most so many records whose keys begin so; return how many."""
        deleted = 0
        cursor = self.cursor(database)
        found = cursor.set_range(prefix)
        while found and deleted < limit and cursor.key().startswith(prefix):
            found = cursor.delete()
            deleted += 1
        return deleted

    def write_feeds(self) -> None:
        """Write the feeds back, with their sums, digests and sketches; called once, at the end."""
        there = [("aside", key, state) for key, state in self._aside.items() if state is not None]
        for database, key, state in [*(("feeds", *feed) for feed in self._feeds.items()), *there]:
            kept = self._sums.get(state.prefix)
            if kept is not None:
                state.digest = kept.digest(state.count)
            self.put(database, key, state.pack())
        for prefix, kept in self._sums.items():
            self.put("meta", META_SUM + prefix, kept.pack())
        for prefix, sketch in list(self._sketches.items()):
            self._write_sketch(prefix, sketch)

    def _write_sketch(self, prefix: bytes, kept: KeptSketch) -> None:
        if kept.gone:
            symbols = kept.without_gone(self.get("sketches", prefix + SYMBOLS))
            if symbols is None:
                self.remove_sketch(prefix)
                return
            self.put("sketches", prefix + SYMBOLS, symbols.tobytes())
        self.put("sketches", prefix + KEPT, kept.pack())


@contextmanager
def read(
    environment: Environment, *, long: bool = False, in_place: bool = False
) -> Iterator[ReadTransaction]:
    """A read transaction, to be left within milliseconds unless it is ``long`` (Environment.read).

    With ``in_place`` records are views of the map, which end with the transaction. Raises as
    `Environment.read` does.
    """
    with environment.read(long=long, in_place=in_place) as txn:
        yield ReadTransaction(txn, environment.databases)


class Reader:
    """Reads of one subject, from any thread, each in one short transaction.

    Every method may raise StoreClosed, StoreCorrupt or StoreError; those that name a feed raise
    NoSuchFeed if the store does not hold it.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment


def write(environment: Environment, change: Callable[[WriteTransaction], Result]) -> Result:
    """Commit a change and return its result; it is called again if the map had to grow for it.

    Raises as `Environment.write` does, except MapFull, and whatever the change raises.
    """
    while True:
        try:
            with environment.write() as txn:
                transaction = WriteTransaction(txn, environment.databases)
                result = change(transaction)
                transaction.write_feeds()
            return result
        except MapFull:
            environment.grow()
