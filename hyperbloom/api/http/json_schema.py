"""JSON Schemas (2020-12, as OpenAPI 3.1 has them) from the types of the API's forms.

A form is a `TypedDict` or a frozen dataclass whose bytes are hex in JSON. What a type cannot say
(a pattern, a bound) stands beside it: `Annotated[str, ("pattern", …)]`. A type without a name is
described where it is used, a named one once, under `definitions`.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

__all__ = ["Definitions", "Schema", "schema_of"]

Schema: TypeAlias = dict[str, Any]
#: Name → schema, of everything that has a name.
Definitions: TypeAlias = dict[str, Schema]

_REFERENCE = "#/components/schemas/"
_PLAIN: dict[Any, Schema] = {
    Any: {},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
    type(None): {"type": "null"},
}


def schema_of(kind: Any, definitions: Definitions) -> Schema:
    """The schema of a type; named ones go into `definitions`. `TypeError` for an unknown one."""
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if is_typeddict(kind) or dataclasses.is_dataclass(kind):
        return _named(kind, definitions)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        schema = schema_of(arguments[0], definitions)
        schema.update(arguments[1:])
        return schema
    if origin is NotRequired:
        return schema_of(arguments[0], definitions)
    if origin in (Union, types.UnionType):
        return _any_of([schema_of(one, definitions) for one in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, Sequence) or (origin is tuple and arguments[1:] == (...,)):
        return {"type": "array", "items": schema_of(arguments[0], definitions)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(arguments[1], definitions)}
    raise TypeError(f"{kind!r} has no JSON form")


def _any_of(schemas: list[Schema]) -> Schema:
    return {"anyOf": schemas}


def _named(kind: Any, definitions: Definitions) -> Schema:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # known from here on, for forms that hold their like
        definitions[name] = _object(kind, definitions)
    return {"$ref": _REFERENCE + name}


def _object(kind: Any, definitions: Definitions) -> Schema:
    # Classes whose fields hide builtins say what they mean by aliases, which are in their module.
    hints = get_type_hints(kind, include_extras=True)
    is_form = is_typeddict(kind)
    # Not `__required_keys__`, which does not see through annotations that are texts.
    required = [name for name, hint in hints.items() if get_origin(hint) is not NotRequired]
    properties = {}
    for name, hint in hints.items():
        schema = schema_of(hint, definitions)
        if not is_form and hint is float:
            schema = _any_of([schema, {"type": "null"}])  # infinity: JSON has none
        properties[name] = schema
    description = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0]
    return {
        "type": "object",
        "description": " ".join(description.split()),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
