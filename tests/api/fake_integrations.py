"""Outputs, inputs and hooks that stand as a test says, and record what they are asked to run."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from hyperbloom.api.served import ServedIntegrations
from hyperbloom.integrations.integration import IntegrationFailed
from hyperbloom.integrations.status import IntegrationStatus, Kind, State


def an_integration(
    kind: Kind = "output", name: str = "resolver", state: State = "idle", **other: Any
) -> IntegrationStatus:
    fields: dict[str, Any] = {
        "feed": "names",
        "target": "/etc/unbound/blocked.conf",
        "last_success": 1_000_000.0,
        "runs": 3,
        "failures": 1,
        "figures": {"values": 7, "left_out": 2},
    }
    return IntegrationStatus(kind=kind, name=name, state=state, **{**fields, **other})


class FakeIntegration:
    """One of `FakeIntegrations`; a run of it fails with the `failure` of all."""

    def __init__(self, all_of_them: FakeIntegrations, kind: Kind, name: str) -> None:
        self.all_of_them, self.kind, self.name = all_of_them, kind, name

    def status(self) -> IntegrationStatus:
        (found,) = (
            one for one in self.all_of_them.shown if (one.kind, one.name) == (self.kind, self.name)
        )
        return found

    def run(self, *, force: bool = False) -> Deferred[None]:
        self.all_of_them.calls.append((self.kind, self.name, force))
        failure = self.all_of_them.failure
        return succeed(None) if failure is None else fail(failure)


class FakeIntegrations:
    """Outputs, inputs and hooks that stand as `shown` says; `calls` are the runs of them."""

    def __init__(self) -> None:
        self.shown: list[IntegrationStatus] = []
        self.calls: list[tuple[str, str, bool]] = []
        self.failure: Exception | None = None

    def statuses(self) -> list[IntegrationStatus]:
        return self.shown

    def find(self, kind: Kind, name: str) -> FakeIntegration | None:
        found = any((one.kind, one.name) == (kind, name) for one in self.shown)
        return FakeIntegration(self, kind, name) if found else None

    def fail(self, sentence: str) -> None:
        self.failure = IntegrationFailed(sentence)


def served(integrations: FakeIntegrations) -> ServedIntegrations:
    """Here mypy holds the fake against the type of what it stands for."""
    return integrations
