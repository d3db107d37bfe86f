"""To restore a node's store from a snapshot of it: everything is as it was.

The records are copied, database by database, and never a page: LMDB's own list of free pages, by
which it would write over pages that are in use, is made anew with the new file. A copy that
`verify` finds anything wrong with is not used. The deny list of a store that is replaced is kept
beside that of the snapshot (replacement.py).
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from hyperbloom.store.backup.snapshot import load_snapshot_info, read_figures
from hyperbloom.store.backup.verify import Progress
from hyperbloom.store.errors import ForeignSnapshot, StoreCorrupt, StoreFull
from hyperbloom.store.limits import DEFAULT_MAP_BYTES
from hyperbloom.store.lmdb.environment import DATA_FILE, Environment
from hyperbloom.store.lmdb.fsync import require_plain
from hyperbloom.store.lmdb.layout import ADDED_LATER, DATABASES
from hyperbloom.store.lmdb.transaction import ReadTransaction, WriteTransaction, read, write
from hyperbloom.store.migrations import (
    MIGRATIONS,
    OLDEST_READABLE,
    migrate,
    refuse_newer,
    schema_version,
)
from hyperbloom.store.records import FeedRecord, SnapshotInfo
from hyperbloom.store.restoring.replacement import (
    commit_all,
    compare_figures,
    handed_on,
    new_store_in,
    understood,
    verify_copy,
)
from hyperbloom.store.tables.reading import TableReader

__all__ = ["restore_store"]

_SLICE_RECORDS = 8_192
_SLICE_BYTES = 16 * 1024 * 1024
"""What is copied in one transaction; one record may go beyond it."""

_Records = list[tuple[bytes, bytes]]


def restore_store(
    snapshot: Path,
    target: Path,
    *,
    node_key: bytes | None,
    replace: bool = False,
    check: Callable[[FeedRecord], object] = lambda record: None,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> SnapshotInfo:
    """Make the store `target` from a snapshot of the node `node_key` (None: of any node).

    `replace`: a store that is there is kept beside it as `target` + REPLACED; whom it denied
    stays denied, and who spoke Noise is remembered, or `warn` is told that it cannot be read.
    `check` may raise ValueError, TypeError or KeyError for a feed whose settings make no sense.
    `progress` gets the values walked so far, and all there are. A snapshot of an older schema is
    brought up to date. Raises StoreExists, ForeignSnapshot, StoreLocked, StoreCorrupt (the snapshot
    is not what it says), and StoreError.
    """
    info = load_snapshot_info(snapshot)
    if node_key is not None and info.node_key != node_key:
        raise ForeignSnapshot(
            f"{snapshot} is of another node: begin with its values by `hyperbloom seed`"
        )
    with new_store_in(target, replace) as aside, understood(snapshot):
        room = _require_room(snapshot / DATA_FILE, aside)
        made = Environment(aside, map_bytes=DEFAULT_MAP_BYTES, durable=False, create=True)
        with closing(made) as copy:
            with closing(Environment(snapshot, map_bytes=0, readonly=True, older=True)) as source:
                refuse_newer(source)
                _copy_records(snapshot, source, copy, room)
            # Before the steps: an older version told of digests of its own kind.
            compare_figures(snapshot, read_figures(copy), info.feeds)
            if schema_version(copy) < OLDEST_READABLE:
                migrate(copy, MIGRATIONS[: OLDEST_READABLE - 1])
            verify_copy(snapshot, copy, progress)
            for record in TableReader(copy).feeds():
                check(record)
            migrate(copy)
            commit_all(copy, handed_on(target, warn))
    return info


def _require_room(source: Path, target: Path) -> int:
    """The length of a snapshot's file, if it is a plain one and the disk has room for as much."""
    require_plain(source)
    size, free = source.stat().st_size, shutil.disk_usage(target).free
    if size > free:
        raise StoreFull(
            f"restoring {source} takes {size:,} bytes and {free:,} are free; "
            "make room and try again"
        )
    return size


def _copy_records(snapshot: Path, source: Environment, copy: Environment, room: int) -> None:
    """Copy all records of all databases; `room` bytes at most, for a sound file holds no more.

    Raises StoreCorrupt for a file that is no B+tree of each database: whose keys do not ascend, or
    which does not lead to a record that it holds, or leads many times to the same.
    """
    with read(source, long=True) as transaction:
        _check_databases(snapshot, transaction)
        for name in transaction.databases:
            for records in _slices(transaction, name):
                room -= sum(len(key) + len(data) for key, data in records)
                looked_up = [transaction.get(name, key) for key, _ in records]
                if room < 0 or looked_up != [data for _, data in records]:
                    raise _damaged(snapshot, name)
                if not write(copy, _Appending(name, records)):
                    raise _damaged(snapshot, name)


def _check_databases(snapshot: Path, transaction: ReadTransaction) -> None:
    """Whether the file has the databases that its schema asks for, and no others."""
    names = transaction.txn.cursor().iternext(keys=True, values=False)
    there = {name.decode("utf-8", "replace") for name in names}
    needed = set(DATABASES) - ADDED_LATER if transaction.schema >= OLDEST_READABLE else set()
    unknown, lacking = sorted(there - set(DATABASES)), sorted(needed - there)
    if unknown:
        raise StoreCorrupt(
            f"{snapshot} has an unknown database, {unknown[0]!r}; use another snapshot, or, if it "
            "is of a newer hyperbloom, install that"
        )
    if lacking:
        raise StoreCorrupt(f"{snapshot} is lacking the database {lacking[0]!r}; use another one")


def _slices(transaction: ReadTransaction, database: str) -> Iterator[_Records]:
    """All records in the order of their keys."""
    records = transaction.scan(database)
    while piece := list(islice(records, 1)):
        size = len(piece[0][1])
        for record in islice(records, _SLICE_RECORDS - 1):
            piece.append(record)
            size += len(record[1])
            if size >= _SLICE_BYTES:
                break
        yield piece


class _Appending:
    """Called in a transaction: puts records behind the last one; whether all were behind it."""

    def __init__(self, database: str, records: _Records) -> None:
        self._database = database
        self._records = records

    def __call__(self, transaction: WriteTransaction) -> bool:
        cursor = transaction.cursor(self._database)
        _, added = cursor.putmulti(self._records, append=True)
        return added == len(self._records)


def _damaged(snapshot: Path, database: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{snapshot} is damaged (its database {database!r} is no tree of records); use another one"
    )
