"""A snapshot is restored by the command, beside a plain copy of its file."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from nodes import prefill

from hyperbloom.keys import Identity
from hyperbloom.store import Store

__all__ = ["restore_case"]

_BATCH = 5_000
_MOST_SECONDS = 20.0
_COMMAND = str(Path(sys.executable).with_name("hyperbloom"))


def _batches(count: int) -> Iterator[list[bytes]]:
    numbers = random.Random(1)
    for start in range(0, count, _BATCH):
        yield [numbers.randbytes(64) for _ in range(min(_BATCH, count - start))]


def _used() -> float:
    """Processor time of the processes that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def restore_case(folder: Path, scale: float) -> dict[str, Any]:
    """A million values of 64 bytes, with their sketches."""
    count = max(10_000, int(1_000_000 * scale))
    prefill(folder, Identity(b"n" * 32), b"f" * 32, _batches(count))
    with closing(Store.open(folder / "store", create=False)) as store:
        store.snapshot(folder / "snapshot")
    file = folder / "snapshot" / "data.mdb"
    os.sync()
    begun = time.perf_counter()
    shutil.copyfile(file, folder / "copied")
    copied = time.perf_counter() - begun
    os.sync()
    begun, used = time.perf_counter(), _used()
    subprocess.run(
        [_COMMAND, "restore", folder / "snapshot", "--to", folder / "restored"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    seconds = time.perf_counter() - begun
    return {
        "values": count,
        "seconds": seconds,
        "processor_seconds": _used() - used,
        "file_copy_seconds": copied,
        "bytes_before": file.stat().st_size,
        "bytes_after": (folder / "restored" / "data.mdb").stat().st_size,
        "must": f"<= {_MOST_SECONDS * max(scale, 0.1):g} s, with the walk over all values",
        "ok": seconds <= _MOST_SECONDS * max(scale, 0.1),
    }
