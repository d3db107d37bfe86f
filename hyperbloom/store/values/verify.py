"""Is a set of values as it should be?

Every record of the log must be found through the index under its own number. Where that is so and
the index has as many entries, each of them is of a record, and both hold the same values; where it
is not, every entry is looked up in the log, to name those that lead to no record. Buckets are
entered from exactly one place and are not empty. Counts, bytes and digests are added up anew; of a
sum that is still being made (digest_migration.py), what is in it so far; in a snapshot of schema 3,
by that schema's rule. Sketches are looked at in sketches/verify.py. Refused values lie under the
keys that their contents give.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Protocol

import lmdb

from hyperbloom.digests import (
    DIGEST_BYTES,
    ELEMENT_BYTES,
    SUM_MODULUS,
    element_sum,
    sum_of_schema_3,
)
from hyperbloom.keys import keyed_hash
from hyperbloom.store.lmdb.layout import (
    LOG_HEAD_BYTES,
    SUMMED_SCHEMA,
    U32,
    U64,
    FeedState,
    KeptSum,
)
from hyperbloom.store.lmdb.transaction import ReadTransaction
from hyperbloom.store.values.ordered_index import (
    HEAD_BYTES,
    LONG_KEY_BYTES,
    OrderedIndex,
    decode_entry,
    index_of,
)
from hyperbloom.store.values.refused import parse_refused_record

__all__ = ["LogCheck", "SetVerification"]

_BATCH_VALUES = 512
_BATCH_BYTES = 1024 * 1024
_MODULUS_OF_SCHEMA_3 = 1 << 256


class LogCheck(Protocol):
    """What else is made of a set's values, to be looked at with its log."""

    def add(self, seq: int, value: bytes) -> None:
        """Take the next record."""

    def finish(self) -> None:
        """All records were added: name what is wrong."""


class SetVerification:
    """One set of values: its log against its index, its index against its log, its sums.

    ``tag`` is empty for a feed's own values, else that of a set kept aside (layout.py).
    """

    def __init__(
        self,
        transaction: ReadTransaction,
        state: FeedState,
        *,
        tag: bytes,
        problem: Callable[[str], None],
        count_value: Callable[[], None],
        log_check: LogCheck,
    ) -> None:
        self._transaction = transaction
        self._state = state
        self._prefix = state.prefix
        self._tag = tag
        self._problem = problem
        self._count_value = count_value
        self._log_check = log_check
        #: Records of the log that the index does not lead to.
        self._strays = 0

    def run(self) -> None:
        """Name each problem; ``count_value`` is called for each value that is seen."""
        logged = self._check_log()
        indexed = self._check_index()
        if logged != indexed:
            self._problem(f"the log has {logged} values and the index {indexed}")
        if logged != indexed or self._strays:
            self._look_up_entries()
        self._check_refused()

    def _expect(self, what: str, kept: object, found: object) -> None:
        if kept != found:
            self._problem(f"its {what} is kept as {kept} and comes to {found}")

    def _check_log(self) -> int:
        index = index_of(self._transaction, self._state)
        count = size = seq = 0
        sums = _Sums(self._kept_sum())
        for key, data in self._transaction.scan("log", self._prefix):
            if len(key) != U32.size + U64.size or len(data) < LOG_HEAD_BYTES:
                self._problem(f"the log record at {key.hex()} is malformed")
                continue
            (seq,) = U64.unpack_from(key, U32.size)
            value = data[LOG_HEAD_BYTES:]
            count += 1
            size += len(value)
            sums.add(seq, value)
            self._log_check.add(seq, value)
            self._check_indexed(index, seq, value)
            self._count_value()
        self._expect("count", self._state.count, count)
        self._expect("number of bytes", self._state.size, size)
        self._expect("digest", self._state.digest.hex(), sums.digest(count).hex())
        for what, kept, found in sums.compared():
            self._expect(what, kept, found)
        self._log_check.finish()
        if seq > self._state.top_seq:
            self._problem(f"the log goes on to {seq}, beyond the top number {self._state.top_seq}")
        return count

    def _kept_sum(self) -> KeptSum | None:
        """The sum that is kept; None in a snapshot of schema 3, which has none."""
        if self._transaction.schema < SUMMED_SCHEMA:
            return None
        try:
            return self._transaction.sum_of(self._state)
        except struct.error:
            self._problem("its sum cannot be read")
            return KeptSum()

    def _check_indexed(self, index: OrderedIndex, seq: int, value: bytes) -> None:
        try:
            found = index.find(value)
        except (lmdb.CorruptedError, struct.error):
            self._strays += 1
            self._problem(f"the index entry on the way to log record {seq} is broken")
            return
        if found == seq:
            return
        self._strays += 1
        if found is None:
            self._problem(f"log record {seq} is missing in the index")
        else:
            self._problem(f"log record {seq} is in the index under the number {found}")

    def _check_index(self) -> int:
        """Check the form of every entry, and the buckets; return how many values there are."""
        values = 0
        entered: Counter[int] = Counter()
        used: set[int] = set()
        for key, data in self._transaction.scan("index", self._prefix):
            is_long = len(key) == LONG_KEY_BYTES
            if len(key) < HEAD_BYTES or len(data) != U64.size + is_long:
                self._problem(f"the index entry at {key.hex()} is malformed")
                continue
            (bucket,) = U64.unpack_from(key, U32.size)
            used.add(bucket)
            is_bucket, number = decode_entry(data) if is_long else (False, 0)
            if is_bucket:
                entered[number] += 1
            else:
                values += 1
        self._check_buckets(entered, used - {0})
        return values

    def _look_up_entries(self) -> None:
        for key, data in self._transaction.scan("index", self._prefix):
            is_long = len(key) == LONG_KEY_BYTES
            if len(key) < HEAD_BYTES or len(data) != U64.size + is_long:
                continue
            (bucket,) = U64.unpack_from(key, U32.size)
            is_bucket, number = decode_entry(data) if is_long else (False, U64.unpack(data)[0])
            if not is_bucket:
                self._check_logged(key, bucket, number)

    def _check_logged(self, key: bytes, bucket: int, seq: int) -> None:
        record = self._transaction.get("log", self._prefix + U64.pack(seq))
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

    def _check_refused(self) -> None:
        count = size = 0
        for key, data in self._transaction.scan("refused", self._prefix):
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
