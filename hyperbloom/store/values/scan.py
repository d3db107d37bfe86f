"""Reading a snapshot in bulk: records as LMDB holds them, in chunks, without an object a field.

``ValueReader.log_slice`` makes a tuple of every record, which is what a node wants and three times
too slow for an export. Here a key cursor and a data cursor run abreast over the same records and
hand out lists of keys and of data, from which columns are cut in one piece (0.4 µs a record against
1.1 µs). A chunk is bounded in records and in bytes, since a value may have 256 KiB.

One read transaction is held as long as a scan goes on, so this is for snapshots, not for the store
of a running node.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import lmdb
import numpy as np
import numpy.typing as npt

from hyperbloom.store.lmdb.layout import ASIDE_TAGS, LOG_HEAD, LOG_HEAD_BYTES, U32, U64
from hyperbloom.store.lmdb.transaction import read
from hyperbloom.store.records import LogRecord
from hyperbloom.store.values.gone import Note, note_at, notes_since, times_remembered
from hyperbloom.store.values.ordered_index import index_of
from hyperbloom.store.values.reading import ValueReader

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_RECORDS",
    "LogChunk",
    "feed_generation",
    "feed_life",
    "forgotten_digest",
    "forgotten_note",
    "forgotten_since",
    "last_record",
    "missing_seqs",
    "sample_values",
    "scan_log",
    "scan_values",
]

CHUNK_RECORDS: Final = 8_192
CHUNK_BYTES: Final = 8 * 1024 * 1024
"""A chunk ends at whichever comes first (the second one is looked at every 64 records)."""

_STEP: Final = 64
_LAST_SEQ: Final = (1 << 64) - 1
_FORGOTTEN_MASK: Final = (1 << 31) - 1
_CLOSE: Final = 8
"""Numbers that far apart on average are looked up, which takes as long as reading so many keys."""
_LOG_KEY: Final = np.dtype([("feed", ">u4"), ("seq", ">u8")])


class LogChunk(NamedTuple):
    """Records of the arrival log as they lie there (see layout.py), keys and data abreast."""

    keys: list[bytes]
    data: list[bytes]


def feed_generation(values: ValueReader, feed_key: bytes) -> int:
    """A number that changes when records of the feed's log may have gone since they were read.

    That is when it is dropped and joined anew, its seqs beginning again (the lower 32 bits), and
    when it has forgotten values (31 bits above them, which count what was ever forgotten).
    """
    life, forgotten = feed_life(values, feed_key)
    return life | forgotten << 32


def feed_life(values: ValueReader, feed_key: bytes) -> tuple[int, int]:
    """The two parts of `feed_generation`: of which life the feed's log is, and the count."""
    with read(values.environment) as transaction:
        feed = transaction.feed(feed_key)
        forgotten = times_remembered(transaction, feed)
    return feed.feed_id, forgotten & _FORGOTTEN_MASK


def forgotten_digest(values: ValueReader, feed_key: bytes) -> bytes:
    """A digest of what the feed remembers of forgotten values; empty if it has forgotten none."""
    with read(values.environment) as transaction:
        feed = transaction.feed(feed_key)
        asides = [transaction.find_aside(feed, tag) for tag in ASIDE_TAGS]
    return b"".join(aside.digest for aside in asides if aside is not None)


def forgotten_since(
    values: ValueReader, feed_key: bytes, number: int
) -> tuple[int, list[Note] | None]:
    """The number of the last note of a forgotten value, and the notes above ``number``.

    None for these if they do not say all that was forgotten (gone.py).
    """
    with read(values.environment) as transaction:
        return notes_since(transaction, transaction.feed(feed_key), number)


def forgotten_note(values: ValueReader, feed_key: bytes, number: int) -> bytes:
    """The note of this number, as it lies there; empty if there is none."""
    with read(values.environment) as transaction:
        return note_at(transaction, transaction.feed(feed_key), number)


