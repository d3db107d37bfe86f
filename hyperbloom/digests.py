"""The digest of a set of values: equal for equal sets, in whatever order the values came.

Each value has an *element*, a number of 4,096 bits: BLAKE3 in its keyed mode, with ELEMENT_KEY,
read on to 512 bytes (little endian). A set's *sum* is that of its elements modulo 2^4096, so that
values can be added and taken out one by one, and sums of sets that have nothing in common add up.
The *digest*, 32 bytes, is BLAKE3 in its keyed mode, with STATE_KEY, of the count (u64, big endian)
and the sum (512 bytes, little endian). The digest of the empty set is 32 zero bytes.

The construction is AdHash (Bellare and Micciancio, "A New Paradigm for Collision-free Hashing",
EUROCRYPT 1997). Whoever wants two sets with one sum has a generalised birthday problem to solve;
the best way known is Wagner's k-tree ("A Generalized Birthday Problem", CRYPTO 2002), with some
2^(2·sqrt(m)) steps for a modulus of m bits: 2^128, and as many values. With the 256 bits that
schema 3 summed, it is 2^32. docs/store.md tells more, with the candidates that were measured.

A set holds a value once: whoever could put one in 2^k times would need a modulus k bits longer.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from blake3 import blake3

from hyperbloom.keys import HASH_BYTES, HASH_KEY

__all__ = [
    "DIGEST_BYTES",
    "ELEMENT_BYTES",
    "ELEMENT_KEY",
    "EMPTY_DIGEST",
    "ID_BYTES",
    "STATE_KEY",
    "SUM_BATCH",
    "SUM_MODULUS",
    "element_sum",
    "set_digest",
    "sum_of_schema_3",
    "value_ids",
]

ELEMENT_KEY: Final = b"hyperbloom set digest 1: element"
STATE_KEY: Final = b"hyperbloom set digest 1: the set"
"""32 bytes each. Another construction would have another number in its keys."""

ELEMENT_BYTES: Final = 512
SUM_MODULUS: Final = 1 << 8 * ELEMENT_BYTES
DIGEST_BYTES: Final = 32
EMPTY_DIGEST: Final = bytes(DIGEST_BYTES)

ID_BYTES: Final = 16
"""A value's *id* is what its element begins with."""

SUM_BATCH: Final = 512
"""Values whose elements are made before they are added: 256 KiB, which a core's cache holds."""

_FEW: Final = 16
"""Values up to which whole numbers are faster."""

_WORD: Final = np.dtype("<u4")


def element_sum(values: Sequence[bytes]) -> int:
    """The sum of the values' elements, modulo SUM_MODULUS.

    A value of 64 bytes takes some 0.5 µs, of which the adding up is a sixth: in batches numpy adds
    words of 32 bits into 64 bits, which is exact for up to 2^32 of them. A few values are added as
    whole numbers, for numpy takes 15 µs however few there are.
    """
    hasher = blake3(key=ELEMENT_KEY)
    # One hasher for all: to make one takes as long as to hash a short value.
    again, take, element = hasher.reset, hasher.update, hasher.digest
    total = 0
    if len(values) <= _FEW:
        for value in values:
            again()
            take(value)
            total += int.from_bytes(element(ELEMENT_BYTES), "little")
        return total % SUM_MODULUS
    for start in range(0, len(values), SUM_BATCH):
        elements = []
        for value in values[start : start + SUM_BATCH]:
            again()
            take(value)
            elements.append(element(ELEMENT_BYTES))
        words = np.frombuffer(b"".join(elements), _WORD).reshape(len(elements), -1)
        total += _number(np.add.reduce(words, axis=0, dtype=np.uint64))
    return total % SUM_MODULUS


def value_ids(values: Iterable[bytes]) -> bytes:
    """The ids of values, ID_BYTES each, one behind the other; half the time of their elements."""
    hasher = blake3(key=ELEMENT_KEY)
    ids = []
    for value in values:
        hasher.reset()
        hasher.update(value)
        ids.append(hasher.digest(ID_BYTES))
    return b"".join(ids)


def _number(columns: "np.ndarray[tuple[int], np.dtype[np.uint64]]") -> int:
    """The number whose digits to the base 2^32 are these, lowest first; they may be larger."""
    low, high = (part.astype(_WORD).tobytes() for part in (columns & 0xFFFF_FFFF, columns >> 32))
    return int.from_bytes(low, "little") + (int.from_bytes(high, "little") << 32)


def set_digest(count: int, total: int) -> bytes:
    """The digest of a set of so many values with this sum (0 <= ``total`` < SUM_MODULUS)."""
    if not count:
        return EMPTY_DIGEST
    state = count.to_bytes(8, "big") + total.to_bytes(ELEMENT_BYTES, "little")
    return blake3(state, key=STATE_KEY).digest(DIGEST_BYTES)


_keyed_hasher = hashlib.blake2b(digest_size=HASH_BYTES, key=HASH_KEY)


def sum_of_schema_3(values: Sequence[bytes]) -> int:
    """What stores up to schema 3 kept: the sum of keyed_hash(value), to be taken modulo 2^256.

    For looking at snapshots that older versions took. It shows damage, and no intent.
    """
    total = 0
    new, number = _keyed_hasher.copy, int.from_bytes
    for value in values:
        hasher = new()
        hasher.update(value)
        total += number(hasher.digest(), "big")
    return total
