"""Who may read what an export writes: its owner alone, unless it is told otherwise."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from export_nodes import HOUR, MONDAY, random_values

NOBODY = 65_534
#: As another user: how many of the files and folders under each path can be read or entered.
STRANGER = """
import os, sys
user = int(sys.argv[1])
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
found = 0
for path, _, files in os.walk(sys.argv[2]):
    for name in files:
        try:
            open(os.path.join(path, name), "rb").read(1)
            found += 1
        except OSError:
            pass
print(found)
"""


def export(*arguments, umask=0o022, **environment):
    command = "from hyperbloom.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "export", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        umask=umask,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def modes(folder):
    """The modes of all folders and of all files below and with this folder."""
    folders, files = set(), set()
    for path, _, names in os.walk(folder):
        folders.add(stat.S_IMODE(os.stat(path).st_mode))
        files.update(stat.S_IMODE(os.lstat(os.path.join(path, name)).st_mode) for name in names)
    return folders, files


def read_by_another(folder):
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, str(NOBODY), str(folder)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        cwd="/",
    )
    return int(done.stdout)


@pytest.fixture
def target():
    """A folder to be made, in one that everybody may enter."""
    # Not pytest's temporary folder, whose parents are closed to others.
    with tempfile.TemporaryDirectory(prefix="hb-") as above:
        Path(above).chmod(0o755)
        yield Path(above) / "tables"


@pytest.fixture
def snapshot(node):
    node.append(random_values(200), at=MONDAY)
    node.append(random_values(200, seed=2), at=MONDAY + 30 * HOUR)
    return node.snapshot()


class Watch:
    """Looks into a temporary folder again and again: modes of what stands in it meanwhile."""

    def __init__(self, folder):
        self.folder, self.seen, self.over = folder, {}, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.is_set():
            for path in self.folder.iterdir():
                # What lies in a folder that is closed is closed as well.
                with suppress(OSError):
                    self.seen[path.name] = stat.S_IMODE(path.lstat().st_mode)
            time.sleep(0.01)

    def end(self):
        self.over.set()
        self.thread.join()
        return self.seen


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_an_export_is_for_its_owner_alone(java, snapshot, node, target, tmp_path, engine):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    watch = Watch(scratch)
    try:
        options = ["--to", target, "--tables", "all", "--engine", engine, "--master", "local[1]"]
        export(snapshot, *options, TMPDIR=str(scratch))
    finally:
        seen = watch.end()
    assert modes(target) == ({0o700}, {0o600})
    assert sum(1 for path in target.rglob("*.parquet")) >= 4
    assert sum(1 for path in target.rglob("_delta_log/*.json")) >= 6
    # The engines' own files: folders and files that others cannot enter or read.
    own = {name: mode for name, mode in seen.items() if not name.startswith("hsperf")}
    # Those of `local` have no names.
    assert bool(own) == (engine == "spark")
    assert {name: oct(mode) for name, mode in own.items() if mode & 0o077} == {}
    assert [path.name for path in scratch.iterdir() if not path.name.startswith("hsperf")] == []
    export("compact", target)
    export("compact", target, "--by", "month")
    export("vacuum", target, "--keep", "20m")
    assert modes(target) == ({0o700}, {0o600})
    if os.geteuid() == 0:
        assert read_by_another(target) == 0


@pytest.mark.timeout(600)
def test_tables_that_were_open_are_closed_and_may_be_opened_again(java, snapshot, node, target):
    options = ["--to", target, "--tables", "links,feeds"]
    export(snapshot, *options)
    for path, _, files in os.walk(target):
        os.chmod(path, 0o755)
        for name in files:
            os.chmod(os.path.join(path, name), 0o644)
    told = export(snapshot, *options).stderr
    assert "--share-with owner" in told
    # The folder around the tables may hold other things: it stays as it is.
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    for table in ("links", "feeds"):
        assert modes(target / table) == ({0o700}, {0o600})
    assert export(snapshot, *options).stderr == ""
    export(snapshot, *options, "--share-with", "group", umask=0o077)
    for table in ("links", "feeds"):
        assert modes(target / table) == ({0o750}, {0o640})
    target.chmod(0o700)
    node.append(random_values(20, seed=3))
    export(node.snapshot("next"), *options, "--share-with", "all", umask=0o077)
    export("compact", target, umask=0o077)
    assert stat.S_IMODE(target.stat().st_mode) == 0o755
    for table in ("links", "feeds"):
        assert modes(target / table) == ({0o755}, {0o644})
    if os.geteuid() == 0:
        assert read_by_another(target) > 0


def test_the_umask_of_the_process_is_put_back(snapshot, target, engines):
    from hyperbloom.export.job import export_snapshots

    before = os.umask(0o022)
    try:
        # Spark's workers run since before: they have a umask of their own.
        export_snapshots([snapshot], target, engines=engines)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert modes(target) == ({0o700}, {0o600})
