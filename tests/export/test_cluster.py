"""Exports by executors of a real cluster: a standalone master and workers on 127.0.0.1."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from getpass import getuser
from pathlib import Path

import pytest
from deltalake import DeltaTable
from export_nodes import FEED, HOUR, MONDAY, ORIGINS, OTHER_FEED, SourceNode, random_values
from export_processes import of_session
from spark_cluster import PAGE, Cluster, make_python, needed_by_executors, wait_until

from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export.engines.java import find_java
from hyperbloom.export.upkeep import vacuum_tables

TABLES = ("values", "links", "feeds", "coverage", "provenance")
ALL = ",".join(TABLES)
LOCAL = Engines(wanted="local", processes=2)
ROOT = Path(__file__).parents[2]
MAIN = "from hyperbloom.cli import main; main()"


@pytest.fixture(scope="module")
def whole_cluster(java, tmp_path_factory):
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def cluster(whole_cluster):
    """A cluster with two workers: those that a test has ended come again."""
    whole_cluster.kill(*whole_cluster.workers[2:])
    for worker in whole_cluster.workers:
        worker.go_on()
    whole_cluster.configure()
    whole_cluster.add_workers(2 - len(whole_cluster.workers))
    return whole_cluster


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    """200,000 values of two feeds: tasks that take a moment."""
    folder = tmp_path_factory.mktemp("node")
    node = SourceNode(folder)
    try:
        for number, feed in enumerate((FEED, OTHER_FEED)):
            values = random_values(100_000, seed=number, longest=40)
            for day, origin in enumerate(ORIGINS):
                at = MONDAY + day * 24 * HOUR
                node.append(values[day::2], feed=feed, origin=origin, at=at)
        yield node.snapshot()
    finally:
        node.close()


class Command:
    """An export by the command, with the cluster as its master."""

    def __init__(self, cluster, snapshot, target, *options, main=MAIN):
        self.target = target
        options = ["--to", str(target), "--file-size", "1", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-c", main, "export", str(snapshot), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=cluster.environment(),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in of_session(self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def finish(self):
        """Its exit code and what it said on standard error."""
        _, said = self.process.communicate(timeout=200)
        assert of_session(self.process.pid) == []
        return self.process.returncode, said

    def wait_for_stop(self, cluster):
        """A worker with a task that stands still in the midst of its work."""
        found = wait_until(
            lambda: self.process.poll() is not None or [w for w in cluster.workers if w.stopped()],
            "no task stands still",
        )
        assert found is not True, self.process.communicate()
        return found[0]


def rows(target, name):
    found = DeltaTable(str(target / name)).to_pyarrow_dataset().to_table()
    columns = sorted(found.column_names)
    return found.select(columns).sort_by([(column, "ascending") for column in columns])


def named(target):
    """The files that commits name."""
    return {
        path.removeprefix("file://")
        for log in target.glob("*/_delta_log")
        for path in DeltaTable(str(log.parent)).file_uris()
    }


def on_disk(target):
    return {str(path) for path in target.rglob("*.parquet")}


def check_same(target, snapshot, folder, tables=TABLES):
    """The tables hold what the engine of one machine writes."""
    export_snapshots([snapshot], folder, engines=LOCAL, tables=tables)
    for name in tables:
        assert rows(target, name).equals(rows(folder, name)), name
    assert rows(target, "values").num_rows > 199_000


def test_the_tables_are_those_of_one_machine_though_a_worker_dies(cluster, snapshot, tmp_path):
    # It is sent to the executors.
    without = subprocess.run(
        [cluster.python, "-I", "-c", "import hyperbloom"], capture_output=True, check=False
    )
    assert without.returncode == 1
    target = tmp_path / "tables"
    # Each task makes a file for each of two days.
    cluster.stop_at("values", 2)
    with Command(cluster, snapshot, target, "--engine", "spark") as command:
        cluster.kill(command.wait_for_stop(cluster))
        cluster.go_on_until(command.process)
        assert command.finish() == (0, "")
    assert cluster.applications() == []
    check_same(target, snapshot, tmp_path / "plain", ("values", "links", "feeds"))
    # What the lost attempt wrote is no part of the table, and goes.
    assert on_disk(target) > named(target)
    vacuum_tables(target, keep_hours=0)
    assert on_disk(target) == named(target)


@pytest.mark.soak
def test_reports_too_though_a_worker_dies(cluster, snapshot, tmp_path):
    target = tmp_path / "tables"
    cluster.stop_at("coverage", 1)
    with Command(cluster, snapshot, target, "--engine", "spark", "--tables", ALL) as command:
        cluster.kill(command.wait_for_stop(cluster))
        cluster.go_on_until(command.process)
        assert command.finish() == (0, "")
    check_same(target, snapshot, tmp_path / "plain")


@pytest.mark.soak
@pytest.mark.parametrize("killed", ["before", "during"])
def test_without_executors_it_ends_in_a_sentence(cluster, snapshot, tmp_path, killed):
    target = tmp_path / "tables"
    export_snapshots([snapshot], target, engines=LOCAL)
    before = {name: rows(target, name) for name in ("values", "links", "feeds")}
    files = on_disk(target)
    cluster.configure(spark_hyperbloom_executorTimeout="5s")
    options = ["--engine", "spark", "--mode", "full"]
    if killed == "before":
        cluster.kill(*cluster.workers)
    cluster.stop_at("values", 2)
    with Command(cluster, snapshot, target, *options) as command:
        if killed == "during":
            command.wait_for_stop(cluster)
            cluster.kill(*cluster.workers)
        code, said = command.finish()
    assert code == 1
    assert said.startswith("hyperbloom: no executor has been there for 5 seconds, the tables are ")
    assert said.count("\n") == 1
    assert {name: rows(target, name) for name in before} == before
    assert on_disk(target) == files
    assert cluster.applications() == []


@pytest.fixture
def mounts():
    """A command that runs another where its mounts are its own."""
    for found in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        with suppress(FileNotFoundError):
            if subprocess.run([*found, "true"], capture_output=True, check=False).returncode == 0:
                return found
    pytest.skip("this machine gives no mounts of its own (unshare --mount)")


HIDE = 'mount -t tmpfs hidden "$0" && exec "$@"'


@pytest.mark.parametrize("hidden", ["snapshot", pytest.param("target", marks=pytest.mark.soak)])
def test_an_executor_that_does_not_see_a_folder(cluster, mounts, snapshot, tmp_path, hidden):
    target = tmp_path / "tables"
    target.mkdir()
    folder = {"snapshot": snapshot.parent, "target": target}[hidden]
    cluster.add_large_worker(before=[*mounts, "sh", "-c", HIDE, str(folder)])
    with Command(cluster, snapshot, target, "--engine", "spark") as command:
        code, said = command.finish()
    missing = {
        "snapshot": f"does not see {snapshot}; put it on a file system that all executors see at "
        "the same path",
        "target": f"says: a worker on another machine does not see the folder {target}, or sees "
        "another one of this name; name one that all machines share, or an object store",
    }
    assert code == 1
    assert said == (
        f"hyperbloom: the executor on {os.uname().nodename} (user {getuser()}) {missing[hidden]}; "
        "nothing was written\n"
    )
    assert on_disk(target) == set()


@pytest.mark.soak
def test_an_executor_with_another_folder_there(cluster, mounts, snapshot, node, tmp_path):
    node.append([b"another node's"])
    copy = 'mount --bind "$0" "$1" && shift && exec "$@"'
    before = [*mounts, "sh", "-c", copy, str(node.snapshot()), str(snapshot)]
    cluster.add_large_worker(before=before)
    with Command(cluster, snapshot, tmp_path / "tables", "--engine", "spark") as command:
        code, said = command.finish()
    assert code == 1
    assert f"has another snapshot at {snapshot}; put it on a file system" in said


@pytest.mark.soak
def test_ctrl_c_ends_the_application_on_the_cluster(cluster, snapshot, tmp_path):
    target = tmp_path / "tables"
    cluster.stop_at("values", 2)
    with Command(cluster, snapshot, target, "--engine", "spark") as command:
        command.wait_for_stop(cluster)
        assert cluster.applications() == ["hyperbloom export"]
        for _ in range(3):
            command.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        assert command.finish() == (130, "")
    assert cluster.applications() == []
    wait_until(lambda: not any(map(executors, cluster.workers)), "executors go on")
    assert DeltaTable(str(target / "values")).version() == 0


def executors(worker):
    """What a worker has started and has not ended."""
    return worker.processes()[1:]


CHOSEN = """
import sys
from hyperbloom.cli.root import hyperbloom
from hyperbloom.export.engines import choice
choice.ROWS_A_CORE = 1_000      # 7,000,000 rows take a while to make
hyperbloom.main(sys.argv[1:], prog_name="hyperbloom")
"""


@pytest.mark.soak
def test_auto_takes_the_cluster_where_there_is_enough_to_do(cluster, snapshot, tmp_path):
    target = tmp_path / "tables"
    with Command(cluster, snapshot, target, main=CHOSEN) as command:
        code, said = command.finish()
    assert code == 0
    assert said == (
        "hyperbloom: engine spark (Spark): 200,000 rows are worth starting Spark at "
        f"{cluster.url}\n"
    )
    check_same(target, snapshot, tmp_path / "plain", ("values", "links", "feeds"))


def page_blocks(language, *holding):
    """The blocks of docs/clusters.md that hold these texts."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return [block for block in blocks if all(text in block for text in holding)]


