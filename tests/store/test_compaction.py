"""Compacting: a smaller file that holds the same, or the file as it was."""

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
    compact_store,
    compaction,
    verify_path,
)

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
        monkeypatch.setattr(compaction, "_live_bytes", lambda _: 1 << 62)
    elif fault == "disk":
        monkeypatch.setattr(compaction, "_sync", broken)
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
