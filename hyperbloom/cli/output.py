"""What commands print: values as bytes, tables for people, lines for pipes, JSON for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import click

__all__ = ["Key", "Output", "OutputClosed", "Progress"]

#: Characters of a key shown in a table; two keys of one table that share them are not by chance.
KEY_CHARACTERS = 12


class OutputClosed(Exception):
    """Nobody reads standard output any more."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key in a table: shortened for people, whole for pipes."""

    text: str | None

    def short(self) -> str:
        """The first characters."""
        return "-" if self.text is None else f"{self.text[:KEY_CHARACTERS]}…"


class Output:
    """Standard output of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at it."""
        return sys.stdout.isatty()

    def number(self, count: int) -> str:
        """A number: with separators for people, without for pipes."""
        return f"{count:,}" if self.is_terminal else str(count)

    def raw(self, data: bytes, *, flush: bool = False) -> None:
        """Bytes as they are."""
        stream = sys.stdout.buffer
        try:
            stream.write(data)
            if flush:
                stream.flush()
        except BrokenPipeError:
            raise OutputClosed from None

    def line(self, text: str) -> None:
        """One line of text."""
        self.raw(text.encode("utf-8", "surrogateescape") + b"\n")

    def json(self, data: Any, *, flush: bool = False) -> None:
        """One line of JSON."""
        text = json.dumps(data, separators=(",", ":") if flush else (", ", ": "))
        self.raw(text.encode("ascii") + b"\n", flush=flush)

    def note(self, text: str) -> None:
        """A remark on standard error, out of the way of what is printed."""
        click.echo(f"hyperbloom: {text}", err=True)

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Names and what they are: aligned for people, tab-separated for pipes."""
        rows = list(facts)
        if not self.is_terminal:
            for name, text in rows:
                self.line(f"{name}\t{text}")
            return
        width = max(len(name) for name, _ in rows)
        for name, text in rows:
            self.line(f"{name:<{width}}  {text}")

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str | Key]], *, empty: str
    ) -> None:
        """Rows under a heading; columns whose name ends in `>` are aligned to the right."""
        names = [column.rstrip(">") for column in columns]
        if not self.is_terminal:
            self.line("\t".join(names))
            for row in rows:
                self.line("\t".join((c.text or "-") if isinstance(c, Key) else c for c in row))
            return
        if not rows:
            self.line(empty)
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
        for column, name in zip(columns, names, strict=True):
            table.add_column(
                name, justify="right" if column.endswith(">") else "left", overflow="fold"
            )
        for row in rows:
            cells = [c.short() if isinstance(c, Key) else c for c in row]
            table.add_row(*(Text(cell, style=_style(cell)) for cell in cells))
        Console(highlight=False).print(table)


def _style(cell: str) -> str:
    return "bold red" if cell.startswith(("EXPIRED", "NOT TRUSTED")) else ""


class Progress:
    """A line on standard error that says how far something is; nothing where nobody looks."""

    SECONDS_BETWEEN = 0.1

    def __init__(self, text: str) -> None:
        self._shown = sys.stderr.isatty()
        self._text = text
        self._next = 0.0
        self._width = 0

    def __enter__(self) -> Progress:
        self.show("")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()

    def show(self, how_far: str) -> None:
        """Says how far it is, a few times a second at most."""
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.SECONDS_BETWEEN
        line = f"{self._text} {how_far}".rstrip()
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = max(self._width, len(line))
