"""Stores to take snapshots of, and values to put into them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import lmdb

from hyperbloom.store import AppendValues, PutFeed, PutMeta, Store, WriterInline
from hyperbloom.store.lmdb.layout import U32, U64, FeedState

NODE = b"\xaa" * 32
FEED = b"f" * 32
OTHER_FEED = b"g" * 32
ORIGINS = (b"p" * 32, b"\xff" * 32)
MONDAY = 1_794_787_200_000_000
"""2026-11-16 00:00 UTC in µs."""
HOUR = 3_600_000_000
DAY = 24 * HOUR
ODD_VALUES = (b"a", b"\x00", b"\xff\xfe\x80", b"x" * 200 * 1024, b"y" * 498, b"y" * 499, b"y" * 500)


class SourceNode:
    """A store that snapshots are taken of."""

    def __init__(self, folder: Path, key: bytes = NODE) -> None:
        self.folder = folder
        self.now = MONDAY
        self.store = Store.open(folder / "store", durable=False, clock=lambda: self.now / 1_000_000)
        self._writer = WriterInline(self.store)
        self.do(PutMeta("node_id", key))

    def do(self, operation: Any) -> Any:
        results: list[Any] = []
        self._writer.submit(operation, results.append)
        (result,) = results
        if isinstance(result, BaseException):
            raise result
        return result

    def append(
        self,
        values: Sequence[bytes],
        *,
        feed: bytes = FEED,
        origin: bytes = ORIGINS[0],
        at: int = MONDAY,
    ) -> None:
        if self.store.feed(feed) is None:
            self.do(PutFeed(feed, {"alias": "news"}))
        self.do(AppendValues(feed, list(values), origin, at))

    def snapshot(self, name: str = "snapshot") -> Path:
        self.now += HOUR
        self.store.snapshot(self.folder / name)
        return self.folder / name

    def close(self) -> None:
        self.store.close()


def spoil(snapshot: Path, *, outside: Callable[[bytes, int], bool]) -> int:
    """Make every record of the log whose (feed, seq) is ``outside`` one that cannot be read.

    What is then read without an error has not touched them. How many there are.
    """
    with (
        closing(lmdb.open(str(snapshot), max_dbs=16)) as environment,
        environment.begin(write=True) as txn,
    ):
        feeds = {
            FeedState.unpack(data).feed_id: key
            for key, data in txn.cursor(environment.open_db(b"feeds", txn))
        }
        log = environment.open_db(b"log", txn)
        found = [
            key
            for key, _ in txn.cursor(log)
            if outside(feeds[U32.unpack_from(key)[0]], U64.unpack_from(key, U32.size)[0])
        ]
        for key in found:
            txn.put(key, b"\xc1", db=log)
    return len(found)


def random_values(count: int, seed: int = 1, longest: int = 200) -> list[bytes]:
    """Different values of any bytes, the same ones in every run."""
    numbers = random.Random(seed)
    found: dict[bytes, None] = {}
    while len(found) < count:
        found[numbers.randbytes(numbers.randint(3, longest))] = None
    return list(found)
