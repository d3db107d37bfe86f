"""The `objects` database inside one write transaction: versions put, ended and found again.

Whatever somebody can make long is cut: a table knows how much it has read and written (`work`), and
past versions are followed so far only (`ChainTooLong`). Whoever has it do something asks it before
whether there is room on the disk (`has_room`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import lmdb

from hyperbloom.keys import keyed_hash
from hyperbloom.store.errors import StoreError
from hyperbloom.store.limits import (
    FORGET_PAST_STEP,
    MAX_PAST_BYTES,
    MAX_PAST_OBJECTS,
    OBJECT_COST_BYTES,
    OBJECT_DISK_BYTES,
    OBJECT_PEER_DISK_BYTES,
    OBJECT_STEP_BYTES,
    OWN_PART,
    PAST_PART,
)
from hyperbloom.store.lmdb.layout import U64
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.objects.records import (
    BROUGHT,
    COUNTS_KEY,
    HASH_BYTES,
    LIVE,
    MAX_ANCESTORS,
    OWNER_BYTES,
    PAST,
    PAST_BY_AGE,
    ObjectCounts,
    ObjectRecord,
    PastVersion,
    age_key,
    credible_stamp,
    disk_bytes,
    hash_bytes,
    hash_number,
    pack_live,
    pack_past,
    past_disk_bytes,
    unpack_live,
    unpack_past,
)

__all__ = [
    "DEFAULT_BOUNDS",
    "POOL_DIGEST_MODULUS",
    "ChainTooLong",
    "DiskBounds",
    "ObjectTable",
    "count_disk",
    "object_digest",
    "owner_of",
]

_OBJECTS: Final = "objects"
#: Of a step past versions are followed for this part: each is written back, too.
_CHAIN_PART: Final = 4
POOL_DIGEST_MODULUS: Final = 1 << 256


def object_digest(number: int) -> int:
    """What an object adds to the pool's digest."""
    return int.from_bytes(keyed_hash(hash_bytes(number)), "big")


@dataclass(frozen=True, slots=True)
class DiskBounds:
    """What the pool may take on disk, in bytes, and what of it one origin may have brought.

    Past versions have a PAST_PART of it. Of the rest an OWN_PART is kept for this node itself.
    """

    disk_bytes: int = OBJECT_DISK_BYTES
    peer_disk_bytes: int = OBJECT_PEER_DISK_BYTES

    @property
    def past(self) -> int:
        return self.disk_bytes // PAST_PART

    def live(self, owner: bytes) -> int:
        """What objects may take, once one more of this owner has come."""
        room = self.disk_bytes - self.past
        return room - room // OWN_PART if owner else room


DEFAULT_BOUNDS: Final = DiskBounds()


def owner_of(origin: bytes) -> bytes:
    """What a version keeps of the one who brought it; nothing of this node itself (no origin)."""
    return keyed_hash(origin)[:OWNER_BYTES] if origin else b""


def count_disk(transaction: WriteTransaction) -> None:
    """Add up what the versions of a pool of an older schema take on disk."""
    counts = ObjectCounts.unpack(transaction.get(_OBJECTS, COUNTS_KEY))
    if not counts.count and not counts.past:
        return
    counts.disk = sum(disk_bytes(len(data)) for _, data in transaction.scan(_OBJECTS, LIVE))
    past = transaction.scan(_OBJECTS, PAST)
    counts.past_disk = sum(past_disk_bytes(len(data)) for _, data in past)
    transaction.put(_OBJECTS, COUNTS_KEY, counts.pack())


class ChainTooLong(StoreError):
    """Past versions lead further than one transaction follows them; the next one goes on there."""


