"""A store from a snapshot: of the same node again (restore), or to begin with (seed).

The new store is made in a folder inside the target, compared with what the snapshot says of itself,
synced, and one rename gives its file the real name. A process that is killed meanwhile leaves what
was there: the old store, or none. The folder's lock is held all the time, so that no node runs on
it, and none starts.

To restore is to copy the file: everything is as it was, what is forgotten and the objects among it.
To seed is to read the values and links of some feeds into a new store: another node's refusals,
addresses, denied keys, forgotten values, objects and identity stay with it. Each value keeps its
place in the order of arrival, and the peer and time that the snapshot's node wrote down with it;
these are that node's word, which `seeded_from` in the meta table names.

A store that is replaced hands on its deny list either way: a key is denied until it is allowed, and
not until an older snapshot is restored.
"""

import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from hyperbloom.digests import sum_of_schema_3
from hyperbloom.store.backup.snapshot import load_snapshot_info, read_figures
from hyperbloom.store.backup.verify import Progress, verify_environment
from hyperbloom.store.errors import (
    NONSENSE,
    ForeignSnapshot,
    NoSuchFeed,
    StoreCorrupt,
    StoreError,
    StoreExists,
    StoreFull,
)
from hyperbloom.store.limits import DEFAULT_MAP_BYTES, GROUP_OPERATIONS
from hyperbloom.store.lmdb.datafile import check_data_file
from hyperbloom.store.lmdb.environment import DATA_FILE, LMDB_LOCK_FILE, Environment, FolderLock
from hyperbloom.store.lmdb.fsync import require_plain, sync
from hyperbloom.store.lmdb.migrations import (
    MIGRATIONS,
    OLDEST_READABLE,
    SUMMED_SCHEMA,
    initialize,
    migrate,
    refuse_newer,
    schema_version,
)
from hyperbloom.store.operations import AppendValues, Operation, PutFeed, PutMeta
from hyperbloom.store.records import FeedFigures, FeedRecord, LinkRecord, LogRecord, SnapshotInfo
from hyperbloom.store.store import NEW_FOLDER, Store
from hyperbloom.store.tables.denied import DenyKey
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.store.writer import commit_group

__all__ = [
    "REPLACED",
    "SEEDED_FROM",
    "SeededFeed",
    "feed_key_in",
    "restore_store",
    "seed_store",
]

REPLACED = ".replaced"
"""Behind the store's name: the folder that keeps the store which was replaced."""

SEEDED_FROM = "seeded_from"
"""The meta entry that names the snapshot a store began with, as JSON."""

_SLICE_VALUES = 10_000
_SLICE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededFeed:
    """What is taken of a feed beside its values."""

    settings: Mapping[str, object]
    links: Sequence[LinkRecord]


