"""A folder of snapshots: what is in it, and which may go."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from hyperbloom.store.backup.snapshot import load_snapshot_info
from hyperbloom.store.errors import StoreCorrupt, StoreError
from hyperbloom.store.lmdb.environment import DATA_FILE
from hyperbloom.store.records import SnapshotInfo

__all__ = ["KeptSnapshot", "list_snapshots", "prune_snapshots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSnapshot:
    """A whole snapshot on disk; `size` is the length of its file in bytes."""

    path: Path
    info: SnapshotInfo
    size: int


def list_snapshots(folder: Path) -> list[KeptSnapshot]:
    """The whole snapshots in `folder`, newest first; whatever else is there is passed over.

    Raises StoreError if the folder cannot be read.
    """
    found = []
    try:
        for path in folder.iterdir():
            if path.name.startswith(".") or path.is_symlink() or not path.is_dir():
                continue
            try:
                info, size = load_snapshot_info(path), (path / DATA_FILE).stat().st_size
            except (StoreCorrupt, FileNotFoundError):
                continue
            found.append(KeptSnapshot(path=path, info=info, size=size))
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"the snapshots in {folder} cannot be read: {reason}") from error
    return sorted(found, key=lambda one: (-one.info.taken_at, one.path.name))


def prune_snapshots(folder: Path, *, keep: int) -> list[KeptSnapshot]:
    """Remove all but the newest `keep` snapshots of each node; those removed.

    A snapshot loses its name before its files, so that a process that is killed leaves no half one
    under a real name. Raises StoreError if one cannot be removed, ValueError for `keep` below 1.
    """
    if keep < 1:
        raise ValueError("at least one snapshot of each node is kept")
    kept: dict[bytes | None, int] = {}
    removed = []
    for one in list_snapshots(folder):
        number = kept[one.info.node_key] = kept.get(one.info.node_key, 0) + 1
        if number <= keep:
            continue
        leaving = one.path.with_name(f".{one.path.name}.removed")
        try:
            if leaving.exists():
                shutil.rmtree(leaving)
            one.path.rename(leaving)
            shutil.rmtree(leaving)
        except OSError as error:
            raise StoreError(f"the snapshot {one.path} cannot be removed: {error}") from error
        removed.append(one)
    return removed
