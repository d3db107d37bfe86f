"""The description of the API (OpenAPI 3.1), made from a table of routes and their forms."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from typing import Any

from hyperbloom import __version__
from hyperbloom.api.http.json_schema import Definitions, Schema, schema_of
from hyperbloom.api.http.router import Route
from hyperbloom.api.limits import MAX_OFFSET, MAX_SEQ, MAX_VALUES
from hyperbloom.api.problems import PROBLEM_MEDIA_TYPE
from hyperbloom.api.schemas.answers import Problems, TrustWord
from hyperbloom.api.schemas.integrations import IntegrationForm
from hyperbloom.errors import ErrorKind
from hyperbloom.replication.status import NodeStatus

__all__ = ["describe"]

_HEX: Schema = {"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}
_QUERY: dict[str, tuple[Schema, str]] = {
    "start": (_HEX, "the first value, in hex; left out: from the first on"),
    "end": (_HEX, "the first value that is not meant, in hex; left out: to the last"),
    "prefix": (_HEX, "only values that begin with this, in hex"),
    "limit": ({"type": "integer", "minimum": 1, "maximum": MAX_VALUES}, "at most so many"),
    "offset": ({"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}, "so many are passed over"),
    "after": (
        {"type": "integer", "minimum": 0, "maximum": MAX_SEQ},
        "the arrival number to begin behind; left out: 0, and for a watch the last one so far",
    ),
    "delete_key": (
        {"type": "string", "enum": ["yes", "no"]},
        "`yes`: a feed's key that the node holds goes, too, for good",
    ),
    "span": (
        {"type": "string", "enum": ["hours", "week"]},
        "`hours`: the last six, by the minute, as where it is left out; `week`: by ten minutes",
    ),
    "feed": ({"type": "string"}, "a feed's key, its alias, `own`, or `-` for the default"),
}
_ARGUMENTS = {
    "feed": "a feed's key, its alias, `own`, or `-` for the node's default",
    "hash": "an object's hash, 16 hex digits",
    "key": "a node's public key, 64 hex digits",
    "name": "the name of a declared type",
    "script": "the name of a file",
    "integration": "what the configuration calls it",
}


def _sentence(endpoint: Any) -> str:
    text = inspect.cleandoc(endpoint.__doc__ or "").partition("\n\n")[0]
    return " ".join(text.split()).rstrip(".")


def _parameters(route: Route) -> list[Schema]:
    found: list[Schema] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _ARGUMENTS[name],
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]+$"},
        }
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    for name in route.query:
        schema, text = _QUERY[name]
        found.append({"name": name, "in": "query", "description": text, "schema": schema})
    return found


def _kinds(route: Route) -> Iterable[ErrorKind]:
    """What a request of this kind may meet."""
    yield ErrorKind.UNEXPECTED
    yield ErrorKind.FORBIDDEN
    if not route.is_page:
        yield ErrorKind.UNAUTHORIZED
    if route.query or route.body is not None:
        yield ErrorKind.BAD_REQUEST
    if route.body is not None:
        yield ErrorKind.TOO_LARGE
    if "{feed}" in route.path or "feed" in route.query:
        yield ErrorKind.UNKNOWN_FEED
        yield ErrorKind.STORE
    yield from route.problems


def _problems(route: Route, definitions: Definitions) -> Schema:
    by_status: dict[int, list[str]] = {}
    for kind in _kinds(route):
        by_status.setdefault(kind.status, []).append(kind.title)
    schema = schema_of(Problems, definitions)
    return {
        str(status): {
            "description": "; ".join(dict.fromkeys(titles)),
            "content": {PROBLEM_MEDIA_TYPE: {"schema": schema}},
        }
        for status, titles in sorted(by_status.items())
    }


def _answers(route: Route, definitions: Definitions) -> Schema:
    good: Schema = {"description": _sentence(route.endpoint)}
    if route.answer is not None:
        schema = schema_of(route.answer, definitions)
        good["content"] = {media_type: {"schema": schema} for media_type in route.media_types}
    answers = {str(status): good for status in route.statuses}
    return {**answers, **_problems(route, definitions)}


def _operation(route: Route, definitions: Definitions) -> Schema:
    operation: Schema = {
        "operationId": route.endpoint.__name__,
        "summary": _sentence(route.endpoint),
        "responses": _answers(route, definitions),
    }
    if parameters := _parameters(route):
        operation["parameters"] = parameters
    if route.body is not None:
        schema = schema_of(route.body, definitions)
        content = {"application/json": {"schema": schema}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.is_open or route.is_page:
        operation["security"] = []
    return operation


def _complete_status(definitions: Definitions) -> None:
    """To what the node says of itself the API adds a little, see `node.status`."""
    schema_of(NodeStatus, definitions)
    texts = {"type": "array", "items": {"type": "string"}}
    additions: dict[str, dict[str, Schema]] = {
        "NodeStatus": {
            "addresses": texts,
            "discovery": {"type": "object"},
            "objects": {"type": ["object", "null"]},
            "integrations": schema_of(list[IntegrationForm], definitions),
        },
        "FeedStatus": {"trust": schema_of(TrustWord, definitions), "dials": texts},
    }
    for name, properties in additions.items():
        definitions[name]["properties"] |= properties
        definitions[name]["required"] = [*definitions[name]["required"], *properties]


def describe(routes: Iterable[Route]) -> Schema:
    """The description of these routes."""
    definitions: Definitions = {}
    _complete_status(definitions)
    paths: dict[str, Schema] = {}
    for route in routes:
        if not route.is_page:
            operation = _operation(route, definitions)
            paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hyperbloom",
            "version": __version__,
            "description": "A running node. Byte strings are hex, times are seconds since 1970.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(definitions.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
