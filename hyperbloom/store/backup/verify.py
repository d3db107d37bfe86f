"""Is everything as it should be? Walks all records of a store and names what is wrong.

Feeds, and what feeds have forgotten, are looked at as sets of values (values/verify.py); links,
addresses and denied keys in tables/verify.py, the pool in objects/verify.py. Here is what lies
between them: no two sets have one id, no record is of none, and no value is both in a feed and
forgotten.
"""

import os
import struct
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import lmdb

from hyperbloom.store.errors import NONSENSE, StoreError
from hyperbloom.store.limits import MAX_PROBLEMS, MIN_HEADROOM_BYTES
from hyperbloom.store.lmdb.environment import DATA_FILE, Environment
from hyperbloom.store.lmdb.folder_lock import LOCK_FILE, FolderLock
from hyperbloom.store.lmdb.fsync import require_plain
from hyperbloom.store.lmdb.layout import (
    ASIDE_TAGS,
    LOG_HEAD_BYTES,
    META_DROPPING,
    META_NEXT_FEED,
    META_SUM,
    META_UNSUMMED,
    U32,
    U64,
    FeedState,
    parse_settings,
)
from hyperbloom.store.lmdb.transaction import ReadTransaction, read
from hyperbloom.store.migrations import check_schema
from hyperbloom.store.objects.verify import verify_objects
from hyperbloom.store.records import VerifyReport
from hyperbloom.store.sketches.verify import SketchVerification
from hyperbloom.store.tables.verify import verify_links, verify_records
from hyperbloom.store.values.gone import verify_gone
from hyperbloom.store.values.ordered_index import index_of
from hyperbloom.store.values.verify import SetVerification

__all__ = ["Progress", "verify_environment", "verify_path"]

Progress = Callable[[int, int], None]
"""Called now and then with the number of values looked at so far, and of all there are."""

_STEP = 10_000
_LAST_FEED_ID = (1 << 32) - 1


def verify_path(
    path: Path, progress: Progress | None = None, *, is_own: bool = False
) -> VerifyReport:
    """Verify a store or snapshot that no node runs on.

    A store that cannot be opened is a report with that one problem. Unless it ``is_own``, a link in
    the place of its file is one, too. Raises StoreLocked if a node runs on it, and StoreError if
    there is no store.
    """
    if not os.path.lexists(path / DATA_FILE):
        raise StoreError(f"there is no store in {path}; name the folder of one")
    lock = FolderLock(path, is_guest=True) if os.path.lexists(path / LOCK_FILE) else None
    try:
        if not is_own:
            require_plain(path / DATA_FILE)
        with closing(Environment(path, map_bytes=0, readonly=True)) as environment:
            check_schema(environment)
            return verify_environment(environment, progress)
    except StoreError as error:
        return VerifyReport(ok=False, problems=[str(error)])
    except NONSENSE as error:
        return VerifyReport(ok=False, problems=[f"{path} holds a record that is none ({error})"])
    finally:
        if lock is not None:
            lock.release()


