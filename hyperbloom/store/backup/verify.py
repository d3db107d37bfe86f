"""Is everything as it should be? Walks all records of a store and names what is wrong.

Every record of the log must be found through the index under its own number, and every entry of the
index must lead to a record of the log that has its bytes; together these say that both hold the
same values. Buckets are entered from exactly one place and are not empty. Counts, bytes and digests
are added up anew; of a sum that is still being made (summing.py), what is in it so far; in a
snapshot of schema 3, by that schema's rule. What a feed has forgotten is looked at like a feed, and
is in none. Links and refused values lie under the keys that their contents give. The pool's objects
are looked at in verify_objects.py.
"""

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import lmdb

from hyperbloom.digests import (
    DIGEST_BYTES,
    ELEMENT_BYTES,
    SUM_MODULUS,
    element_sum,
    sum_of_schema_3,
)
from hyperbloom.keys import keyed_hash
from hyperbloom.store.errors import NONSENSE, StoreError
from hyperbloom.store.limits import MAX_PROBLEMS, MIN_HEADROOM_BYTES
from hyperbloom.store.lmdb.environment import DATA_FILE, LOCK_FILE, Environment, FolderLock
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
    KeptSum,
    parse_settings,
)
from hyperbloom.store.lmdb.migrations import SUMMED_SCHEMA, check_schema, schema_version
from hyperbloom.store.objects.verify import verify_objects
from hyperbloom.store.records import VerifyReport
from hyperbloom.store.tables.denied import parse_denied_record
from hyperbloom.store.tables.links import link_key, parse_link_record
from hyperbloom.store.tables.peers import parse_peer_record
from hyperbloom.store.transaction import read_value, scan_prefix
from hyperbloom.store.values.ordered_index import (
    HEAD_BYTES,
    LONG_KEY_BYTES,
    OrderedIndex,
    decode_entry,
)
from hyperbloom.store.values.refused import parse_refused_record

__all__ = ["Progress", "verify_environment", "verify_path"]

Progress = Callable[[int], None]
"""Called now and then with the number of values looked at so far."""

_STEP = 10_000
_LAST_FEED_ID = (1 << 32) - 1
_BATCH_VALUES = 512
_BATCH_BYTES = 1024 * 1024
_MODULUS_OF_SCHEMA_3 = 1 << 256


