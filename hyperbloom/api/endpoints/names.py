"""Endpoints of what the operator calls keys."""

from __future__ import annotations

from typing import cast

from hyperbloom.api.http.request import Answer, Call, Result
from hyperbloom.api.problems import value_errors_as_problems
from hyperbloom.api.schemas.answers import KeyNamedForm, NamedKeyForm
from hyperbloom.api.schemas.bodies import NameForm

__all__ = ["list_names", "name_key", "show_key", "unname_key"]


async def show_key(call: Call) -> Result:
    """The key that is meant by its beginning or its name."""
    key = await call.key_named(call.arguments[0])
    return {"key": key.hex(), "name": call.node.names.get(key)}


def list_names(call: Call) -> Answer:
    """Every name, by its key."""
    names: list[NamedKeyForm] = [
        {"key": found.key.hex(), "name": found.name, "named_at": found.named_at / 1e6}
        for found in call.node.names.records()
    ]
    return {"names": names}


async def name_key(call: Call) -> Result:
    """`{"key": key, "name": text}`: calls a key so on this node, in place of what it was called.

    The key may be given by its first digits or the name that it has, once this node has seen it.
    """
    form = call.body(NameForm)
    key = await call.key_named(form["key"])
    with value_errors_as_problems():
        was = await call.node.names.name(key, form["name"])
    call.status = 201
    return _named(call, key, was)


async def unname_key(call: Call) -> Result:
    """Calls a key by no name any more."""
    known = [found.key for found in call.node.names.records()]
    key = await call.key_named(call.arguments[0], known, those="that has a name")
    return _named(call, key, await call.node.names.unname(key))


def _named(call: Call, key: bytes, was: str | None) -> Result:
    form: KeyNamedForm = {"key": key.hex(), "name": call.node.names.get(key), "was": was}
    return cast("Result", form)
