"""`get --as`: a feed's values as a file of another tool, on standard output."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from hyperbloom.cli.app import App
from hyperbloom.cli.output import counted
from hyperbloom.integrations.settings import FORMAT_NAMES, SET_FORMATS

__all__ = ["check_formatted", "format_options", "print_formatted"]


def format_options(command: Any) -> Any:
    """--as, --allow and --set-name."""
    command = click.option(
        "--set-name",
        metavar="NAME",
        callback=_set_name,
        help="With --as nftables or ipset: the table, or what names of sets begin with.",
    )(command)
    command = click.option(
        "--allow",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="With --as: what FILE lists, one a line, never comes out.",
    )(command)
    return click.option(
        "--as",
        "form",
        type=click.Choice(FORMAT_NAMES),
        help="Print a file that another tool reads (docs/outputs.md).",
    )(command)


def check_formatted(
    form: str | None, allow: Path | None, set_name: str | None, *others: bool
) -> None:
    """Refuses what does not go together; `others`: whether another form of output was asked for.

    Raises `click.UsageError`.
    """
    if form is None and allow is not None:
        raise click.UsageError("--allow goes with --as FORMAT")
    if set_name is not None and form not in SET_FORMATS:
        raise click.UsageError(f"--set-name goes with --as {' or '.join(SET_FORMATS)}")
    if form is not None and any(others):
        raise click.UsageError("--as says how values are printed: leave out --hex, -0 and --json")


def print_formatted(
    app: App, pages: Iterable[list[bytes]], form: str, allow: Path | None, set_name: str | None
) -> None:
    """Prints the file, page by page; then says on standard error what was left out, and why."""
    from hyperbloom.outputs import DEFAULT_SET_NAME, FORMATS, Allowed, Counts, Rendering

    allowed = Allowed(_lines(allow) if allow else ())
    if allowed.of_no_kind:
        what = "domain, address, network or mail address"
        app.out.note(
            f"{allow}: {counted(allowed.of_no_kind, 'line')} with no {what}; only a value of "
            "just these bytes is held back by it"
        )
    left_out = Counts()
    rendering = Rendering(
        allowed=allowed, serial=int(time.time()), set_name=set_name or DEFAULT_SET_NAME
    )
    for part in FORMATS[form].file(pages, rendering, left_out):
        app.out.raw(part)
    if left_out:
        reasons = ", ".join(f"{number} {reason}" for reason, number in left_out.most_common())
        app.out.note(f"left out {counted(left_out.total(), 'value')}: {reasons}")


def _set_name(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    from hyperbloom.outputs import check_set_name

    try:
        return check_set_name(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror or error}") from None