def verify_path(
    path: Path, progress: Progress | None = None, *, is_own: bool = False
) -> VerifyReport:
    """Verify a store or snapshot that no node runs on. StoreLocked if one does.

    A store that cannot be opened is a report with that one problem. Unless it ``is_own``, a link in
    the place of its file is one, too.
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
    has_sums = schema_version(environment) >= SUMMED_SCHEMA
    try:
        with environment.read(long=True) as txn:
            values = _Verification(
                txn, environment.databases, problems, progress, has_sums=has_sums
            ).run()
            objects = verify_objects(txn, environment.databases["objects"], problems.add)
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
        txn: "lmdb.Transaction[bytes]",
        databases: "dict[str, lmdb._Database]",
        problems: _Problems,
        progress: Progress | None,
        *,
        has_sums: bool,
    ) -> None:
        self._txn = txn
        self._databases = databases
        self._problems = problems
        self._progress = progress
        self._values = 0
        self._forgotten = 0
        self.has_sums = has_sums

    def run(self) -> int:
        """Walk everything; return the number of values seen in feeds."""
        feed_ids: dict[int, bytes] = {}
        for key, data in self._txn.cursor(self._databases["feeds"]):
            try:
                state = FeedState.unpack(data)
                parse_settings(state.settings)
            except (struct.error, ValueError):
                self._problems.add(f"feed {key.hex()}: its record cannot be read")
                continue
            if state.feed_id in feed_ids:
                self._problems.add(f"feed {key.hex()}: another feed has its id {state.feed_id}")
            feed_ids[state.feed_id] = key
            _FeedVerification(self, f"feed {key.hex()}", state).run()
        self._check_aside(feed_ids)
        self._look_for_strays(feed_ids)
        self._check_peers()
        self._check_denied()
        return self._values - self._forgotten

    def problem(self, sentence: str) -> None:
        self._problems.add(sentence)

    def get(self, database: str, key: bytes) -> bytes | None:
        return self._txn.get(key, db=self._databases[database])

    def count_value(self) -> None:
        self._values += 1
        if self._progress is not None and self._values % _STEP == 0:
            self._progress(self._values)

    def scan(self, database: str, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return scan_prefix(self._txn, self._databases[database], prefix)

    def index(self, prefix: bytes) -> OrderedIndex:
        return OrderedIndex(
            self._txn,
            self._databases["index"],
            prefix,
            lambda seq: read_value(self._txn, self._databases["log"], prefix, seq),
        )

    def _look_for_strays(self, feed_ids: dict[int, bytes]) -> None:
        """Records under an id that is neither a feed's nor being dropped; ids still to be given."""
        dropping = {
            U32.unpack(key.removeprefix(META_DROPPING))[0]
            for key, _ in self.scan("meta", META_DROPPING)
        }
        for database in ("log", "index", "links", "refused"):
            cursor = self._txn.cursor(self._databases[database])
            found = cursor.first()
            while found:
                (feed_id,) = U32.unpack_from(cursor.key())
                if feed_id not in feed_ids and feed_id not in dropping:
                    self.problem(f"{database}: records of feed id {feed_id}, which no feed has")
                found = feed_id < _LAST_FEED_ID and cursor.set_range(U32.pack(feed_id + 1))
        for name in (META_SUM, META_UNSUMMED):
            for key, _ in self.scan("meta", name):
                (feed_id,) = U32.unpack(key.removeprefix(name))
                if feed_id not in feed_ids:
                    self.problem(f"meta: a sum is kept for feed id {feed_id}, which no feed has")
        number = self.get("meta", META_NEXT_FEED)
        next_id = 1 if number is None else U32.unpack(number)[0]
        if feed_ids and max(feed_ids) >= next_id:
            self.problem(f"meta: the next feed id {next_id} is one that a feed has already")

    def _check_aside(self, feed_ids: dict[int, bytes]) -> None:
        """The sets kept aside for feeds, each a set like a feed; their ids join the feeds'."""
        owners = dict(feed_ids)
        for key, data in self.scan("aside", b""):
            tag = key[U32.size :]
            owner = owners.get(U32.unpack_from(key)[0]) if len(key) > U32.size else None
            if owner is None or tag not in ASIDE_TAGS:
                self.problem(f"aside: the record {key.hex()} belongs to no feed")
                continue
            try:
                state = FeedState.unpack(data)
            except struct.error:
                self.problem(f"aside: the record {key.hex()} cannot be read")
                continue
            name = f"feed {owner.hex()}: what it has forgotten ({tag.decode()})"
            if state.feed_id in feed_ids:
                self.problem(f"{name}: another set has its id {state.feed_id}")
            feed_ids[state.feed_id] = owner
            before = self._values
            _FeedVerification(self, name, state).run()
            self._forgotten += self._values - before
            self._check_apart(name, owner, state, tag)

    def _check_apart(self, name: str, owner: bytes, state: FeedState, tag: bytes) -> None:
        """No value is both in the feed and forgotten."""
        data = self.get("feeds", owner)
        if tag != ASIDE_TAGS[0] or data is None:
            return
        index = self.index(FeedState.unpack(data).prefix)
        for key, record in self.scan("log", state.prefix):
            try:
                is_there = index.find(record[LOG_HEAD_BYTES:]) is not None
            except (lmdb.CorruptedError, struct.error):
                continue  # told of with the feed's own index
            if is_there:
                (seq,) = U64.unpack_from(key, U32.size)
                self.problem(f"{name}: record {seq} is in the feed as well")

    def _check_denied(self) -> None:
        for key, data in self.scan("denied", b""):
            try:
                parse_denied_record(key, data)
            except (ValueError, struct.error):
                self.problem(f"denied: the record {key.hex()} cannot be read")

    def _check_peers(self) -> None:
        for key, data in self.scan("peers", b""):
            try:
                parse_peer_record(key, data)
            except (ValueError, KeyError, TypeError):
                self.problem(f"peers: the record {key!r} cannot be read")


