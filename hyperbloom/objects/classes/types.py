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

A type may be known by a declaration alone (declarations.py): its objects have its hashes, and are
records to a program that has no class for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Final,
    Protocol,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from hyperbloom.objects.classes.declarations import Declaration, JavaType, unreadable_field
from hyperbloom.objects.classes.hashes import (
    HashRule,
    as_signed,
    double_hash_code,
    fields_hash_code,
    float32_hash_code,
    long_hash_code,
    object_hash,
    record_hash,
    value_hash_code,
)
from hyperbloom.objects.limits import MAX_FITS, MAX_TYPES
from hyperbloom.objects.wire.errors import ObjectError

__all__ = [
    "Binding",
    "Float32",
    "Int64",
    "ObjectType",
    "Types",
    "bind",
    "binding_of",
    "declaration_of",
    "persisted",
    "unreadable_fields",
]

T = TypeVar("T")

_TYPE: Final = "__persisted_type__"
_BINDING: Final = "_persisted_binding"
_LEAST_FIT: Final = 0.5
"""Fields in common over fields in either: below it a type does not fit."""


Int64 = Annotated[int, JavaType.LONG]
"""An int that is a Long in Java, however small."""
Float32 = Annotated[float, JavaType.FLOAT]
"""A float that is a Float in Java."""

_CODES: Final[Mapping[JavaType, Callable[[Any], int]]] = {
    JavaType.LONG: long_hash_code,
    JavaType.FLOAT: float32_hash_code,
}
_JAVA_TYPES: Final[Mapping[Any, JavaType]] = {
    int: JavaType.INT,
    float: JavaType.DOUBLE,
    str: JavaType.STRING,
    bool: JavaType.BOOLEAN,
    list: JavaType.LIST,
    dict: JavaType.MAP,
}


class Binding(Protocol):
    """What a pool leaves in the instances it holds."""

    def set_field(self, instance: Any, name: str, value: Any) -> None:
        """An attribute of a persisted instance is being set."""


class ObjectType:
    """A registered class: its name, its fields in declared order, and its hashes."""

    #: Of a type that is known by a declaration alone.
    declaration: Declaration | None = None

    def __init__(self, cls: type, name: str, hints: Mapping[str, Any]) -> None:
        self.cls: Any = cls
        self.name = name
        self.fields = tuple(hints)
        self._codes = {field: _code_of(hint) for field, hint in hints.items()}
        self._java = {field: _java_type_of(hint) for field, hint in hints.items()}
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

    def java_types(self) -> dict[str, JavaType | None]:
        """The fields with their types in Java, None where it has none."""
        return dict(self._java)

    def unreadable(self, fields: Mapping[str, Any]) -> str | None:
        """Why the JVM cannot be told these fields, or some of them; None: it can."""
        return unreadable_fields(fields, self._java)

    def check_hash(self, number: int, fields: Mapping[str, Any]) -> None:
        """ObjectError if an object with these fields has another hash, by either rule."""
        if number not in (self.hash_of(fields, rule) for rule in HashRule):
            raise ObjectError(
                f"its hash is not what the declaration {self.declaration or self.name} gives; "
                "correct the declaration, or give the hash"
            )


class DeclaredType(ObjectType):
    """A type without a class."""

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(None, declaration.name, {})  # type: ignore[arg-type]
        self.declaration = self._declared = declaration
        self.fields = tuple(name for name, _ in declaration.fields)

    def unreadable(self, fields: Mapping[str, Any]) -> str | None:
        """As the declared types of the fields have it."""
        return self._declared.unreadable(fields)

    def _hash_code(self, fields: Mapping[str, Any]) -> int:
        return self._declared.hash_code(fields)


def unreadable_fields(
    fields: Mapping[str, Any], kinds: Mapping[str, JavaType | None] = MappingProxyType({})
) -> str | None:
    """Why the JVM cannot be told fields, some of whose types are known; None: it can."""
    for name, value in fields.items():
        if (why := unreadable_field(kinds.get(name), value)) is not None:
            return f"the field {name}: {why}"
    return None


