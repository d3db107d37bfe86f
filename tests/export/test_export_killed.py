"""Killed at random moments: readers see the table before or after, and running again finishes."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import killed_export
import pytest
from deltalake import DeltaTable
from export_nodes import random_values

KILLS = int(os.environ.get("HYPERBLOOM_KILLS", "50"))
SOME = 8
SPARK_KILLS = int(os.environ.get("HYPERBLOOM_SPARK_KILLS", "3"))
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["killed_export"])

pytestmark = pytest.mark.slow


def rows(target):
    """The table's numbers, sorted: one that is missing or there twice shows."""
    found = DeltaTable(str(target / "values")).to_pyarrow_dataset().to_table(["seq"])
    return sorted(found.column("seq").to_pylist())


def children(pid):
    """The processes that a process has started."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text().split())
    return found


def has_ended(pid):
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


class Forked:
    """An export by the local engine, in a process forked from one that has read all modules.

    Every other time it is a worker that is killed, which ends the export.
    """

    count = 0

    def __init__(self, mode, target, snapshot):
        self._process = FORKS.Process(
            target=killed_export.export, args=(mode, target, snapshot), daemon=True
        )
        self._process.start()

    def is_at_work(self):
        return self._process.is_alive()

    def finish(self):
        self._process.join()
        assert self._process.exitcode == 0

    def kill(self):
        workers = children(self._process.pid)
        Forked.count += 1
        if workers and Forked.count % 2:
            os.kill(workers[0], signal.SIGKILL)
        else:
            self._process.kill()
        self._process.join()
        # They end by themselves with what started them; nothing is written behind this.
        end = time.monotonic() + 60
        while not all(map(has_ended, workers)):
            assert time.monotonic() < end
            time.sleep(0.01)


class ByCommand:
    """An export by the command, with Spark and its workers."""

    def __init__(self, mode, target, snapshot):
        command = "from hyperbloom.cli import main; main()"
        options = ["--mode", mode, "--to", str(target), "--engine", "spark"]
        options += ["--master", "local[2]"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", command, "export", str(snapshot), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def is_at_work(self):
        return self._process.poll() is None

    def finish(self):
        output, _ = self._process.communicate()
        assert self._process.returncode == 0, output

    def kill(self):
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


class Exports:
    """Two snapshots, the tables of the first one, and what readers may see."""

    def __init__(self, node, folder, kind):
        node.append(random_values(20_000, seed=1, longest=60))
        self.first = node.snapshot("first")
        node.append(random_values(20_000, seed=2, longest=60))
        self.second = node.snapshot("second")
        self.kept, self.target = folder / "kept", folder / "tables"
        self._kind = kind
        self.finish(self.first, self.kept)
        self.before = rows(self.kept)
        self.reset()
        self.seconds = self.finish(self.second)
        self.after = rows(self.target)
        assert (len(self.before), len(self.after)) == (20_000, 40_000)
        self.reset()

    def reset(self):
        shutil.rmtree(self.target, ignore_errors=True)
        shutil.copytree(self.kept, self.target)

    def start(self, snapshot, mode="incremental", target=None):
        return self._kind(mode, target or self.target, snapshot)

    def finish(self, snapshot, target=None):
        """Seconds that it took."""
        begun = time.monotonic()
        self.start(snapshot, target=target).finish()
        return time.monotonic() - begun

    def kill(self, mode, wait, *, from_first_file):
        """Start one, read all the time, kill it with all its workers after ``wait`` seconds."""
        process = self.start(self.second, mode)
        try:
            seen = []
            if from_first_file:
                # Most of a real one is Spark's start: the moments are counted from the first file.
                known = len(list(self.target.rglob("*.parquet")))
                while process.is_at_work():
                    if len(list(self.target.rglob("*.parquet"))) > known:
                        break
                    time.sleep(0.01)
            end = time.monotonic() + wait
            while time.monotonic() < end and process.is_at_work():
                seen.append(rows(self.target))
                time.sleep(0.02)
        finally:
            was_at_work = process.is_at_work()
            process.kill()
        for state in [*seen, rows(self.target)]:
            assert state in (self.before, self.after), len(state)
        return was_at_work


def kill_often(exports, times, *, from_first_file=False, seconds=None):
    numbers = random.Random()
    landed = Counter()
    # Later rather than earlier, for what is written is written in the end.
    while landed.total() < times:
        mode = ("incremental", "full")[landed.total() % 2]
        moment = (seconds or exports.seconds) * numbers.triangular(0.0, 1.3, 1.0)
        if exports.kill(mode, moment, from_first_file=from_first_file):
            landed["after" if rows(exports.target) == exports.after else "before"] += 1
        if numbers.random() < 0.5 or rows(exports.target) == exports.after:
            exports.reset()
    for _ in range(2):
        exports.finish(exports.second)
        assert rows(exports.target) == exports.after
    return landed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [SOME, pytest.param(KILLS, marks=pytest.mark.soak)])
def test_killed_between_any_two_steps(node, tmp_path, kills):
    exports = Exports(node, tmp_path, Forked)
    landed = kill_often(exports, kills)
    print(f"\nkills that left the table {dict(landed)}")


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("java")
@pytest.mark.soak
def test_killed_with_spark_and_its_workers(node, tmp_path):
    exports = Exports(node, tmp_path, ByCommand)
    landed = kill_often(exports, SPARK_KILLS, from_first_file=True, seconds=0.2)
    print(f"\nkills that left the table {dict(landed)}")
