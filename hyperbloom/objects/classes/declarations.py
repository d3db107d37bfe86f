"""Types by declaration: what a node knows of a Java class without having one of its own.

A declaration is written as in Java, `Person(String name, int age)`: the simple name of the class,
and its properties in the order in which `Objects.hash(…)` takes them. By it the node computes the
hash of an object that comes without one, and knows what the class can be told: the JVM
implementation sets a field to what MessagePack gives it, and where Java has no such assignment its
connection ends.

What of a field gets through was recorded from it; docs/objects.md has the table.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from hyperbloom.objects.classes.hashes import (
    double_hash_code,
    fields_hash_code,
    float32_hash_code,
    int_hash_code,
    long_hash_code,
    value_hash_code,
)

__all__ = [
    "MAX_FIELD_NAME_BYTES",
    "MAX_OBJECT_FIELDS",
    "Declaration",
    "JavaType",
    "java_type",
    "unreadable_field",
    "unreadable_value",
]

#: Those of `hyperbloom.store.limits`, repeated so that reading a configuration does not load the
#: store; a test compares the two.
MAX_FIELD_NAME_BYTES: Final = 255
MAX_OBJECT_FIELDS: Final = 255

_LEAST_INT, _MOST_INT = -(1 << 31), (1 << 31) - 1
_FALSE: Final = 1237


class JavaType(Enum):
    """The types of fields, by their names in Java."""

    INT = "int"
    LONG = "long"
    BOXED_LONG = "Long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "String"
    BOOLEAN = "boolean"
    BYTE = "byte"
    SHORT = "short"
    LIST = "list"
    MAP = "map"


_NAMES: Final[Mapping[str, JavaType]] = {kind.value.lower(): kind for kind in JavaType} | {
    "long": JavaType.LONG
}
_SHOWN: Final = ", ".join(kind.value for kind in JavaType)
#: What Python has for a value of each.
_VALUES: Final[Mapping[JavaType, tuple[type, ...]]] = {
    JavaType.INT: (int,),
    JavaType.LONG: (int,),
    JavaType.BOXED_LONG: (int, type(None)),
    JavaType.FLOAT: (int, float),
    JavaType.DOUBLE: (int, float),
    JavaType.STRING: (str, type(None)),
    JavaType.BOOLEAN: (bool,),
    JavaType.BYTE: (int,),
    JavaType.SHORT: (int,),
    JavaType.LIST: (list, tuple, type(None)),
    JavaType.MAP: (dict, type(None)),
}
_CODES: Final[Mapping[JavaType, Callable[[Any], int]]] = {
    JavaType.INT: int_hash_code,
    JavaType.LONG: long_hash_code,
    JavaType.BOXED_LONG: long_hash_code,
    JavaType.FLOAT: float32_hash_code,
    JavaType.DOUBLE: double_hash_code,
}
_NEVER_SET: Final = frozenset({JavaType.BYTE, JavaType.SHORT})

_TEXT: Final = re.compile(r"\s*([^\s(),]+)\s*\(([^()]*)\)\s*")


def _check_name(name: object, what: str) -> None:
    is_word = type(name) is str and name.replace("$", "_").isidentifier()
    if not is_word or len(str(name).encode()) > MAX_FIELD_NAME_BYTES:
        raise ValueError(
            f"{name!r} is no name of a {what}: that is a word of letters and digits as Java has "
            f"it, of at most {MAX_FIELD_NAME_BYTES} bytes"
        )


@dataclass(frozen=True, slots=True)
class Declaration:
    """A type: its simple name, and its fields with their types, in declared order.

    ValueError for a name or a number of fields that no object may have.
    """

    name: str
    fields: tuple[tuple[str, JavaType], ...]

    def __post_init__(self) -> None:
        _check_name(self.name, "type")
        if not 0 < len(self.fields) <= MAX_OBJECT_FIELDS:
            raise ValueError(f"a type has 1 to {MAX_OBJECT_FIELDS} fields")
        for name, _ in self.fields:
            _check_name(name, "field")
        if len(dict(self.fields)) < len(self.fields):
            raise ValueError(f"{self.name} has a field twice")

    @classmethod
    def parse(cls, text: str) -> Declaration:
        """The declaration that a text is, as `Person(String name, int age)`; ValueError."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(
                f"{text!r} is no declaration; write it as Person(String name, int age)"
            )
        fields = []
        for field in found[2].split(","):
            words = field.split()
            if len(words) != 2:
                raise ValueError(
                    f"{field.strip()!r} is no field of {found[1]}; write a type and a name: int age"
                )
            fields.append((words[1], java_type(words[0])))
        return cls(found[1], tuple(fields))

    @classmethod
    def from_pairs(cls, name: str, pairs: Mapping[str, str]) -> Declaration:
        """The declaration of fields and the names of their types, in their order; ValueError."""
        return cls(name, tuple((field, java_type(kind)) for field, kind in pairs.items()))

    def pairs(self) -> dict[str, str]:
        """The fields and the names of their types, in their order."""
        return {name: kind.value for name, kind in self.fields}

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{kind.value} {name}' for name, kind in self.fields)})"

    def hash_code(self, fields: Mapping[str, Any]) -> int:
        """What `Objects.hash` gives in Java for an object with these fields; signed 32 bits.

        A field that is missing is as Java begins with it.
        """
        return fields_hash_code(_code(kind, fields.get(name)) for name, kind in self.fields)

    def unreadable(self, fields: Mapping[str, Any]) -> str | None:
        """Why the JVM cannot be told these fields, or some of them; None: it can."""
        for name, kind in self.fields:
            if name in fields and (why := unreadable_field(kind, fields[name])) is not None:
                return f"the field {name}: {why}"
        for name in fields.keys() - dict(self.fields).keys():
            if (why := unreadable_value(fields[name])) is not None:
                return f"the field {name}: {why}"
        return None