def _code_of(hint: Any) -> Callable[[Any], int]:
    mark = _java_mark(hint)
    if mark is not None:
        return _CODES.get(mark, value_hash_code)
    return _double_code if hint is float else value_hash_code


def _java_mark(hint: Any) -> JavaType | None:
    if get_origin(hint) is Annotated:
        return next((mark for mark in get_args(hint)[1:] if isinstance(mark, JavaType)), None)
    return None


def _java_type_of(hint: Any) -> JavaType | None:
    return _java_mark(hint) or _JAVA_TYPES.get(get_origin(hint) or hint)


def _double_code(value: Any) -> int:
    """A field declared as a float is a Double in Java, also where an int was put into it."""
    return double_hash_code(value) if type(value) is int else value_hash_code(value)


def declaration_of(cls: type) -> Declaration:
    """The declaration of a persisted class, by its annotations.

    TypeError where Java has none for it: a hashCode of its own, or a field of another type.
    """
    kind: ObjectType | None = cls.__dict__.get(_TYPE)
    if kind is None:
        raise TypeError(f"{cls.__name__} is not persisted; decorate it with @persisted")
    if getattr(cls, "hash_code", None) is not None:
        raise TypeError(f"{cls.__name__} has a hash_code of its own, which no other node knows")
    fields = []
    for name, java in kind.java_types().items():
        if java is None:
            raise TypeError(
                f"the field {name} of {cls.__name__} has no type in Java; use int, Int64, float, "
                "Float32, str, bool, list or dict"
            )
        fields.append((name, java))
    return Declaration(kind.name, tuple(fields))


@overload
def persisted(cls: type[T], /) -> type[T]: ...


@overload
def persisted(*, name: str | None = None) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(eq_default=False)
def persisted(cls: type[T] | None = None, /, *, name: str | None = None) -> Any:
    """Make a class a persisted type; see the module's text. `name` is its simple name in Java.

    TypeError for a class without annotated fields, or with `__slots__`.
    """
    if cls is None:
        return lambda decorated: _persisted(decorated, name)
    return _persisted(cls, None)


def _persisted(cls: type[T], name: str | None) -> type[T]:
    if not any("__dict__" in base.__dict__ for base in cls.__mro__):
        raise TypeError("a persisted class keeps its fields in __dict__; it has no __slots__")
    made: Any = dataclasses.dataclass(eq=False)(cls)
    hints = get_type_hints(made, include_extras=True)
    names = [field.name for field in dataclasses.fields(made)]
    if not names:
        raise TypeError("a persisted class has annotated fields")
    setattr(made, _TYPE, ObjectType(made, name or cls.__name__, {n: hints[n] for n in names}))
    made.__setattr__ = _set_attribute
    return cast("type[T]", made)


def _set_attribute(instance: Any, name: str, value: Any) -> None:
    binding: Binding | None = instance.__dict__.get(_BINDING)
    if binding is None or name not in getattr(type(instance), _TYPE).fields:
        object.__setattr__(instance, name, value)
    else:
        binding.set_field(instance, name, value)


def binding_of(instance: Any) -> Any:
    """What a pool left in an instance, or None."""
    return instance.__dict__.get(_BINDING)


def bind(instance: Any, binding: Binding) -> None:
    """Leave a pool's binding in an instance."""
    instance.__dict__[_BINDING] = binding


