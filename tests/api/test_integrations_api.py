"""Outputs, inputs and hooks over HTTP: how they stand, and runs of them."""

from __future__ import annotations

from typing import Any

import pytest
from fake_integrations import an_integration

from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.schemas.integrations import IntegrationForm
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.store import StoreFull

KINDS = ("output", "input", "hook")


def refused(call: Any) -> Problem:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value


def test_each_kind_has_its_own(served):
    served.integrations.shown = [an_integration(kind, f"my-{kind}") for kind in KINDS]
    client = served.client()
    for kind in KINDS:
        (found,) = client.integrations(kind)
        assert (found["kind"], found["name"]) == (kind, f"my-{kind}")
        assert client.integration(kind, f"my-{kind}") == found
        assert found.keys() == IntegrationForm.__annotations__.keys()
        assert refused(lambda kind=kind: client.integration(kind, "other")).kind is (
            ProblemKind.UNKNOWN_INTEGRATION
        )
    assert [one["name"] for one in client.status()["integrations"]] == [
        "my-output", "my-input", "my-hook",
    ]  # fmt: skip


def test_what_is_told_is_how_it_stands(served):
    served.integrations.shown = [
        an_integration(
            state="failing", problem="no room; make some", last_failure=2.5, next_run=3.0
        )
    ]
    (found,) = served.client().integrations("output")
    assert found == {
        "kind": "output",
        "name": "resolver",
        "feed": "names",
        "target": "/etc/unbound/blocked.conf",
        "state": "failing",
        "problem": "no room; make some",
        "last_success": 1_000_000.0,
        "last_failure": 2.5,
        "next_run": 3.0,
        "runs": 3,
        "failures": 1,
        "figures": {"values": 7, "left_out": 2},
    }


def test_a_node_without_any_says_so(served):
    client = served.client()
    assert [client.integrations(kind) for kind in KINDS] == [[], [], []]
    assert client.status()["integrations"] == []
    assert (
        "the configuration has no [[hooks]]"
        in refused(lambda: client.integration("hook", "bell")).detail
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resolvr", "there is no output 'resolvr': did you mean resolver?"),
        ("unlike", "`hyperbloom output list` shows those that there are"),
        ("a/../b c", "there is no output 'a/../b c': "),
    ],
)
def test_an_unknown_name_is_answered_with_the_near_ones(served, name, hint):
    served.integrations.shown = [an_integration(), an_integration("input", "resolvr2")]
    client = served.client()
    for ask in (client.integration, client.run_integration):
        problem = refused(lambda ask=ask: ask("output", name))
        assert problem.kind is ProblemKind.UNKNOWN_INTEGRATION
        assert hint in problem.detail
    assert served.integrations.calls == []


def test_a_run_is_answered_when_it_is_over(served):
    served.integrations.shown = [an_integration("input", "list")]
    client = served.client()
    assert client.run_integration("input", "list")["name"] == "list"
    client.run_integration("input", "list", force=True)
    assert served.integrations.calls == [("input", "list", False), ("input", "list", True)]
    for body in ({"force": "yes"}, {"forced": True}):
        status, _, problem = served.ask("POST", "/v1/inputs/list/run", body)
        assert (status, problem["type"]) == (400, ProblemKind.BAD_REQUEST.type)
    status, _, answer = served.ask("POST", "/v1/inputs/list/run", {})
    assert (status, answer["name"]) == (200, "list")
    assert len(served.integrations.calls) == 3


def test_a_run_that_failed_says_why(served):
    served.integrations.shown = [an_integration()]
    served.integrations.fail("unbound-control ended with 1: no such socket; start unbound")
    problem = refused(lambda: served.client().run_integration("output", "resolver"))
    assert problem.kind is ProblemKind.FAILED
    assert problem.detail == (
        "the output resolver failed: unbound-control ended with 1: no such socket; start unbound"
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotTrusted("have yourself invited"), ProblemKind.NOT_TRUSTED),
        (StoreFull("make room"), ProblemKind.STORE_FULL),
    ],
)
def test_a_failure_that_has_a_kind_keeps_it(served, error, kind):
    served.integrations.shown = [an_integration("input", "list")]
    served.integrations.failure = error
    assert refused(lambda: served.client().run_integration("input", "list")).kind is kind


def test_a_run_needs_the_right_to_change_something(over_tcp):
    over_tcp.integrations.shown = [an_integration()]
    status, _, _ = over_tcp.ask_tcp("/v1/outputs/resolver/run", "POST", {})
    assert status == 401
    status, _, _ = over_tcp.ask_tcp("/v1/outputs", token=over_tcp.metrics_token)
    assert status == 403
    status, _, _ = over_tcp.ask_tcp("/v1/outputs", token=over_tcp.token)
    assert status == 200
    assert over_tcp.integrations.calls == []


def test_what_fails_leaves_the_node_healthy(served):
    served.integrations.shown = [an_integration(state="failing", problem="no")]
    assert served.ask("GET", "/health")[2] == {"status": "ok"}
