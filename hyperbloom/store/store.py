"""The store: one folder, one LMDB environment, everything a node keeps.

Reads are here and go on wherever they are called, from any thread, each in one short transaction.
Writes are operations (operations.py and its neighbours), and go through a Writer.
"""

import os
import shutil
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import lmdb

from hyperbloom.digests import SUM_MODULUS, set_digest
from hyperbloom.store.backup.snapshot import SNAPSHOT_FILE, take_snapshot
from hyperbloom.store.backup.verify import Progress, verify_environment
from hyperbloom.store.condition import Condition
from hyperbloom.store.errors import StoreCorrupt, StoreError, StoreGone
from hyperbloom.store.limits import DEFAULT_MAP_BYTES
from hyperbloom.store.lmdb.environment import (
    COMPACTING,
    DATA_FILE,
    LMDB_LOCK_FILE,
    Environment,
    FolderLock,
)
from hyperbloom.store.lmdb.fsync import require_plain, sync
from hyperbloom.store.lmdb.layout import (
    ASIDE_TAGS,
    LOG_HEAD,
    LOG_HEAD_BYTES,
    META_SUM,
    U32,
    U64,
    FeedState,
    KeptSum,
)
from hyperbloom.store.lmdb.migrations import (
    MIGRATIONS,
    SUMMED_SCHEMA,
    Migration,
    check_schema,
    initialize,
    migrate,
    schema_version,
)
from hyperbloom.store.objects.records import (
    COUNTS_KEY,
    LIVE,
    ObjectCounts,
    ObjectRecord,
    hash_bytes,
    hash_number,
    unpack_live,
)
from hyperbloom.store.operations import feed_record, meta_key
from hyperbloom.store.records import (
    DeniedRecord,
    FeedRecord,
    ForgottenFigures,
    Holding,
    LinkRecord,
    LogRecord,
    LogSlice,
    ObjectFigures,
    OriginSlice,
    PeerRecord,
    RangeSlice,
    RefusedRecord,
    SetFigures,
    SnapshotInfo,
    StoreSize,
    VerifyReport,
)
from hyperbloom.store.tables.denied import parse_denied_record
from hyperbloom.store.tables.links import parse_link_record
from hyperbloom.store.tables.peers import parse_peer_record
from hyperbloom.store.transaction import no_such_feed, read_value, scan_prefix
from hyperbloom.store.values.ordered_index import OrderedIndex
from hyperbloom.store.values.refused import parse_refused_record

__all__ = ["NEW_FOLDER", "USED_FILE", "Store"]

NEW_FOLDER = ".new-store"
"""Inside a store's folder: where its file is made before it gets its name."""
USED_FILE = "store.used"
"""Says that a store was in the folder once: without its data file no new one is begun silently."""
_USED_TEXT = b"""\
The store of a hyperbloom node was opened in this folder. As long as this file is here, a node does
not begin a new, empty store when data.mdb is missing: restore a snapshot, or remove the folder.
"""


