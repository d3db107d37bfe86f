"""Plain annotated classes as types of persisted objects, and which type an object fits.

    @persisted
    class Person:
        name: str
        age: int = 0

`persisted` makes the class a dataclass (unless it has an `__init__` of its own) and lets a pool
that holds an instance learn of every attribute that is set. Fields are the annotated ones, in
their order. A class may define `hash_code(self) -> int`, the hashCode of PPPP 2; without it,
Java's `Objects.hash` over the fields is computed, where `int` counts as an Integer if it fits 32
bits (`Int64`: always a Long) and `float` as a Double (`Float32`: a Float).

The type is not on the wire. An object that arrives is of the type whose fields fit it best; with no
such type, or two that fit alike, it is a plain record, and nothing of it is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Annotated, Any, Final, Protocol, TypeVar, get_args, get_origin, get_type_hints

from hyperbloom.objects.errors import ObjectError
from hyperbloom.objects.hashes import (
    HashRule,
    as_signed,
    fields_hash_code,
    float32_hash_code,
    long_hash_code,
    object_hash,
    record_hash,
    value_hash_code,
)

__all__ = ["Binding", "Float32", "Int64", "ObjectType", "Types", "bind", "binding_of", "persisted"]

T = TypeVar("T")

_TYPE: Final = "__persisted_type__"
_BINDING: Final = "_persisted_binding"
_LEAST_FIT: Final = 0.5
"""Fields in common over fields in either: below it a type does not fit."""


class _JavaKind(Enum):
    LONG = "Long"
    FLOAT = "Float"


Int64 = Annotated[int, _JavaKind.LONG]
"""An int that is a Long in Java, however small."""
Float32 = Annotated[float, _JavaKind.FLOAT]
"""A float that is a Float in Java."""

_CODES: Final[Mapping[_JavaKind, Callable[[Any], int]]] = {
    _JavaKind.LONG: long_hash_code,
    _JavaKind.FLOAT: float32_hash_code,
}


class Binding(Protocol):
    """What a pool leaves in the instances it holds."""

    def set_field(self, instance: Any, name: str, value: Any) -> None:
        """An attribute of a persisted instance is being set."""


class ObjectType:
    """A registered class: its name, its fields in declared order, and its hashes."""

    def __init__(self, cls: type, name: str, hints: Mapping[str, Any]) -> None:
        self.cls: Any = cls
        self.name = name
        self.fields = tuple(hints)
        self._codes = {field: _code_of(hint) for field, hint in hints.items()}
        self._own_code: Callable[[Any], int] | None = getattr(cls, "hash_code", None)

    def fields_of(self, instance: Any) -> dict[str, Any]:
        """The fields of an instance."""
        return {name: getattr(instance, name) for name in self.fields}

    def make(self, fields: Mapping[str, Any]) -> Any:
        """An instance with these fields; those missing are the class's default or None."""
        instance = self.cls.__new__(self.cls)
        for name in self.fields:
            value = fields[name] if name in fields else getattr(self.cls, name, None)
            instance.__dict__[name] = value
        return instance

    def hash_of(self, fields: Mapping[str, Any], rule: HashRule) -> int:
        """The hash of an object with these fields; LocalProtocolError if a value has none."""
        return object_hash(self.name, len(self.fields), self._hash_code(fields), rule)

    def _hash_code(self, fields: Mapping[str, Any]) -> int:
        if self._own_code is not None:
            return as_signed(self._own_code(self.make(fields)))
        return fields_hash_code(self._code(name, fields.get(name)) for name in self.fields)

    def _code(self, name: str, value: Any) -> int:
        return 0 if value is None else self._codes[name](value)


def _code_of(hint: Any) -> Callable[[Any], int]:
    if get_origin(hint) is Annotated:
        for mark in get_args(hint)[1:]:
            if isinstance(mark, _JavaKind):
                return _CODES[mark]
    return _double_code if hint is float else value_hash_code


def _double_code(value: Any) -> int:
    """A field declared as a float is a Double in Java, also where an int was put into it."""
    return value_hash_code(float(value) if type(value) is int else value)


