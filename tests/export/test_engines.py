"""The two engines: the same tables, whichever runs; which one `auto` takes; workers that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from export_nodes import FEED, HOUR, MONDAY, ORIGINS, OTHER_FEED, random_values

from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export.engines.choice import ROWS_A_CORE
from hyperbloom.export.engines.interrupts import deferred, uninterrupted, waited_for
from hyperbloom.export.engines.local import local_engine
from hyperbloom.export.engines.unnamed import unnamed_files
from hyperbloom.export.errors import ExportBusy, ExportError, SnapshotUnusable
from hyperbloom.export.places.lock import folder_lock
from hyperbloom.export.tables.delta import METADATA
from hyperbloom.export.tables.schema import REPORTS

ALL = ("values", "links", "feeds", "objects", "coverage", "provenance")
LOCAL = Engines(wanted="local", processes=2)
DAY = 24 * HOUR


@pytest.fixture
def nights(node):
    """Snapshots of three nights: two feeds, two days, values enough for two tasks."""
    found = []
    for night in range(3):
        for number, feed in enumerate((FEED, OTHER_FEED)):
            values = random_values(60_000, seed=10 * night + number, longest=30)
            for part in range(2):
                at = MONDAY + (night + part) * DAY
                node.append(values[part::2], feed=feed, origin=ORIGINS[part], at=at)
        found.append(node.snapshot(f"night-{night}"))
    return found


def rows(target, name):
    table = DeltaTable(str(target / name)).to_pyarrow_dataset().to_table()
    return sorted(map(repr, table.to_pylist()))


def shapes(target, name):
    """Of each file: partition, schema, row groups, codecs, encodings, bytes' rough size."""
    found = []
    actions = pa.table(DeltaTable(str(target / name)).get_add_actions(flatten=True))
    for action in actions.to_pylist():
        path = target / name / action["path"]
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
        columns = [group.column(n) for group in groups for n in range(group.num_columns)]
        found.append(
            (
                path.parent.relative_to(target).as_posix(),
                str(metadata.schema.to_arrow_schema()),
                [group.num_rows for group in groups],
                [
                    (c.path_in_schema, c.compression, c.encodings, c.has_dictionary_page)
                    for c in columns
                ],
                {
                    key: value
                    for key, value in action.items()
                    if key.startswith(("min", "max", "null"))
                },
                action["size_bytes"],
                os.stat(path).st_mode,
            )
        )
    return sorted(found, key=repr)


