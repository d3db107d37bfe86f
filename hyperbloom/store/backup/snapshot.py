"""A consistent copy of a running store, that is there as a whole or not at all.

LMDB copies a committed state while others write. The copy goes into a folder beside the target,
its figures are read from the copy itself (the running store may be ahead of it by then), all is
synced, and one rename gives it the target's name. The map cannot grow while the copy is read, so
it is given room before, and writers go on meanwhile.
"""

import json
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from hyperbloom.store.errors import StoreCorrupt, StoreError
from hyperbloom.store.limits import MAX_SNAPSHOT_INFO_BYTES, MIN_HEADROOM_BYTES
from hyperbloom.store.lmdb.environment import DATA_FILE, Environment
from hyperbloom.store.lmdb.fsync import read_plain, sync
from hyperbloom.store.lmdb.layout import KEY_BYTES, FeedState
from hyperbloom.store.lmdb.transaction import read
from hyperbloom.store.records import FeedFigures, SnapshotInfo
from hyperbloom.store.tables.meta import NODE_ID, meta_key

__all__ = [
    "SNAPSHOT_FILE",
    "copy_watched",
    "live_bytes",
    "load_snapshot_info",
    "read_figures",
    "take_snapshot",
]

SNAPSHOT_FILE = "snapshot.json"
_SECONDS_BETWEEN = 0.2
_MOST = (1 << 64) - 1


def take_snapshot(
    environment: Environment,
    target: Path,
    *,
    taken_at: int,
    progress: Callable[[int, int], None] | None = None,
) -> SnapshotInfo:
    """Copy the store's last committed state into the new folder ``target``.

    ``taken_at`` in µs, ``progress`` as for ``copy_watched``. Raises StoreError if the target exists
    or cannot be written, StoreFull without room. A half result never has the target's name.
    """
    target = target.absolute()
    if os.path.lexists(target):
        raise StoreError(f"the snapshot {target} exists already; name another folder")
    size = environment.size()
    environment.reserve(max(MIN_HEADROOM_BYTES, size.used_bytes))
    partial = target.parent / f".{target.name}.partial"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        copy_watched(environment, partial, progress)
        info = _describe(partial, taken_at)
        (partial / DATA_FILE).chmod(0o600)
        _write_info(partial / SNAPSHOT_FILE, info)
        sync(partial / DATA_FILE)
        sync(partial)
        partial.rename(target)
        sync(target.parent)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"the snapshot {target} cannot be written: {reason}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return info


def live_bytes(environment: Environment) -> int:
    """About how many bytes a copy of the store will have: its pages that are not free."""
    size = environment.size()
    return size.used_bytes - size.free_bytes


def copy_watched(
    environment: Environment, folder: Path, progress: Callable[[int, int], None] | None
) -> None:
    """Copy the store into a folder; ``progress`` gets the bytes so far, and about how many come."""
    if progress is None:
        environment.copy(folder)
        return
    with _Watched(folder / DATA_FILE, live_bytes(environment), progress):
        environment.copy(folder)


def read_figures(environment: Environment) -> tuple[FeedFigures, ...]:
    """Each feed's figures, in the order of their keys."""
    with read(environment) as transaction:
        states = [(key, FeedState.unpack(data)) for key, data in transaction.scan("feeds")]
    return tuple(
        FeedFigures(
            key=key,
            count=state.count,
            bytes=state.size,
            digest=state.digest if any(state.digest) or not state.count else None,
            top_seq=state.top_seq,
        )
        for key, state in states
    )


def load_snapshot_info(path: Path) -> SnapshotInfo:
    """What the snapshot in this folder says of itself; StoreCorrupt if it does not, or not well."""
    try:
        fields = json.loads(read_plain(path / SNAPSHOT_FILE, MAX_SNAPSHOT_INFO_BYTES))
        node_key = fields["node_key"]
        return SnapshotInfo(
            node_key=None if node_key is None else _octets(node_key),
            taken_at=_number(fields["taken_at"]),
            feeds=tuple(
                FeedFigures(
                    key=_octets(feed["key"]),
                    count=_number(feed["count"]),
                    bytes=_number(feed["bytes"]),
                    digest=None if feed["digest"] is None else _octets(feed["digest"]),
                    top_seq=_number(feed["top_seq"]),
                )
                for feed in fields["feeds"]
            ),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreCorrupt(
            f"{path} is no whole snapshot ({SNAPSHOT_FILE}: {reason}); use another one"
        ) from error


def _octets(text: str) -> bytes:
    """A key or digest; ValueError or TypeError for what is none."""
    found = bytes.fromhex(text)
    if len(found) != KEY_BYTES:
        raise ValueError(f"a key or digest has {KEY_BYTES} bytes")
    return found


def _number(found: object) -> int:
    """A count, a number or a time as the store keeps it; ValueError for what is none."""
    if type(found) is not int or not 0 <= found <= _MOST:
        raise ValueError(f"a count or time is a whole number of at most {_MOST}")
    return found


def _describe(folder: Path, taken_at: int) -> SnapshotInfo:
    copy = Environment(folder, map_bytes=0, readonly=True)
    try:
        with read(copy) as transaction:
            node_key = transaction.get("meta", meta_key(NODE_ID))
        return SnapshotInfo(node_key=node_key, taken_at=taken_at, feeds=read_figures(copy))
    finally:
        copy.close()


def _write_info(path: Path, info: SnapshotInfo) -> None:
    fields = {
        "node_key": None if info.node_key is None else info.node_key.hex(),
        "taken_at": info.taken_at,
        "feeds": [
            {
                "key": feed.key.hex(),
                "count": feed.count,
                "bytes": feed.bytes,
                "digest": None if feed.digest is None else feed.digest.hex(),
                "top_seq": feed.top_seq,
            }
            for feed in info.feeds
        ],
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(fields, indent=2).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


class _Watched:
    """Tells how large a file has become, from a thread, while another one writes it."""

    def __init__(self, file: Path, total: int, progress: Callable[[int, int], None]) -> None:
        self._file, self._total, self._progress = file, total, progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN):
            if self._file.exists():
                self._progress(min(self._file.stat().st_size, self._total), self._total)