def build_wheel(folder):
    """The project's wheel, built from a copy."""
    for name in ("hyperbloom", "twisted_plugins"):
        shutil.copytree(ROOT / name, folder / "source" / name)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, folder / "source"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.mark.soak
@pytest.mark.parametrize("sent", ["by the export", "by spark-submit"])
def test_spark_submit_as_the_page_says(cluster, snapshot, tmp_path, sent):
    (program,) = page_blocks("python", "export_snapshots")
    (tmp_path / "night.py").write_text(program)
    plain, with_files = page_blocks("sh", "--master spark://HOST:7077", "night.py")
    if sent == "by the export":
        block, python = plain, sys.executable
    else:
        # The wheel is built, and not taken from a registry.
        block = with_files.partition("\n")[2]
        build_wheel(tmp_path)
        needed = [*needed_by_executors(), "deltalake", "pyspark"]
        python = make_python(tmp_path / "driver", needed)
    for text, found in (
        ("spark://HOST:7077", cluster.url),
        ("/shared/snapshots/*", str(snapshot)),
        ("/shared/tables", str(tmp_path / "tables")),
    ):
        block = block.replace(text, found)
    bin_of_spark = Path(importlib.metadata.distribution("pyspark").locate_file("pyspark/bin"))
    environment = {
        name: value for name, value in cluster.environment().items() if name != "PYTHONPATH"
    } | {
        "PATH": f"{bin_of_spark}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_DRIVER_PYTHON": str(python),
        "JAVA_HOME": str(find_java(os.environ, tmp_path).home),
    }
    del environment["MASTER"]
    done = subprocess.run(
        ["bash", "-euc", block],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    # What Python says on standard error comes there, too.
    assert done.returncode == 0, done.stdout
    assert done.stdout == "values 200000\nlinks 0\nfeeds 2\n"
    check_same(tmp_path / "tables", snapshot, tmp_path / "plain", ("values", "links", "feeds"))
    assert cluster.applications() == []
