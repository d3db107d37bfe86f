"""Peer keys that have once completed a stream protected by Noise (docs/extensions/noise.md).

Two records a key: ``k`` and the key lead to when it was met first and last; ``t``, the time it was
met last and the key lead to nothing, and have the keys in the order in which they give way. They
belong to the node and not to a feed: who speaks it about one feed does so about all.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hyperbloom.store.limits import MAX_NOISE_KEYS
from hyperbloom.store.lmdb.layout import KEY_BYTES, U64
from hyperbloom.store.lmdb.transaction import ReadTransaction, WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import NoiseRecord

__all__ = ["ForgetNoise", "RememberNoise", "noise_records", "verify_noise"]

_KEY: Final = b"k"
_AGE: Final = b"t"
_TIMES: Final = struct.Struct(">QQ")
"""first and last met (µs)"""


def _by_age(last_met: int, key: bytes) -> bytes:
    return _AGE + U64.pack(last_met) + key


def noise_records(transaction: ReadTransaction) -> list[NoiseRecord]:
    """All of them, those that give way first in front; struct.error for a record that is none."""
    return [
        NoiseRecord(key=key[1:], first_met=first, last_met=last)
        for key, (first, last) in sorted(
            ((key, _TIMES.unpack(data)) for key, data in transaction.scan("noise", _KEY)),
            key=lambda item: (item[1][1], item[0]),
        )
    ]


@dataclass(frozen=True, slots=True)
class RememberNoise:
    """A protected stream with this key was made ``at`` (µs). Result: None.

    Beyond MAX_NOISE_KEYS the key that was met longest ago goes.
    """

    key: bytes
    at: int

    def __post_init__(self) -> None:
        check_key("key", self.key)
        check_time("at", self.at)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> None:
        first, known = self.at, transaction.get("noise", _KEY + self.key)
        if known is not None:
            first, last = _TIMES.unpack(known)
            transaction.delete("noise", _by_age(last, self.key))
        transaction.put("noise", _KEY + self.key, _TIMES.pack(first, self.at))
        transaction.put("noise", _by_age(self.at, self.key), b"")
        records = transaction.txn.stat(transaction.databases["noise"])["entries"]
        if records > 2 * MAX_NOISE_KEYS:
            oldest = transaction.cursor("noise")
            oldest.set_range(_AGE)
            _drop(transaction, oldest.key()[-KEY_BYTES:])


@dataclass(frozen=True, slots=True)
class ForgetNoise:
    """Forget that a key has done so. Result: whether it was remembered."""

    key: bytes

    def __post_init__(self) -> None:
        check_key("key", self.key)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> bool:
        return _drop(transaction, self.key)


def _drop(transaction: WriteTransaction, key: bytes) -> bool:
    known = transaction.get("noise", _KEY + key)
    if known is None:
        return False
    transaction.delete("noise", _by_age(_TIMES.unpack(known)[1], key))
    return transaction.delete("noise", _KEY + key)


def verify_noise(transaction: ReadTransaction, problem: Callable[[str], None]) -> None:
    """Each key has its two records, which say the same, and there is no other."""
    ages = set()
    for key, data in transaction.scan("noise"):
        if key.startswith(_KEY) and len(key) == 1 + KEY_BYTES and len(data) == _TIMES.size:
            ages.add(_by_age(_TIMES.unpack(data)[1], key[1:]))
        elif not key.startswith(_AGE):
            problem(f"noise: the record {key.hex()} cannot be read")
    found = {key for key, _ in transaction.scan("noise", _AGE)}
    for key in sorted(ages ^ found):
        problem(f"noise: the two records of {key[-KEY_BYTES:].hex()} do not fit together")
