"""Compacting: a smaller file that holds the same, or the file as it was."""

import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

from hyperbloom.store import (
    AppendValues,
    ForgetValues,
    PutFeed,
    Store,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    WriterInline,
)
from hyperbloom.store.backup import compaction
from hyperbloom.store.backup.compaction import compact_store
from hyperbloom.store.backup.verify import verify_path

FEED, ORIGIN = b"f" * 32, b"o" * 32


@pytest.fixture
def folder(tmp_path):
    """A store from which much was forgotten; its folder, and the feed's record."""
    store = Store.open(tmp_path / "store", durable=False)
    writer = WriterInline(store)
    values = [b"%05d" % number + b"x" * 400 for number in range(4_000)]
    steps = [PutFeed(FEED, {}), AppendValues(FEED, values, ORIGIN, 1)]
    steps += [
        ForgetValues(FEED, values[start : start + 1_000], erase=True) for start in (0, 1_000, 2_000)
    ]
    for step in steps:
        writer.submit(step, lambda _: None)
    record = store.feed(FEED)
    store.close()
    return tmp_path / "store", record


def test_the_file_is_smaller_and_holds_the_same(folder):
    path, record = folder
    told = []
    done = compact_store(path, lambda *how_far: told.append(how_far))
    assert done.after < 0.6 * done.before
    assert (path / "data.mdb").stat().st_size == done.after
    assert verify_path(path).problems == []
    store = Store.open(path, create=False)
    assert store.feed(FEED) == record
    answers = []
    WriterInline(store).submit(AppendValues(FEED, [b"new"], ORIGIN, 2), answers.append)
    assert answers[0].values == [b"new"]
    store.close()
    assert sorted(file.name for file in path.iterdir() if file.is_dir()) == []


def test_not_while_somebody_has_it_open(folder):
    path, _ = folder
    store = Store.open(path)
    before = (path / "data.mdb").read_bytes()
    with pytest.raises(StoreLocked, match="in use by process"):
        compact_store(path)
    assert (path / "data.mdb").read_bytes() == before
    store.close()


def test_a_folder_that_may_not_be_used(folder):
    path, _ = folder
    (path / "node.lock").unlink()
    (path / "node.lock").mkdir()
    with pytest.raises(StoreError, match="is no plain file"):
        compact_store(path)


def test_no_store_no_compaction(tmp_path):
    with pytest.raises(StoreError, match="there is no store"):
        compact_store(tmp_path)


@pytest.mark.parametrize("fault", ["no room", "other copy", "disk"])
def test_what_goes_wrong_leaves_the_file_as_it_was(folder, monkeypatch, fault):
    path, record = folder
    before = (path / "data.mdb").read_bytes()

    def broken(*_):
        raise OSError(5, "Input/output error")

    if fault == "no room":
        monkeypatch.setattr(compaction, "live_bytes", lambda _: 1 << 62)
    elif fault == "disk":
        monkeypatch.setattr(compaction, "sync", broken)
    else:
        figures = iter([(), ("other",)])
        monkeypatch.setattr(compaction, "read_figures", lambda _: next(figures))
    expected = {"no room": StoreFull, "other copy": StoreCorrupt, "disk": StoreError}[fault]
    with pytest.raises(expected):
        compact_store(path)
    assert (path / "data.mdb").read_bytes() == before
    assert not list(path.glob(".compact*"))
    store = Store.open(path)
    assert store.feed(FEED) == record
    store.close()


def test_what_a_killed_compaction_left_is_removed(folder):
    path, _ = folder
    (path / ".compacting").mkdir()
    (path / ".compacting" / "data.mdb").write_bytes(b"half")
    Store.open(path).close()
    assert not (path / ".compacting").exists()


KILLED = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from hyperbloom.store.backup.compaction import compact_store
    left = int(sys.argv[2])
    real = {name: getattr(os, name) for name in ("chmod", "fsync", "mkdir", "rename")}
    def dying(name):
        def call(*args, **more):
            global left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), 9)
            return real[name](*args, **more)
        return call
    for name in real:
        setattr(os, name, dying(name))
    compact_store(Path(sys.argv[1]))
    """
)


def test_killed_at_any_step_the_store_is_the_same(folder, tmp_path):
    path, record = folder
    before = (path / "data.mdb").stat().st_size
    killed, sizes = 0, []
    for step in range(20):
        copy = tmp_path / f"copy{step}"
        shutil.copytree(path, copy)
        run = subprocess.run(
            [sys.executable, "-c", KILLED, str(copy), str(step)], capture_output=True, check=False
        )
        assert run.returncode in (0, -signal.SIGKILL), run.stderr
        sizes.append((copy / "data.mdb").stat().st_size)
        assert verify_path(copy).problems == []
        store = Store.open(copy, create=False)
        assert store.feed(FEED) == record
        store.close()
        assert not (copy / ".compacting").exists()
        if run.returncode == 0:
            break
        killed += 1
    assert killed >= 4
    assert sizes[0] == before
    assert sizes[-1] < before
