"""Values from standard input, in batches: any amount in bounded memory, slow sources in time."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import click

from hyperbloom.cli.output import say

__all__ = ["BATCH_BYTES", "BATCH_VALUES", "batches", "read_lines"]

#: One request's worth: below the API's bounds (10,000 values, 2 MiB as JSON) with room to spare.
BATCH_VALUES = 5_000
BATCH_BYTES = 524_288
#: The longest value (`LONGEST_VALUE_BYTES` of hyperbloom.replication.limits), and the longest line:
#: such a value in hex, with some spaces.
MAX_VALUE_BYTES = 261_049
MAX_LINE_BYTES = 524_288
READ_BYTES = 65_536
#: Lines that have come are sent when nothing more comes for this long.
PATIENCE_SECONDS = 0.05


def _read(descriptor: int, *, wait: bool) -> bytes | None:
    """What can be read, b"" at the end, None when there is nothing yet and `wait` is false."""
    if not wait and not select.select([descriptor], [], [], PATIENCE_SECONDS)[0]:
        return None
    return os.read(descriptor, READ_BYTES)


def read_lines(descriptor: int, *, as_hex: bool, null: bool) -> Iterator[list[bytes]]:
    """Non-empty lines without their end; an empty list when the source pauses.

    Where they end in NUL (`null`), they hold line feeds and CRs as they come. The pause is said
    once, so that what has come can be sent. Raises `click.ClickException` for a line that is too
    long to be a value.
    """
    end = b"\0" if null else b"\n"
    rest, paused, number = b"", False, 0
    while True:
        part = _read(descriptor, wait=paused)
        if part is None:
            paused = True
            yield []
            continue
        paused = False
        *lines, rest = (rest + part).split(end) if part else (rest, b"")
        for line in (*lines, rest):
            number += 1
            if len(line) > MAX_VALUE_BYTES and _is_too_long(line, as_hex=as_hex, null=null):
                raise click.ClickException(
                    f"{'value' if null else 'line'} {number} of standard input is longer than the "
                    f"{MAX_VALUE_BYTES:,} bytes that a value may have; what stands before it was "
                    "read"
                )
        number -= 1  # the rest is not a line yet
        yield [line for line in lines if line]
        if not part:
            return


def _is_too_long(line: bytes, *, as_hex: bool, null: bool) -> bool:
    if as_hex:
        is_long = len(line) > 2 * MAX_VALUE_BYTES
        return len(line) > MAX_LINE_BYTES or (
            is_long and len(b"".join(line.split())) > 2 * MAX_VALUE_BYTES
        )
    return len(line if null else line.removesuffix(b"\r")) > MAX_VALUE_BYTES


def _from_hex(lines: list[bytes]) -> list[bytes]:
    values = []
    for line in lines:
        try:
            values.append(bytes.fromhex(line.decode("ascii")))
        except ValueError:
            shown = line[:40].decode("ascii", "replace")
            raise click.ClickException(f"standard input: {shown!r} is not hex") from None
    return [value for value in values if value]


def batches(descriptor: int, *, as_hex: bool, null: bool = False) -> Iterator[list[bytes]]:
    """The values on standard input, one a line, in lists that each fit one request.

    A line may end in LF or CR LF, the first of which is remarked on; hex can end a value in a CR.
    With `null` each value ends in NUL, and CR and LF are parts of it like other bytes.
    """
    batch: list[bytes] = []
    size = 0
    is_said = False
    for read in read_lines(descriptor, as_hex=as_hex, null=null):
        lines = read
        if not as_hex and not null and any(line.endswith(b"\r") for line in read):
            lines = [short for line in read if (short := line.removesuffix(b"\r"))]
            if not is_said:
                say(
                    "standard input has lines that end in CR LF; the CR is left out (-0 and --hex "
                    "take values as they are)"
                )
            is_said = True
        if not lines and batch:
            yield batch
            batch, size = [], 0
        for value in _from_hex(lines) if as_hex else lines:
            if batch and (len(batch) >= BATCH_VALUES or size + len(value) > BATCH_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(value)
            size += len(value)
    if batch:
        yield batch
