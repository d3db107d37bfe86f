"""Values from standard input, in batches: any amount in bounded memory, slow sources in time."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import click

__all__ = ["BATCH_BYTES", "BATCH_VALUES", "batches", "read_lines"]

#: One request's worth: below the API's bounds (10,000 values, 2 MiB as JSON) with room to spare.
BATCH_VALUES = 5_000
BATCH_BYTES = 524_288
#: The longest value fits one frame of 256 KiB; twice that in hex. A longer line is no value.
MAX_LINE_BYTES = 524_288
READ_BYTES = 65_536
#: Lines that have come are sent when nothing more comes for this long.
PATIENCE_SECONDS = 0.05


def _read(descriptor: int, *, wait: bool) -> bytes | None:
    """What can be read, b"" at the end, None when there is nothing yet and `wait` is false."""
    if not wait and not select.select([descriptor], [], [], PATIENCE_SECONDS)[0]:
        return None
    return os.read(descriptor, READ_BYTES)


def read_lines(descriptor: int) -> Iterator[list[bytes]]:
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
        number += len(lines)
        if len(rest) > MAX_LINE_BYTES or any(len(line) > MAX_LINE_BYTES for line in lines):
            raise click.ClickException(
                f"near line {number + 1} of standard input: a line has more than "
                f"{MAX_LINE_BYTES:,} bytes, which no value may have"
            )
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
    """The values on standard input, one a line, in lists that each fit one request."""
    batch: list[bytes] = []
    size = 0
    for lines in read_lines(descriptor):
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
