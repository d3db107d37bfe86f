"""Is the pool as it should be? Every version can be read, and the figures come to what is kept."""

import struct
from collections import Counter
from collections.abc import Callable

from hyperbloom.store.lmdb.layout import BOUNDED_SCHEMA, U64
from hyperbloom.store.lmdb.transaction import ReadTransaction
from hyperbloom.store.objects.records import (
    BROUGHT,
    COUNTS_KEY,
    HASH_BYTES,
    LIVE,
    PAST,
    PAST_BY_AGE,
    ObjectCounts,
    age_key,
    disk_bytes,
    hash_number,
    past_disk_bytes,
    unpack_fields,
    unpack_live,
    unpack_past,
)
from hyperbloom.store.objects.table import POOL_DIGEST_MODULUS, object_digest

__all__ = ["verify_objects"]

_UNREADABLE = (struct.error, ValueError, UnicodeDecodeError)
_KEY_BYTES = len(LIVE) + HASH_BYTES
_FIGURES = ("count", "size", "past", "past_size", "digest")
_DISK_FIGURES = ("disk", "past_disk")


def verify_objects(
    transaction: ReadTransaction,
    problem: Callable[[str], None],
) -> int:
    """Name each problem; return the number of objects."""
    try:
        kept = ObjectCounts.unpack(transaction.get("objects", COUNTS_KEY))
    except struct.error:
        problem("objects: the figures cannot be read")
        kept = ObjectCounts()
    found = ObjectCounts()
    brought = _check_live(transaction, found, problem)
    aged = _check_past(transaction, found, problem)
    is_bounded = transaction.schema >= BOUNDED_SCHEMA
    for name in _FIGURES + _DISK_FIGURES if is_bounded else _FIGURES:
        if getattr(kept, name) != getattr(found, name):
            problem(
                f"objects: {name} is kept as {getattr(kept, name)} and comes to "
                f"{getattr(found, name)}"
            )
    rows = {key[len(BROUGHT) :]: data for key, data in transaction.scan("objects", BROUGHT)}
    if rows != {owner: U64.pack(size) for owner, size in brought.items()}:
        problem("objects: what each origin brought is not kept as it comes to")
    if aged != sum(1 for _ in transaction.scan("objects", PAST_BY_AGE)):
        problem("objects: the order of age does not name each past version once")
    return found.count


def _check_live(
    transaction: ReadTransaction,
    found: ObjectCounts,
    problem: Callable[[str], None],
) -> Counter[bytes]:
    """Count the objects; return what those of each owner take on disk."""
    brought: Counter[bytes] = Counter()
    for key, data in transaction.scan("objects", LIVE):
        try:
            record = unpack_live(hash_number(key[len(LIVE) :]), data)
            unpack_fields(record.packed)
        except _UNREADABLE:
            problem(f"objects: the object at {key.hex()} cannot be read")
            continue
        if len(key) != _KEY_BYTES:
            problem(f"objects: the key {key.hex()} is malformed")
            continue
        if transaction.get("objects", PAST + key[len(LIVE) :]) is not None:
            problem(f"objects: {record.hash} is in the pool and a past version, too")
        found.count += 1
        found.size += len(record.packed)
        found.digest = (found.digest + object_digest(record.hash)) % POOL_DIGEST_MODULUS
        found.disk += disk_bytes(len(data))
        if record.owner:
            brought[record.owner] += disk_bytes(len(data))
    return brought


def _check_past(
    transaction: ReadTransaction,
    found: ObjectCounts,
    problem: Callable[[str], None],
) -> int:
    """Count the past versions; return how many of them have their place in the order of age."""
    aged = 0
    for key, data in transaction.scan("objects", PAST):
        try:
            past = unpack_past(data)
            unpack_fields(past.packed)
        except _UNREADABLE:
            problem(f"objects: the past version at {key.hex()} cannot be read")
            continue
        found.past += 1
        found.past_size += len(past.packed)
        found.past_disk += past_disk_bytes(len(data))
        number = hash_number(key[len(PAST) :])
        if transaction.get("objects", age_key(past.at, number)) is None:
            problem(f"objects: the past version {number} is missing in the order of age")
        else:
            aged += 1
    return aged