def verify_environment(environment: Environment, progress: Progress | None = None) -> VerifyReport:
    """Verify the last committed state, in one read transaction, while others may write."""
    if not environment.readonly:
        environment.reserve(max(MIN_HEADROOM_BYTES, environment.size().used_bytes // 2))
    problems = _Problems()
    values = objects = 0
    try:
        with read(environment, long=True) as transaction:
            values = _Verification(transaction, problems, progress).run()
            objects = verify_objects(transaction, problems.add)
    except StoreError as error:
        problems.add(str(error))
    except NONSENSE as error:
        problems.add(f"{environment.path} holds a record that is none ({error})")
    return VerifyReport(
        ok=not problems.total, problems=problems.sentences(), values=values, objects=objects
    )


class _Problems:
    """The sentences found, not endlessly many."""

    def __init__(self) -> None:
        self._named: list[str] = []
        self.total = 0

    def add(self, sentence: str) -> None:
        self.total += 1
        if len(self._named) < MAX_PROBLEMS:
            self._named.append(sentence)

    def sentences(self) -> list[str]:
        more = self.total - len(self._named)
        return self._named + ([f"and {more} problems more"] if more else [])


class _Verification:
    def __init__(
        self,
        transaction: ReadTransaction,
        problems: _Problems,
        progress: Progress | None,
    ) -> None:
        self._transaction = transaction
        self._problems = problems
        self._progress = progress
        self._values = 0
        self._forgotten = 0
        self._total = self._told_values() if progress is not None else 0

    def _told_values(self) -> int:
        """How many values there are by what is told of them, which may be wrong."""
        total = 0
        for database in ("feeds", "aside"):
            for _, data in self._transaction.scan(database):
                with suppress(struct.error):
                    total += FeedState.unpack(data).count
        return total

    def run(self) -> int:
        """Walk everything; return the number of values seen in feeds."""
        feed_ids: dict[int, bytes] = {}
        for key, data in self._transaction.scan("feeds"):
            try:
                state = FeedState.unpack(data)
                parse_settings(state.settings)
            except (struct.error, ValueError):
                self._problems.add(f"feed {key.hex()}: its record cannot be read")
                continue
            if state.feed_id in feed_ids:
                self._problems.add(f"feed {key.hex()}: another feed has its id {state.feed_id}")
            feed_ids[state.feed_id] = key
            self._verify_set(f"feed {key.hex()}", state, key, b"")
        self._check_aside(feed_ids)
        self._look_for_strays(feed_ids)
        verify_records(self._transaction, self._problems.add)
        return self._values - self._forgotten

    def _verify_set(self, name: str, state: FeedState, feed_key: bytes, tag: bytes) -> None:
        def problem(sentence: str) -> None:
            self._problems.add(f"{name}: {sentence}")

        SetVerification(
            self._transaction,
            state,
            tag=tag,
            problem=problem,
            count_value=self._count_value,
            log_check=SketchVerification(
                self._transaction, state, feed_key, has_runs=not tag, problem=problem
            ),
        ).run()
        verify_links(self._transaction, state, problem)
        verify_gone(self._transaction, state, problem)

    def _count_value(self) -> None:
        self._values += 1
        if self._progress is not None and self._values % _STEP == 0:
            self._progress(self._values, max(self._values, self._total))

    def _look_for_strays(self, feed_ids: dict[int, bytes]) -> None:
        """Records under an id that is neither a feed's nor being dropped; ids still to be given."""
        dropping = {
            U32.unpack(key.removeprefix(META_DROPPING))[0]
            for key, _ in self._transaction.scan("meta", META_DROPPING)
        }
        for database in ("log", "index", "links", "refused", "sketches"):
            if database not in self._transaction.databases:
                continue
            cursor = self._transaction.cursor(database)
            found = cursor.first()
            while found:
                (feed_id,) = U32.unpack_from(cursor.key())
                if feed_id not in feed_ids and feed_id not in dropping:
                    self._problems.add(
                        f"{database}: records of feed id {feed_id}, which no feed has"
                    )
                found = feed_id < _LAST_FEED_ID and cursor.set_range(U32.pack(feed_id + 1))
        for name in (META_SUM, META_UNSUMMED):
            for key, _ in self._transaction.scan("meta", name):
                (feed_id,) = U32.unpack(key.removeprefix(name))
                if feed_id not in feed_ids:
                    self._problems.add(
                        f"meta: a sum is kept for feed id {feed_id}, which no feed has"
                    )
        number = self._transaction.get("meta", META_NEXT_FEED)
        next_id = 1 if number is None else U32.unpack(number)[0]
        if feed_ids and max(feed_ids) >= next_id:
            self._problems.add(f"meta: the next feed id {next_id} is one that a feed has already")

    def _check_aside(self, feed_ids: dict[int, bytes]) -> None:
        """The sets kept aside for feeds, each a set like a feed; their ids join the feeds'."""
        owners = dict(feed_ids)
        for key, data in self._transaction.scan("aside"):
            tag = key[U32.size :]
            owner = owners.get(int.from_bytes(key[: U32.size], "big"))
            if owner is None or tag not in ASIDE_TAGS:
                self._problems.add(f"aside: the record {key.hex()} belongs to no feed")
                continue
            try:
                state = FeedState.unpack(data)
            except struct.error:
                self._problems.add(f"aside: the record {key.hex()} cannot be read")
                continue
            name = f"feed {owner.hex()}: what it has forgotten ({tag.decode()})"
            if state.feed_id in feed_ids:
                self._problems.add(f"{name}: another set has its id {state.feed_id}")
            feed_ids[state.feed_id] = owner
            before = self._values
            self._verify_set(name, state, owner, tag)
            self._forgotten += self._values - before
            self._check_apart(name, owner, state, tag)

    def _check_apart(self, name: str, owner: bytes, state: FeedState, tag: bytes) -> None:
        """No value is both in the feed and forgotten."""
        if tag != ASIDE_TAGS[0]:
            return
        index = index_of(self._transaction, self._transaction.feed(owner))
        for key, record in self._transaction.scan("log", state.prefix):
            try:
                is_there = index.find(record[LOG_HEAD_BYTES:]) is not None
            except (lmdb.CorruptedError, struct.error):
                continue  # told of with the feed's own index
            if is_there:
                (seq,) = U64.unpack_from(key, U32.size)
                self._problems.add(f"{name}: record {seq} is in the feed as well")
