"""What an operator says of outputs, inputs and hooks: `[[outputs]]`, `[[inputs]]`, `[[hooks]]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

__all__ = [
    "FORMAT_NAMES",
    "SET_FORMATS",
    "SOURCE_FORMATS",
    "HookSettings",
    "InputSettings",
    "IntegrationSettings",
    "IntegrationsSettings",
    "OutputFormat",
    "OutputSettings",
    "SourceFormat",
]

OutputFormat = Literal[
    "lines",
    "json",
    "csv",
    "hosts",
    "dnsmasq",
    "unbound",
    "rpz",
    "cidr",
    "nftables",
    "ipset",
    "postfix",
]
SourceFormat = Literal["lines", "hosts", "csv", "adblock", "json"]

#: The names of `hyperbloom.outputs.FORMATS`, which is not loaded for them; a test compares them.
FORMAT_NAMES: tuple[str, ...] = get_args(OutputFormat)
#: Those of them that name sets.
SET_FORMATS: tuple[OutputFormat, ...] = ("nftables", "ipset")
SOURCE_FORMATS: tuple[str, ...] = get_args(SourceFormat)

#: Bytes of a source: lists of ten million names have fewer.
DEFAULT_SOURCE_BYTES = 256 << 20
DEFAULT_READER_BYTES, LEAST_READER_BYTES = 1 << 30, 64 << 20


def _seconds(default: float, text: str, least: float = 0.0, most: float | None = None) -> Any:
    bounds = {"min": least} if most is None else {"min": least, "max": most}
    return field(default=default, metadata={"help": text, "unit": "seconds", **bounds})


def _help(text: str, default: Any) -> Any:
    return field(default=default, metadata={"help": text})


_NAME = "what it is called in commands, on the status page and in metrics"
_FEED = "the feed's alias, key or `own`; left out, the feed that commands mean which name none"
_TIMEOUT = "how long one run may take before it is ended; it counts as failed then"
_COMMAND_DELAY = "the least time between the beginnings of two runs of the command"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSettings:
    """One `[[outputs]]`: a file that is kept as the feed is, and a command that is told of it.

    ``end``: None for no end. ``command``: empty for none.
    """

    name: str = field(metadata={"help": _NAME})
    path: Path = field(metadata={"help": "the file; it is written beside itself and then renamed"})
    format: OutputFormat = field(metadata={"help": "a [format](outputs.md#formats)"})
    feed: str | None = field(default=None, metadata={"help": _FEED})
    start: bytes = _help("the first value that comes out, text; `start_hex` for bytes", b"")
    end: bytes | None = field(
        default=None, metadata={"help": "the first value behind those; `end_hex` for bytes"}
    )
    prefix: bytes = _help("what values begin with that come out; `prefix_hex` for bytes", b"")
    mode: int = _help("the file's permissions, as in `chmod`", 0o644)
    set_name: str = _help(
        "of `nftables` the table, of `ipset` what names of sets begin with", "hyperbloom"
    )
    allow: Path | None = field(
        default=None, metadata={"help": "a file with an [allow list](outputs.md#allow-lists)"}
    )
    allow_feed: str | None = field(
        default=None, metadata={"help": "a feed whose values are an allow list"}
    )
    command: tuple[str, ...] = _help(
        "a program and its arguments, run after the file has changed; there is no shell", ()
    )
    delay: float = _seconds(1.0, _COMMAND_DELAY)
    timeout: float = _seconds(60.0, _TIMEOUT, 1.0, 3_600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSettings:
    """One `[[inputs]]`: a source whose entries are values of the feed as long as they are in it.

    Either ``path`` or ``url`` is given.
    """

    name: str = field(metadata={"help": _NAME})
    feed: str | None = field(default=None, metadata={"help": _FEED})
    path: Path | None = field(default=None, metadata={"help": "the source, a file of this machine"})
    url: str | None = field(default=None, metadata={"help": "the source, `https://…`"})
    format: SourceFormat = field(
        default="lines", metadata={"help": "a [format](inputs.md#formats)"}
    )
    column: str | None = field(
        default=None, metadata={"help": "of `csv`: a name in its first line, or a number from 1"}
    )
    pointer: str | None = field(
        default=None,
        metadata={"help": "of `json`: where the values are, by a JSON pointer (RFC 6901)"},
    )
    every: float = _seconds(3_600.0, "how often it is read", 1.0)
    max_shrink: float = field(
        default=0.25,
        metadata={
            "help": "the part of its values that may go in one reading; if more are gone, nothing "
            "is taken back until somebody has looked",
            "min": 0,
            "max": 1,
        },
    )
    max_bytes: int = field(
        default=DEFAULT_SOURCE_BYTES,
        metadata={"help": "a longer source is refused", "min": 1},
    )
    max_memory: int = field(
        default=DEFAULT_READER_BYTES,
        metadata={
            "help": "a source that takes more bytes of memory is refused",
            "min": LEAST_READER_BYTES,
        },
    )
    timeout: float = _seconds(300.0, _TIMEOUT, 1.0, 3_600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSettings:
    """One `[[hooks]]`: a command or a URL that is told of each new value, at least once.

    Either ``command`` or ``url`` is given; ``secret`` is a file, and goes with a URL.
    """

    name: str = field(metadata={"help": _NAME})
    feed: str | None = field(default=None, metadata={"help": _FEED})
    command: tuple[str, ...] = _help(
        "a program and its arguments, which reads values from its standard input; no shell", ()
    )
    url: str | None = field(
        default=None,
        metadata={"help": "where values are sent by POST: `https://…`, or `http://` on loopback"},
    )
    secret: Path | None = field(
        default=None, metadata={"help": "of a `url`: the file with the key of the HMAC"}
    )
    since: Literal["now", "start"] = field(
        default="now",
        metadata={
            "help": "where a new hook begins: with values that are new, or with all that are here"
        },
    )
    batch: int = field(
        default=1_000, metadata={"help": "values at a time, at most", "min": 1, "max": 10_000}
    )
    delay: float = _seconds(1.0, "the least time between the beginnings of two batches")
    timeout: float = _seconds(60.0, _TIMEOUT, 1.0, 3_600.0)


IntegrationSettings = OutputSettings | InputSettings | HookSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationsSettings:
    """All of a configuration; no two of a kind have the same name."""

    outputs: tuple[OutputSettings, ...] = ()
    inputs: tuple[InputSettings, ...] = ()
    hooks: tuple[HookSettings, ...] = ()

    def __iter__(self) -> Iterator[IntegrationSettings]:
        """Outputs, inputs, hooks, each as they stand in the file."""
        yield from self.outputs
        yield from self.inputs
        yield from self.hooks
