"""What executors are sent and have to see, without a cluster; how their errors are told."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hyperbloom
from hyperbloom.export.engines import executors
from hyperbloom.export.engines.engine import Files
from hyperbloom.export.engines.executors import Landmark, unseen
from hyperbloom.export.engines.spark import SparkEngine, failed_job
from hyperbloom.export.errors import ExportError
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.places.lock import LOCK_FILE


@pytest.fixture
def files(tmp_path):
    (tmp_path / "tables" / "values").mkdir(parents=True)
    place = Folder(tmp_path / "tables")
    with place.held() as sign:
        yield Files(
            place=place / "values", name="part", target_bytes=1, share_with="owner", sign=sign
        )


def test_a_snapshot_is_known_by_what_it_says_of_itself(node, files, tmp_path):
    node.append([b"1"])
    snapshot = node.snapshot()
    mark = Landmark.of(snapshot)
    assert unseen([mark], files) is None
    snapshot.rename(tmp_path / "elsewhere")
    assert f"does not see {snapshot}; put it on a file system" in unseen([mark], files)
    node.append([b"2"])
    assert node.snapshot() == snapshot
    assert f"has another snapshot at {snapshot}; put it" in unseen([mark], files)
    (snapshot / "data.mdb").unlink()
    (tmp_path / "elsewhere" / "snapshot.json").replace(snapshot / "snapshot.json")
    assert f"does not see {snapshot}" in unseen([mark], files)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_who_may_not_read_or_write_is_told(node, files):
    node.append([b"1"])
    snapshot = node.snapshot()
    mark = Landmark.of(snapshot)
    (snapshot / "data.mdb").chmod(0)
    assert f"cannot read {snapshot}: Permission denied; have ex" in unseen([mark], files)
    (snapshot / "data.mdb").chmod(0o600)
    files.place.path.chmod(0o500)
    assert f"may not write into {files.place}; have ex" in unseen([mark], files)


def test_another_folder_of_the_tables_is_told(files):
    (files.place.path.parent / LOCK_FILE).unlink()
    said = unseen([], files)
    assert said.startswith(f"the executor on {os.uname().nodename} (user ")
    assert f"does not see the folder {files.place.parent}" in said


def test_the_archive_holds_the_whole_package(tmp_path):
    package = Path(hyperbloom.__file__).parent
    archive = executors._archive(package, tmp_path)
    assert executors._archive(package, tmp_path) == archive
    wanted = {path.relative_to(package.parent).as_posix() for path in package.rglob("*.py")}
    with zipfile.ZipFile(archive) as opened:
        assert wanted <= set(opened.namelist())
        assert not any("__pycache__" in name for name in opened.namelist())
    program = "import sys; sys.path.insert(0, sys.argv[1]); import hyperbloom.export.engines.tasks"
    program += "; print(hyperbloom.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, archive], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(archive))


class Alone:
    """A session's context whose executors come and go as a test says."""

    def __init__(self):
        self.there = 0
        self.master = "spark://127.0.0.1:7077"
        self._jsc = self

    def sc(self):
        return self

    statusTracker = conf = sc

    def getTimeAsSeconds(self, name, default):
        assert (name, default) == ("spark.hyperbloom.executorTimeout", "300s")
        return 300

    def getBoolean(self, name, default):
        return False

    def getExecutorInfos(self):
        return ["driver", *range(self.there)]


def test_it_is_given_up_when_no_executor_has_been_there_for_long(monkeypatch):
    now = 1_000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    context = Alone()
    found = executors.Executors(context)
    for seconds, there in ((0, 0), (290, 0), (20, 1), (290, 0), (299, 0)):
        now, context.there = now + seconds, there
        found.watch()
    now += 1
    with pytest.raises(ExportError, match="no executor has been there for 300 seconds, the tab"):
        found.watch()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "ModuleNotFoundError: No module named 'lmdb.cpython'",
            "Python on an executor has no lmdb;",
        ),
        ('Cannot run program "/a/python": error=2, No such file', "there is no /a/python on an ex"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker", "executors have another version of Python"),
        ("ExecutorLostFailure (executor 3 exited ...)", "executors ended again and again"),
        ("something else", "the Spark job failed, the tables are as they were: something else"),
    ],
)
def test_what_spark_says_becomes_a_sentence_that_says_what_to_do(said, told):
    sentence = str(failed_job(RuntimeError(said)))
    assert sentence.startswith(told)
    assert "the tables are as they were" in sentence


def test_a_session_of_spark_connect_is_refused():
    with pytest.raises(ExportError, match="Spark Connect runs no export"):
        SparkEngine(object())
