"""To restore a node's store from a snapshot of it: everything is as it was.

The file is copied, what is forgotten and the objects among it. The deny list of a store that is
replaced is kept beside that of the snapshot (replacement.py).
"""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hyperbloom.store.backup.snapshot import load_snapshot_info, read_figures
from hyperbloom.store.backup.verify import Progress
from hyperbloom.store.errors import ForeignSnapshot, StoreFull
from hyperbloom.store.lmdb.datafile import check_data_file
from hyperbloom.store.lmdb.environment import DATA_FILE, Environment
from hyperbloom.store.lmdb.fsync import require_plain
from hyperbloom.store.migrations import (
    MIGRATIONS,
    OLDEST_READABLE,
    migrate,
    refuse_newer,
    schema_version,
)
from hyperbloom.store.records import SnapshotInfo
from hyperbloom.store.restoring.replacement import (
    commit_all,
    compare_figures,
    handed_on,
    new_store_in,
    understood,
    verify_copy,
)

__all__ = ["restore_store"]


def restore_store(
    snapshot: Path,
    target: Path,
    *,
    node_key: bytes | None,
    replace: bool = False,
    verify: bool = False,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> SnapshotInfo:
    """Make the store `target` from a snapshot of the node `node_key` (None: of any node).

    `replace`: a store that is there is kept beside it as `target` + REPLACED; whom it denied
    stays denied, and who spoke Noise is remembered, or `warn` is told that it cannot be read.
    `verify`: walk all of the copy before it is used. A snapshot of an older schema is brought up to
    date. Raises StoreExists, ForeignSnapshot, StoreLocked, StoreCorrupt (the snapshot is not what
    it says), and StoreError.
    """
    info = load_snapshot_info(snapshot)
    if node_key is not None and info.node_key != node_key:
        raise ForeignSnapshot(
            f"{snapshot} is of another node: begin with its values by `hyperbloom seed`"
        )
    with new_store_in(target, replace) as aside, understood(snapshot):
        _copy_data(snapshot / DATA_FILE, aside / DATA_FILE)
        with closing(Environment(aside, map_bytes=0, durable=False)) as copy:
            refuse_newer(copy)
            # Before the steps: an older version told of digests of its own kind.
            compare_figures(snapshot, read_figures(copy), info.feeds)
            if schema_version(copy) < OLDEST_READABLE:
                migrate(copy, MIGRATIONS[: OLDEST_READABLE - 1])
            if verify:
                verify_copy(snapshot, copy, progress)
            migrate(copy)
            commit_all(copy, handed_on(target, warn))
    return info


def _copy_data(source: Path, target: Path) -> None:
    """Copy a snapshot's file, if it is a plain one as long as its pages, and there is room."""
    require_plain(source)
    check_data_file(source, is_compact=True)
    size, free = source.stat().st_size, shutil.disk_usage(target.parent).free
    if size > free:
        raise StoreFull(
            f"restoring {source} takes {size:,} bytes and {free:,} are free; "
            "make room and try again"
        )
    shutil.copyfile(source, target, follow_symlinks=False)