class _Sums:
    """The sum of one set, added up anew beside the one that is kept (None: of schema 3)."""

    def __init__(self, kept: KeptSum | None) -> None:
        self._kept = kept
        self._total = self._left = 0
        self._batch: list[bytes] = []
        self._size = 0

    def add(self, seq: int, value: bytes) -> None:
        if self._kept is not None and not self._kept.counts(seq):
            self._left += 1
            return
        self._batch.append(value)
        self._size += len(value)
        if len(self._batch) >= _BATCH_VALUES or self._size >= _BATCH_BYTES:
            self._add_batch()

    def digest(self, count: int) -> bytes:
        """What the digest of all these values is to be; zero while the kept sum lacks some."""
        self._add_batch()
        if self._kept is None:
            return (self._total % _MODULUS_OF_SCHEMA_3).to_bytes(DIGEST_BYTES, "big")
        return KeptSum(self._total, self._kept.left).digest(count)

    def compared(self) -> Iterator[tuple[str, object, object]]:
        """What is kept of the sum itself, and what it comes to."""
        if self._kept is not None:
            yield "number of values to be summed", self._kept.left, self._left
            if self._kept.total != self._total:
                yield "sum", _short(self._kept.total), _short(self._total)

    def _add_batch(self) -> None:
        rule = sum_of_schema_3 if self._kept is None else element_sum
        self._total = (self._total + rule(self._batch)) % SUM_MODULUS
        self._batch, self._size = [], 0


def _short(total: int) -> str:
    """A sum of 512 bytes in 64 digits: enough to tell two apart in a sentence."""
    return keyed_hash(total.to_bytes(ELEMENT_BYTES, "big")).hex()


