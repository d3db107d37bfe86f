"""Endpoints of the object pool: its objects, and the types that are declared in it.

A hash is 16 hex digits; fields are JSON (`hyperbloom.json_fields`). A program that
knows its types' hashCodes gives the hash itself; without, it is computed from the type's name and
the fields in the order in which they stand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.limits import MAX_OBJECTS, OBJECTS_PAGE_BYTES
from hyperbloom.api.problems import Problem, bad_request, value_errors_as_problems
from hyperbloom.api.schemas.objects import (
    NewObjectForm,
    NewTypeForm,
    ObjectChangeForm,
    ObjectForm,
    TypeForm,
)
from hyperbloom.api.served import ServedObjects
from hyperbloom.errors import ErrorKind
from hyperbloom.json_fields import from_json_fields, hash_text, json_fields, parse_hash
from hyperbloom.objects.classes.declarations import Declaration, java_type
from hyperbloom.store.objects.records import ObjectRecord

__all__ = [
    "add_object",
    "change_object",
    "declare_type",
    "list_objects",
    "list_types",
    "object_form",
    "remove_object",
    "served_objects",
    "show_object",
    "undeclare_type",
]

#: Objects that are read from the store at once.
_READ_OBJECTS = 4


def object_form(record: ObjectRecord) -> ObjectForm:
    """A record as JSON."""
    return {
        "hash": hash_text(record.hash),
        "type": record.type_name,
        "fields": json_fields(record.fields),
        "created": record.created / 1e6,
        "changed": record.changed / 1e6,
    }


def served_objects(call: Call) -> ServedObjects:
    """The pool's service; raises `Problem` NOT_FOUND where the node has none."""
    if call.context.objects is None:
        raise Problem(
            ErrorKind.NOT_FOUND,
            "this node takes part in no object pool; set enabled = true under [objects]",
        )
    return call.context.objects


def _hash(text: str) -> int:
    with value_errors_as_problems():
        return parse_hash(text)


def _optional_hash(text: str | None) -> int | None:
    return None if text is None else parse_hash(text)


def list_objects(call: Call) -> Answer:
    """`after` (a hash), `limit`: objects in the order of their hashes, and where to go on."""
    call.only_query("after", "limit")
    store = served_objects(call).pool.store
    after = call.query.get("after")
    limit = call.number("limit", MAX_OBJECTS, 1, MAX_OBJECTS)
    position = None if after is None else _hash(after)
    forms: list[str] = []
    size, following = 0, "null"
    # Read a few at a time: how long objects are is known only when they are here.
    while found := store.objects_slice(position, limit=min(_READ_OBJECTS, limit - len(forms))):
        position = found[-1].hash
        forms += (json.dumps(object_form(record), separators=(",", ":")) for record in found)
        size += sum(map(len, forms[-len(found) :]))
        if len(forms) == limit or size >= OBJECTS_PAGE_BYTES:
            following = f'"{hash_text(position)}"'
            break
    return f'{{"objects":[{",".join(forms)}],"next":{following}}}'.encode("ascii")


async def add_object(call: Call) -> Mapping[str, Any]:
    """`fields`, and if known `type` (its name) and `hash`; answered when it is on disk."""
    pool, form = served_objects(call).pool, call.body(NewObjectForm)
    number = _optional_hash(form.get("hash"))
    with _refusals_as_problems():
        fields = from_json_fields(form["fields"])
        record = await pool.put_fields(fields, form.get("type"), number=number)
    call.status = 201
    return object_form(record)


def show_object(call: Call) -> Answer:
    """One object."""
    number = _hash(call.arguments[0])
    record = served_objects(call).pool.store.object(number)
    if record is None:
        raise Problem(ErrorKind.UNKNOWN_OBJECT, f"there is no object {call.arguments[0]}")
    return object_form(record)


async def change_object(call: Call) -> Mapping[str, Any]:
    """`fields` to change, and if known the `hash` afterwards; answered when it is on disk."""
    pool, form = served_objects(call).pool, call.body(ObjectChangeForm)
    number, changed = _hash(call.arguments[0]), _optional_hash(form.get("hash"))
    with _refusals_as_problems():
        fields = from_json_fields(form["fields"])
        record = await pool.change_fields(number, fields, changed=changed)
    return object_form(record)


async def remove_object(call: Call) -> None:
    """Removes an object, here and everywhere; answered when that is on disk."""
    pool, number = served_objects(call).pool, _hash(call.arguments[0])
    with value_errors_as_problems():
        await pool.remove_hash(number)


@contextmanager
def _refusals_as_problems() -> Iterator[None]:
    """`ValueError` and `TypeError` are mistakes of who asked: both become BAD_REQUEST."""
    try:
        with value_errors_as_problems():
            yield
    except TypeError as error:
        raise bad_request(str(error)) from None


# Types: what classes there are in the Java programs that share the pool.


def _type_form(declaration: Declaration, configured: frozenset[str]) -> TypeForm:
    return {
        "name": declaration.name,
        "fields": [{"name": name, "type": kind} for name, kind in declaration.pairs().items()],
        "configured": declaration.name in configured,
    }


def list_types(call: Call) -> Answer:
    """The declared types."""
    call.only_query()
    types = served_objects(call).pool.types
    forms = [_type_form(declaration, types.configured) for declaration in types.declarations()]
    return {"types": forms}


async def declare_type(call: Call) -> Mapping[str, Any]:
    """Declares a type, or declares it anew; answered when it is on disk."""
    pool, form = served_objects(call).pool, call.body(NewTypeForm)
    with value_errors_as_problems():
        fields = tuple((field["name"], java_type(field["type"])) for field in form["fields"])
        declaration = Declaration(form["name"], fields)
        await pool.declare(declaration)
    call.status = 201
    return _type_form(declaration, pool.types.configured)


async def undeclare_type(call: Call) -> None:
    """Removes a declared type; its objects stay as they are."""
    pool, name = served_objects(call).pool, call.arguments[0]
    with value_errors_as_problems():
        await pool.undeclare(name)