class Types:
    """The types that a pool knows, and the hashes of objects by them."""

    def __init__(
        self,
        classes: Iterable[type] = (),
        *,
        rule: HashRule = HashRule.TEXT,
        configured: Iterable[Declaration] = (),
    ) -> None:
        self.rule = rule
        #: Names of declarations that stand in the configuration, and are changed there alone.
        self.configured: frozenset[str] = frozenset()
        self._by_name: dict[str, ObjectType] = {}
        self._fits: dict[frozenset[str], ObjectType | None] = {}
        for declaration in configured:
            self.declare(declaration)
        self.configured = frozenset(self._by_name)
        for cls in classes:
            self.register(cls)

    def register(self, cls: type) -> ObjectType:
        """Know a persisted class; TypeError if it is none, ObjectError if its name is taken."""
        found: ObjectType | None = cls.__dict__.get(_TYPE)
        if found is None:
            raise TypeError(f"{cls.__name__} is not persisted; decorate it with @persisted")
        known = self._by_name.get(found.name)
        if known is not found:
            # A class may take the place of a declaration of the same fields.
            if known is not None and (known.cls is not None or known.fields != found.fields):
                raise ObjectError(f"another class is known as {found.name}")
            self._by_name[found.name] = found
            self._fits.clear()
        return found

    def declare(self, declaration: Declaration) -> None:
        """Know a type by its declaration, or by another one from now on.

        ObjectError if a class or the configuration has its name, or for too many.
        """
        known = self._by_name.get(declaration.name)
        if known is not None and known.declaration == declaration:
            return
        if known is not None and known.declaration is None:
            raise ObjectError(f"a class is known as {declaration.name}")
        if declaration.name in self.configured:
            raise ObjectError(
                f"{declaration.name} stands under [objects] types otherwise; change it there"
            )
        if known is None and len(self._by_name) >= MAX_TYPES:
            raise ObjectError(f"there are {MAX_TYPES} types, as many as there may be; drop some")
        self._by_name[declaration.name] = DeclaredType(declaration)
        self._fits.clear()

    def forget(self, name: str) -> None:
        """Know a declared type no more; ObjectError if the configuration has it."""
        if name in self.configured:
            raise ObjectError(f"{name} stands under [objects] types; leave it out there")
        if (known := self._by_name.get(name)) is not None and known.declaration is not None:
            del self._by_name[name]
        self._fits.clear()

    def declarations(self) -> list[Declaration]:
        """What is declared, by name."""
        found = (kind.declaration for kind in self._by_name.values())
        return sorted(filter(None, found), key=lambda declaration: declaration.name)

    def named(self, name: str | None) -> ObjectType | None:
        """The type of this name, if it is known."""
        return self._by_name.get(name or "")

    def fit(self, fields: Mapping[str, Any]) -> ObjectType | None:
        """The type that an object with these fields is most likely of; None: none, or a tie."""
        if not self._by_name:
            return None
        names = frozenset(fields)
        if names not in self._fits:
            if len(self._fits) >= MAX_FITS:
                self._fits.clear()
            self._fits[names] = self._best_fit(names)
        return self._fits[names]

    def _best_fit(self, names: frozenset[str]) -> ObjectType | None:
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

    def changed_hash(
        self,
        number: int,
        type_name: str | None,
        fields: Mapping[str, Any],
        before: Mapping[str, Any] | None = None,
    ) -> int:
        """The hash of the object `number`, whose fields were `before`, once it has these fields.

        Of an object whose type nobody knows here, the letters of the name and the number of fields
        stay, and hashCode is taken over the fields in the order of their names. ObjectError where
        that would part this pool from the JVM's.
        """
        kind = self.type_of(type_name, fields)
        declared = None if kind is None else kind.declaration
        if kind and declared and number >> 40 and before is not None:
            kind.check_hash(number, before)
        if kind is not None or type_name is not None or not number >> 40:
            return self.hash_of(type_name, fields)
        if self.rule is HashRule.JVM:
            # Where the order of the fields is a guess, the pools of the others would part from it.
            raise ObjectError(
                "its type is not known here, and so not what its hash becomes; declare the type "
                "(hyperbloom object declare), or give the hash"
            )
        code = self._plain_code(fields[name] for name in sorted(fields))
        low = int.from_bytes(as_signed(code).to_bytes(4, "little", signed=True), "big")
        return (number & ~0xFFFFFFFF) | low

    @staticmethod
    def _plain_code(values: Iterable[Any]) -> int:
        return fields_hash_code(map(value_hash_code, values))