def java_type(name: str) -> JavaType:
    """The type of this name, `String` and `string` alike; ValueError with the names there are."""
    exact = {kind.value: kind for kind in JavaType}
    found = exact.get(name) or _NAMES.get(name.partition("<")[0].lower())
    if found is None:
        raise ValueError(f"{name!r} is no type of a field; there are {_SHOWN}")
    return found


def _code(kind: JavaType, value: Any) -> int:
    if value is None:
        return _FALSE if kind is JavaType.BOOLEAN else 0
    fits = type(value) in _VALUES[kind]
    code: int = (_CODES.get(kind, value_hash_code) if fits else value_hash_code)(value)
    return code


def unreadable_field(kind: JavaType | None, value: Any) -> str | None:
    """Why the JVM cannot be told the value of a field of this type; None: nothing is known."""
    if kind is None:
        return unreadable_value(value)
    if type(value) not in _VALUES[kind]:
        return f"it is no {kind.value}"
    if kind in _NEVER_SET:
        return f"Java cannot be told a {kind.value}"
    if kind is JavaType.BOXED_LONG and value is not None:
        return "Java cannot be told a Long other than null"
    if kind is JavaType.FLOAT and type(value) is float:
        return None
    return unreadable_value(value)


def unreadable_value(value: Any, *, inner: bool = False) -> str | None:
    """Why the JVM cannot be told a value, whatever its field is; None: it can.

    `inner`: it stands in a list or map.
    """
    match value:
        case bool() | None | str():
            return None
        case int():
            fits = _LEAST_INT <= value <= _MOST_INT
            return None if fits else f"{value} is beyond 32 bits"
        case float():
            if inner:
                return "a float in a list or map has another hash there"
            return None if _is_narrow(value) else f"32 bits do not hold the number {value!r}"
        case list() | tuple():
            inside = iter(value)
        case dict():
            inside = iter([*value.keys(), *value.values()])
        case _:
            return "it holds a byte string"
    return next(filter(None, (unreadable_value(item, inner=True) for item in inside)), None)


def _is_narrow(number: float) -> bool:
    if not math.isfinite(number):
        return True
    try:
        return bool(struct.unpack(">f", struct.pack(">f", number))[0] == number)
    except OverflowError:
        return False
