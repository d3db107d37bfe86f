"""Rows written so far, told by tasks to the process that shows progress.

A file with a number of 8 bytes for each task, at the place of the task's number. Spark says of a
task only that it has ended, which for few large ones is nothing for a long time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

__all__ = ["RowCounter", "count_rows", "counter_file"]

_NUMBER: Final = np.dtype("<u8")


@contextmanager
def counter_file() -> Iterator[Path]:
    """A place for the numbers, for as long as the block lasts."""
    with TemporaryDirectory(prefix="hyperbloom-export-") as folder:
        path = Path(folder) / "rows"
        path.touch(0o600)
        yield path


def count_rows(path: Path) -> int:
    """The sum of all numbers."""
    data = path.read_bytes()
    whole = len(data) // _NUMBER.itemsize * _NUMBER.itemsize
    return int(np.frombuffer(data[:whole], _NUMBER).sum())


class RowCounter:
    """A task's own number in such a file. Counting never fails: it is no part of the work."""

    def __init__(self, path: Path | None, task: int) -> None:
        self._offset = task * _NUMBER.itemsize
        self._rows = 0
        self._descriptor: int | None = None
        if path is not None:
            with suppress(OSError):
                self._descriptor = os.open(path, os.O_WRONLY)

    def add(self, rows: int) -> None:
        """Count these, too."""
        self._rows += rows
        if self._descriptor is not None:
            with suppress(OSError):
                os.pwrite(self._descriptor, np.array(self._rows, _NUMBER).tobytes(), self._offset)

    def close(self) -> None:
        """What was counted stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