class Store:
    """An open store. Made by ``open`` (for a node) or ``open_readonly`` (for a snapshot).

    Every method may raise StoreClosed, StoreCorrupt or StoreError; those that name a feed raise
    NoSuchFeed if the store does not hold it.
    """

    def __init__(
        self,
        environment: Environment,
        lock: FolderLock | None,
        clock: Callable[[], float],
    ) -> None:
        self.environment = environment
        self._lock = lock
        self._clock = clock
        self._has_digests = schema_version(environment) >= SUMMED_SCHEMA

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        map_bytes: int = DEFAULT_MAP_BYTES,
        durable: bool = True,
        create: bool = True,
        migrations: Sequence[Migration] = MIGRATIONS,
        clock: Callable[[], float] = time.time,
    ) -> "Store":
        """Open the store in this folder, and make one if there is none and ``create`` says so.

        ``map_bytes`` is the map's first size; it grows by itself. Without ``durable`` a commit is
        not synced (for tests). Raises StoreLocked, StoreCorrupt, SchemaMismatch, StoreFull,
        StoreGone if a store was here and its file is not, and StoreError if there is no store and
        none is to be made.
        """
        _prepare_folder(path, create)
        lock = FolderLock(path)
        try:
            if not os.path.lexists(path / DATA_FILE):
                _refuse_lost(path)
                if not create:
                    raise StoreError(f"there is no store in {path}; name the folder of one")
                _create(path, map_bytes, migrations)
            for left in (COMPACTING, NEW_FOLDER):  # by a compaction or a restore that was killed
                shutil.rmtree(path / left, ignore_errors=True)
            environment = Environment(path, map_bytes=map_bytes, durable=durable)
            try:
                migrate(environment, migrations)
                _mark_used(path)
            except BaseException:
                environment.close()
                raise
        except BaseException:
            lock.release()
            raise
        return cls(environment, lock, clock)

    @classmethod
    def open_readonly(cls, path: Path) -> "Store":
        """Open a snapshot, or another store that no node runs on, for reading only.

        Nothing is written into its folder. Raises StoreCorrupt, SchemaMismatch, and StoreError if
        there is no store.
        """
        if not os.path.lexists(path / DATA_FILE):
            raise StoreError(f"there is no store in {path}; name the folder of one")
        if os.path.lexists(path / SNAPSHOT_FILE):
            require_plain(path / DATA_FILE)
        environment = Environment(path, map_bytes=0, readonly=True)
        try:
            check_schema(environment)
        except BaseException:
            environment.close()
            raise
        return cls(environment, None, time.time)

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self.environment.path

    @property
    def condition(self) -> Condition:
        """Whether it takes writes, and what was found damaged."""
        return self.environment.condition

    def close(self) -> None:
        """Wait for running reads and the running write, then close. Again: nothing."""
        self.environment.close()
        if self._lock is not None:
            self._lock.release()

    # Feeds and values

    def feeds(self) -> list[FeedRecord]:
        """All feeds, in the order of their keys."""
        with self.environment.read() as txn:
            states = [
                (key, FeedState.unpack(data))
                for key, data in txn.cursor(self.environment.databases["feeds"])
            ]
            return [feed_record(key, state, self._unsummed(txn, state)) for key, state in states]

    def feed(self, feed_key: bytes) -> FeedRecord | None:
        """One feed, or None."""
        with self.environment.read() as txn:
            data = txn.get(feed_key, db=self.environment.databases["feeds"])
            if data is None:
                return None
            state = FeedState.unpack(data)
            return feed_record(feed_key, state, self._unsummed(txn, state))

    def has(self, feed_key: bytes, values: Sequence[bytes]) -> list[bool]:
        """For each value whether the feed has it."""
        with self.environment.read() as txn:
            find = self._index(txn, self._state(txn, feed_key)).find
            return [find(value) is not None for value in values]

    def seqs(self, feed_key: bytes, values: Sequence[bytes]) -> list[int | None]:
        """The sequence number with which each value arrived, None for one that is not here."""
        with self.environment.read() as txn:
            find = self._index(txn, self._state(txn, feed_key)).find
            return [find(value) for value in values]

    def range_slice(
        self,
        feed_key: bytes,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int,
        max_bytes: int,
    ) -> RangeSlice:
        """The values v with start <= v < end (None: no end), in byte order, up to the limits.

        At least one value if there is one, be it longer than ``max_bytes``. ``next_start`` is
        where to go on: the value directly behind the last one given.
        """
        return self._slice(_HERE, feed_key, start, end, limit, max_bytes)

    def forgotten_slice(
        self,
        feed_key: bytes,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int,
        max_bytes: int,
    ) -> RangeSlice:
        """The same of the values that the feed has forgotten and keeps whole (forgetting.py)."""
        return self._slice(_FORGOTTEN, feed_key, start, end, limit, max_bytes)

    def settled_slice(
        self,
        feed_key: bytes,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int,
        max_bytes: int,
    ) -> RangeSlice:
        """The same of both: all values that are not to be sent here, whether kept or forgotten."""
        return self._slice(_HERE + _FORGOTTEN, feed_key, start, end, limit, max_bytes)

    def _slice(
        self,
        sets: Sequence[bytes],
        feed_key: bytes,
        start: bytes,
        end: bytes | None,
        limit: int,
        max_bytes: int,
    ) -> RangeSlice:
        _check_limit(limit)
        with self.environment.read() as txn:
            found = [self._set(txn, feed_key, which) for which in sets]
            return _merged(
                [
                    _take(
                        self._index(txn, one).walk(start, end, wanted=limit + 1), limit, max_bytes
                    )
                    for one in found
                    if one is not None and one.count
                ]
            )

    def forgotten_figures(self, feed_key: bytes) -> ForgottenFigures:
        """How much the feed remembers of forgotten values."""
        with self.environment.read() as txn:
            whole, hashed = (self._aside(txn, feed_key, tag) for tag in ASIDE_TAGS)
        return ForgottenFigures(
            count=0 if whole is None else whole.count,
            bytes=0 if whole is None else whole.size,
            hashes=0 if hashed is None else hashed.count,
        )

    def holding(self, feed_key: bytes) -> Holding | None:
        """What the feed holds, and what it holds or has forgotten, at one moment.

        None while the digest of one of them is being computed (summing.py).
        """
        with self.environment.read() as txn:
            feed = self._state(txn, feed_key)
            forgotten = self._aside(txn, feed_key, *_FORGOTTEN)
            if forgotten is None or not forgotten.count:
                if self._unsummed(txn, feed):
                    return None
                figures = SetFigures(feed.count, feed.digest)
                return Holding(here=figures, settled=figures)
            sums = [self._sum(txn, state) for state in (feed, forgotten)]
        if any(kept.left for kept in sums):
            return None
        count = feed.count + forgotten.count
        total = sum(kept.total for kept in sums) % SUM_MODULUS
        return Holding(
            here=SetFigures(feed.count, feed.digest),
            settled=SetFigures(count, set_digest(count, total)),
        )

    def origin_slice(
        self,
        feed_key: bytes,
        origin: bytes,
        after_seq: int,
        *,
        limit: int,
        max_bytes: int,
        scan: int = 50_000,
        forgotten: bool = False,
    ) -> OriginSlice:
        """The values that one peer brought, behind this number in the order of arrival.

        Looks at ``scan`` records of the log at most, so a slice may be empty before the end. With
        ``forgotten`` it is the forgotten values, kept whole, that are looked at.
        """
        _check_limit(limit)
        records: list[LogRecord] = []
        seq = after_seq
        with self.environment.read() as txn:
            (which,) = _FORGOTTEN if forgotten else _HERE
            state = self._set(txn, feed_key, which)
            if state is None:
                return OriginSlice(records=[], next_seq=None)
            prefix, cursor = state.prefix, txn.cursor(self.environment.databases["log"])
            if not cursor.set_range(prefix + U64.pack(min(after_seq + 1, _LAST_SEQ))):
                return OriginSlice(records=[], next_seq=None)
            for key, data in islice(cursor, scan):
                if not key.startswith(prefix):
                    return OriginSlice(records=records, next_seq=None)
                (seq,) = U64.unpack_from(key, U32.size)
                if data[U64.size : LOG_HEAD_BYTES] != origin:
                    continue
                value = data[LOG_HEAD_BYTES:]
                records.append(LogRecord(seq, U64.unpack_from(data)[0], origin, value))
                max_bytes -= len(value)
                if len(records) >= limit or max_bytes <= 0:
                    break
        return OriginSlice(records=records, next_seq=seq)

    def denied(self) -> list[DeniedRecord]:
        """The keys that the operator denies, in their order."""
        with self.environment.read() as txn:
            records = list(txn.cursor(self.environment.databases["denied"]))
        return [parse_denied_record(key, data) for key, data in records]

    def log_slice(self, feed_key: bytes, after_seq: int, *, limit: int, max_bytes: int) -> LogSlice:
        """The values that arrived after this sequence number, in that order, up to the limits.

        At least one record if there is one. ``last_seq`` is ``after_seq`` if there is none.
        """
        _check_limit(limit)
        if after_seq < 0:
            raise ValueError(f"a sequence number is not negative: {after_seq}")
        with self.environment.read() as txn:
            prefix = self._state(txn, feed_key).prefix
            cursor = txn.cursor(self.environment.databases["log"])
            records: list[LogRecord] = []
            if cursor.set_range(prefix + U64.pack(min(after_seq + 1, _LAST_SEQ))):
                records = _read_log(cursor, prefix, limit, max_bytes)
        return LogSlice(records=records, last_seq=records[-1].seq if records else after_seq)

    def get_meta(self, name: str) -> bytes | None:
        """What PutMeta keeps under this name."""
        with self.environment.read() as txn:
            return txn.get(meta_key(name), db=self.environment.databases["meta"])

    def links(self, feed_key: bytes) -> list[LinkRecord]:
        """The feed's trust links, those of one issuer together."""
        with self.environment.read() as txn:
            return [parse_link_record(*item) for item in self._scan(txn, feed_key, "links")]

    def refused(self, feed_key: bytes) -> list[RefusedRecord]:
        """The feed's refused values, in no particular order."""
        with self.environment.read() as txn:
            return [parse_refused_record(*item) for item in self._scan(txn, feed_key, "refused")]

    def peers(self) -> list[PeerRecord]:
        """All known addresses, by feed and address."""
        with self.environment.read() as txn:
            records = list(txn.cursor(self.environment.databases["peers"]))
        return [parse_peer_record(key, data) for key, data in records]

    # Objects

    def object(self, number: int) -> ObjectRecord | None:
        """The object of the pool with this hash, or None."""
        with self.environment.read() as txn:
            data = txn.get(LIVE + hash_bytes(number), db=self.environment.databases["objects"])
        return None if data is None else unpack_live(number, data)

    def object_hashes(self) -> "array[int]":
        """The hashes of all objects; 8 bytes and about 0.3 µs each, so not in the event loop."""
        with self.environment.read() as txn:
            keys = scan_prefix(txn, self.environment.databases["objects"], LIVE)
            return array("q", (hash_number(key[len(LIVE) :]) for key, _ in keys))

    def objects(self, numbers: Iterable[int]) -> list[ObjectRecord]:
        """Those of these objects that are in the pool, in the given order."""
        found: list[ObjectRecord] = []
        with self.environment.read() as txn:
            database = self.environment.databases["objects"]
            for number in numbers:
                data = txn.get(LIVE + hash_bytes(number), db=database)
                if data is not None:
                    found.append(unpack_live(number, data))
        return found

    def objects_slice(self, after: int | None, *, limit: int) -> list[ObjectRecord]:
        """Objects in the order of their hashes' bytes, those behind ``after`` (None: all)."""
        _check_limit(limit)
        start = LIVE if after is None else LIVE + hash_bytes(after) + b"\x00"
        with self.environment.read() as txn:
            cursor = txn.cursor(self.environment.databases["objects"])
            items = islice(cursor, limit) if cursor.set_range(start) else ()
            found = [(key, data) for key, data in items if key.startswith(LIVE)]
        return [unpack_live(hash_number(key[len(LIVE) :]), data) for key, data in found]

    def object_figures(self) -> ObjectFigures:
        """The figures of the pool."""
        with self.environment.read() as txn:
            data = txn.get(COUNTS_KEY, db=self.environment.databases["objects"])
        counts = ObjectCounts.unpack(data)
        return ObjectFigures(
            count=counts.count,
            bytes=counts.size,
            digest=counts.digest.to_bytes(32, "big"),
            past=counts.past,
        )

    # The store as a whole

    def snapshot(self, target: Path) -> SnapshotInfo:
        """Copy the last committed state into the new folder ``target``, whole or not at all.

        Others read and write meanwhile. Takes as long as copying the values does. Raises StoreError
        if the target exists or cannot be written, StoreFull without room for it.
        """
        taken_at = int(self._clock() * _MICROSECONDS)
        return take_snapshot(self.environment, target, taken_at=taken_at)

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Walk everything and name what is wrong; see verify.py. Others read and write meanwhile.

        Takes some seconds for a million values, so not in the event loop's thread.
        """
        return verify_environment(self.environment, progress)

    def size(self) -> StoreSize:
        """How large the map, its used part and the file are."""
        return self.environment.size()

    def _state(self, txn: "lmdb.Transaction[bytes]", feed_key: bytes) -> FeedState:
        data = txn.get(feed_key, db=self.environment.databases["feeds"])
        if data is None:
            raise no_such_feed(feed_key)
        return FeedState.unpack(data)

    def _scan(
        self, txn: "lmdb.Transaction[bytes]", feed_key: bytes, database: str
    ) -> Iterator[tuple[bytes, bytes]]:
        prefix = self._state(txn, feed_key).prefix
        return scan_prefix(txn, self.environment.databases[database], prefix)

    def _aside(
        self, txn: "lmdb.Transaction[bytes]", feed_key: bytes, tag: bytes
    ) -> FeedState | None:
        key = self._state(txn, feed_key).prefix + tag
        data = txn.get(key, db=self.environment.databases["aside"])
        return None if data is None else FeedState.unpack(data)

    def _sum(self, txn: "lmdb.Transaction[bytes]", state: FeedState) -> KeptSum:
        data = txn.get(META_SUM + state.prefix, db=self.environment.databases["meta"])
        return KeptSum() if data is None else KeptSum.unpack(data)

    def _unsummed(self, txn: "lmdb.Transaction[bytes]", state: FeedState) -> int:
        """How many of a set's values are not in its digest: none, or it is not known yet."""
        if not self._has_digests:
            return state.count
        return 0 if any(state.digest) or not state.count else self._sum(txn, state).left

    def _set(
        self, txn: "lmdb.Transaction[bytes]", feed_key: bytes, which: bytes
    ) -> FeedState | None:
        """A feed's own values (an empty tag) or a set kept aside for it, None without one."""
        return self._aside(txn, feed_key, which) if which else self._state(txn, feed_key)

    def _index(self, txn: "lmdb.Transaction[bytes]", state: FeedState) -> OrderedIndex:
        log, prefix = self.environment.databases["log"], state.prefix
        return OrderedIndex(
            txn,
            self.environment.databases["index"],
            prefix,
            lambda seq: read_value(txn, log, prefix, seq),
        )


