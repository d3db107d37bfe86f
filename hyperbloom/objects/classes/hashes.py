"""Hashes by which the objects of a pool are known, and Java's hashCode below them.

A hash has 8 bytes (docs/protocol.md#hashing-algorithm): the first, the middle and the last letter
of the type's name (the low byte of each), the number of fields (low byte), and the four bytes of
hashCode, lowest first, as the text's reference code shifts them. It is written as a signed integer
of 64 bits.

hashCode is the type's own. The default is what `Objects.hash(field, …)` gives in Java over the
fields in declared order: 31-polynomial over the values' own hashCodes, which follow the Java
Language Specification's libraries (String, Integer, Long, Boolean, Double, Float, List, Map, and
`Arrays.hashCode` for byte strings).

The deployed JVM adds the bytes as *signed* ones, which differs from the text's code whenever one is
above 127: a negative byte borrows from those before it. `HashRule.JVM` is for pools shared with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final

from hyperbloom.objects.wire.errors import LocalProtocolError

__all__ = [
    "HashRule",
    "as_signed",
    "double_hash_code",
    "fields_hash_code",
    "float32_hash_code",
    "int_hash_code",
    "long_hash_code",
    "object_hash",
    "record_hash",
    "value_hash_code",
]

_INT_BITS: Final = 0xFFFFFFFF
_NAN_BITS: Final = 0x7FF8000000000000
_FLOAT_NAN_BITS: Final = 0x7FC00000


class HashRule(Enum):
    """How the bytes of a hash are put together."""

    TEXT = "text"
    JVM = "jvm"


def as_signed(number: int, bits: int = 32) -> int:
    """The low bits of a number as two's complement."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _string(text: str) -> int:
    """java.lang.String: over UTF-16 code units."""
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        code = (31 * code + unit) & _INT_BITS
    return code


def int_hash_code(number: int) -> int:
    """java.lang.Integer: the number itself; signed."""
    return as_signed(number)


def long_hash_code(number: int) -> int:
    """java.lang.Long: the upper half exclusive-or the lower; signed."""
    return as_signed(number ^ (number >> 32))


def _integer(number: int) -> int:
    """An Integer where it fits one, else a Long, of which the low 64 bits count."""
    return number if -(1 << 31) <= number < 1 << 31 else long_hash_code(number)


def _double(number: float) -> int:
    """java.lang.Double: doubleToLongBits, as a Long."""
    bits = _NAN_BITS if number != number else struct.unpack(">Q", struct.pack(">d", number))[0]
    return long_hash_code(bits)


def double_hash_code(number: float) -> int:
    """java.lang.Double, of an int as well, which Java makes a Double of; signed."""
    return as_signed(_double(float(number)))


def float32_hash_code(number: float) -> int:
    """java.lang.Float: floatToIntBits of the number narrowed to 32 bits; signed."""
    if number != number:
        return _FLOAT_NAN_BITS
    try:
        bits = struct.unpack(">I", struct.pack(">f", number))[0]
    except OverflowError:
        # Narrowing in Java gives an infinity.
        bits = 0x7F800000 if number > 0 else 0xFF800000
    return as_signed(bits)


def _boolean(value: bool) -> int:
    return 1231 if value else 1237


def _polynomial(codes: Iterable[int]) -> int:
    code = 1
    for item in codes:
        code = (31 * code + item) & _INT_BITS
    return code


def _list(values: Iterable[Any]) -> int:
    return _polynomial(map(value_hash_code, values))


def _map(values: Mapping[Any, Any]) -> int:
    """java.util.Map: the sum of its entries, whatever their order."""
    return sum(value_hash_code(key) ^ value_hash_code(value) for key, value in values.items())


def _bytes(data: bytes) -> int:
    """java.util.Arrays.hashCode(byte[]): signed bytes."""
    return _polynomial(as_signed(byte, 8) for byte in data)


_CODES: Final[Mapping[type, Callable[[Any], int]]] = {
    str: _string,
    bool: _boolean,
    int: _integer,
    float: _double,
    list: _list,
    tuple: _list,
    dict: _map,
    bytes: _bytes,
    type(None): lambda _: 0,
}


def value_hash_code(value: object) -> int:
    """Java's hashCode of a value, signed 32 bits; LocalProtocolError if it has none there.

    An int counts as an Integer where it fits 32 bits, else as a Long; a float as a Double.
    """
    code = _CODES.get(type(value))
    if code is None:
        raise LocalProtocolError(f"there is no hashCode for a {type(value).__name__}")
    return as_signed(code(value))


def fields_hash_code(codes: Iterable[int]) -> int:
    """`Objects.hash` of fields with these hashCodes, in declared order; signed 32 bits."""
    return as_signed(_polynomial(codes))


def object_hash(name: str, field_count: int, hash_code: int, rule: HashRule = HashRule.TEXT) -> int:
    """The 8-byte hash of an object as a signed 64-bit integer.

    `name` is its class's simple name (of one letter or more), `hash_code` signed 32 bits.
    """
    if not name:
        raise LocalProtocolError("a type has a name")
    letters = [ord(letter) for letter in (name[0], name[len(name) // 2], name[-1])]
    return _put_together(letters, field_count, hash_code, rule)


def record_hash(fields: Mapping[str, Any]) -> int:
    """The hash of an object whose type and hash nobody told: fields in the order of their names.

    The letters of the name are zeros, which no type has. Every node comes to the same.
    """
    codes = [value_hash_code(fields[name]) for name in sorted(fields)]
    return _put_together([0, 0, 0], len(fields), fields_hash_code(codes), HashRule.TEXT)


def _put_together(letters: list[int], field_count: int, code: int, rule: HashRule) -> int:
    shifted = [code >> shift for shift in (0, 8, 16, 24)]
    number = 0
    for byte in (*letters, field_count, *shifted):
        low = byte & 0xFF
        number = (number << 8) + (as_signed(low, 8) if rule is HashRule.JVM else low)
    return as_signed(number, 64)
