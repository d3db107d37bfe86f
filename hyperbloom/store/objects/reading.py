"""Reading the object pool."""

from array import array
from collections.abc import Iterable
from itertools import islice

from hyperbloom.store.lmdb.transaction import Reader, read
from hyperbloom.store.objects.records import (
    COUNTS_KEY,
    LIVE,
    ObjectCounts,
    ObjectRecord,
    hash_bytes,
    hash_number,
    unpack_live,
)
from hyperbloom.store.records import ObjectFigures

__all__ = ["ObjectReader"]


class ObjectReader(Reader):
    """Reads the objects of the pool, which are known by their hashes (64 bits, signed)."""

    def object(self, number: int) -> ObjectRecord | None:
        """The object of the pool with this hash, or None."""
        with read(self.environment) as transaction:
            data = transaction.get("objects", LIVE + hash_bytes(number))
        return None if data is None else unpack_live(number, data)

    def object_hashes(self) -> "array[int]":
        """The hashes of all objects; 8 bytes and about 0.3 µs each, so not in the event loop."""
        with read(self.environment) as transaction:
            keys = transaction.scan("objects", LIVE)
            return array("q", (hash_number(key[len(LIVE) :]) for key, _ in keys))

    def objects(self, numbers: Iterable[int]) -> list[ObjectRecord]:
        """Those of these objects that are in the pool, in the given order."""
        found: list[ObjectRecord] = []
        with read(self.environment) as transaction:
            for number in numbers:
                data = transaction.get("objects", LIVE + hash_bytes(number))
                if data is not None:
                    found.append(unpack_live(number, data))
        return found

    def objects_slice(self, after: int | None, *, limit: int) -> list[ObjectRecord]:
        """Objects in the order of their hashes' bytes, those behind ``after`` (None: all).

        Raises ValueError for a ``limit`` below 1.
        """
        if limit < 1:
            raise ValueError(f"a slice holds at least one object: limit {limit}")
        start = LIVE if after is None else LIVE + hash_bytes(after) + b"\x00"
        with read(self.environment) as transaction:
            cursor = transaction.cursor("objects")
            items = islice(cursor, limit) if cursor.set_range(start) else ()
            found = [(key, data) for key, data in items if key.startswith(LIVE)]
        return [unpack_live(hash_number(key[len(LIVE) :]), data) for key, data in found]

    def object_figures(self) -> ObjectFigures:
        """The figures of the pool."""
        with read(self.environment) as transaction:
            data = transaction.get("objects", COUNTS_KEY)
        counts = ObjectCounts.unpack(data)
        return ObjectFigures(
            count=counts.count,
            bytes=counts.size,
            digest=counts.digest.to_bytes(32, "big"),
            past=counts.past,
            disk_bytes=counts.disk + counts.past_disk,
        )