class _FeedVerification:
    """One feed: its log against its index, its index against its log, its sums."""

    def __init__(self, whole: _Verification, name: str, state: FeedState) -> None:
        self._whole = whole
        self._name = name
        self._state = state
        self._prefix = state.prefix

    def run(self) -> None:
        logged = self._check_log()
        indexed = self._check_index()
        if logged != indexed:
            self._problem(f"the log has {logged} values and the index {indexed}")
        self._check_links()
        self._check_refused()

    def _problem(self, sentence: str) -> None:
        self._whole.problem(f"{self._name}: {sentence}")

    def _expect(self, what: str, kept: object, found: object) -> None:
        if kept != found:
            self._problem(f"its {what} is kept as {kept} and comes to {found}")

    def _check_log(self) -> int:
        index = self._whole.index(self._prefix)
        count = size = seq = 0
        sums = _Sums(self._kept_sum())
        for key, data in self._whole.scan("log", self._prefix):
            if len(key) != U32.size + U64.size or len(data) < LOG_HEAD_BYTES:
                self._problem(f"the log record at {key.hex()} is malformed")
                continue
            (seq,) = U64.unpack_from(key, U32.size)
            value = data[LOG_HEAD_BYTES:]
            count += 1
            size += len(value)
            sums.add(seq, value)
            self._check_indexed(index, seq, value)
            self._whole.count_value()
        self._expect("count", self._state.count, count)
        self._expect("number of bytes", self._state.size, size)
        self._expect("digest", self._state.digest.hex(), sums.digest(count).hex())
        for what, kept, found in sums.compared():
            self._expect(what, kept, found)
        if seq > self._state.top_seq:
            self._problem(f"the log goes on to {seq}, beyond the top number {self._state.top_seq}")
        return count

    def _kept_sum(self) -> KeptSum | None:
        """The sum that is kept; None in a snapshot of schema 3, which has none."""
        if not self._whole.has_sums:
            return None
        data = self._whole.get("meta", META_SUM + self._prefix)
        try:
            return KeptSum() if data is None else KeptSum.unpack(data)
        except struct.error:
            self._problem("its sum cannot be read")
            return KeptSum()

    def _check_indexed(self, index: OrderedIndex, seq: int, value: bytes) -> None:
        try:
            found = index.find(value)
        except (lmdb.CorruptedError, struct.error):
            self._problem(f"the index entry on the way to log record {seq} is broken")
            return
        if found is None:
            self._problem(f"log record {seq} is missing in the index")
        elif found != seq:
            self._problem(f"log record {seq} is in the index under the number {found}")

    def _check_index(self) -> int:
        """Check every entry by itself, and the buckets; return how many values there are."""
        values = 0
        entered: Counter[int] = Counter()
        used: set[int] = set()
        for key, data in self._whole.scan("index", self._prefix):
            is_long = len(key) == LONG_KEY_BYTES
            if len(key) < HEAD_BYTES or len(data) != U64.size + is_long:
                self._problem(f"the index entry at {key.hex()} is malformed")
                continue
            (bucket,) = U64.unpack_from(key, U32.size)
            used.add(bucket)
            is_bucket, number = decode_entry(data) if is_long else (False, U64.unpack(data)[0])
            if is_bucket:
                entered[number] += 1
            else:
                values += 1
                self._check_logged(key, bucket, number)
        self._check_buckets(entered, used - {0})
        return values

    def _check_logged(self, key: bytes, bucket: int, seq: int) -> None:
        record = self._whole.get("log", self._prefix + U64.pack(seq))
        if record is None:
            self._problem(f"the index leads to log record {seq}, which is missing")
            return
        value = record[LOG_HEAD_BYTES:]
        is_long = len(key) == LONG_KEY_BYTES
        part = key[HEAD_BYTES:-1] if is_long else key[HEAD_BYTES:]
        if bucket == 0:
            same = value.startswith(part) if is_long else value == part
        else:
            same = part in value if is_long else value.endswith(part)
        if not same:
            self._problem(f"the index leads to log record {seq} for a value that is not in it")

    def _check_buckets(self, entered: Counter[int], used: set[int]) -> None:
        for bucket in sorted(used - entered.keys()):
            self._problem(f"bucket {bucket} has values and no entry leads to it")
        for bucket, times in sorted(entered.items()):
            if bucket not in used:
                self._problem(f"bucket {bucket} is empty")
            if times > 1:
                self._problem(f"bucket {bucket} is entered from {times} places")
        newest = max(used | entered.keys(), default=0)
        if newest >= self._state.next_bucket:
            self._problem(f"the next bucket {self._state.next_bucket} is one that exists already")

    def _check_links(self) -> None:
        count = 0
        for key, data in self._whole.scan("links", self._prefix):
            count += 1
            try:
                link = parse_link_record(key, data)
            except struct.error:
                self._problem(f"the link at {key.hex()} cannot be read")
                continue
            if key != link_key(self._prefix, link.issuer, link.raw):
                self._problem(f"the link at {key.hex()} is not the one that belongs there")
            if link.expires < self._state.link_expiry:
                self._problem(f"the link at {key.hex()} expires before the earliest known expiry")
        self._expect("number of links", self._state.links, count)

    def _check_refused(self) -> None:
        count = size = 0
        for key, data in self._whole.scan("refused", self._prefix):
            count += 1
            size += len(data)
            try:
                record = parse_refused_record(key, data)
            except (struct.error, ValueError):
                self._problem(f"the refused value at {key.hex()} cannot be read")
                continue
            if record.hash != keyed_hash(record.value):
                self._problem(f"the refused value at {key.hex()} is not the one that belongs there")
        self._expect("number of refused values", self._state.refused, count)
        self._expect("size of refused values", self._state.refused_bytes, size)