_LAST_SEQ = (1 << 64) - 1
_HERE, _FORGOTTEN = (b"",), ASIDE_TAGS[:1]
_MICROSECONDS = 1_000_000


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"a slice holds at least one value: limit {limit}")


def _merged(pieces: Sequence[RangeSlice]) -> RangeSlice:
    """The values of several sets in one order, as far as all of them were read."""
    if len(pieces) == 1:
        return pieces[0]
    ends = [piece.next_start for piece in pieces if piece.next_start is not None]
    bound = min(ends, default=None)
    values = sorted(v for one in pieces for v in one.values if bound is None or v < bound)
    return RangeSlice(values=values, next_start=bound)


def _take(walk: Iterator[list[bytes]], limit: int, room: int) -> RangeSlice:
    """What a walk gives first, up to the limits."""
    values: list[bytes] = []
    more = False
    for chunk in walk:
        if len(values) + len(chunk) > limit:
            more = True
            del chunk[limit - len(values) :]
        total = sum(map(len, chunk))
        if total > room:
            more = True
            _cut(chunk, room, keep_first=not values)
        values += chunk
        room -= total
        if more:
            break
    return RangeSlice(values=values, next_start=values[-1] + b"\x00" if more else None)


def _cut(values: list[bytes], room: int, *, keep_first: bool) -> None:
    """Shorten a list to the values whose bytes fit, in place."""
    for index, value in enumerate(values):
        room -= len(value)
        if room < 0 and not (keep_first and index == 0):
            del values[index:]
            return