class ObjectTable:
    """The versions of all objects; `at` (µs) is the time of what is done, for `owner`.

    work: bytes read and written until now, with a cost for each record.
    """

    def __init__(
        self, transaction: WriteTransaction, at: int, *, owner: bytes, bounds: DiskBounds
    ) -> None:
        self._transaction = transaction
        self.at = at
        self.owner = owner
        self.work = 0
        self._bounds = bounds
        self.counts = ObjectCounts.unpack(transaction.get(_OBJECTS, COUNTS_KEY))
        #: What origins have in the pool, as far as this transaction looked.
        self._brought: dict[bytes, int] = {}

    def live(self, number: int) -> ObjectRecord | None:
        """The object in the pool with this hash."""
        data = self._get(LIVE + hash_bytes(number))
        if data is None:
            return None
        record = unpack_live(number, data)
        stamp = credible_stamp(record.stamp, record.changed, self.at)
        ended = credible_stamp(record.ended, record.changed, self.at)
        if (stamp, ended) == (record.stamp, record.ended):
            return record
        return replace(record, stamp=stamp, ended=ended)

    def past(self, number: int) -> PastVersion | None:
        """The version with this hash that has ended."""
        data = self._get(PAST + hash_bytes(number))
        if data is None:
            return None
        past = unpack_past(data)
        ended = credible_stamp(past.ended, past.at, self.at)
        return past if ended == past.ended else replace(past, ended=ended)

    def successor(self, number: int) -> tuple[ObjectRecord | None, int, PastVersion | None]:
        """What a past version has become: the live one, its hash, and None.

        Or, when that was removed: None, the hash of the last version, and that version. None, the
        hash and None when it is forgotten. Every version passed is made to point at what is found,
        so that the chain is followed only once. ChainTooLong where it does not end: they point at
        where the next one goes on, then.
        """
        chain: list[tuple[int, PastVersion]] = []
        most = self.work + OBJECT_STEP_BYTES // _CHAIN_PART
        while (past := self.past(number)) is not None:
            chain.append((number, past))
            if past.successor is None:
                break
            number = past.successor
            if self.work > most and len(chain) > 1:
                self._shorten(chain, number)
                raise ChainTooLong
        self._shorten(chain[:-1], number)
        last = chain[-1][1] if chain else None
        if last is not None and last.successor is None:
            return None, number, last
        return self.live(number), number, None

    def _shorten(self, chain: list[tuple[int, PastVersion]], number: int) -> None:
        for earlier, version in chain:
            if version.successor != number:
                self._put_past(earlier, replace(version, successor=number))

    def has_room(self, after: ObjectRecord, before: ObjectRecord | None = None) -> bool:
        """Whether `after` may be put, in place of `before`. What does not grow always may."""
        size = disk_bytes(len(pack_live(after)))
        gone = disk_bytes(len(pack_live(before))) if before is not None else 0
        if before is not None and size <= gone:
            return True
        if self.counts.disk + size - gone > self._bounds.live(self.owner):
            return False
        if not self.owner:
            return True
        if before is not None and before.owner == self.owner:
            size -= gone
        return self._sum_of(self.owner) + size <= self._bounds.peer_disk_bytes

    def owned(self, after: ObjectRecord, before: ObjectRecord | None = None) -> ObjectRecord:
        """`after` in the part of the pool that it counts to: whoever makes an object larger brings
        all of it."""
        if before is not None and len(pack_live(after)) <= len(pack_live(before)):
            return after
        return replace(after, owner=self.owner)

    def put(self, record: ObjectRecord) -> None:
        """Let a version be in the pool; it is no past one any more."""
        self.forget_past(record.hash)
        self._count_live(record, self._put_live(record), 1)

    def restamp(self, record: ObjectRecord, stamp: int) -> ObjectRecord:
        """Give a version that is in the pool a later stamp."""
        later = replace(record, stamp=stamp)
        self._put_live(later)
        return later

    def end(self, record: ObjectRecord, stamp: int, successor: int | None) -> None:
        """Take a version out of the pool, and remember what became of it."""
        self._transaction.delete(_OBJECTS, LIVE + hash_bytes(record.hash))
        self._count_live(record, len(pack_live(record)), -1)
        self.remember(record.hash, record.packed, stamp, successor)

    def remember(self, number: int, packed: bytes, stamp: int, successor: int | None) -> None:
        """Keep a version that is not in the pool, and forget the oldest if there are too many."""
        self.forget_past(number)
        past = PastVersion(packed=packed, ended=stamp, at=self.at, successor=successor)
        self._put(age_key(self.at, number), b"")
        self._count_past(past, self._put_past(number, past), 1)

    def follow(self, number: int, past: PastVersion, successor: int | None, stamp: int) -> None:
        """Let a past version have another successor, or have ended later."""
        self._put_past(number, replace(past, successor=successor, ended=stamp))

    def forget_past(self, number: int) -> None:
        """Forget a past version, if it is one."""
        past = self.past(number)
        if past is not None:
            self._transaction.delete(_OBJECTS, PAST + hash_bytes(number))
            self._transaction.delete(_OBJECTS, age_key(past.at, number))
            self._count_past(past, len(pack_past(past)), -1)

    def close(self) -> None:
        """Forget what is too much, and write the figures back; called once, at the end."""
        most = self.work + FORGET_PAST_STEP
        while self._has_too_many_past() and self.work <= most:
            self.forget_past(self._oldest())
        for owner, size in self._brought.items():
            if size:
                self._transaction.put(_OBJECTS, BROUGHT + owner, U64.pack(size))
            else:
                self._transaction.delete(_OBJECTS, BROUGHT + owner)
        self._transaction.put(_OBJECTS, COUNTS_KEY, self.counts.pack())

    def lineage(self, before: ObjectRecord) -> tuple[int, ...]:
        """The ancestors of what follows `before`."""
        return (before.hash, *before.ancestors)[:MAX_ANCESTORS]

    def _has_too_many_past(self) -> bool:
        counts = self.counts
        return (
            counts.past > MAX_PAST_OBJECTS
            or counts.past_size > MAX_PAST_BYTES
            or counts.past_disk > self._bounds.past
        )

    def _oldest(self) -> int:
        for key, _ in self._transaction.scan(_OBJECTS, PAST_BY_AGE):
            return hash_number(key[-HASH_BYTES:])
        raise lmdb.CorruptedError("past versions are counted that are not there")

    def _get(self, key: bytes) -> bytes | None:
        data = self._transaction.get(_OBJECTS, key)
        self.work += OBJECT_COST_BYTES + (0 if data is None else len(data))
        return data

    def _put(self, key: bytes, data: bytes) -> int:
        self._transaction.put(_OBJECTS, key, data)
        self.work += OBJECT_COST_BYTES + len(data)
        return len(data)

    def _put_live(self, record: ObjectRecord) -> int:
        return self._put(LIVE + hash_bytes(record.hash), pack_live(record))

    def _put_past(self, number: int, past: PastVersion) -> int:
        return self._put(PAST + hash_bytes(number), pack_past(past))

    def _count_live(self, record: ObjectRecord, stored: int, sign: int) -> None:
        counts, size = self.counts, disk_bytes(stored)
        counts.count += sign
        counts.size += sign * len(record.packed)
        counts.disk += sign * size
        counts.digest = (counts.digest + sign * object_digest(record.hash)) % POOL_DIGEST_MODULUS
        if record.owner:
            self._brought[record.owner] = self._sum_of(record.owner) + sign * size

    def _count_past(self, past: PastVersion, stored: int, sign: int) -> None:
        self.counts.past += sign
        self.counts.past_size += sign * len(past.packed)
        self.counts.past_disk += sign * past_disk_bytes(stored)

    def _sum_of(self, owner: bytes) -> int:
        if owner not in self._brought:
            data = self._transaction.get(_OBJECTS, BROUGHT + owner)
            self._brought[owner] = 0 if data is None else U64.unpack(data)[0]
        return self._brought[owner]
