"""Peer keys that have once completed a stream protected by Noise (docs/extensions/noise.md).

Two records a key: ``k`` and the key lead to when it was met first and last; ``t``, the time it was
met last and the key lead to the branch it was met in (8 bytes, or nothing). They belong to the node
and not to a feed: who speaks it about one feed does so about all. Which key gives way for another
one is for the node to say; where it does not, the one met longest ago does.
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

__all__ = ["BRANCH_BYTES", "ForgetNoise", "RememberNoise", "noise_records", "verify_noise"]

BRANCH_BYTES: Final = 8

_KEY: Final = b"k"
_AGE: Final = b"t"
_TIMES: Final = struct.Struct(">QQ")
"""first and last met (µs)"""


def _by_age(last_met: int, key: bytes) -> bytes:
    return _AGE + U64.pack(last_met) + key


def noise_records(transaction: ReadTransaction) -> list[NoiseRecord]:
    """All of them, those met longest ago first; struct.error for a record that is none."""
    branches = dict(transaction.scan("noise", _AGE))
    return [
        NoiseRecord(
            key=key[1:],
            first_met=first,
            last_met=last,
            branch=branches.get(_by_age(last, key[1:]), b""),
        )
        for key, (first, last) in sorted(
            ((key, _TIMES.unpack(data)) for key, data in transaction.scan("noise", _KEY)),
            key=lambda item: (item[1][1], item[0]),
        )
    ]


@dataclass(frozen=True, slots=True)
class RememberNoise:
    """A protected stream with this key was made ``at`` (µs), in a branch. Result: None.

    The key ``instead`` goes. Beyond MAX_NOISE_KEYS the one that was met longest ago does.
    """

    key: bytes
    at: int
    branch: bytes = b""
    instead: bytes | None = None

    def __post_init__(self) -> None:
        check_key("key", self.key)
        check_time("at", self.at)
        if len(self.branch) not in (0, BRANCH_BYTES):
            raise ValueError(f"a branch has {BRANCH_BYTES} bytes, or none")
        if self.instead is not None:
            check_key("instead", self.instead)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> None:
        if self.instead is not None:
            _drop(transaction, self.instead)
        first, known = self.at, transaction.get("noise", _KEY + self.key)
        if known is not None:
            first, last = _TIMES.unpack(known)
            transaction.delete("noise", _by_age(last, self.key))
        transaction.put("noise", _KEY + self.key, _TIMES.pack(first, self.at))
        transaction.put("noise", _by_age(self.at, self.key), self.branch)
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
