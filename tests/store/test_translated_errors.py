"""What LMDB and the disk fail of, and the error with its sentence that a caller gets."""

from __future__ import annotations

import errno
import os
import resource
import struct
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

from hyperbloom.store import StoreCorrupt, StoreError, StoreFull
from hyperbloom.store.lmdb.failures import translated

PLENTY = 1 << 40
LITTLE = 64 * 1024 * 1024 - 4_096


def failed(number: int) -> lmdb.Error:
    return lmdb.Error(f"mdb_txn_commit: {os.strerror(number)}")


def a_disk_of(monkeypatch: pytest.MonkeyPatch, room: int, *, largest_file: int) -> None:
    disk = SimpleNamespace(f_bavail=room // 4_096, f_frsize=4_096)
    monkeypatch.setattr(os, "statvfs", lambda folder: disk)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (largest_file, largest_file))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_with_its_folder(tmp_path: Path, number: int) -> None:
    file = tmp_path / "data.mdb"
    with pytest.raises(
        StoreFull, match=f"no room on the disk of {tmp_path}; nothing of this write was kept"
    ):
        raise translated(failed(number), file)
    with pytest.raises(StoreFull, match="no room on the disk of elsewhere"):
        raise translated(failed(number), file, Path("elsewhere"))


@pytest.mark.parametrize(
    ("room", "largest_file", "kind"),
    [
        (PLENTY, resource.RLIM_INFINITY, StoreError),
        (LITTLE, resource.RLIM_INFINITY, StoreFull),
        (64 * 1024 * 1024, resource.RLIM_INFINITY, StoreError),
        (PLENTY, 1_000 + 64 * 1024 * 1024, StoreError),
        (PLENTY, 1_000 + LITTLE, StoreFull),
    ],
)
def test_a_short_write_is_a_full_disk_where_little_room_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    room: int,
    largest_file: int,
    kind: type[StoreError],
) -> None:
    file = tmp_path / "data.mdb"
    file.write_bytes(bytes(1_000))
    a_disk_of(monkeypatch, room, largest_file=largest_file)
    assert type(translated(failed(errno.EIO), file)) is kind
    assert type(translated(failed(errno.EINVAL), file)) is StoreError


def test_a_file_that_is_not_there_yet_has_no_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_disk_of(monkeypatch, PLENTY, largest_file=64 * 1024 * 1024)
    assert type(translated(failed(errno.EIO), tmp_path / "gone")) is StoreError
    a_disk_of(monkeypatch, PLENTY, largest_file=LITTLE)
    assert type(translated(failed(errno.EIO), tmp_path / "gone")) is StoreFull


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (struct.error("unpack requires 8 bytes"), StoreCorrupt, "a record that is none"),
        (lmdb.CorruptedError("page 7"), StoreCorrupt, "is damaged .*restore a snapshot"),
        (lmdb.PageNotFoundError("page 7"), StoreCorrupt, "is damaged .*restore a snapshot"),
        (lmdb.InvalidError("no header"), StoreCorrupt, "is damaged .*restore a snapshot"),
        (lmdb.BadTxnError("bad"), StoreCorrupt, "is damaged .*restore a snapshot"),
        (failed(errno.EROFS), StoreError, "is read-only, nothing was written"),
        (failed(errno.EINVAL), StoreError, "failed: .*see the disk and the system's log"),
    ],
)
def test_other_failures_say_what_to_do(
    tmp_path: Path, error: Exception, kind: type[StoreError], says: str
) -> None:
    found = translated(error, tmp_path / "data.mdb")
    assert type(found) is kind
    with pytest.raises(kind, match=says):
        raise found


def test_an_error_of_the_stores_own_stays_as_it_is(tmp_path: Path) -> None:
    own = StoreFull("full")
    assert translated(own, tmp_path / "data.mdb") is own
