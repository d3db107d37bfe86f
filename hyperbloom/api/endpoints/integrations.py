"""Endpoints of outputs, inputs and hooks: the same three of each kind."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hyperbloom.api.http.request import Answer, Call, Result
from hyperbloom.api.problems import Problem
from hyperbloom.api.schemas.bodies import RunForm
from hyperbloom.errors import ErrorKind, HyperbloomError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hyperbloom.api.schemas.integrations import IntegrationForm
    from hyperbloom.api.served import ServedIntegration, ServedIntegrations
    from hyperbloom.integrations.status import IntegrationStatus, Kind

__all__ = ["HOOKS", "INPUTS", "OUTPUTS", "KindEndpoints", "integration_forms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KindEndpoints:
    """What can be asked about one kind: all of them, one by its name, and a run of one."""

    list: Callable[[Call], Answer]
    show: Callable[[Call], Answer]
    run: Callable[[Call], Coroutine[Any, Any, Result]]


def integration_forms(integrations: ServedIntegrations | None) -> list[IntegrationForm]:
    """How all of a node stand: outputs, inputs, hooks."""
    return [] if integrations is None else [_form(one) for one in integrations.statuses()]


def _form(status: IntegrationStatus) -> IntegrationForm:
    return cast("IntegrationForm", status.as_json())


def _endpoints_of(kind: Kind) -> KindEndpoints:
    """The endpoints of a kind, with the names and sentences that the description shows."""

    def list_all(call: Call) -> Answer:
        return {f"{kind}s": _of_kind(call, kind)}

    def show_one(call: Call) -> Answer:
        return cast("Result", _form(_named(call, kind).status()))

    async def run_one(call: Call) -> Result:
        force = call.body(RunForm).get("force") or False
        found = _named(call, kind)
        try:
            await found.run(force=force)
        except HyperbloomError as error:
            sentence = f"the {kind} {call.arguments[0]} failed: {error}"
            raise Problem(error.kind or ErrorKind.FAILED, sentence) from None
        return cast("Result", _form(found.status()))

    for endpoint, name, text in (
        (list_all, f"list_{kind}s", f"Every {kind}, in the order of the configuration."),
        (show_one, f"show_{kind}", f"One {kind}, and how it stands."),
        (run_one, f"run_{kind}", f"Runs one {kind} now; answers when that is over."),
    ):
        endpoint.__name__, endpoint.__doc__ = name, text
    return KindEndpoints(list=list_all, show=show_one, run=run_one)


def _of_kind(call: Call, kind: Kind) -> list[IntegrationForm]:
    found = integration_forms(call.context.integrations)
    return [one for one in found if one["kind"] == kind]


def _named(call: Call, kind: Kind) -> ServedIntegration:
    """The one of a kind that the path names; raises `Problem`."""
    integrations, name = call.context.integrations, call.arguments[0]
    found = None if integrations is None else integrations.find(kind, name)
    if found is not None:
        return found
    names = [one["name"] for one in _of_kind(call, kind)]
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        hint = f"`hyperbloom {kind} list` shows those that there are"
    else:
        hint = f"the configuration has no [[{kind}s]]"
    raise Problem(ErrorKind.UNKNOWN_INTEGRATION, f"there is no {kind} {name!r}: {hint}")


OUTPUTS = _endpoints_of("output")
INPUTS = _endpoints_of("input")
HOOKS = _endpoints_of("hook")