def persisted(cls: type[T] | None = None, /, *, name: str | None = None) -> Any:
    """Make a class a persisted type; see the module's text. `name` is its simple name in Java.

    TypeError for a class without annotated fields, or with `__slots__`.
    """
    if cls is None:
        return lambda decorated: persisted(decorated, name=name)
    if not any("__dict__" in base.__dict__ for base in cls.__mro__):
        raise TypeError("a persisted class keeps its fields in __dict__; it has no __slots__")
    made: Any = dataclasses.dataclass(eq=False)(cls)
    hints = get_type_hints(made, include_extras=True)
    names = [field.name for field in dataclasses.fields(made)]
    if not names:
        raise TypeError("a persisted class has annotated fields")
    setattr(made, _TYPE, ObjectType(made, name or cls.__name__, {n: hints[n] for n in names}))
    made.__setattr__ = _set_attribute
    return made


def _set_attribute(instance: Any, name: str, value: Any) -> None:
    binding: Binding | None = instance.__dict__.get(_BINDING)
    if binding is None or name not in getattr(type(instance), _TYPE).fields:
        object.__setattr__(instance, name, value)
    else:
        binding.set_field(instance, name, value)


def binding_of(instance: Any) -> Any:
    """What a pool left in an instance, or None."""
    return instance.__dict__.get(_BINDING)


def bind(instance: Any, binding: Binding | None) -> None:
    """Leave a pool's binding in an instance, or take it away."""
    if binding is None:
        instance.__dict__.pop(_BINDING, None)
    else:
        instance.__dict__[_BINDING] = binding


class Types:
    """The types that a pool knows, and the hashes of objects by them."""

    def __init__(self, classes: Iterable[type] = (), *, rule: HashRule = HashRule.TEXT) -> None:
        self.rule = rule
        self._by_name: dict[str, ObjectType] = {}
        for cls in classes:
            self.register(cls)

    def register(self, cls: type) -> ObjectType:
        """Know a persisted class; TypeError if it is none, ObjectError if its name is taken."""
        found: ObjectType | None = cls.__dict__.get(_TYPE)
        if found is None:
            raise TypeError(f"{cls.__name__} is not persisted; decorate it with @persisted")
        known = self._by_name.setdefault(found.name, found)
        if known is not found:
            raise ObjectError(f"another class is known as {found.name}")
        return found

    def named(self, name: str | None) -> ObjectType | None:
        """The type of this name, if it is known."""
        return None if name is None else self._by_name.get(name)

    def fit(self, fields: Mapping[str, Any]) -> ObjectType | None:
        """The type that an object with these fields is most likely of; None: none, or a tie."""
        names = fields.keys()
        best: list[ObjectType] = []
        most = _LEAST_FIT
        for kind in self._by_name.values():
            own = set(kind.fields)
            fit = len(own & names) / len(own | names)
            if fit > most or (fit == most and not best):
                best, most = [kind], fit
            elif fit == most:
                best.append(kind)
        return best[0] if len(best) == 1 else None

    def type_of(self, type_name: str | None, fields: Mapping[str, Any]) -> ObjectType | None:
        """The type of a stored object: the one it was stored as, or the one that it fits."""
        return self.fit(fields) if type_name is None else self.named(type_name)

    def hash_of(self, type_name: str | None, fields: Mapping[str, Any]) -> int:
        """The hash of a new object; LocalProtocolError if a value has none.

        With a name that no class has, the fields' order is the declared one; without a name it is
        the hash of a record.
        """
        kind = self.type_of(type_name, fields)
        if kind is not None:
            return kind.hash_of(fields, self.rule)
        if type_name is None:
            return record_hash(fields)
        return object_hash(type_name, len(fields), self._plain_code(fields.values()), self.rule)

    def changed_hash(self, number: int, type_name: str | None, fields: Mapping[str, Any]) -> int:
        """The hash of the object `number` once it has these fields.

        Of an object whose type nobody knows here, the letters of the name and the number of fields
        stay, and hashCode is taken over the fields in the order of their names.
        """
        kind = self.type_of(type_name, fields)
        if kind is not None or type_name is not None or not number >> 40:
            return self.hash_of(type_name, fields)
        code = self._plain_code(fields[name] for name in sorted(fields))
        low = int.from_bytes(as_signed(code).to_bytes(4, "little", signed=True), "big")
        return as_signed((number & ~0xFFFFFFFF) | low, 64)

    @staticmethod
    def _plain_code(values: Iterable[Any]) -> int:
        return fields_hash_code(map(value_hash_code, values))
