"""Is the pool as it should be? Every version can be read, and the figures come to what is kept."""

import struct
from collections.abc import Callable

from hyperbloom.store.lmdb.transaction import ReadTransaction
from hyperbloom.store.objects.records import (
    COUNTS_KEY,
    HASH_BYTES,
    LIVE,
    PAST,
    PAST_BY_AGE,
    ObjectCounts,
    age_key,
    hash_number,
    pack_fields,
    unpack_live,
    unpack_past,
)
from hyperbloom.store.objects.table import POOL_DIGEST_MODULUS, object_digest

__all__ = ["verify_objects"]

_UNREADABLE = (struct.error, ValueError, UnicodeDecodeError)
_KEY_BYTES = len(LIVE) + HASH_BYTES


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
    _check_live(transaction, found, problem)
    aged = _check_past(transaction, found, problem)
    for name in ("count", "size", "past", "past_size", "digest"):
        if getattr(kept, name) != getattr(found, name):
            problem(
                f"objects: {name} is kept as {getattr(kept, name)} and comes to "
                f"{getattr(found, name)}"
            )
    if aged != sum(1 for _ in transaction.scan("objects", PAST_BY_AGE)):
        problem("objects: the order of age does not name each past version once")
    return found.count


def _check_live(
    transaction: ReadTransaction,
    found: ObjectCounts,
    problem: Callable[[str], None],
) -> None:
    for key, data in transaction.scan("objects", LIVE):
        try:
            record = unpack_live(hash_number(key[len(LIVE) :]), data)
        except _UNREADABLE:
            problem(f"objects: the object at {key.hex()} cannot be read")
            continue
        if len(key) != _KEY_BYTES:
            problem(f"objects: the key {key.hex()} is malformed")
            continue
        if transaction.get("objects", PAST + key[len(LIVE) :]) is not None:
            problem(f"objects: {record.hash} is in the pool and a past version, too")
        found.count += 1
        found.size += len(pack_fields(record.fields))
        found.digest = (found.digest + object_digest(record.hash)) % POOL_DIGEST_MODULUS


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
        except _UNREADABLE:
            problem(f"objects: the past version at {key.hex()} cannot be read")
            continue
        found.past += 1
        found.past_size += len(pack_fields(past.fields))
        number = hash_number(key[len(PAST) :])
        if transaction.get("objects", age_key(past.at, number)) is None:
            problem(f"objects: the past version {number} is missing in the order of age")
        else:
            aged += 1
    return aged
