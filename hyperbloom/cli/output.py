"""What commands print: values as bytes, tables for people, lines for pipes, JSON for programs."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

import click

from hyperbloom.cli.printable import printable
from hyperbloom.cli.tables import Cell, piped, print_table
from hyperbloom.units import format_duration, format_size

__all__ = [
    "Output",
    "OutputClosed",
    "OutputLost",
    "Progress",
    "counted",
    "how_far",
    "say",
    "say_problem",
    "tell_as_json",
    "tells_as_json",
]

#: A command to paste, which stays on one line.
_COMMAND = re.compile(r"`[^`]*`")
#: Stands for a space within one; what is printable holds none.
_GLUE = "\0"


def counted(number: int, noun: str) -> str:
    """A number of things, such as `1 value` and `2 addresses`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"


class OutputClosed(Exception):
    """Nobody reads standard output any more."""


class OutputLost(click.ClickException):
    """Standard output takes no more: the disk it goes to is full, or broken."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"the output cannot be written: {error.strerror or error}; what there is of it is not "
            "whole"
        )


class Output:
    """Standard output of one command."""

    def __init__(self, *, as_json: bool, full: bool = False) -> None:
        self.as_json = as_json
        #: Tables show keys with all their digits.
        self.full = full

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
        except OSError as error:
            raise OutputLost(error) from error

    def values(self, values: Iterable[bytes], *, null: bool = False, flush: bool = False) -> None:
        """Values, one a line: as they are for pipes, harmless for a terminal.

        `null`: each ends in NUL.
        """
        if self.is_terminal:
            values = (_shown(value) for value in values)
        end = b"\0" if null else b"\n"
        self.raw(b"".join(value + end for value in values), flush=flush)

    def line(self, text: str) -> None:
        """One line of text; a terminal gets nothing in it to obey."""
        if self.is_terminal:
            text = "\t".join(map(printable, text.split("\t")))
        self.raw(text.encode("utf-8", "surrogateescape") + b"\n")

    def json_values(self, pages: Iterable[list[bytes]], end: Callable[[], str] = str) -> None:
        """One line of JSON with `values` in hex, written page by page; `end`: its last members.

        Nothing is written before the first page has come: what fails by then leaves no half.
        """
        begin, separator = '{"values": [', ""
        for page in pages:
            shown = ", ".join(f'"{value.hex()}"' for value in page)
            self.raw(f"{begin}{separator if page else ''}{shown}".encode("ascii"))
            begin, separator = "", ", " if page else separator
        self.raw(f"{begin}]{end()}}}\n".encode("ascii"))

    def json(self, data: Any, *, flush: bool = False) -> None:
        """One line of JSON."""
        text = json.dumps(data, separators=(",", ":") if flush else (", ", ": "))
        self.raw(text.encode("ascii") + b"\n", flush=flush)

    def note(self, text: str) -> None:
        """A remark on standard error, out of the way of what is printed."""
        say(text)

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Names and what they are: aligned for people, tab-separated for pipes."""
        rows = list(facts)
        if not self.is_terminal:
            for name, text in rows:
                self.line(f"{name}\t{printable(text)}")
            return
        width = max(len(name) for name, _ in rows) + 2
        for name, text in rows:
            for line in _wrapped(f"{name:<{width}}{printable(text)}", indent=width):
                self.line(line)

    def sentence(self, text: str) -> None:
        """A sentence: wrapped for people, its further lines set in; one line for pipes."""
        if not self.is_terminal:
            self.line(printable(text))
            return
        for line in _wrapped(printable(text), indent=4):
            self.line(line)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, empty: str) -> None:
        """Rows under a heading; columns whose name ends in `>` are aligned to the right."""
        if not self.is_terminal:
            self.line("\t".join(column.rstrip(">") for column in columns))
            for row in rows:
                self.line("\t".join(map(piped, row)))
        elif rows:
            print_table(columns, rows, full=self.full)
        else:
            self.line(empty)


