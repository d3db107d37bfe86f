"""Endpoints of the pool's types: what classes there are in the Java programs that share it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from hyperbloom.api.endpoints.objects import served_objects
from hyperbloom.api.http.request import Answer, Call, told
from hyperbloom.api.schemas import bad_request, member, only
from hyperbloom.objects.classes.declarations import Declaration, java_type

__all__ = [
    "NewTypeForm",
    "TypeFieldForm",
    "TypeForm",
    "TypesForm",
    "declare_type",
    "list_types",
    "undeclare_type",
]


class TypeFieldForm(TypedDict):
    """A field: its name, and its type by its name in Java."""

    name: str
    type: str


class NewTypeForm(TypedDict):
    """A type to declare: a class's simple name, and its fields as `Objects.hash` takes them."""

    name: str
    fields: list[TypeFieldForm]


class TypeForm(NewTypeForm):
    """A declared type; `configured`: it stands in the configuration, and is changed there."""

    configured: bool


class TypesForm(TypedDict):
    """The declared types, by name."""

    types: list[TypeForm]


def _form(declaration: Declaration, configured: frozenset[str]) -> TypeForm:
    return {
        "name": declaration.name,
        "fields": [{"name": name, "type": kind} for name, kind in declaration.pairs().items()],
        "configured": declaration.name in configured,
    }


def list_types(call: Call) -> Answer:
    """The declared types."""
    call.only_query()
    types = served_objects(call).pool.types
    forms = [_form(declaration, types.configured) for declaration in types.declarations()]
    return {"types": forms}


async def declare_type(call: Call) -> Mapping[str, Any]:
    """Declares a type, or declares it anew; answered when it is on disk."""
    pool, body = served_objects(call).pool, call.body()
    only(body, ("name", "fields"))
    fields = []
    for field in member(body, "fields", list):
        if not isinstance(field, dict):
            raise bad_request("each of fields must be an object with name and type")
        only(field, ("name", "type"))
        fields.append((member(field, "name", str), member(field, "type", str)))
    try:
        declaration = Declaration(
            member(body, "name", str), tuple((name, java_type(kind)) for name, kind in fields)
        )
    except ValueError as error:
        raise bad_request(str(error)) from None
    await told(lambda: pool.declare(declaration))
    call.status = 201
    return _form(declaration, pool.types.configured)


async def undeclare_type(call: Call) -> None:
    """The type is declared no more; its objects stay as they are."""
    pool, name = served_objects(call).pool, call.arguments[0]
    await told(lambda: pool.undeclare(name))
