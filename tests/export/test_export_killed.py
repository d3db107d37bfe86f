"""Killed at random moments: readers see the table before or after, and running again finishes."""

from __future__ import annotations

import itertools
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

import duckdb
import killed_export
import polars
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from export_nodes import FEED, HOUR, MONDAY, random_values
from pyarrow.fs import S3FileSystem

from hyperbloom.export import current_files
from hyperbloom.store import ForgetValues

#: For every day; the soak's are 50 by each engine at each kind of place, in pieces.
SOME = 3
KILLS_A_PIECE = 5
PIECES = range(10)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["killed_export"])

pytestmark = pytest.mark.slow


def by_deltalake(table):
    return DeltaTable(table).to_pyarrow_dataset().to_table(["seq"])["seq"]


def by_polars(table):
    return (
        polars.scan_delta(table, storage_options=dict(os.environ))
        .select("seq")
        .collect()["seq"]
        .to_arrow()
    )


def by_duckdb(table):
    files = DeltaTable(table).to_pyarrow_dataset()  # noqa: F841  # duckdb finds it by its name
    return duckdb.sql("select seq from files").to_arrow_table()["seq"]


def by_pyarrow(table):
    found = current_files(table)
    if "://" not in table:
        return pyarrow.dataset.dataset(found).to_table(["seq"])["seq"]
    paths = [path.removeprefix("s3://") for path in found]
    scheme, _, address = os.environ["AWS_ENDPOINT_URL"].partition("://")
    store = S3FileSystem(scheme=scheme, endpoint_override=address, region="us-east-1")
    return pyarrow.dataset.dataset(paths, filesystem=store).to_table(["seq"])["seq"]


READERS = itertools.cycle([by_deltalake, by_polars, by_duckdb, by_pyarrow])


def rows(target):
    """The table's numbers, sorted: one missing or there twice shows. Each reader in its turn."""
    return sorted(next(READERS)(f"{target}/values").to_pylist())


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
            target=killed_export.export,
            args=(mode, target, snapshot, dict(os.environ)),
            daemon=True,
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


class InFolder:
    """Tables in a folder, as they were after the first export and as they are."""

    seconds = 0.5

    def __init__(self, folder):
        self.kept, self.target = folder / "kept", folder / "tables"

    def reset(self):
        shutil.rmtree(self.target, ignore_errors=True)
        shutil.copytree(self.kept, self.target)

    def written(self):
        """What there is of data files."""
        return set(self.target.rglob("*.parquet"))

    def check_files(self):
        """Whatever is there of a file, no commit has named it."""


class InBucket:
    """Tables in an object store."""

    seconds = 1.0

    def __init__(self, url, server):
        self.kept, self.target = f"{url}/kept", f"{url}/tables"
        self._bucket, self._client = url.removeprefix("s3://"), server.client()

    def _names(self, prefix):
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def reset(self):
        for name in self._names("tables/"):
            self._client.delete_object(Bucket=self._bucket, Key=name)
        for name in self._names("kept/"):
            source = {"Bucket": self._bucket, "Key": name}
            copy = f"tables/{name.removeprefix('kept/')}"
            self._client.copy_object(Bucket=self._bucket, Key=copy, CopySource=source)

    def written(self):
        """What there is of data files, and of those that are being sent."""
        found = self._client.list_multipart_uploads(Bucket=self._bucket).get("Uploads", ())
        sent = {upload["UploadId"] for upload in found}
        return sent | {name for name in self._names("tables/") if name.endswith(".parquet")}

    def check_files(self):
        """Every object is whole, whether a commit names it or not."""
        for name in self._names("tables/"):
            if name.endswith(".parquet"):
                end = self._client.get_object(Bucket=self._bucket, Key=name, Range="bytes=-4")
                assert end["Body"].read() == b"PAR1", name


class Exports:
    """Two snapshots, the tables of the first one, and what readers may see.

    In between values are forgotten of three of the five days, whose files are written anew.
    """

    def __init__(self, node, where, kind):
        values = random_values(20_000, seed=1, longest=60)
        for day in range(5):
            node.append(values[4_000 * day :][:4_000], at=MONDAY + day * 24 * HOUR)
        self.first = node.snapshot("first")
        node.do(ForgetValues(FEED, values[:12_000:24]))
        node.append(random_values(20_000, seed=2, longest=60))
        self.second = node.snapshot("second")
        self.where, self.target = where, where.target
        # The tables do not show which engine wrote them.
        self._kind = Forked
        self.finish(self.first, where.kept)
        self.before = rows(where.kept)
        where.reset()
        self.seconds = self.finish(self.second)
        self._kind = kind
        self.after = rows(self.target)
        assert (len(self.before), len(self.after)) == (20_000, 39_500)
        where.reset()

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
                known = self.where.written()
                while process.is_at_work() and self.where.written() <= known:
                    time.sleep(0.03)
            end = time.monotonic() + wait
            while time.monotonic() < end and process.is_at_work():
                seen.append(rows(self.target))
                time.sleep(0.02)
        finally:
            was_at_work = process.is_at_work()
            process.kill()
        for state in [*seen, *(rows(self.target) for _ in range(4))]:
            assert state in (self.before, self.after), len(state)
        self.where.check_files()
        return was_at_work


def kill_often(exports, times, *, seed=0, from_first_file=False, seconds=None):
    numbers = random.Random(seed)
    landed = Counter()
    # Later rather than earlier, for what is written is written in the end.
    while landed.total() < times:
        mode = ("incremental", "full")[landed.total() % 2]
        moment = (seconds or exports.seconds) * numbers.triangular(0.0, 1.3, 1.0)
        if exports.kill(mode, moment, from_first_file=from_first_file):
            landed["after" if rows(exports.target) == exports.after else "before"] += 1
        if numbers.random() < 0.5 or rows(exports.target) == exports.after:
            exports.where.reset()
    exports.finish(exports.second)
    assert rows(exports.target) == exports.after
    changes = DeltaTable(f"{exports.target}/changes").to_pyarrow_dataset().to_table(["kind", "seq"])
    told = Counter(zip(*(changes[name].to_pylist() for name in ("kind", "seq")), strict=True))
    assert set(told.values()) == {1}
    assert Counter(kind for kind, _ in told) == {"added": 40_000, "forgotten": 500}
    print(f"\n{times} kills, which left the table {dict(landed)}")


@pytest.fixture(params=["folder", "bucket"])
def where(request, tmp_path):
    """Where the tables are: either one must do."""
    if request.param == "folder":
        return InFolder(tmp_path)
    return InBucket(request.getfixturevalue("bucket"), request.getfixturevalue("server"))


@pytest.mark.timeout(600)
def test_killed_a_few_times(node, where):
    kill_often(Exports(node, where, Forked), SOME)


@pytest.mark.timeout(900)
@pytest.mark.soak
@pytest.mark.parametrize("piece", PIECES)
def test_killed_between_any_two_steps(node, where, piece):
    kill_often(Exports(node, where, Forked), KILLS_A_PIECE, seed=piece)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java")
@pytest.mark.soak
@pytest.mark.parametrize("piece", PIECES)
def test_killed_with_spark_and_its_workers(node, where, piece):
    exports = Exports(node, where, ByCommand)
    # The whole job, from its first file to its last commit, takes about as long as this.
    kill_often(exports, KILLS_A_PIECE, seed=piece, from_first_file=True, seconds=where.seconds)