class _Told:
    """How standard error is written: `as_json` under --json, as the command line says at its start.

    It is one for the whole process, as standard error is: what reads the command line, and what
    fails before that is done, has no `App`.
    """

    as_json = False


def tell_as_json(as_json: bool) -> None:
    """Whether all that `say` and `say_problem` write from now on is an object of JSON a line."""
    _Told.as_json = as_json


def tells_as_json() -> bool:
    """Whether it is."""
    return _Told.as_json


def say_problem(problem: Mapping[str, object]) -> None:
    """What ended the command, as JSON: `cli.app` makes it."""
    click.echo(json.dumps(problem), err=True)


def say(text: str) -> None:
    """A sentence on standard error: wrapped for people, one line for anything else.

    Under --json it is a remark in an object of its own.
    """
    if _Told.as_json:
        click.echo(json.dumps({"remark": text}), err=True)
        return
    sentence = printable(f"hyperbloom: {text}")
    lines = _wrapped(sentence, indent=4) if sys.stderr.isatty() else [sentence]
    click.echo("\n".join(lines), err=True)


def _wrapped(text: str, *, indent: int) -> list[str]:
    lines = textwrap.wrap(
        _COMMAND.sub(lambda found: found[0].replace(" ", _GLUE), text),
        max(40, shutil.get_terminal_size().columns),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_GLUE, " ") for line in lines]


def _shown(value: bytes) -> bytes:
    return printable(value.decode("utf-8", "surrogateescape")).encode("utf-8")


class Progress:
    """A line on standard error that says how far something is; nothing where nobody looks.

    hidden: somebody types on the same terminal, and it would stand in what is typed.
    """

    SECONDS_BETWEEN = 0.1

    def __init__(self, text: str, *, hidden: bool = False) -> None:
        self._shown = sys.stderr.isatty() and not hidden
        self._text = text
        self._begun = time.monotonic()
        self._next = 0.0
        self._width = 0

    def __enter__(self) -> Progress:
        self.show("", at_once=True)
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

    @property
    def is_shown(self) -> bool:
        """Whether anybody sees it."""
        return self._shown

    def at(
        self,
        done: int,
        total: int = 0,
        unit: str = "values",
        *,
        seconds: float | None = None,
        before: int = 0,
    ) -> None:
        """Says how many are done of so many (0: nobody knows), at what rate, and how long it takes.

        unit: what they are; `bytes` are shown in binary units. seconds: for how long, where it
        began before this. before: how many were done when it began.
        """
        if self._shown:
            took = time.monotonic() - self._begun if seconds is None else seconds
            self.show(how_far(done, total, unit, took, before))

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Says how far it is, a few times a second at most; ``at_once`` for what may stand long."""
        if not self._shown or (time.monotonic() < self._next and not at_once):
            return
        self._next = time.monotonic() + self.SECONDS_BETWEEN
        line = f"{self._text} {text}".rstrip()[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write("\r" + line.ljust(self._width))
        sys.stderr.flush()
        self._width = max(self._width, len(line))


def how_far(done: int, total: int, unit: str, seconds: float, before: int = 0) -> str:
    """Percentage, amounts, rate and time left, as far as they are known."""

    def amount(count: float) -> str:
        return format_size(count) if unit == "bytes" else f"{count:,.0f}"

    parts = [amount(done)]
    if total:
        parts = [f"{min(done / total, 1):4.0%} {amount(done)} of {amount(total)}"]
    if unit != "bytes":
        parts[0] += f" {unit}"
    if total and done >= total:
        # What is left is no value more: a last look, or the wait for the disk.
        parts.append("finishing")
    elif done > before and seconds >= 1:
        rate = (done - before) / seconds
        parts.append(f"{amount(rate)}/s")
        if total:
            left = (total - done) / rate
            parts.append(f"{format_duration(left)} left" if left >= 1 else "nearly done")
    return ", ".join(parts)
