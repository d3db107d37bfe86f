"""The endpoint that has the node read its configuration anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperbloom.api.http.request import Call
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.schemas import flat_json, only
from hyperbloom.config import ConfigError
from hyperbloom.keys import KeyFileError

__all__ = ["reload_config"]


async def reload_config(call: Call) -> Mapping[str, Any]:
    """`changed`: what is different from now on. `needs_restart`: what is only after a restart."""
    only(call.body(), ())
    if call.context.reload is None:
        raise Problem(ProblemKind.NOT_FOUND, "this node was not made from a configuration file")
    try:
        done = await call.context.reload()
    except (ConfigError, KeyFileError) as problem:
        raise Problem(ProblemKind.BAD_CONFIG, str(problem)) from None
    form: dict[str, Any] = flat_json(done.as_json())
    return form
