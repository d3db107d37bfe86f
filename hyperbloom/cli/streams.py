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
#: The longest value (`LONGEST_VALUE_BYTES` of hyperbloom.replication.limits), and a line of hex.
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


def read_lines(descriptor: int, *, longest: int = MAX_LINE_BYTES) -> Iterator[list[bytes]]:
    """Non-empty lines without their line feed; an empty list when the source pauses.

    The pause is said once, so that what has come can be sent. Raises `click.ClickException` for a
    line that is too long to be a value.
    """
    rest, paused, number = b"", False, 0
    while True:
        part = _read(descriptor, wait=paused)
        if part is None:
            paused = True
            yield []
            continue
        paused = False
        *lines, rest = (rest + part).split(b"\n") if part else (rest, b"")
        for line in (*lines, rest):
            number += 1
            if len(line) > longest:
                raise click.ClickException(
                    f"line {number} of standard input has more than {longest:,} bytes, which no "
                    "value may have; the lines before it were read"
                )
        number -= 1  # the rest is not a line yet
        yield [line for line in lines if line]
        if not part:
            return


def _from_hex(lines: list[bytes]) -> list[bytes]:
    values = []
    for line in lines:
        try:
            values.append(bytes.fromhex(line.decode("ascii")))
        except ValueError:
            shown = line[:40].decode("ascii", "replace")
            raise click.ClickException(f"standard input: {shown!r} is not hex") from None
    return [value for value in values if value]


def batches(descriptor: int, *, as_hex: bool) -> Iterator[list[bytes]]:
    """The values on standard input, one a line, in lists that each fit one request.

    A line may end in LF or CR LF, the first of which is remarked on; hex can end a value in a CR.
    """
    batch: list[bytes] = []
    size = 0
    is_said = False
    longest = MAX_LINE_BYTES if as_hex else MAX_VALUE_BYTES + 1
    for read in read_lines(descriptor, longest=longest):
        lines = read
        if not as_hex and any(line.endswith(b"\r") for line in read):
            lines = [short for line in read if (short := line.removesuffix(b"\r"))]
            if not is_said:
                say(
                    "standard input has lines that end in CR LF; the CR is left out (--hex takes "
                    "values as they are)"
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
