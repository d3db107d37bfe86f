"""Snapshots: whole or not at all, consistent while others write, and good to restore from."""

import json
import shutil
import stat
import threading

import pytest

from hyperbloom.store import (
    AppendValues,
    PutFeed,
    PutMeta,
    Store,
    StoreCorrupt,
    StoreError,
    Writer,
)
from hyperbloom.store.backup.snapshot import load_snapshot_info
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.lmdb.environment import Environment

FEED = b"f" * 32
ORIGIN = b"o" * 32


def append(*values):
    return AppendValues(FEED, values, ORIGIN, 1)


@pytest.fixture
def clocked(tmp_path):
    store = Store.open(tmp_path / "store", durable=False, clock=lambda: 1700000000.25)
    yield store
    store.close()


def submit(store, *operations):
    writer = Writer(store, deliver=lambda answer: answer())
    answers = []
    for operation in operations:
        writer.submit(operation, answers.append)
    writer.close()
    return answers


def test_a_snapshot_is_a_store_with_its_figures_beside_it(clocked, tmp_path):
    submit(clocked, PutFeed(FEED, {"alias": "a"}), PutMeta("node_id", b"n" * 32))
    submit(clocked, append(b"b", b"a", b"x" * 700, b"x" * 701))
    info = clocked.snapshot(tmp_path / "copy")
    assert info.node_key == b"n" * 32
    assert info.taken_at == 1700000000_250000
    (figures,) = info.feeds
    record = clocked.feed(FEED)
    for name in ("key", "count", "bytes", "digest", "top_seq"):
        assert getattr(figures, name) == getattr(record, name)
    assert load_snapshot_info(tmp_path / "copy") == info
    written = json.loads((tmp_path / "copy" / "snapshot.json").read_text())
    assert written["feeds"][0]["digest"] == record.digest.hex()

    copy = Store.open_readonly(tmp_path / "copy")
    assert copy.feed(FEED) == record
    assert copy.range_slice(FEED, limit=9, max_bytes=9999).values == [
        b"a",
        b"b",
        b"x" * 700,
        b"x" * 701,
    ]
    copy.close()
    assert verify_path(tmp_path / "copy").ok
    modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / "copy").iterdir()}
    assert modes == {"data.mdb": 0o600, "snapshot.json": 0o600}
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o700


def test_a_node_goes_on_from_a_restored_snapshot(clocked, tmp_path):
    submit(clocked, PutFeed(FEED, {}), append(b"a"))
    clocked.snapshot(tmp_path / "copy")
    shutil.copytree(tmp_path / "copy", tmp_path / "restored")
    restored = Store.open(tmp_path / "restored", create=False)
    assert submit(restored, append(b"a", b"b"))[0].values == [b"b"]
    assert restored.verify().ok
    restored.close()


def test_an_existing_target_is_refused_and_left_alone(clocked, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("empty", "file", "dangling", "store"):
        with pytest.raises(StoreError, match="exists"):
            clocked.snapshot(tmp_path / name)
    assert list((tmp_path / "empty").iterdir()) == []
    assert (tmp_path / "file").read_text() == "text"


def test_a_failure_leaves_nothing_behind(clocked, tmp_path, monkeypatch):
    with pytest.raises(StoreError, match="cannot be written"):
        clocked.snapshot(tmp_path / "absent" / "copy")
    half = tmp_path / ".copy.partial"
    half.mkdir()
    (half / "data.mdb").write_text("left by a crash")

    def broken(environment, target):
        (target / "data.mdb").write_text("half a copy")
        raise StoreError("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(Environment, "copy", broken)
        with pytest.raises(StoreError, match="on purpose"):
            clocked.snapshot(tmp_path / "copy")
    assert not half.exists()
    assert not (tmp_path / "copy").exists()
    clocked.snapshot(tmp_path / "copy")
    assert verify_path(tmp_path / "copy").ok


def test_a_snapshot_that_tells_nothing_of_itself_is_refused(clocked, tmp_path):
    clocked.snapshot(tmp_path / "copy")
    file = tmp_path / "copy" / "snapshot.json"
    whole = file.read_text()
    for text in ("", "[]", "{}", whole[: len(whole) // 2], whole.replace("null", "7")):
        file.write_text(text)
        with pytest.raises(StoreCorrupt, match=r"snapshot\.json"):
            load_snapshot_info(tmp_path / "copy")
    file.unlink()
    with pytest.raises(StoreCorrupt):
        load_snapshot_info(tmp_path / "copy")


def test_snapshots_are_consistent_while_others_write(tmp_path):
    store = Store.open(tmp_path / "store", durable=False, map_bytes=1 << 20)
    writer = Writer(store, deliver=lambda answer: answer())
    failures: list[object] = []
    stop = threading.Event()

    def note(result):
        if isinstance(result, BaseException):
            failures.append(result)

    writer.submit(PutFeed(FEED, {}), note)
    begun = threading.Event()
    writer.submit(append(b"first"), lambda result: (note(result), begun.set()))
    assert begun.wait(240)

    def write():
        # Bounded: a store that grows while slow snapshots of it are checked makes them slower.
        for number in range(0, 100_000, 200):
            if stop.is_set():
                return
            stored = threading.Event()
            values = [b"%09d" % n + b"x" * 100 for n in range(number, number + 200)]
            writer.submit(append(*values), lambda result, e=stored: (note(result), e.set()))
            stored.wait(240)

    thread = threading.Thread(target=write)
    thread.start()
    counts = []
    try:
        for number in range(6):
            info = store.snapshot(tmp_path / str(number))
            report = verify_path(tmp_path / str(number))
            assert report.problems == []
            assert info.feeds[0].count == report.values
            counts.append(report.values)
    finally:
        stop.set()
        thread.join(240)
        writer.close()
    assert failures == []
    assert counts == sorted(counts)
    assert store.verify().values > counts[0]
    store.close()