def missing_seqs(
    values: ValueReader, feed_key: bytes, seqs: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Those of these numbers, which rise, under which the log has no record.

    Where they are close to each other all keys between them are read, else each is looked up.
    """
    with read(values.environment, long=True) as transaction:
        feed = transaction.find_feed(feed_key)
        if feed is None or not len(seqs):
            return seqs
        cursor, prefix = transaction.cursor("log"), feed.prefix
        first, last = int(seqs[0]), int(seqs[-1])
        if last - first > _CLOSE * len(seqs):
            keys = (prefix + U64.pack(seq) for seq in seqs.tolist())
            return seqs[[not cursor.set_key(key) for key in keys]]
        end, there = prefix + U64.pack(last), []
        if cursor.set_range(prefix + U64.pack(first)):
            for key in cursor.iternext(keys=True, values=False):
                if key > end:
                    break
                there.append(key)
    found = np.frombuffer(b"".join(there), _LOG_KEY)["seq"].astype(np.int64)
    return seqs[~np.isin(seqs, found, assume_unique=True)]


def last_record(values: ValueReader, feed_key: bytes, up_to_seq: int) -> LogRecord | None:
    """The record with the highest number that is not above ``up_to_seq``, if there is one."""
    with read(values.environment) as transaction:
        prefix = transaction.feed(feed_key).prefix
        cursor = transaction.cursor("log")
        if cursor.set_range(prefix + U64.pack(min(up_to_seq, _LAST_SEQ))):
            found = cursor.key() == prefix + U64.pack(up_to_seq) or cursor.prev()
        else:
            found = cursor.last()
        if not found or not cursor.key().startswith(prefix):
            return None
        key, data = cursor.item()
    received_at, origin = LOG_HEAD.unpack_from(data)
    (seq,) = U64.unpack_from(key, U32.size)
    return LogRecord(seq, received_at, origin, data[LOG_HEAD_BYTES:])


def scan_log(
    values: ValueReader, feed_key: bytes, after_seq: int, last_seq: int
) -> Iterator[LogChunk]:
    """The records with ``after_seq`` < seq <= ``last_seq`` in arrival order, in chunks."""
    if last_seq <= after_seq:
        return
    with read(values.environment, long=True) as transaction:
        prefix = transaction.feed(feed_key).prefix
        keys, data = transaction.cursor("log"), transaction.cursor("log")
        start, end = prefix + U64.pack(after_seq + 1), prefix + U64.pack(last_seq)
        if not keys.set_range(start) or not data.set_range(start):
            return
        key_steps = keys.iternext(keys=True, values=False)
        data_steps = data.iternext(keys=False, values=True)
        while True:
            chunk = _next_chunk(key_steps, data_steps)
            if not chunk.keys:
                return
            if chunk.keys[-1] >= end:
                kept = sum(key <= end for key in chunk.keys)
                if kept:
                    yield LogChunk(chunk.keys[:kept], chunk.data[:kept])
                return
            yield chunk


def _next_chunk(key_steps: "Iterator[bytes]", data_steps: "Iterator[bytes]") -> LogChunk:
    chunk = LogChunk([], [])
    size = 0
    while len(chunk.data) < CHUNK_RECORDS and size < CHUNK_BYTES:
        step = list(islice(data_steps, _STEP))
        if not step:
            break
        size += sum(map(len, step))
        chunk.data.extend(step)
    chunk.keys.extend(islice(key_steps, len(chunk.data)))
    return chunk


def scan_values(
    values: ValueReader, feed_key: bytes, start: bytes, end: bytes | None
) -> Iterator[LogChunk]:
    """The records whose values v are ``start`` <= v < ``end`` (None: no end), in byte order.

    Each record is looked up, which costs some 5 µs, but nothing outside of the range is read.
    Raises lmdb.CorruptedError, which becomes StoreCorrupt, if a record is missing.
    """
    with read(values.environment, long=True) as transaction:
        feed = transaction.feed(feed_key)
        prefix, index = feed.prefix, index_of(transaction, feed)
        chunk, size = LogChunk([], []), 0
        for found in index.walk(start, end, wanted=CHUNK_RECORDS):
            for value in found:
                seq = index.find(value)
                record = None if seq is None else transaction.get("log", prefix + U64.pack(seq))
                if seq is None or record is None:
                    raise lmdb.CorruptedError("the index leads to a record that is missing")
                chunk.keys.append(prefix + U64.pack(seq))
                chunk.data.append(record)
                size += len(record)
                if len(chunk.keys) >= CHUNK_RECORDS or size >= CHUNK_BYTES:
                    yield chunk
                    chunk, size = LogChunk([], []), 0
        if chunk.keys:
            yield chunk


def sample_values(values: ValueReader, feed_key: bytes, seqs: Sequence[int]) -> list[bytes]:
    """For each number the first value that arrived with it or later, where there is one."""
    found: list[bytes] = []
    with read(values.environment) as transaction:
        prefix = transaction.feed(feed_key).prefix
        cursor = transaction.cursor("log")
        for seq in seqs:
            if cursor.set_range(prefix + U64.pack(seq)) and cursor.key().startswith(prefix):
                found.append(cursor.value()[LOG_HEAD_BYTES:])
    return found
