"""Endpoints of the object pool: list, add, show, change, remove.

A hash is 16 hex digits; fields are JSON (`hyperbloom.store.objects.json_fields`). A program that
knows its types' hashCodes gives the hash itself; without, it is computed from the type's name and
the fields in the order in which they stand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

from hyperbloom.api.http.request import Answer, Call, told
from hyperbloom.api.limits import MAX_OBJECTS, OBJECTS_PAGE_BYTES
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.schemas import bad_request, member, only
from hyperbloom.api.served import ServedObjects
from hyperbloom.store import ObjectRecord
from hyperbloom.store.objects.json_fields import (
    from_json_fields,
    hash_text,
    json_fields,
    parse_hash,
)

__all__ = [
    "NewObjectForm",
    "ObjectChangeForm",
    "ObjectForm",
    "ObjectsForm",
    "add_object",
    "change_object",
    "list_objects",
    "object_form",
    "remove_object",
    "served_objects",
    "show_object",
]


#: Objects that are read from the store at once.
_READ_OBJECTS = 4

Hash: TypeAlias = Annotated[str, ("pattern", "^[0-9a-fA-F]{16}$")]


class NewObjectForm(TypedDict):
    """An object to add; the hash is computed where it is left out."""

    fields: dict[str, Any]
    type: NotRequired[str | None]
    hash: NotRequired[Hash | None]


class ObjectChangeForm(TypedDict):
    """Fields to change, and the hash afterwards, computed where it is left out."""

    fields: dict[str, Any]
    hash: NotRequired[Hash | None]


class ObjectForm(TypedDict):
    """An object. Times are seconds since 1970: when this node learned of it, and of its version."""

    hash: str
    type: str | None
    fields: dict[str, Any]
    created: float
    changed: float


class ObjectsForm(TypedDict):
    """Objects in the order of their hashes; `next` is the hash to go on behind, null at the end."""

    objects: list[ObjectForm]
    next: Hash | None


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
    """The pool's service; a problem where the node has none."""
    if call.context.objects is None:
        raise Problem(
            ProblemKind.NOT_FOUND,
            "this node takes part in no object pool; set enabled = true under [objects]",
        )
    return call.context.objects


def _hash(text: str) -> int:
    try:
        return parse_hash(text)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _fields(body: dict[str, Any]) -> dict[str, Any]:
    try:
        return from_json_fields(member(body, "fields", dict))
    except ValueError as error:
        raise bad_request(str(error)) from None


def _optional_hash(body: Mapping[str, Any]) -> int | None:
    text = body.get("hash")
    if text is not None and type(text) is not str:
        raise bad_request("hash must be a text")
    return None if text is None else _hash(text)


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
    pool, body = served_objects(call).pool, call.body()
    only(body, ("fields", "type", "hash"))
    name = body.get("type")
    if name is not None and type(name) is not str:
        raise bad_request("type must be a text")
    fields, number = _fields(body), _optional_hash(body)
    record = await _told(lambda: pool.put_fields(fields, name, number=number))
    call.status = 201
    return object_form(record)


def show_object(call: Call) -> Answer:
    """One object."""
    number = _hash(call.arguments[0])
    record = served_objects(call).pool.store.object(number)
    if record is None:
        raise Problem(ProblemKind.UNKNOWN_OBJECT, f"there is no object {call.arguments[0]}")
    return object_form(record)


async def change_object(call: Call) -> Mapping[str, Any]:
    """`fields` to change, and if known the `hash` afterwards; answered when it is on disk."""
    pool, body = served_objects(call).pool, call.body()
    only(body, ("fields", "hash"))
    number, fields, changed = _hash(call.arguments[0]), _fields(body), _optional_hash(body)
    return object_form(await _told(lambda: pool.change_fields(number, fields, changed=changed)))


async def remove_object(call: Call) -> None:
    """The object is no more, here and everywhere; answered when that is on disk."""
    pool, number = served_objects(call).pool, _hash(call.arguments[0])
    await told(lambda: pool.remove_hash(number))


async def _told(operation: Any) -> ObjectRecord:
    try:
        record: ObjectRecord = await told(operation)
    except TypeError as error:
        raise bad_request(str(error)) from None
    return record