def take_all(record: FeedRecord, links: Sequence[LinkRecord]) -> SeededFeed:
    """For a snapshot of whom one trusts like oneself."""
    return SeededFeed(settings=record.settings, links=links)


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

    `replace`: a store that is there is kept beside it as `target` + REPLACED; what it denied
    stays denied, or `warn` is told that it cannot be read. `verify`: walk all of the copy
    before it is used. A snapshot of an older schema is brought up to date. Raises StoreExists,
    ForeignSnapshot, StoreLocked, StoreCorrupt (the snapshot is not what it says), and
    StoreError.
    """
    info = load_snapshot_info(snapshot)
    if node_key is not None and info.node_key != node_key:
        raise ForeignSnapshot(
            f"{snapshot} is of another node: begin with its values by `hyperbloom seed`"
        )
    with _aside(target, replace) as aside, _understood(snapshot):
        _copy_data(snapshot / DATA_FILE, aside / DATA_FILE)
        with closing(Environment(aside, map_bytes=0, durable=False)) as copy:
            refuse_newer(copy)
            # Before the steps: an older version told of digests of its own kind.
            _compare(snapshot, read_figures(copy), info.feeds)
            if schema_version(copy) < OLDEST_READABLE:
                migrate(copy, MIGRATIONS[: OLDEST_READABLE - 1])
            if verify:
                _verify(snapshot, copy, progress)
            migrate(copy)
            _commit(copy, _denied_before(target, warn))
    return info


def seed_store(
    snapshot: Path,
    target: Path,
    *,
    feeds: Sequence[bytes] | None,
    now: float,
    replace: bool = False,
    verify: bool = False,
    take: Callable[[FeedRecord, Sequence[LinkRecord]], SeededFeed] = take_all,
    progress: Progress | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> SnapshotInfo:
    """Make the store `target` with the values and unexpired links of a snapshot's feeds.

    `feeds`: their keys; None: each that holds anything. `now` in seconds: no value arrived
    later. `take` says what is taken of a feed's settings and links; it may raise ValueError,
    TypeError or KeyError for what is none. `warn` as in `restore_store`. Returns the snapshot's
    word, with the feeds taken. Raises as `restore_store`, and NoSuchFeed.
    """
    info = load_snapshot_info(snapshot)
    with _understood(snapshot), closing(Store.open_readonly(snapshot)) as source:
        _compare(snapshot, read_figures(source.environment), info.feeds)
        chosen = _choose(source, feeds)
        taken = tuple(one for one in info.feeds if one.key in {record.key for record in chosen})
        with _aside(target, replace) as aside:
            environment = Environment(
                aside, map_bytes=DEFAULT_MAP_BYTES, durable=False, create=True
            )
            with closing(environment):
                initialize(environment, MIGRATIONS)
                _commit(environment, [_seeded_from(info), *_denied_before(target, warn)])
                done = 0
                for record in chosen:
                    done = _take_feed(source, environment, record, take, now, done, progress)
                _compare_taken(snapshot, source, environment, taken)
                if verify:
                    _verify(snapshot, environment, progress)
    return SnapshotInfo(node_key=info.node_key, taken_at=info.taken_at, feeds=taken)


def feed_key_in(snapshot: Path, name: str) -> bytes:
    """The key of a feed in a snapshot, by its key in hex or its alias.

    Raises NoSuchFeed, or StoreCorrupt and others as `seed_store` does.
    """
    with _understood(snapshot), closing(Store.open_readonly(snapshot)) as store:
        for record in store.feeds():
            if name.lower() == record.key.hex() or name == record.settings.get("alias"):
                return record.key
    raise NoSuchFeed(f"the snapshot has no feed {name!r}")


@contextmanager
def _understood(snapshot: Path) -> Iterator[None]:
    """What was read of the snapshot and makes no sense is its damage, not a fault of ours."""
    try:
        yield
    except NONSENSE as error:
        raise StoreCorrupt(f"{snapshot} is damaged ({error}); use another one") from error


def _denied_before(target: Path, warn: Callable[[str], None]) -> list[Operation]:
    """What denies again whom the store that is replaced denies."""
    if not (target / DATA_FILE).exists():
        return []
    try:
        with closing(Store.open_readonly(target)) as store:
            return [DenyKey(one.key, one.denied_at, one.reason) for one in store.denied()]
    except (StoreError, ValueError, struct.error):
        warn("the deny list of the store that was replaced cannot be read; deny its keys again")
        return []


@contextmanager
def _aside(target: Path, replace: bool) -> Iterator[Path]:
    """A folder to make the store's file in; at the end of the block it becomes the target's."""
    target = target.absolute()
    kept = target.with_name(target.name + REPLACED)
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FolderLock(target)
    except OSError as error:
        raise StoreError(f"the store {target} cannot be made: {error.strerror or error}") from error
    aside = target / NEW_FOLDER
    try:
        _check_free(target, kept, replace)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        yield aside
        sync(aside / DATA_FILE)
        (aside / DATA_FILE).chmod(0o600)
        if (target / DATA_FILE).exists():
            _keep(target, kept)
        # LMDB's table of readers is of the file that goes.
        (target / LMDB_LOCK_FILE).unlink(missing_ok=True)
        (aside / DATA_FILE).rename(target / DATA_FILE)
        sync(target)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"the store {target} cannot be written: {reason}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        lock.release()


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


def _keep(target: Path, kept: Path) -> None:
    """Give the file that is to be replaced a second name, or leave nothing behind."""
    kept.mkdir(mode=0o700)
    try:
        os.link(target / DATA_FILE, kept / DATA_FILE)
        sync(kept)
    except OSError:
        shutil.rmtree(kept, ignore_errors=True)
        raise


def _check_free(target: Path, kept: Path, replace: bool) -> None:
    if not (target / DATA_FILE).exists():
        return
    if not replace:
        raise StoreExists(f"there is a store in {target} already; say --replace to replace it")
    if os.path.lexists(kept):
        raise StoreExists(f"{kept} keeps a store that was replaced before; remove it first")


def _compare(snapshot: Path, found: Sequence[FeedFigures], told: Sequence[FeedFigures]) -> None:
    if tuple(found) != tuple(told):
        raise StoreCorrupt(
            f"{snapshot} holds other feeds, counts or digests than it says; use another one"
        )


def _compare_taken(
    snapshot: Path, source: Store, environment: Environment, told: Sequence[FeedFigures]
) -> None:
    """Whether what was taken is what the snapshot says, as far as it knows its digests."""
    has_digests = schema_version(source.environment) >= SUMMED_SCHEMA

    def comparable(one: FeedFigures, like: FeedFigures) -> tuple[object, ...]:
        is_known = has_digests and like.digest is not None
        return one.key, one.count, one.bytes, one.digest if is_known else None

    found = read_figures(environment)
    if len(found) != len(told) or any(
        comparable(one, like) != comparable(like, like)
        for one, like in zip(found, told, strict=True)
    ):
        raise StoreCorrupt(f"{snapshot} holds other values than it says; use another one")
    if not has_digests:
        _compare_by_schema_3(snapshot, source, told)


def _compare_by_schema_3(snapshot: Path, source: Store, told: Sequence[FeedFigures]) -> None:
    for one in told:
        total = after = 0
        while True:
            piece = source.log_slice(one.key, after, limit=_SLICE_VALUES, max_bytes=_SLICE_BYTES)
            if not piece.records:
                break
            total += sum_of_schema_3([record.value for record in piece.records])
            after = piece.last_seq
        if (total % (1 << 256)).to_bytes(32, "big") != one.digest:
            raise StoreCorrupt(f"{snapshot} holds other values than it says; use another one")


def _verify(snapshot: Path, environment: Environment, progress: Progress | None) -> None:
    report = verify_environment(environment, progress)
    if not report.ok:
        raise StoreCorrupt(
            f"{snapshot} is damaged ({report.problems[0]}; {len(report.problems)} in all); "
            "use another one"
        )


def _choose(source: Store, keys: Sequence[bytes] | None) -> list[FeedRecord]:
    """The feeds to take, in the order of their keys."""
    records = source.feeds()
    if keys is None:
        return [one for one in records if one.count or source.links(one.key)]
    for key in keys:
        if all(one.key != key for one in records):
            raise NoSuchFeed(f"the snapshot has no feed {key.hex()}")
    return [one for one in records if one.key in keys]


def _seeded_from(info: SnapshotInfo) -> PutMeta:
    node = None if info.node_key is None else info.node_key.hex()
    text = json.dumps({"node_key": node, "taken_at": info.taken_at})
    return PutMeta(name=SEEDED_FROM, value=text.encode())


def _take_feed(
    source: Store,
    environment: Environment,
    record: FeedRecord,
    take: Callable[[FeedRecord, Sequence[LinkRecord]], SeededFeed],
    now: float,
    done: int,
    progress: Callable[[int], None] | None,
) -> int:
    """Copy one feed; how many values are done by then."""
    taken = take(record, [link for link in source.links(record.key) if link.expires >= now])
    _commit(
        environment,
        [
            PutFeed(feed_key=record.key, settings=taken.settings),
            PutLinks(record.key, tuple(taken.links)),
        ],
    )
    latest, after = int(now * 1e6), 0
    while True:
        piece = source.log_slice(record.key, after, limit=_SLICE_VALUES, max_bytes=_SLICE_BYTES)
        if not piece.records:
            return done
        _commit(environment, _appends(record.key, piece.records, latest))
        after = piece.last_seq
        done += len(piece.records)
        if progress is not None:
            progress(done)


def _appends(feed: bytes, records: Sequence[LogRecord], latest: int) -> list[Operation]:
    """The records in their order; those that came together are one operation."""
    return [
        AppendValues(
            feed_key=feed,
            values=[one.value for one in together],
            origin=origin,
            received_at=min(received_at, latest),
        )
        for (received_at, origin), together in groupby(
            records, key=lambda one: (one.received_at, one.origin)
        )
    ]


def _commit(environment: Environment, operations: Sequence[Operation]) -> None:
    for start in range(0, len(operations), GROUP_OPERATIONS):
        for result in commit_group(environment, operations[start : start + GROUP_OPERATIONS]):
            if isinstance(result, BaseException):
                raise result
