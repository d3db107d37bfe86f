"""The export case: both engines against one process that does the same work without an engine.

Warm is what a session or a pool of workers does that has done the same before; cold is all from a
new process on, with the engine's start, but for the interpreter's own and its imports. The nights
are the whole command as cron runs it.
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from hyperbloom.export import Engines, export_snapshots, spark_session
from hyperbloom.export.snapshots import open_snapshot
from hyperbloom.keys import Identity
from hyperbloom.store import (
    AppendValues,
    ForgetValues,
    PutFeed,
    PutMeta,
    Store,
    WriterInline,
)
from hyperbloom.store.limits import FORGET_STEP

__all__ = ["export_case"]

FEED = Identity(b"o" * 32).public_key
BATCH = 20_000
START = 1_794_787_200_000_000
DAYS = 5
YEAR = 365

#: One process, the same ranges, the same settings of Parquet; its seconds and its answer.
ONE_PROCESS = """
import sys, time
from pathlib import Path
from hyperbloom.export.engines.engine import Files
from hyperbloom.export.engines.tasks import write_value_ranges
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.ranges import SeqRange
snapshot, folder, feed, after, last = sys.argv[1:]
piece = SeqRange(path=Path(snapshot), node="aa", feed=bytes.fromhex(feed),
                 after_seq=int(after), last_seq=int(last))
files = Files(place=Folder(Path(folder)), name="part", target_bytes=128 * 1024 * 1024,
              share_with="owner", cut_by=("node", "date"))