def _read_log(
    cursor: "lmdb.Cursor[bytes]", prefix: bytes, limit: int, max_bytes: int
) -> list[LogRecord]:
    records: list[LogRecord] = []
    number, unpack, make = int.from_bytes, LOG_HEAD.unpack_from, LogRecord
    skip, head = U32.size, LOG_HEAD_BYTES
    for key, data in islice(cursor, limit):
        if key[:skip] != prefix:
            break
        max_bytes -= len(data) - head
        if max_bytes < 0 and records:
            break
        received_at, origin = unpack(data)
        records.append(make(number(key[skip:], "big"), received_at, origin, data[head:]))
    return records


def _prepare_folder(path: Path, create: bool) -> None:
    if path.exists() and not path.is_dir():
        raise StoreCorrupt(f"{path} is no folder; name the folder of a store")
    if not path.exists():
        if not create:
            raise StoreError(f"there is no store in {path}; name the folder of one")
        path.mkdir(mode=0o700, parents=True)


def _refuse_lost(path: Path) -> None:
    """Raise StoreGone where a store was once, by our mark or by LMDB's table of readers."""
    if any(os.path.lexists(path / name) for name in (USED_FILE, LMDB_LOCK_FILE)):
        raise StoreGone(
            f"the store {path} has lost its data file, {DATA_FILE}; restore a snapshot "
            f"(`hyperbloom restore SNAPSHOT`), or, to begin anew without its values, remove {path}"
        )


def _mark_used(path: Path) -> None:
    """Leave the mark; a disk that cannot take it is no reason not to open the store."""
    try:
        descriptor = os.open(
            path / USED_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
    except OSError:
        return
    with os.fdopen(descriptor, "wb") as file, suppress(OSError):
        file.write(_USED_TEXT)


def _create(path: Path, map_bytes: int, migrations: Sequence[Migration]) -> None:
    """Make a store aside and move it into place, so that a crash leaves none or a whole one."""
    aside = path / NEW_FOLDER
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(mode=0o700)
    environment = Environment(aside, map_bytes=map_bytes, create=True)
    try:
        initialize(environment, migrations)
    finally:
        environment.close()
    (aside / DATA_FILE).rename(path / DATA_FILE)
    shutil.rmtree(aside)
    sync(path)
