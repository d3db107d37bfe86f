"""One export, compaction or vacuum at a time in a folder of tables.

The commits would be safe without it (the second of two fails); it spares the second one its work.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hyperbloom.export.errors import ExportBusy
from hyperbloom.export.tables.delta import translated

__all__ = ["LOCK_FILE", "folder_lock"]

LOCK_FILE: Final = ".hyperbloom-export.lock"


@contextmanager
def folder_lock(target: Path) -> Iterator[None]:
    """Hold the folder, and make it if it is not there; ExportBusy names who holds it."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise translated(error, target) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            raise ExportBusy(
                f"process {owner} works on {target}; wait until it has ended, nothing was done"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        yield
    finally:
        os.close(descriptor)
