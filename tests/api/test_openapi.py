"""The description of the API, held against the running server by schemathesis."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Literal, NotRequired, TypedDict

import jsonschema
import pytest
import schemathesis
from fake_integrations import an_integration
from hypothesis import HealthCheck, assume, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from serving import ServedOverTcp

from hyperbloom.api.http.json_schema import schema_of
from hyperbloom.api.http.openapi import describe
from hyperbloom.api.http.router import Route
from hyperbloom.api.routes import ROUTES

schemathesis.checks.load_all_checks()
#: Texts in these bodies mean something (an address, a link that is signed) that no schema says, and
#: a feed that the configuration names cannot be left: a request may follow its schema and be
#: refused all the same.
MEANT = {
    "join_feed", "accept_invitation", "add_chain", "invite", "take_snapshot", "leave_feed",
    "issue_link", "wait_synced", "add_object", "change_object", "show_object", "remove_object",
    "list_objects", "reload_config", "deny_key", "allow_key", "forget_key", "values_by",
    "forget_values", "undo_forgetting", "create_feed", "release_key", "copy_values",
}  # fmt: skip
ACCEPTANCE = CHECKS.get_by_names(["positive_data_acceptance"])
#: Tests of their own: these answers have no end.
ENDLESS = {"watch_values", "post_watch_range", "watch_node", "watch_objects"}
#: Of outputs, inputs and hooks the same functions answer, and the first kind is tried.
THE_SAME = {f"{what}_{kind}" for kind in ("input", "hook") for what in ("show", "run")}
#: Requests of each operation and mode. With 12 some parameters were never wrong by themselves.
EXAMPLES = 50


#: Names that this server has, and one that it has not, of what requests name.
NAMED = {"feed": ["-", "own", "nobody"], "integration": ["resolver", "nobody"]}


def description():
    """The description; where it says any name, those that this server has, and one it has not."""
    form = describe(ROUTES)
    for operations in form["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] in NAMED:
                    parameter["schema"] = {"enum": NAMED[parameter["name"]]}
    return form


OPERATIONS = [
    found.ok()
    for found in schemathesis.openapi.from_dict(description()).get_all_operations()
    if found.ok().definition.raw["operationId"] not in ENDLESS | THE_SAME
]


def arrives_as_it_is(query):
    """Whether what is wrong with a query can be seen in it: lists are sent as their entries.

    So an empty one, or one of empty ones, is not sent at all, and one of a right text is right.
    """
    return not any(value is None or isinstance(value, (list, dict)) for value in query.values())


@pytest.fixture(scope="module")
def running(reactor_thread):
    served = ServedOverTcp(reactor_thread)
    served.integrations.shown = [an_integration()]
    yield served
    served.close()


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_the_server_does_what_the_description_says(operation, mode, running):
    """Requests that follow the description, and requests that do not."""
    excluded = ACCEPTANCE if operation.definition.raw["operationId"] in MEANT else []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        assume(arrives_as_it_is(case.query))
        case.call_and_validate(
            base_url=running.url,
            headers={"Authorization": f"Bearer {running.token}"},
            excluded_checks=excluded,
            timeout=240,
        )

    try:
        check()
    except Unsatisfiable:
        pytest.skip("the operation takes nothing that could be wrong")


def test_it_is_served(running):
    _, _, body = running.ask_tcp("/v1/openapi.json", token=running.token)
    assert json.loads(body) == json.loads(json.dumps(describe(ROUTES)))


def test_the_description_is_valid_and_complete():
    form = describe(ROUTES)
    assert form["openapi"] == "3.1.0"
    listed = {(m.upper(), path) for path, found in form["paths"].items() for m in found}
    assert listed == {(route.method, route.path) for route in ROUTES if not route.is_page}
    names = [op["operationId"] for found in form["paths"].values() for op in found.values()]
    assert len(names) == len(set(names))
    for schema in form["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["description"]


def test_open_routes_say_so():
    form = describe(ROUTES)
    assert form["paths"]["/health"]["get"]["security"] == []
    assert "security" not in form["paths"]["/metrics"]["get"]


def test_a_route_that_says_nothing_is_described_all_the_same():
    def show_something(call):
        """Something."""

    (found,) = describe([Route("GET", "/v1/something", show_something)])["paths"].values()
    assert found["get"]["summary"] == "Something"
    assert set(found["get"]["responses"]) == {"200", "401", "403", "500"}


class Inner(TypedDict):
    """An inner form."""

    word: Literal["a", "b"]
    maybe: NotRequired[Annotated[int, ("minimum", 1)] | None]


@dataclasses.dataclass
class Outer:
    """An outer form.

    Which goes on.
    """

    key: bytes
    ends: float
    inner: tuple[Inner, ...]


def test_schemas_of_types():
    definitions = {}
    assert schema_of(Outer, definitions) == {"$ref": "#/components/schemas/Outer"}
    assert definitions["Outer"] == {
        "type": "object",
        "description": "An outer form.",
        "properties": {
            "key": {"type": "string", "pattern": "^([0-9a-f]{2})*$"},
            "ends": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "inner": {"type": "array", "items": {"$ref": "#/components/schemas/Inner"}},
        },
        "required": ["key", "ends", "inner"],
        "additionalProperties": False,
    }
    assert definitions["Inner"]["required"] == ["word"]
    assert definitions["Inner"]["properties"]["maybe"] == {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]
    }
    with pytest.raises(TypeError, match="has no JSON form"):
        schema_of(complex, definitions)
