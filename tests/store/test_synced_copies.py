"""What gets a name is on disk before, its folder after; and nobody else may read it meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hyperbloom.store import AppendValues, PutFeed, Store, StoreError, WriterInline
from hyperbloom.store.backup.compaction import compact_store
from hyperbloom.store.backup.snapshot import load_snapshot_info
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import seed_store

FEED, ORIGIN = b"f" * 32, b"o" * 32
NOW = 1_700_000_000.0


class Disk:
    """Notes in order what is synced and what gets a name, by paths below a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.steps: list[str] = []
        self.modes: dict[str, int] = {}
        self.synced: dict[str, bytes] = {}
        self._real = {name: getattr(os, name) for name in ("fsync", "rename", "link")}
        monkeypatch.setattr(os, "fsync", self._fsync)
        monkeypatch.setattr(os, "rename", self._rename)
        monkeypatch.setattr(os, "link", self._link)

    def _name(self, path: str | Path) -> str:
        return str(Path(path).relative_to(self._folder))

    def _fsync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        self.steps.append(f"sync {self._name(path)}")
        if path.is_file():
            self.synced[self._name(path)] = path.read_bytes()
        for one in (path, path.parent):
            if one.is_relative_to(self._folder):
                self.modes[self._name(one)] = stat.S_IMODE(one.stat().st_mode)
        self._real["fsync"](descriptor)

    def _rename(self, source: Path, target: Path) -> None:
        self.steps.append(f"rename {self._name(source)} {self._name(target)}")
        self._real["rename"](source, target)

    def _link(self, source: Path, target: Path) -> None:
        self.steps.append(f"link {self._name(source)} {self._name(target)}")
        self._real["link"](source, target)


@pytest.fixture
def filled(tmp_path: Path) -> Store:
    store = Store.open(tmp_path / "node", durable=False)
    writer = WriterInline(store)
    for operation in (PutFeed(FEED, {}), AppendValues(FEED, [b"a", b"b"], ORIGIN, 1)):
        writer.submit(operation, lambda result: None)
    return store


@pytest.fixture
def snapshot(filled: Store, tmp_path: Path) -> Path:
    filled.snapshot(tmp_path / "taken")
    filled.close()
    return tmp_path / "taken"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Of a process that leaves it to the store who may read what it makes."""
    before = os.umask(0)
    yield Disk(tmp_path, monkeypatch)
    os.umask(before)


def test_a_new_store_is_whole_and_its_name_is_on_disk(tmp_path: Path, disk: Disk) -> None:
    Store.open(tmp_path / "new").close()
    assert disk.steps == ["rename new/.new-store/data.mdb new/data.mdb", "sync new"]
    assert disk.modes["new"] == 0o700


def test_a_snapshot_is_on_disk_before_it_has_its_name(
    filled: Store, tmp_path: Path, disk: Disk
) -> None:
    filled.snapshot(tmp_path / "copy")
    filled.close()
    assert disk.steps == [
        "sync .copy.partial/snapshot.json",
        "sync .copy.partial/data.mdb",
        "sync .copy.partial",
        "rename .copy.partial copy",
        "sync .",
    ]
    for name in ("snapshot.json", "data.mdb"):
        assert disk.synced[f".copy.partial/{name}"] == (tmp_path / "copy" / name).read_bytes()
    del disk.modes["."]
    assert disk.modes == {
        ".copy.partial": 0o700,
        ".copy.partial/data.mdb": 0o600,
        ".copy.partial/snapshot.json": 0o600,
    }


def test_a_compact_copy_is_on_disk_before_it_takes_the_stores_place(
    filled: Store, tmp_path: Path, disk: Disk
) -> None:
    filled.close()
    compact_store(tmp_path / "node")
    assert disk.steps == [
        "sync node/.compacting/data.mdb",
        "rename node/.compacting/data.mdb node/data.mdb",
        "sync node",
    ]
    assert disk.modes["node/.compacting"] == 0o700
    assert disk.modes["node/.compacting/data.mdb"] == 0o600


def restored(snapshot: Path, target: Path, *, replace: bool = False) -> None:
    restore_store(snapshot, target, node_key=None, replace=replace)


def seeded(snapshot: Path, target: Path, *, replace: bool = False) -> None:
    seed_store(snapshot, target, feeds=None, now=NOW, replace=replace)


@pytest.mark.parametrize("make", [restored, seeded])
def test_a_restored_store_is_on_disk_before_it_takes_anothers_place(
    snapshot: Path, tmp_path: Path, disk: Disk, make: Callable[..., None]
) -> None:
    make(snapshot, tmp_path / "deep" / "new")
    named = [
        "sync deep/new/.new-store/data.mdb",
        "rename deep/new/.new-store/data.mdb deep/new/data.mdb",
        "sync deep/new",
    ]
    assert disk.steps == named
    disk.steps.clear()
    Store.open(tmp_path / "deep" / "new").close()
    make(snapshot, tmp_path / "deep" / "new", replace=True)
    assert disk.steps == [
        named[0],
        "link deep/new/data.mdb deep/new.replaced/data.mdb",
        "sync deep/new.replaced",
        *named[1:],
    ]
    for folder in ("deep/new", "deep/new/.new-store", "deep/new.replaced"):
        assert disk.modes[folder] == 0o700
    assert disk.modes["deep/new/.new-store/data.mdb"] == 0o600
    assert sorted(os.listdir(tmp_path / "deep" / "new")) == ["data.mdb", "node.lock", "store.used"]


@pytest.mark.parametrize("make", [restored, seeded])
def test_what_an_earlier_attempt_left_is_no_part_of_a_new_store(
    snapshot: Path, tmp_path: Path, make: Callable[..., None]
) -> None:
    left = tmp_path / "new" / ".new-store"
    left.mkdir(parents=True)
    (left / "data.mdb").write_bytes(b"half")
    make(snapshot, tmp_path / "new")
    store = Store.open(tmp_path / "new")
    assert store.feed(FEED).count == 2
    store.close()


def test_a_folder_that_cannot_be_made_is_said(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match="cannot be made: Not a directory"):
        restored(snapshot, tmp_path / "file" / "new")


@pytest.mark.parametrize("kind", ["restore", "seed", "snapshot"])
def test_a_disk_that_fails_is_told_with_its_reason(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    def take() -> None:
        store = Store.open(tmp_path / "node")
        try:
            store.snapshot(tmp_path / "copy")
        finally:
            store.close()

    make: dict[str, Callable[[], None]] = {
        "restore": lambda: restored(snapshot, tmp_path / "new"),
        "seed": lambda: seeded(snapshot, tmp_path / "new"),
        "snapshot": take,
    }
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(StoreError, match="cannot be written: Input/output error"):
            make[kind]()
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "new" / "data.mdb").exists()
    make[kind]()


def test_a_digest_that_is_not_known_is_told_as_none(
    snapshot: Path, filled: Store, tmp_path: Path
) -> None:
    info = load_snapshot_info(snapshot)
    assert info.node_key is None
    text = (snapshot / "snapshot.json").read_text()
    (one,) = info.feeds
    assert one.digest is not None
    (snapshot / "snapshot.json").write_text(text.replace(f'"{one.digest.hex()}"', "null"))
    assert load_snapshot_info(snapshot).feeds[0].digest is None