begun = time.perf_counter()
write_value_ranges([piece], files, 0)
print(time.perf_counter() - begun)
"""
#: An export in a new process; its seconds, and the largest resident set of a worker.
COLD = """
import json, sys, time
from pathlib import Path
from hyperbloom.export import Engines, export_snapshots
engine, snapshot, target, *tables = sys.argv[1:]
engines = Engines(wanted=engine, processes=2, master="local[2]")
begun = time.perf_counter()
report = export_snapshots([snapshot], Path(target), engines=engines, tables=tables)
written = {table.table: table.bytes for table in report.tables}
print(json.dumps([time.perf_counter() - begun, report.worker_peak_bytes, written]))
"""


def fill(store: Store, count: int, seed: int, days: int, *, batch: int = BATCH) -> None:
    """Values of 20 to 200 bytes, of five origins, spread over some days."""
    numbers = random.Random(seed)
    writer = WriterInline(store)
    results: list[Any] = []
    writer.submit(PutMeta("node_id", FEED), results.append)
    writer.submit(PutFeed(FEED, {}), results.append)
    for at in range(0, count, batch):
        values = [
            numbers.randbytes(numbers.randint(20, 200)) for _ in range(min(batch, count - at))
        ]
        moment = START + (seed - 1) * 86_400_000_000 + at * days * 86_400_000_000 // count
        origin = bytes([at // batch % 5]) * 32
        writer.submit(AppendValues(FEED, values, origin, moment), results.append)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise errors[0]


def plain_seconds(snapshot: Path, folder: Path, processes: int) -> float:
    """Seconds of plain pyarrow processes at once, each with as much of a snapshot: the slowest."""
    (feed,) = open_snapshot(snapshot).feeds
    cuts = [feed.top_seq * n // processes for n in range(processes + 1)]
    command = [sys.executable, "-c", ONE_PROCESS, str(snapshot)]
    started = [
        subprocess.Popen(
            [*command, str(folder / str(after)), feed.key.hex(), str(after), str(last)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for after, last in pairwise(cuts)
    ]
    return max(float(process.communicate()[0]) for process in started)


def cold_export(
    engine: str, snapshot: Path, target: Path, *tables: str
) -> tuple[float, int, dict[str, int]]:
    """An export by two workers in a new process: its seconds, what a worker took at most, and bytes
    written by table.
    """
    done = subprocess.run(
        [sys.executable, "-c", COLD, engine, str(snapshot), str(target), *tables],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak, written = json.loads(done.stdout)
    return seconds, peak, written


def command_seconds(snapshot: Path, target: Path, *options: str) -> float:
    """Seconds of `hyperbloom export`, from its start to its end."""
    begun = time.perf_counter()
    command = [sys.executable, "-m", "hyperbloom.cli", "export", str(snapshot), "--to", str(target)]
    subprocess.run([*command, *options], capture_output=True, check=True)
    return time.perf_counter() - begun


class Turns:
    """Times of what takes turns, so that others at work on the machine strike all alike."""

    def __init__(self, folder: Path, snapshots: list[Path]) -> None:
        self.folder, self.snapshots = folder, snapshots
        self.times: dict[str, list[float]] = defaultdict(list)
        self.peaks = {"local": 0, "spark": 0}

    def plain(self) -> None:
        """One process without an engine, and two: what the machine gives."""
        for count, name in enumerate(("one_process_s", "two_processes_s"), 1):
            folder = self.folder / name
            self.times[name].append(plain_seconds(self.snapshots[0], folder, count))
            shutil.rmtree(folder)

    def warm(self, engines: Engines) -> None:
        """By a session that runs: all, then what is new."""
        target = self.folder / "warm"
        for snapshot, name in zip(self.snapshots, ("full", "incremental"), strict=False):
            report = export_snapshots([snapshot], target, engines=engines, tables=("values",))
            self.times[f"spark_{name}_s"].append(report.tables[0].seconds)
            self.peaks["spark"] = max(self.peaks["spark"], report.worker_peak_bytes)
        shutil.rmtree(target)

    def cold(self, engine: str) -> None:
        """By a new process and a new engine: all, what is new, a report; then a night."""
        target = self.folder / engine
        steps = zip(self.snapshots, ("full", "incremental"), ("values", "values"), strict=False)
        for snapshot, name, table in [*steps, (self.snapshots[1], "coverage", "coverage")]:
            seconds, peak, _ = cold_export(engine, snapshot, target, table)
            self.times[f"{engine}_cold_{name}_s"].append(seconds)
            self.peaks[engine] = max(self.peaks[engine], peak)
        if engine == "local":
            command_seconds(self.snapshots[1], target)
            self.times["night_auto_s"].append(command_seconds(self.snapshots[2], target))
        else:
            options = ("--engine", "spark")
            self.times["night_spark_s"].append(command_seconds(self.snapshots[2], target, *options))
        shutil.rmtree(target)


def snapshots_of_nights(folder: Path, counts: list[int]) -> list[Path]:
    """A store that grows by so many values between snapshots."""
    store = Store.open(folder / "store", durable=False)
    found = []
    day = 1
    try:
        for number, count in enumerate(counts):
            days = DAYS if number == 0 else 1
            fill(store, count, day, days)
            day += days
            found.append(folder / f"snapshot-{number}")
            store.snapshot(found[-1])
    finally:
        store.close()
    return found


def forgetting_figures(folder: Path, count: int, forgotten: int) -> dict[str, float]:
    """A year's values, of which some are forgotten: one bad import, then as many at random."""
    folder.mkdir()
    numbers, store = random.Random(7), Store.open(folder / "store", durable=False)
    figures: dict[str, float] = {"forgetting_worker_mb": 0.0}
    try:
        fill(store, count, 1, YEAR, batch=max(1, count // 3 // YEAR))
        third = count // 3
        scattered = numbers.sample(range(1, count - forgotten), forgotten)
        nights = [
            ("first", []),
            ("import", range(third, third + forgotten)),
            ("scattered", [seq if seq < third else seq + forgotten for seq in scattered]),
        ]
        for name, seqs in nights:
            forget(store, seqs)
            store.snapshot(folder / name)
            for table in ("values", "changes"):
                seconds, peak, written = cold_export(
                    "local", folder / name, folder / "tables", table
                )
                figures[f"{table}_{name}_s"] = seconds
                figures[f"{table}_{name}_bytes"] = written[table]
                figures["forgetting_worker_mb"] = max(figures["forgetting_worker_mb"], peak / 1e6)
            shutil.rmtree(folder / name)
    finally:
        store.close()
        shutil.rmtree(folder)
    for name in ("import", "scattered"):
        rewritten = figures[f"values_{name}_bytes"]
        figures[f"rewritten_for_{name}"] = rewritten / figures["values_first_bytes"]
    return figures


def forget(store: Store, seqs: Sequence[int]) -> None:
    """Forget the values that came with these numbers."""
    values = [
        record.value
        for seq in seqs
        for record in store.log_slice(FEED, seq - 1, limit=1, max_bytes=1 << 20).records
    ]
    writer, results = WriterInline(store), []
    for at in range(0, len(values), FORGET_STEP):
        writer.submit(ForgetValues(FEED, values[at : at + FORGET_STEP]), results.append)
    assert sum(result.count for result in results) == len(values), results


def export_case(folder: Path, scale: float) -> dict[str, Any]:
    """5,000,000 values in full by each engine, 50,000 new ones, and a night of 1,000; then a year
    of which 1,000 are forgotten.
    """
    counts, runs = [int(n * scale) for n in (5_000_000, 50_000, 1_000)], 3
    turns = Turns(folder, snapshots_of_nights(folder, counts))
    for engine in ("local", "spark"):
        turns.cold(engine)
    with spark_session("local[2]") as session:

        @contextmanager
        def give() -> Any:
            yield session

        engines = Engines(wanted="spark", sessions=give)
        turns.warm(engines)
        for times in (turns.times["spark_full_s"], turns.times["spark_incremental_s"]):
            times.clear()  # its workers were new
        for _ in range(runs):
            turns.plain()
            turns.warm(engines)
            turns.cold("local")
    figures = {name: statistics.median(times) for name, times in turns.times.items()}
    figures |= forgetting_figures(folder / "year", counts[0], max(2, counts[2]))
    ratios = {
        "spark_full_to_one_process": figures["spark_full_s"] / figures["one_process_s"],
        "local_cold_full_to_one_process": figures["local_cold_full_s"] / figures["one_process_s"],
        "spark_incremental_to_full": figures["spark_incremental_s"] / figures["spark_full_s"],
        "night_auto_s": figures["night_auto_s"],
        "worker_peak_mb": max(*turns.peaks.values(), figures["forgetting_worker_mb"] * 1e6) / 1e6,
        "rewritten_for_import": figures["rewritten_for_import"],
    }
    return {
        "values": counts[0],
        "new_values": counts[1],
        "night_values": counts[2],
        **figures,
        **ratios,
        "two_processes_to_one": figures["two_processes_s"] / figures["one_process_s"],
        **{f"{engine}_worker_mb": peak / 1e6 for engine, peak in turns.peaks.items()},
        "must": "; ".join(f"{name} <= {most}" for name, most in MOST.items()),
        "ok": all(ratios[name] <= most for name, most in MOST.items()),
    }


MOST = {
    "spark_full_to_one_process": 0.5,
    "local_cold_full_to_one_process": 0.6,
    "spark_incremental_to_full": 0.08,
    "night_auto_s": 3.0,
    "worker_peak_mb": 300.0,
    "rewritten_for_import": 0.01,
}
