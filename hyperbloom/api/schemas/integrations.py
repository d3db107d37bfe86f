"""What is told of outputs, inputs and hooks."""

from __future__ import annotations

from typing import TypedDict

from hyperbloom.integrations.status import Kind, State

__all__ = ["HooksForm", "InputsForm", "IntegrationForm", "OutputsForm"]


class IntegrationForm(TypedDict):
    """How an output, an input or a hook stands; times are seconds since 1970, null: not yet.

    `hyperbloom.integrations.status` says what the members mean.
    """

    kind: Kind
    name: str
    feed: str | None
    target: str
    state: State
    problem: str | None
    last_success: float | None
    last_failure: float | None
    next_run: float | None
    runs: int
    failures: int
    figures: dict[str, int]


class OutputsForm(TypedDict):
    """The outputs, in the order of the configuration."""

    outputs: list[IntegrationForm]


class InputsForm(TypedDict):
    """The inputs, in the order of the configuration."""

    inputs: list[IntegrationForm]


class HooksForm(TypedDict):
    """The hooks, in the order of the configuration."""

    hooks: list[IntegrationForm]
