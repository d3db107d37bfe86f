"""Arguments and options that several commands share."""

from __future__ import annotations

import os
import sys
import time
from typing import Any, get_args

import click

from hyperbloom.addresses import Address
from hyperbloom.cli.offers import offer_feeds
from hyperbloom.feed_words import LEAST_DIGITS, Dialect
from hyperbloom.units import parse_duration, parse_expiry
from hyperbloom.value_ranges import narrowed

__all__ = [
    "AGE",
    "EXPIRES",
    "HOST_PORT",
    "KEY_BYTES",
    "PEER_KEY",
    "WholeNumber",
    "as_bytes",
    "dialect_option",
    "feed_option",
    "hex_option",
    "null_option",
    "optional_bytes",
    "range_given",
    "range_options",
    "secret_line",
    "whole_hex",
    "yes_option",
]

#: Bytes of a public key.
KEY_BYTES = 32
#: Characters of what may be a key or a name.
MAX_WORD = 255


def whole_hex(text: str, *lengths: int) -> bytes | None:
    """The bytes of hex digits and nothing else; None where they are not as many as one of these."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    return data if len(data) in lengths and len(text) == 2 * len(data) else None


class PeerKeyWord(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A peer's key: 64 hex digits, 16 or more of them, or its name; the node looks it up."""

    name = "key"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        word = str(value).strip()
        if not word or len(word) > MAX_WORD or not word.isprintable():
            self.fail(
                f"{value!r} is no key: give its {2 * KEY_BYTES} hex digits, {LEAST_DIGITS} or more "
                "of the first of them, or its name (`hyperbloom peer names`)"
            )
        return word


class Expires(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A moment: a duration from now or a date. Converted to seconds since 1970."""

    name = "duration or date"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Called by click."""
        if isinstance(value, float):
            return value
        try:
            return parse_expiry(value, now=time.time())
        except ValueError as error:
            self.fail(str(error), param, ctx)


class HostPort(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """An address to dial."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        try:
            Address.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Age(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A duration, or 0. Converted to seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Called by click."""
        if isinstance(value, float) or value == "0":
            return float(value)
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class WholeNumber(click.IntRange):
    """A whole number within bounds, both of them inclusive."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Called by click, whose own sentences speak of an integer range."""
        try:
            number = int(value)
        except ValueError:
            number = None
        if number is None or not self._is_within(number):
            self.fail(f"{value!r} is not a whole number{self._bounds()}", param, ctx)
        return number

    def _is_within(self, number: int) -> bool:
        return (self.min is None or number >= self.min) and (self.max is None or number <= self.max)

    def _bounds(self) -> str:
        if self.max is not None:
            return f" from {self.min} to {self.max}"
        return "" if self.min is None else f" of {self.min} or more"


AGE = Age()
PEER_KEY = PeerKeyWord()
EXPIRES = Expires()
HOST_PORT = HostPort()


def secret_line(given: str | None, what: str) -> str:
    """One line that no argument should hold: `given`, else from standard input.

    "-" and None read it there; on a terminal a prompt asks for it, and shows nothing of it.
    """
    if given not in (None, "-"):
        return given
    if sys.stdin.isatty():
        return str(click.prompt(what, hide_input=True, err=True)).strip()
    return sys.stdin.readline().strip()


def feed_option(command: Any) -> Any:
    """--feed FEED."""
    return click.option(
        "--feed",
        metavar="FEED",
        shell_complete=offer_feeds,
        help="Its alias, key or the beginning of that; left out: default_feed, or the only feed.",
    )(command)


def dialect_option(command: Any) -> Any:
    """--dialect NAME."""
    return click.option(
        "--dialect",
        type=click.Choice(get_args(Dialect)),
        help="The protocol's version that the feed's nodes speak: 2 (default) or an older one.",
    )(command)


def hex_option(command: Any) -> Any:
    """--hex."""
    return click.option(
        "--hex", "as_hex", is_flag=True, help="Values and bounds are hex, going in and coming out."
    )(command)


def yes_option(command: Any) -> Any:
    """--yes, for what `App.ask_first` asks about."""
    return click.option(
        "--yes", is_flag=True, help="Do not ask; needed where standard input is no terminal."
    )(command)


def range_options(command: Any) -> Any:
    """--start, --end and --prefix, for `range_given`."""
    for option in (
        click.option("--prefix", metavar="P", help="Values that begin with P."),
        click.option("--end", metavar="E", help="Values below E only, in byte order."),
        click.option("--start", metavar="S", help="Values from S on, in byte order."),
    ):
        command = option(command)
    return command


def range_given(
    start: str | None, end: str | None, prefix: str | None, *, as_hex: bool
) -> tuple[bytes, bytes | None]:
    """The first value of the range that is meant, and the first behind it (None: to the last)."""
    given = (optional_bytes(text, as_hex=as_hex) for text in (start, end, prefix))
    first, beyond, beginning = given
    return narrowed(first or b"", beyond, beginning)


def null_option(command: Any) -> Any:
    """-0, --null."""
    return click.option(
        "-0",
        "--null",
        is_flag=True,
        help="Values end in NUL, not in a line feed, going in and coming out.",
    )(command)


def as_bytes(text: str, *, as_hex: bool) -> bytes:
    """A value as it was given on the command line; raises `click.UsageError` for bad hex."""
    if not as_hex:
        return os.fsencode(text)
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise click.UsageError(f"{text!r} is not hex (pairs of the digits 0-9 and a-f)") from None


def optional_bytes(text: str | None, *, as_hex: bool) -> bytes | None:
    """Like `as_bytes`; None stays None."""
    return None if text is None else as_bytes(text, as_hex=as_hex)
