"""How an output, an input or a hook stands, for people, the API and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["IntegrationStatus", "Kind", "State"]

Kind = Literal["output", "input", "hook"]

#: `idle`: all is done that there is to do. `working`: a run is under way. `waiting`: its feed is
#: not here, or there was no run yet. `failing`: the last run failed. `held`: somebody has to look,
#: also while a run is under way.
State = Literal["idle", "working", "waiting", "failing", "held"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationStatus:
    """One of them at one moment. Moments are seconds since 1970, None: never, or not known.

    ``feed`` is the feed as people call it, None where the configuration names none and none is
    found. ``target`` is the file, program or host that it is about, without what may be secret.
    ``problem`` is one sentence with its cure; it stays until a run succeeds. ``next_run`` is when
    the next one is due by itself. ``runs`` and ``failures`` count since the start of the node.
    ``figures`` are numbers of its kind, by name (docs/outputs.md, docs/inputs.md, docs/hooks.md).
    """

    kind: Kind
    name: str
    feed: str | None
    target: str
    state: State
    problem: str | None = None
    last_success: float | None = None
    last_failure: float | None = None
    next_run: float | None = None
    runs: int = 0
    failures: int = 0
    figures: Mapping[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
