"""`output`, `input` and `hook`, and what `status` says of them, before a node that records."""

from __future__ import annotations

import json
import time

import pytest
from fake_integrations import an_integration

from hyperbloom.cli import output
from hyperbloom.exit_codes import ExitCode
from hyperbloom.store import StoreFull

KINDS = ("output", "input", "hook")
PROBLEM = "unbound-control ended with 1: no such socket; start unbound"


@pytest.fixture
def terminal(node, monkeypatch):
    """The command as in a terminal of so many columns."""
    monkeypatch.setattr(output.Output, "is_terminal", property(lambda self: True))

    def run(columns, *arguments):
        monkeypatch.setenv("COLUMNS", str(columns))
        return node.out(*arguments)

    return run


@pytest.fixture
def three(served):
    """One of each kind, two of them with a problem."""
    now = time.time()
    served.integrations.shown = [
        an_integration(
            state="failing", problem=PROBLEM, last_success=now - 65, next_run=now + 10.5
        ),
        an_integration(
            "input", "list", "held", target="lists.example", problem="half of it is gone; look"
        ),
        an_integration("hook", "bell", target="logger", feed=None, last_success=None, figures={}),
    ]
    return served.integrations


@pytest.mark.parametrize("kind", KINDS)
def test_where_none_is_configured_it_is_said_where_to(terminal, served, kind):
    said = terminal(200, kind, "list")
    assert said == (
        f"No {kind} is configured: write [[{kind}s]] into {served.folder / 'hyperbloom.toml'} "
        f"(docs/operations.md), then `hyperbloom reload -c {served.folder / 'hyperbloom.toml'}`.\n"
    )


def test_a_person_sees_a_table_and_what_is_wrong(terminal, three):
    assert terminal(90, "output", "list").splitlines() == [
        "name      feed   state    last success  file",
        "─" * 65,
        "resolver  names  failing  1m 5s ago     /etc/unbound/blocked.conf",
        f"output resolver: {PROBLEM}",
    ]
    assert terminal(90, "input", "list").splitlines()[-1] == (
        "input list: half of it is gone; look"
    )
    assert (
        terminal(90, "hook", "list").splitlines()[-1] == "bell  -     idle   -             logger"
    )


def test_a_pipe_gets_a_field_of_each(node, three):
    three.shown = [an_integration(problem=PROBLEM, state="failing")]
    assert node.out("output", "list").splitlines() == [
        "name\tfeed\tfile\tstate\tproblem\tlast success\tlast failure\tnext run\truns\tfailures",
        f"resolver\tnames\t/etc/unbound/blocked.conf\tfailing\t{PROBLEM}"
        "\t1970-01-12 13:46 UTC\t-\t-\t3\t1",
    ]
    three.shown = []
    assert node.out("input", "list").splitlines()[0].startswith("name\tfeed\tsource\t")


@pytest.mark.parametrize("kind", KINDS)
def test_programs_get_json(node, three, kind):
    (form,) = json.loads(node.out(kind, "list", "--json"))[f"{kind}s"]
    assert form["kind"] == kind
    assert json.loads(node.out(kind, "show", form["name"], "--json")) == form
    assert json.loads(node.out(kind, "show", form["name"], "--json"))["figures"] == form["figures"]
    three.shown = [an_integration(kind, "one")]
    assert json.loads(node.out(kind, "run", "one", "--json"))["name"] == "one"


def test_one_is_shown_with_its_figures(terminal, three):
    assert terminal(100, "output", "show", "resolver").splitlines() == [
        "name          resolver",
        "feed          names",
        "file          /etc/unbound/blocked.conf",
        "state         failing",
        f"problem       {PROBLEM}",
        "last success  1m 5s ago",
        "last failure  -",
        "next run      in 10s",
        "runs          3",
        "failures      1",
        "values        7",
        "left out      2",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_says_what_it_came_to(node, three, kind):
    three.shown = [an_integration(kind, "one"), an_integration(kind, "bare", figures={})]
    assert node.out(kind, "run", "one") == f"{kind} one ran: values 7, left out 2\n"
    assert node.out(kind, "run", "bare", "--force") == f"{kind} bare ran\n"
    assert three.calls == [(kind, "one", False), (kind, "bare", True)]


def test_a_run_that_fails_says_why(node, three):
    three.fail(PROBLEM)
    said = node.refusal(ExitCode.FAILED, "output", "run", "resolver")
    assert said == f"the output resolver failed: {PROBLEM}"
    assert node.refusal(ExitCode.FAILED, "output", "run", "resolver", "--json") == said
    three.failure = StoreFull("the disk is full; make room")
    node.refusal(ExitCode.STORE, "input", "run", "list")


@pytest.mark.parametrize("command", ["show", "run"])
def test_an_unknown_name_is_exit_code_8_with_the_near_ones(node, three, command):
    said = node.refusal(ExitCode.NOT_FOUND, "output", command, "resolvr")
    assert said == "there is no output 'resolvr': did you mean resolver?"
    said = node.refusal(ExitCode.USAGE, "output", command, "")
    assert said.startswith("a name is empty; `hyperbloom output list` shows the names")


def test_what_others_wrote_controls_no_terminal(terminal, three):
    three.shown = [an_integration(target="\x1b[2J", problem="a\x1b[2Jb", state="failing")]
    for arguments in (("list",), ("show", "resolver")):
        assert "\x1b[2J" not in terminal(100, "output", *arguments)


def test_status_counts_them_and_says_what_is_wrong(node, three, monkeypatch):
    lines = node.out("status").splitlines()
    assert [line for line in lines if line.split("\t")[0] in ("outputs", "inputs", "hooks")] == [
        "outputs\t1, 1 with a problem",
        "inputs\t1, 1 with a problem",
        "hooks\t1",
    ]
    assert f"output resolver: {PROBLEM}" in lines
    assert "input list: half of it is gone; look" in lines
    three.shown = []
    assert not {"outputs", "inputs", "hooks"} & {
        line.split("\t")[0] for line in node.out("status").splitlines()
    }


@pytest.mark.parametrize("word", ["--help", "list --help", "show --help", "run --help"])
def test_help_says_what_each_kind_is(offline, word):
    texts = [offline.out(kind, *word.split()) for kind in KINDS]
    assert len(set(texts)) == 3
    if word.startswith("run"):
        said = [" ".join(text.split()) for text in texts]
        assert "though nothing has changed" in said[0]
        assert "more of it has gone than `max_shrink` allows" in said[1]
        assert "it is never told of them" in said[2]
