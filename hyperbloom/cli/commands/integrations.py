"""Commands about outputs, inputs and hooks: list, show and run, the same of each kind."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from hyperbloom.cli.app import App, Group, pass_app
from hyperbloom.cli.offers import offer_integrations
from hyperbloom.cli.tables import Cell, Name
from hyperbloom.units import format_duration, format_moment

if TYPE_CHECKING:
    from hyperbloom.api.schemas.integrations import IntegrationForm
    from hyperbloom.integrations.status import Kind

__all__ = ["hook", "input_", "output", "problems_of"]


def _group(kind: Kind, *, about: str, target: str, force: str) -> click.Group:
    """`KIND list|show|run`. about: what they are. target: what each is about. force: of `run`."""
    named = click.argument("name", shell_complete=offer_integrations(kind))

    @click.group(kind, cls=Group, help=f"{about}\n\nThe table [[{kind}s]] of the configuration.")
    def group() -> None:
        pass

    @group.command("list", help=f"List the {kind}s: how each stands, and what is wrong.")
    @pass_app
    def list_all(app: App) -> None:
        with app.client() as client:
            found = client.integrations(kind)
        if app.out.as_json:
            app.out.json({f"{kind}s": found})
        else:
            _show_table(app, kind, found, target)

    @group.command("show", help=f"Show all there is to say of one {kind}.")
    @named
    @pass_app
    def show(app: App, name: str) -> None:
        with app.client() as client:
            found = client.integration(kind, _checked(kind, name))
        if app.out.as_json:
            app.out.json(found)
        else:
            app.out.facts([*_facts(app, found, target), *_figures(app, found)])

    @group.command(
        "run",
        help=f"Run one {kind} now, and wait until that is over.\n\nExit code 1 if it did not do "
        "what it should; the message says why.",
    )
    @named
    @click.option("--force", is_flag=True, help=force)
    @pass_app
    def run(app: App, name: str, *, force: bool) -> None:
        # A run takes as long as its `timeout` lets it, and may wait for another one before it.
        with app.client(None) as client, app.progress(f"running {kind} {name}"):
            found = client.run_integration(kind, _checked(kind, name), force=force)
        if app.out.as_json:
            app.out.json(found)
        else:
            figures = ", ".join(map(" ".join, _figures(app, found)))
            app.out.line(f"{kind} {name} ran: {figures}" if figures else f"{kind} {name} ran")

    return group


output = _group(
    "output",
    about="Files of other tools, which the node keeps as its feeds are.",
    target="file",
    force="Write the file and run the command, though nothing has changed.",
)
input_ = _group(
    "input",
    about="Lists of others, whose entries the node puts into its feeds.",
    target="source",
    force="Take the source as it is, though more of it has gone than `max_shrink` allows.",
)
hook = _group(
    "hook",
    about="Programs and web servers that the node tells of new values.",
    target="told",
    force="Pass over the values that the hook fails at: it is never told of them.",
)


def problems_of(found: Iterable[IntegrationForm]) -> Iterator[str]:
    """A sentence for each that has a problem."""
    for one in found:
        if one["problem"] is not None:
            yield f"{one['kind']} {one['name']}: {one['problem']}"


def _checked(kind: Kind, name: str) -> str:
    if not name:
        raise click.UsageError(f"a name is empty; `hyperbloom {kind} list` shows the names")
    return name


def _show_table(app: App, kind: Kind, found: list[IntegrationForm], target: str) -> None:
    """People get what has room on a line, and what is wrong below; pipes get a field of each."""
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    if app.out.is_terminal:
        columns = ("name", "feed", "state", "last success", target)
        rows = [
            (
                Name(one["name"]),
                Name(one["feed"] or "-"),
                one["state"],
                _ago(one["last_success"]),
                Name(one["target"]),
            )
            for one in found
        ]
    else:
        columns = ("name", "feed", target, *_FACTS)
        rows = [tuple(text for _, text in _facts(app, one, target)) for one in found]
    app.out.table(
        columns,
        rows,
        empty=f"No {kind} is configured: write [[{kind}s]] into {app.config.path} "
        f"(docs/operations.md), then `{app.command('reload')}`.",
    )
    if app.out.is_terminal:
        for sentence in problems_of(found):
            app.out.sentence(sentence)


#: What is told of each beside its name, feed and target.
_FACTS = (
    "state", "problem", "last success", "last failure", "next run", "runs", "failures",
)  # fmt: skip


def _facts(app: App, one: IntegrationForm, target: str) -> Iterator[tuple[str, str]]:
    """What is told of all kinds; moments as people say them, and by the clock for pipes."""
    ago = _ago if app.out.is_terminal else _moment
    ahead = _ahead if app.out.is_terminal else _moment
    texts = (
        one["state"],
        one["problem"] or "-",
        ago(one["last_success"]),
        ago(one["last_failure"]),
        ahead(one["next_run"]),
        app.out.number(one["runs"]),
        app.out.number(one["failures"]),
    )
    yield "name", one["name"]
    yield "feed", one["feed"] or "-"
    yield target, one["target"]
    yield from zip(_FACTS, texts, strict=True)


def _figures(app: App, one: IntegrationForm) -> list[tuple[str, str]]:
    """The numbers of its kind, such as `left out` and how many."""
    return [
        (figure.replace("_", " "), app.out.number(number))
        for figure, number in one["figures"].items()
    ]


def _ago(moment: float | None) -> str:
    return "-" if moment is None else f"{format_duration(time.time() - moment)} ago"


def _ahead(moment: float | None) -> str:
    return "-" if moment is None else f"in {format_duration(moment - time.time())}"


def _moment(moment: float | None) -> str:
    return "-" if moment is None else format_moment(moment)
