"""One export, compaction or vacuum at a time in a folder of tables.

The commits would be safe without it (the second of two fails); it spares the second one its work.
What stands in the file tells a task on another machine whether it has the same folder before it.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hyperbloom.export.errors import ExportBusy

__all__ = ["LOCK_FILE", "folder_lock", "read_sign"]

LOCK_FILE: Final = ".hyperbloom-export.lock"
_SIGN_BYTES: Final = 64


@contextmanager
def folder_lock(target: Path) -> Iterator[str]:
    """Hold the folder, and make it if it is not there; the sign of this time.

    Raises ExportBusy, which names who holds it, or OSError.
    """
    target.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(target / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(descriptor, _SIGN_BYTES).decode("ascii", "replace").partition(" ")[0]
            raise ExportBusy(
                f"process {owner.strip() or 'unknown'} works on {target}; "
                "wait until it has ended, nothing was done"
            ) from None
        sign = f"{os.getpid()} {uuid.uuid4().hex}"
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{sign}\n".encode(), 0)
        # For those who see the folder through a network.
        os.fsync(descriptor)
        yield sign
    finally:
        os.close(descriptor)


def read_sign(target: Path) -> str:
    """The sign in this folder; OSError if there is none."""
    return (target / LOCK_FILE).read_text(encoding="ascii", errors="replace").strip()
