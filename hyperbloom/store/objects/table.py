"""The `objects` database inside one write transaction: versions put, ended and found again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import lmdb

from hyperbloom.keys import keyed_hash
from hyperbloom.store.limits import MAX_PAST_BYTES, MAX_PAST_OBJECTS
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.objects.records import (
    COUNTS_KEY,
    HASH_BYTES,
    LIVE,
    MAX_ANCESTORS,
    PAST,
    PAST_BY_AGE,
    ObjectCounts,
    ObjectRecord,
    PastVersion,
    age_key,
    hash_bytes,
    hash_number,
    pack_fields,
    pack_live,
    pack_past,
    unpack_live,
    unpack_past,
)

__all__ = ["POOL_DIGEST_MODULUS", "ObjectTable", "object_digest"]

_OBJECTS: Final = "objects"
POOL_DIGEST_MODULUS: Final = 1 << 256


def object_digest(number: int) -> int:
    """What an object adds to the pool's digest."""
    return int.from_bytes(keyed_hash(hash_bytes(number)), "big")


class ObjectTable:
    """The versions of all objects; `at` (µs) is the time of what is done."""

    def __init__(self, transaction: WriteTransaction, at: int) -> None:
        self._transaction = transaction
        self.at = at
        self.counts = ObjectCounts.unpack(transaction.get(_OBJECTS, COUNTS_KEY))

    def live(self, number: int) -> ObjectRecord | None:
        """The object in the pool with this hash."""
        data = self._transaction.get(_OBJECTS, LIVE + hash_bytes(number))
        return None if data is None else unpack_live(number, data)

    def past(self, number: int) -> PastVersion | None:
        """The version with this hash that has ended."""
        data = self._transaction.get(_OBJECTS, PAST + hash_bytes(number))
        return None if data is None else unpack_past(data)

    def successor(self, number: int) -> tuple[ObjectRecord | None, int, PastVersion | None]:
        """What a past version has become: the live one, its hash, and None.

        Or, when that was removed: None, the hash of the last version, and that version. None, the
        hash and None when it is forgotten. Every version passed is made to point at what is found,
        so that the chain is followed only once.
        """
        chain: list[tuple[int, PastVersion]] = []
        while (past := self.past(number)) is not None:
            chain.append((number, past))
            if past.successor is None:
                break
            number = past.successor
        for earlier, version in chain[:-1]:
            if version.successor != number:
                self._put_past(earlier, replace(version, successor=number))
        last = chain[-1][1] if chain else None
        if last is not None and last.successor is None:
            return None, number, last
        return self.live(number), number, None

    def put(self, record: ObjectRecord) -> None:
        """Let a version be in the pool; it is no past one any more."""
        self.forget_past(record.hash)
        packed = pack_fields(record.fields)
        self._transaction.put(_OBJECTS, LIVE + hash_bytes(record.hash), pack_live(record, packed))
        self.counts.count += 1
        self.counts.size += len(packed)
        self._add_digest(object_digest(record.hash))

    def restamp(self, record: ObjectRecord, stamp: int) -> ObjectRecord:
        """Give a version that is in the pool a later stamp."""
        later = replace(record, stamp=stamp)
        packed = pack_fields(record.fields)
        self._transaction.put(_OBJECTS, LIVE + hash_bytes(record.hash), pack_live(later, packed))
        return later

    def end(self, record: ObjectRecord, stamp: int, successor: int | None) -> None:
        """Take a version out of the pool, and remember what became of it."""
        self._transaction.delete(_OBJECTS, LIVE + hash_bytes(record.hash))
        self.counts.count -= 1
        self.counts.size -= len(pack_fields(record.fields))
        self._add_digest(-object_digest(record.hash))
        self.remember(record.hash, record.fields, stamp, successor)

    def remember(
        self, number: int, fields: Mapping[str, Any], stamp: int, successor: int | None
    ) -> None:
        """Keep a version that is not in the pool, and forget the oldest if there are too many."""
        self.forget_past(number)
        past = PastVersion(fields=fields, ended=stamp, at=self.at, successor=successor)
        self._transaction.put(_OBJECTS, age_key(self.at, number), b"")
        self.counts.past += 1
        self.counts.past_size += self._put_past(number, past)

    def follow(self, number: int, past: PastVersion, successor: int | None, stamp: int) -> None:
        """Let a past version have another successor, or have ended later."""
        self._put_past(number, replace(past, successor=successor, ended=stamp))

    def forget_past(self, number: int) -> None:
        """Forget a past version, if it is one."""
        past = self.past(number)
        if past is not None:
            self._transaction.delete(_OBJECTS, PAST + hash_bytes(number))
            self._transaction.delete(_OBJECTS, age_key(past.at, number))
            self.counts.past -= 1
            self.counts.past_size -= len(pack_fields(past.fields))

    def close(self) -> None:
        """Forget what is too much, and write the figures back; called once, at the end."""
        counts = self.counts
        while counts.past > MAX_PAST_OBJECTS or counts.past_size > MAX_PAST_BYTES:
            self.forget_past(self._oldest())
        self._transaction.put(_OBJECTS, COUNTS_KEY, counts.pack())

    def lineage(self, before: ObjectRecord) -> tuple[int, ...]:
        """The ancestors of what follows `before`."""
        return (before.hash, *before.ancestors)[:MAX_ANCESTORS]

    def _oldest(self) -> int:
        for key, _ in self._transaction.scan(_OBJECTS, PAST_BY_AGE):
            return hash_number(key[-HASH_BYTES:])
        raise lmdb.CorruptedError("past versions are counted that are not there")

    def _put_past(self, number: int, past: PastVersion) -> int:
        packed = pack_fields(past.fields)
        self._transaction.put(_OBJECTS, PAST + hash_bytes(number), pack_past(past, packed))
        return len(packed)

    def _add_digest(self, number: int) -> None:
        self.counts.digest = (self.counts.digest + number) % POOL_DIGEST_MODULUS
