"""Killed at random moments: readers see the table before or after, and running again finishes."""

from __future__ import annotations

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

import pytest
from deltalake import DeltaTable
from export_nodes import random_values

KILLS = int(os.environ.get("HYPERBLOOM_KILLS", "50"))
SPARK_KILLS = int(os.environ.get("HYPERBLOOM_SPARK_KILLS", "3"))
SCRIPT = Path(__file__).with_name("killed_export.py")

pytestmark = pytest.mark.slow


def rows(target):
    """The table's numbers, sorted: one that is missing or there twice shows."""
    found = DeltaTable(str(target / "values")).to_pyarrow_dataset().to_table(["seq"])
    return sorted(found.column("seq").to_pylist())


def in_one_process(mode, target, snapshot):
    return [sys.executable, str(SCRIPT), mode, str(target), str(snapshot)]


def by_command(mode, target, snapshot):
    command = "from hyperbloom.cli import main; main()"
    options = ["--mode", mode, "--to", str(target), "--master", "local[2]"]
    return [sys.executable, "-c", command, "export", str(snapshot), *options]


class Exports:
    """Two snapshots, the tables of the first one, and what readers may see."""

    def __init__(self, node, folder, command):
        node.append(random_values(20_000, seed=1, longest=60))
        self.first = node.snapshot("first")
        node.append(random_values(20_000, seed=2, longest=60))
        self.second = node.snapshot("second")
        self.kept, self.target = folder / "kept", folder / "tables"
        self._command = command
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
        return subprocess.Popen(
            self._command(mode, target or self.target, snapshot),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, snapshot, target=None):
        """Seconds that it took; those before its first line, if it prints one, are left out."""
        process = self.start(snapshot, target=target)
        begun = time.monotonic()
        output = process.stdout.readline()
        if output == "started\n":
            begun = time.monotonic()
        output += process.communicate()[0]
        assert process.returncode == 0, output
        return time.monotonic() - begun

    def kill(self, mode, wait, first_wait):
        """Start one, read all the time, kill it with all its workers after ``wait`` seconds."""
        process = self.start(self.second, mode)
        try:
            if first_wait:
                process.stdout.readline()
            seen = []
            if not first_wait:
                # Most of a real one is Spark's start: the moments are counted from the first file.
                known = len(list(self.target.rglob("*.parquet")))
                while process.poll() is None:
                    if len(list(self.target.rglob("*.parquet"))) > known:
                        break
                    time.sleep(0.01)
            end = time.monotonic() + wait
            while time.monotonic() < end and process.poll() is None:
                seen.append(rows(self.target))
                time.sleep(0.02)
        finally:
            was_at_work = process.poll() is None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for state in [*seen, rows(self.target)]:
            assert state in (self.before, self.after), len(state)
        return was_at_work


def kill_often(exports, times, *, first_wait, seconds=None):
    numbers = random.Random()
    landed = Counter()
    # Later rather than earlier, for what is written is written in the end.
    while landed.total() < times:
        mode = ("incremental", "full")[landed.total() % 2]
        moment = (seconds or exports.seconds) * numbers.triangular(0.0, 1.3, 1.0)
        if exports.kill(mode, moment, first_wait):
            landed["after" if rows(exports.target) == exports.after else "before"] += 1
        if numbers.random() < 0.5 or rows(exports.target) == exports.after:
            exports.reset()
    for _ in range(2):
        exports.finish(exports.second)
        assert rows(exports.target) == exports.after
    return landed


@pytest.mark.timeout(900)
def test_killed_between_any_two_steps(node, tmp_path):
    exports = Exports(node, tmp_path, in_one_process)
    landed = kill_often(exports, KILLS, first_wait=True)
    print(f"\nkills that left the table {dict(landed)}")


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("java")
@pytest.mark.soak
def test_killed_with_spark_and_its_workers(node, tmp_path):
    exports = Exports(node, tmp_path, by_command)
    landed = kill_often(exports, SPARK_KILLS, first_wait=False, seconds=0.2)
    print(f"\nkills that left the table {dict(landed)}")
