"""What is offered to the pool: objects, changes and removals, each checked when it is made.

What waits for the disk is kept packed (records.py); `size` is what it takes in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any, TypeAlias

from hyperbloom.store.limits import MAX_FIELD_NAME_BYTES, MAX_OBJECT_BYTES, MAX_OBJECT_FIELDS
from hyperbloom.store.objects.records import MAX_ANCESTORS, hash_bytes, pack_fields
from hyperbloom.store.operations import OVERHEAD_BYTES

__all__ = ["Offer", "OfferedChange", "OfferedObject", "OfferedRemoval", "later_than"]

_MAX_STAMP = (1 << 63) - 1
#: What a hash takes in memory.
_ANCESTOR_BYTES = 40


def later_than(stamp: int) -> int:
    """The next stamp; the greatest one is its own next, and then the hash alone decides."""
    return min(stamp + 1, _MAX_STAMP)


def _check_hash(number: int) -> None:
    if not isinstance(number, int):
        raise TypeError("a hash is an integer")
    try:
        hash_bytes(number)
    except OverflowError:
        raise ValueError(f"a hash has 64 bits, signed: {number}") from None


def _check_stamp(stamp: int) -> None:
    if not isinstance(stamp, int):
        raise TypeError("a stamp is a whole number of milliseconds")
    if not 0 <= stamp <= _MAX_STAMP:
        raise ValueError(f"a stamp is between 0 and 2^63 milliseconds, not {stamp}")


def _packed(fields: Mapping[str, Any]) -> bytes:
    """Fields packed; what cannot be stored is refused."""
    if not 0 < len(fields) <= MAX_OBJECT_FIELDS:
        raise ValueError(f"an object has 1 to {MAX_OBJECT_FIELDS} fields, not {len(fields)}")
    for name in fields:
        if not isinstance(name, str):
            raise TypeError("the names of fields are texts")
        if not 0 < len(name.encode()) <= MAX_FIELD_NAME_BYTES:
            raise ValueError(f"a field's name has 1 to {MAX_FIELD_NAME_BYTES} bytes")
    try:
        packed = pack_fields(fields)
    except OverflowError as error:
        raise ValueError(f"a field cannot be stored: {error}") from None
    if len(packed) > MAX_OBJECT_BYTES:
        raise ValueError(f"an object has at most {MAX_OBJECT_BYTES} bytes, not {len(packed)}")
    return packed


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedObject:
    """A version of an object, whole: CREATION, or one of INITIALIZE.

    `stamp` in ms (0: nobody told), `ancestors` the hashes it is known to have had before. A `local`
    one is made here and now: its stamp is made greater than that of an end it had before.
    """

    hash: int
    stamp: int
    fields: InitVar[Mapping[str, Any]]
    type_name: str | None = None
    ancestors: tuple[int, ...] = ()
    local: bool = False
    packed: bytes = field(init=False)
    size: int = field(init=False, repr=False)

    def __post_init__(self, fields: Mapping[str, Any]) -> None:
        _check_hash(self.hash)
        _check_stamp(self.stamp)
        if len(self.ancestors) > MAX_ANCESTORS:
            raise ValueError(f"at most {MAX_ANCESTORS} earlier hashes")
        for ancestor in self.ancestors:
            _check_hash(ancestor)
        if self.type_name is not None and not (
            0 < len(self.type_name.encode()) <= MAX_FIELD_NAME_BYTES
        ):
            raise ValueError(f"a type's name has 1 to {MAX_FIELD_NAME_BYTES} bytes")
        object.__setattr__(self, "packed", _packed(fields))
        size = len(self.packed) + OVERHEAD_BYTES + _ANCESTOR_BYTES * len(self.ancestors)
        object.__setattr__(self, "size", size)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedChange:
    """The version `old` gets these fields and becomes the version `hash`, at `stamp` (ms)."""

    old: int
    hash: int
    stamp: int
    fields: InitVar[Mapping[str, Any]]
    packed: bytes = field(init=False)
    size: int = field(init=False, repr=False)

    def __post_init__(self, fields: Mapping[str, Any]) -> None:
        _check_hash(self.old)
        _check_hash(self.hash)
        _check_stamp(self.stamp)
        object.__setattr__(self, "packed", _packed(fields))
        object.__setattr__(self, "size", len(self.packed) + OVERHEAD_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRemoval:
    """The version `hash` is removed, at `stamp` (ms)."""

    hash: int
    stamp: int
    size: int = field(default=OVERHEAD_BYTES, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_hash(self.hash)
        _check_stamp(self.stamp)


Offer: TypeAlias = OfferedObject | OfferedChange | OfferedRemoval