def commits(target, name):
    """What each commit says, without its time, files' names and the libraries' own notes.

    Of reports without how many files: Spark joins its last tasks as it sees fit.
    """
    found = []
    for path in sorted((target / name / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        found.append(
            (
                sorted({key: None for action in actions for key in action})
                if name in REPORTS
                else sorted(key for action in actions for key in action),
                {a["txn"]["appId"]: a["txn"]["version"] for a in actions if "txn" in a},
                [a["commitInfo"].get(METADATA) for a in actions if "commitInfo" in a],
                [a["commitInfo"].get("operation") for a in actions if "commitInfo" in a],
            )
        )
    return found


def test_the_tables_do_not_show_which_engine_wrote_them(nights, by_spark, tmp_path):
    for name, order in (("local", [LOCAL] * 3), ("spark", [by_spark] * 3)):
        for snapshot, engines in zip(nights, order, strict=True):
            export_snapshots([snapshot], tmp_path / name, engines=engines, tables=ALL)
    for table in ALL:
        assert rows(tmp_path / "local", table) == rows(tmp_path / "spark", table)
        assert commits(tmp_path / "local", table) == commits(tmp_path / "spark", table)
    assert len(rows(tmp_path / "local", "values")) > 359_000
    for table in ("values", "links", "feeds", "objects"):
        found = shapes(tmp_path / "local", table)
        assert found == shapes(tmp_path / "spark", table)
    # The first night is of two tasks, which both write of both days.
    assert len(shapes(tmp_path / "local", "values")) == 12
    for table in ("coverage", "provenance"):
        # Rows of reports come in no order, and Spark joins its last tasks as it sees fit.
        local, spark = (shapes(tmp_path / name, table) for name in ("local", "spark"))
        assert {shape[:2] for shape in local} == {shape[:2] for shape in spark}
        assert {str(shape[3][:8]) for shape in local} == {str(shape[3][:8]) for shape in spark}


def test_a_table_may_change_its_engine_from_night_to_night(nights, by_spark, tmp_path):
    mixed, plain = tmp_path / "mixed", tmp_path / "plain"
    for snapshot, engines in zip(nights, (by_spark, LOCAL, by_spark), strict=True):
        export_snapshots([snapshot], mixed, engines=engines, tables=ALL)
        export_snapshots([snapshot], plain, engines=LOCAL, tables=ALL)
        again = export_snapshots([snapshot], mixed, engines=LOCAL, tables=ALL)
        assert not any(table.changed for table in again.tables)
    for table in ALL:
        assert rows(mixed, table) == rows(plain, table)
        assert commits(mixed, table) == commits(plain, table)


def test_which_engine_is_taken(monkeypatch):
    monkeypatch.delenv("MASTER", raising=False)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    many = 2 * ROWS_A_CORE
    cluster = Engines(master="spark://127.0.0.1:7077", processes=2)
    assert Engines().choose(many).engine == "local"
    assert Engines(master="local[4]").choose(many).engine == "local"
    assert cluster.choose(many - 1).engine == "local"
    assert cluster.choose(many).engine == "spark"
    assert Engines(wanted="spark").choose(0).engine == "spark"
    assert Engines(wanted="local", master="yarn").choose(many).engine == "local"
    monkeypatch.setenv("MASTER", "yarn")
    assert Engines(processes=1).choose(many).engine == "spark"
    with pytest.raises(ExportError, match="is no Spark master"):
        Engines(master="nonsense").choose(1)


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None       # as if it were not installed
from hyperbloom.cli.root import hyperbloom
hyperbloom.main(sys.argv[1:], prog_name="hyperbloom")
"""


def test_without_spark_auto_exports_and_spark_says_what_to_install(node, tmp_path):
    node.append(random_values(50))
    asked = [str(node.snapshot()), "--to", str(tmp_path / "tables"), "--tables", "all"]

    def export(*more):
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_SPARK, "export", *asked, *more],
            capture_output=True,
            text=True,
            check=False,
        )

    refused = export("--engine", "spark")
    assert refused.returncode == 1
    assert "pip install 'hyperbloom[spark]'" in refused.stderr
    assert refused.stderr.count("\n") == 1
    done = export()
    assert done.returncode == 0, done.stderr
    assert "engine local (processes of this machine): Spark is not installed" in done.stderr
    assert len(rows(tmp_path / "tables", "coverage")) == 50


def test_of_two_exports_at_once_one_refuses_or_waits(nights, tmp_path):
    target = tmp_path / "tables"
    command = [
        sys.executable,
        "-m",
        "hyperbloom.cli",
        "export",
        str(nights[0]),
        "--to",
        str(target),
    ]
    both = [
        subprocess.Popen([*command, "--engine", "local"], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=120)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    # The second one may have come when the first was done.
    assert codes in ([0, 9], [0, 0]), told
    assert all(
        "works on" in said
        for process, said in zip(both, told, strict=True)
        if process.returncode == 9
    )
    assert len(rows(target, "values")) > 119_000
    with folder_lock(target), pytest.raises(ExportBusy):
        export_snapshots([nights[1]], target, engines=LOCAL)


# Workers that end


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def is_gone(pid):
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def ended_by(number):
    """A task: the end of its worker."""
    os.kill(os.getpid(), number)
    signal.pause()
    return ""


def slept(path):
    """A task that says who does it and goes on for long."""
    Path(path).write_text(str(os.getpid()))
    time.sleep(60)
    return ""


def test_a_worker_that_is_killed_ends_the_export_in_a_sentence(node, tmp_path, monkeypatch):
    node.append(random_values(20))
    target, snapshot = tmp_path / "tables", node.snapshot()
    for number, kind, said in (
        (signal.SIGKILL, ExportError, "ended by SIGKILL: out of memory, or by somebody"),
        (signal.SIGBUS, SnapshotUnusable, r"damaged: LMDB ended the process .*SIGBUS"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(
                "hyperbloom.export.engines.local.LocalEngine.run",
                lambda self, *_, number=number: self._do([(ended_by, (number,))], lambda _: None),
            )
            with pytest.raises(kind, match=said):
                export_snapshots([snapshot], target, engines=LOCAL)
        assert rows(target, "values") == []
    export_snapshots([snapshot], target, engines=LOCAL)
    assert len(rows(target, "values")) == 20


def test_of_many_calls_each_is_answered_in_its_place():
    with local_engine(2) as engine:
        answers = engine._do([(wrapped, (n,)) for n in range(20)], lambda _: None)
    assert answers == [json.dumps({"n": n}) for n in range(20)]


def wrapped(n):
    return json.dumps({"n": n})


def interrupted_work(path):
    def interrupt():
        wait_until(lambda: path.exists() and path.read_text())
        os.kill(os.getpid(), signal.SIGINT)

    with local_engine(1) as engine:
        threading.Thread(target=interrupt).start()
        engine._do([(slept, (str(path),))], lambda _: None)


@pytest.fixture
def sigint():
    """Ctrl-C raises: not so in a process that was started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
def test_an_interrupt_ends_the_workers(tmp_path):
    path = tmp_path / "pid"
    with pytest.raises(KeyboardInterrupt):
        interrupted_work(path)
    assert is_gone(int(path.read_text()))


def test_workers_end_with_the_process_that_started_them(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from test_engines import slept\n"
        "from hyperbloom.export.engines.local import local_engine\n"
        "with local_engine(1) as engine:\n"
        "    engine._do([(slept, (sys.argv[1],))], lambda _: None)\n"
    )
    path = tmp_path / "pid"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(Path(__file__).parent)]
    )
    try:
        wait_until(lambda: path.exists() and path.read_text())
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: is_gone(int(path.read_text())))


