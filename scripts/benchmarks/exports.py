"""The export case: Spark's tasks against one process that does the same work without Spark."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from hyperbloom.export import export_snapshots, spark_session
from hyperbloom.export.snapshots import open_snapshot
from hyperbloom.keys import Identity
from hyperbloom.store import AppendValues, PutFeed, PutMeta, Store, WriterInline

__all__ = ["export_case"]

FEED = Identity(b"o" * 32).public_key
BATCH = 20_000
START = 1_794_787_200_000_000
DAYS = 5

#: One process, the same ranges, the same settings of Parquet; its seconds and its answer.
ONE_PROCESS = """
import sys, time
from pathlib import Path
from hyperbloom.export.tables.ranges import SeqRange
from hyperbloom.export.engines.tasks import write_value_ranges
snapshot, folder, feed, top = sys.argv[1:]
piece = SeqRange(path=Path(snapshot), node="aa", feed=bytes.fromhex(feed),
                 after_seq=0, last_seq=int(top))
begun = time.perf_counter()
write_value_ranges([piece], folder=Path(folder), name="part", target_bytes=128 * 1024 * 1024)
print(time.perf_counter() - begun)
"""


def fill(store: Store, count: int, seed: int, days: int) -> None:
    """Values of 20 to 200 bytes, of five origins, spread over some days."""
    numbers = random.Random(seed)
    writer = WriterInline(store)
    results: list[Any] = []
    writer.submit(PutMeta("node_id", FEED), results.append)
    writer.submit(PutFeed(FEED, {}), results.append)
    for at in range(0, count, BATCH):
        values = [
            numbers.randbytes(numbers.randint(20, 200)) for _ in range(min(BATCH, count - at))
        ]
        moment = START + (seed - 1) * 86_400_000_000 + at * days * 86_400_000_000 // count
        origin = bytes([at // BATCH % 5]) * 32
        writer.submit(AppendValues(FEED, values, origin, moment), results.append)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise errors[0]


def one_process_seconds(snapshot: Path, folder: Path) -> float:
    """Seconds of a single pyarrow process for the whole snapshot."""
    (feed,) = open_snapshot(snapshot).feeds
    arguments = [str(snapshot), str(folder), feed.key.hex(), str(feed.top_seq)]
    done = subprocess.run(
        [sys.executable, "-c", ONE_PROCESS, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def warm(session: Any) -> Callable[[], AbstractContextManager[Any]]:
    """A session whose workers have started, as export_snapshots asks for it."""

    @contextmanager
    def give() -> Any:
        yield session

    return give


def measured(master: str, folder: Path, snapshots: list[Path], runs: int) -> dict[str, Any]:
    """A cold full export, warm ones, and an incremental one of the second snapshot after each.

    One process without Spark has its turn between them, so that others at work on the machine
    strike both alike.
    """
    begun = time.perf_counter()
    with spark_session(master) as session:
        started = time.perf_counter() - begun
        fulls, increments, alones, peaks = [], [], [], []
        for run in range(runs + 1):
            target = folder / f"{master}-{run}"
            alones.append(one_process_seconds(snapshots[0], folder / f"{master}-alone-{run}"))
            for snapshot, times in zip(snapshots, (fulls, increments), strict=True):
                report = export_snapshots(
                    [snapshot], target, sessions=warm(session), tables=("values",)
                )
                times.append(report.tables[0].seconds)
                peaks.append(report.worker_peak_bytes)
    return {
        "session_s": started,
        "one_process_s": statistics.median(alones),
        "cold_s": fulls[0],
        "full_s": statistics.median(fulls[1:]),
        "incremental_s": statistics.median(increments[1:]),
        "worker_peak_mb": max(peaks) / 1e6,
    }


def export_case(folder: Path, scale: float) -> dict[str, Any]:
    """5,000,000 values in full by Spark on two cores and on one, then 50,000 new ones."""
    count, new, runs = int(5_000_000 * scale), int(50_000 * scale), 3
    snapshots = [folder / "first", folder / "second"]
    store = Store.open(folder / "store", durable=False)
    try:
        fill(store, count, 1, DAYS)
        store.snapshot(snapshots[0])
        fill(store, new, DAYS + 1, 1)
        store.snapshot(snapshots[1])
    finally:
        store.close()
    two = measured("local[2]", folder, snapshots, runs)
    one = measured("local[1]", folder, snapshots, runs)
    to_alone, to_full = two["full_s"] / two["one_process_s"], two["incremental_s"] / two["full_s"]
    return {
        "values": count,
        "new_values": new,
        **{f"two_cores_{name}": value for name, value in two.items()},
        **{f"one_core_{name}": value for name, value in one.items()},
        "full_to_one_process": to_alone,
        "incremental_to_full": to_full,
        "must": "full <= 0.55 of one process, incremental <= 0.12 of full, worker <= 300 MB",
        "ok": to_alone <= 0.55 and to_full <= 0.12 and two["worker_peak_mb"] <= 300,
    }
