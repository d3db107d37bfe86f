"""`config`: the configuration file by itself, without a node."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, Group, exit_with, pass_app
from hyperbloom.cli.output import counted

if TYPE_CHECKING:
    from hyperbloom.config.check import Checked, Problem

__all__ = ["config"]


@click.group(cls=Group)
def config() -> None:
    """The configuration file."""


@config.command(cls=Command, timeout_option=False)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@pass_app
def check(app: App, file: Path | None) -> None:
    """Say what is wrong with a configuration, and what is dangerous in it.

    FILE is one that -c could name; left out, the node's. Everything is read as the node would read
    it, with the keys and the folders that the file names, but nothing is made or changed and no
    node needs to run. Run it as the user that the node runs as. Exit code 3 where a node would
    refuse the configuration, 7 where only its data folder cannot be used; warnings leave it at 0.
    """
    from hyperbloom.config.check import check_config

    checked = check_config(file or app.config_path)
    if app.out.as_json:
        app.out.json(_form(checked))
    else:
        _show(app, checked)
    if checked.errors:
        exit_with(min(problem.kind.exit_code for problem in checked.errors))


def _form(checked: Checked) -> dict[str, Any]:
    def entry(problem: Problem) -> dict[str, Any]:
        return {name: found for name, found in asdict(problem).items() if name != "kind"}

    return {
        "config": str(checked.path),
        "errors": [entry(problem) for problem in checked.errors],
        "warnings": [entry(problem) for problem in checked.warnings],
    }


def _show(app: App, checked: Checked) -> None:
    for kind, problems in (("error", checked.errors), ("warning", checked.warnings)):
        for problem in problems:
            where = "" if problem.line is None else f"line {problem.line}: "
            app.out.sentence(f"{kind}: {where}{problem.text}")
    errors = counted(len(checked.errors), "error")
    warnings = counted(len(checked.warnings), "warning")
    app.out.sentence(f"{checked.path}: {errors}, {warnings}")