HALF_A_REPORT = """
import sys
from pathlib import Path
from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export.engines import local_reports

def shuffled(answer):
    print("shuffled", flush=True)
    sys.stdin.readline()

local_reports.is_failure = shuffled
export_snapshots([sys.argv[1]], Path(sys.argv[2]), engines=Engines(wanted="local", processes=2),
    tables=("values", sys.argv[3]))
"""


@pytest.mark.parametrize("report", ["coverage", "provenance"])
def test_an_export_killed_in_a_report_leaves_nothing_in_the_temporary_folder(
    node, tmp_path, report
):
    node.append(random_values(500))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-c", HALF_A_REPORT, node.snapshot(), tmp_path / "tables", report]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    with process:
        assert process.stdout.readline() == b"shuffled\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        held = [
            path.stat().st_size
            for path in Path(f"/proc/{process.pid}/fd").iterdir()
            if os.readlink(path).startswith(str(scratch))
        ]
        process.kill()
    assert sum(held) > 500 * 43
    assert list(scratch.iterdir()) == []
    assert children
    for child in children:
        wait_until(lambda child=child: is_gone(child))


def test_where_descriptors_have_no_paths_files_go_with_the_export(monkeypatch, tmp_path, node):
    monkeypatch.setattr("hyperbloom.export.engines.unnamed._DESCRIPTORS", tmp_path / "none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    node.append(random_values(500))
    before = set(tmp_path.iterdir())
    tables = ("values", "coverage", "provenance")
    export_snapshots([node.snapshot()], tmp_path / "tables", engines=LOCAL, tables=tables)
    assert len(rows(tmp_path / "tables", "coverage")) == 500
    assert {path.name for path in set(tmp_path.iterdir()) - before} == {"tables"}
    with unnamed_files() as new_file:
        paths = [new_file(), new_file()]
        assert len(set(paths)) == 2
        assert all(path.parent.parent == tmp_path for path in paths)
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths)
    assert not paths[0].parent.exists()


def test_a_task_that_fails_is_a_sentence_too():
    with local_engine(1) as engine:
        (answer,) = engine._do([(json.loads, ("no JSON",))], lambda _: None)
    assert json.loads(answer)["failure"] == "ExportError"
    assert "JSONDecodeError" in json.loads(answer)["sentence"]


def short_block(steps):
    with deferred():
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("goes on")


@pytest.mark.usefixtures("sigint")
def test_a_signal_waits_for_the_end_of_a_short_block():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        short_block(steps)
    assert steps == ["goes on"]
    with uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("sigint")
def test_what_work_raises_is_raised_and_an_interrupt_ends_it_first():
    with pytest.raises(ZeroDivisionError):
        waited_for(lambda: 1 // 0)
    over = threading.Event()
    steps = []

    def work():
        # A signal comes to the main thread, which waits.
        os.kill(os.getpid(), signal.SIGINT)
        over.wait(60)
        time.sleep(0.1)
        steps.append("ended")

    with pytest.raises(KeyboardInterrupt):
        waited_for(work, end=over.set)
    assert steps == ["ended"]
