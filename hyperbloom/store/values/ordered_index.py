"""Values of any length in exact byte order, over keys that end at 511 bytes.

Every key begins with a head H of 12 bytes: the feed's id and the id of a bucket, 0 at the root.
That leaves P = 511 - 12 - 1 = 498 bytes of a value for the key, and one byte to spare.

- A value of at most P bytes is its own key, H ‖ value. Its datum is its sequence number (u64).
- A longer value sits at H ‖ value[:P] ‖ 00. While it is the only one with those P bytes, the datum
  there is a leaf: tag 0 and its sequence number; the rest of it is in the log.
- Once a second value shares those P bytes the datum is a bucket: tag 1 and the bucket's id. The
  bucket holds the remainders value[P:] by the same rule, under its own head.

The order of keys is the order of values. Two short values compare as their keys. A long value with
the first P bytes p sorts at p ‖ 00, directly behind the short value p if there is one: no other key
lies between, for a short value beyond p would need more than P bytes. Among the values with the
same p only their remainders matter, and these are ordered in the bucket. A key of 511 bytes is
thus a leaf or a bucket, and every shorter one is a value, to be read without the log.

A bucket has at least two values below it, so a walk costs at most two reads a value and one a
level. A value may share all but its last byte with another: 262,144 / 498 = 526 levels at most.
Everything here iterates, nothing recurses.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, islice, repeat
from operator import add, lt
from typing import Final

import lmdb

from hyperbloom.store.lmdb.layout import U32, U64, FeedState, packed_range
from hyperbloom.store.lmdb.transaction import ReadTransaction

__all__ = [
    "HEAD_BYTES",
    "LONG_KEY_BYTES",
    "PART_BYTES",
    "OrderedIndex",
    "decode_entry",
    "index_of",
]

LONG_KEY_BYTES: Final = 511
HEAD_BYTES: Final = U32.size + U64.size
PART_BYTES: Final = LONG_KEY_BYTES - HEAD_BYTES - 1

ROOT: Final = U64.pack(0)
_LONG = b"\x00"
_BEHIND_LONG = b"\x01"
_LEAF = b"\x00"
_BUCKET = b"\x01"

# A walk reads keys in chunks, small ones first: after a bucket it looks anew.
_FIRST_CHUNK = 16
_CHUNK = 512
# Long values are handed out before many are in memory.
_CHUNK_BYTES = 65_536
# As many values are put in by one call; fewer one by one, which tells which of them were there.
_MANY = 16
_SHORT_PREFIX = 4 * PART_BYTES


def decode_entry(data: bytes) -> tuple[bool, int]:
    """The datum of a long key: (whether it is a bucket, its id or sequence number)."""
    return data[:1] == _BUCKET, U64.unpack_from(data, 1)[0]


def _numbers(packed: Iterable[bytes]) -> set[int]:
    return {int.from_bytes(one, "big") for one in packed}


@dataclass(slots=True)
class _Frame:
    """A bucket that a walk is inside; ``on_end`` if the range's end is in the bucket, too."""

    head: bytes
    on_end: bool


class OrderedIndex:
    """The index of one feed inside one transaction.

    ``read_value(seq)`` gives a value from the log. ``next_bucket`` is the first free bucket id; it
    advances as buckets are made and is the caller's to keep.
    """

    def __init__(
        self,
        txn: "lmdb.Transaction[bytes]",
        database: "lmdb._Database",
        prefix: bytes,
        read_value: Callable[[int], bytes],
        next_bucket: int = 1,
    ) -> None:
        self._txn = txn
        self._database = database
        self._prefix = prefix
        self._root = prefix + ROOT
        self._read_value = read_value
        self.next_bucket = next_bucket
        # Heads of the buckets met while inserting; a bucket stays one.
        self._buckets: dict[bytes, bytes] = {}

    # Writing

    def insert_batch(self, values: list[bytes], first_seq: int) -> set[int]:
        """Give the i-th value the number ``first_seq + i``; return the numbers that were not given.

        These are of values that were there before, and of those that come a second time. Values go
        in in their own order, which spares LMDB most of the way down its tree.
        """
        if not values:
            return set()
        seqs: Sequence[bytes] = packed_range(first_seq, len(values))
        if max(map(len, values)) <= PART_BYTES:
            return self._insert_short(values, seqs)
        is_short = [len(value) <= PART_BYTES for value in values]
        known = self._insert_long(values, first_seq)
        return known | self._insert_short(
            list(compress(values, is_short)), list(compress(seqs, is_short))
        )

    def _insert_short(self, values: list[bytes], seqs: Sequence[bytes]) -> set[int]:
        # The hot path, positional for speed.
        database, items = self._database, self._sorted_items(values, seqs)
        if len(values) < _MANY:
            put = self._txn.put
            return _numbers(
                seq for key, seq in items if not put(key, seq, True, False, False, database)
            )
        # One call for all; a cursor finds the next key from where it is.
        _, added = self._txn.cursor(database).putmulti(items, True, False)
        if added == len(values):
            return set()
        # What has another number was there; the number of each is read to know.
        get, items = self._txn.get, self._sorted_items(values, seqs)
        return _numbers(seq for key, seq in items if get(key, None, database) != seq)

    def _sorted_items(
        self, values: list[bytes], seqs: Sequence[bytes]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Keys and data of short values in their order, made as they are taken.

        A list of them would take twice the time.
        """
        if not all(map(lt, values, islice(values, 1, None))):
            order = sorted(range(len(values)), key=values.__getitem__)
            values, seqs = [values[i] for i in order], [seqs[i] for i in order]
        return zip(map(add, repeat(self._root), values), seqs, strict=True)

    def _insert_long(self, values: list[bytes], first_seq: int) -> set[int]:
        """The same for those of the values that are too long for a key."""

        def read_value(seq: int) -> bytes:
            if seq >= first_seq:
                return values[seq - first_seq]
            return self._read_value(seq)

        long = (i for i, value in enumerate(values) if len(value) > PART_BYTES)
        seqs = [first_seq + i for i in sorted(long, key=values.__getitem__)]
        return {seq for seq in seqs if not self._insert(values[seq - first_seq], seq, read_value)}

    def _insert(self, value: bytes, seq: int, read_value: Callable[[int], bytes]) -> bool:
        head, offset = self._root, 0
        while len(value) - offset > PART_BYTES:
            key = head + value[offset : offset + PART_BYTES] + _LONG
            known = self._buckets.get(key)
            if known is None:
                if self._put_alone(head, value, offset, seq):
                    return True
                is_bucket, number = decode_entry(self._get(key))
                if is_bucket:
                    known = self._head(number)
                else:
                    other = read_value(number)
                    if other == value:
                        return False
                    known = self._open_bucket(key, other, offset + PART_BYTES, number)
                self._buckets[key] = known
            head = known
            offset += PART_BYTES
        return self._put_alone(head, value, offset, seq)

    def _open_bucket(self, key: bytes, value: bytes, offset: int, seq: int) -> bytes:
        """Make a bucket where a value was alone, put that value into it, and return its head."""
        head = self._head(self.next_bucket)
        self._txn.put(key, _BUCKET + U64.pack(self.next_bucket), db=self._database)
        self.next_bucket += 1
        self._put_alone(head, value, offset, seq)
        return head

    def _put_alone(self, head: bytes, value: bytes, offset: int, seq: int) -> bool:
        """Put what is left of a value into a bucket, unless something is in its place."""
        if len(value) - offset <= PART_BYTES:
            key, data = head + value[offset:], U64.pack(seq)
        else:
            key = head + value[offset : offset + PART_BYTES] + _LONG
            data = _LEAF + U64.pack(seq)
        return self._txn.put(key, data, True, False, False, self._database)

    def remove(self, value: bytes) -> int | None:
        """Take a value out; its sequence number, None if it is not there.

        Its record must still be in the log, and so must those of the other values.
        """
        key, trail = self._path_to(value)
        data = self._txn.get(key, db=self._database)
        if data is None:
            return None
        if len(key) < LONG_KEY_BYTES:
            seq = int.from_bytes(data, "big")
        else:
            _, seq = decode_entry(data)
            if self._read_value(seq) != value:
                return None
        self._txn.delete(key, db=self._database)
        self._close_buckets(trail)
        return seq

    def _path_to(self, value: bytes) -> tuple[bytes, list[bytes]]:
        """The key of a value's entry, if it has one, and the keys of the buckets above it."""
        head, offset = self._root, 0
        trail: list[bytes] = []
        while len(value) - offset > PART_BYTES:
            key = head + value[offset : offset + PART_BYTES] + _LONG
            data = self._txn.get(key, db=self._database)
            is_bucket, number = (False, 0) if data is None else decode_entry(data)
            if not is_bucket:
                return key, trail
            trail.append(key)
            head = self._head(number)
            offset += PART_BYTES
        return head + value[offset:], trail

    def _close_buckets(self, trail: list[bytes]) -> None:
        """Make a leaf of each bucket, the deepest first, in which one value is left alone."""
        for key in reversed(trail):
            _, bucket = decode_entry(self._get(key))
            left = self._first_entries(self._head(bucket), 2)
            if len(left) > 1:
                return
            self._buckets.pop(key, None)
            if not left:
                self._txn.delete(key, db=self._database)
                continue
            ((last, data),) = left
            is_bucket, seq = (
                decode_entry(data)
                if len(last) == LONG_KEY_BYTES
                else (False, int.from_bytes(data, "big"))
            )
            if is_bucket:
                return
            self._txn.delete(last, db=self._database)
            self._txn.put(key, _LEAF + U64.pack(seq), db=self._database)

    def _first_entries(self, head: bytes, most: int) -> list[tuple[bytes, bytes]]:
        cursor = self._txn.cursor(self._database)
        found = islice(cursor, most) if cursor.set_range(head) else ()
        return [(key, data) for key, data in found if key.startswith(head)]

    # Looking up

    def find(self, value: bytes) -> int | None:
        """The sequence number of a value, or None."""
        if len(value) <= PART_BYTES:
            data = self._txn.get(self._root + value, db=self._database)
            return None if data is None else int.from_bytes(data, "big")
        head, offset = self._descend(value)
        rest = len(value) - offset
        if rest <= PART_BYTES:
            data = self._txn.get(head + value[offset:], db=self._database)
            return None if data is None else int.from_bytes(data, "big")
        data = self._txn.get(head + value[offset : offset + PART_BYTES] + _LONG, db=self._database)
        if data is None:
            return None
        _, seq = decode_entry(data)
        return seq if self._read_value(seq) == value else None

    def _descend(self, value: bytes) -> tuple[bytes, int]:
        """The head of the deepest bucket that leads to a value, and how many bytes lie above it."""
        head, offset = self._root, 0
        while len(value) - offset > PART_BYTES:
            key = head + value[offset : offset + PART_BYTES] + _LONG
            data = self._txn.get(key, db=self._database)
            if data is None:
                break
            is_bucket, number = decode_entry(data)
            if not is_bucket:
                break
            head = self._head(number)
            offset += PART_BYTES
        return head, offset

    def _get(self, key: bytes) -> bytes:
        data = self._txn.get(key, db=self._database)
        if data is None:
            raise lmdb.CorruptedError("an entry of the index vanished in its own transaction")
        return data

    def _head(self, bucket: int) -> bytes:
        return self._prefix + U64.pack(bucket)

    # Walking

    def walk(self, start: bytes, end: bytes | None, *, wanted: int) -> Iterator[list[bytes]]:
        """Yield the values v with start <= v < end in byte order, in lists that are not empty.

        ``end`` None means to the last one. ``wanted`` is a hint of how many the caller will take.
        """
        if end is not None and end <= start:
            return
        yield from _Walk(self, start, end, wanted).run()


def index_of(transaction: ReadTransaction, state: FeedState) -> OrderedIndex:
    """The index of a set; who inserts by it keeps its ``next_bucket``."""
    prefix = state.prefix
    return OrderedIndex(
        transaction.txn,
        transaction.databases["index"],
        prefix,
        lambda seq: transaction.value_at(prefix, seq),
        state.next_bucket,
    )


class _Walk:
    """One walk: a stack of buckets, and the parts of the key that led into them."""

    def __init__(self, index: OrderedIndex, start: bytes, end: bytes | None, wanted: int) -> None:
        self._index = index
        self._cursor = index._txn.cursor(index._database)
        self._start = start
        self._end = end
        self._chunk = self._size = max(2, min(_CHUNK, wanted))
        self._frames = [_Frame(index._root, end is not None)]
        self._parts: list[bytes] = []
        self._seek = b""

    def run(self) -> Iterator[list[bytes]]:
        self._enter_start()
        while True:
            entered = yield from self._read_bucket()
            if entered:
                continue
            left = self._frames.pop()
            if not self._frames or left.on_end:
                return
            self._seek = self._frames[-1].head + self._parts.pop() + _BEHIND_LONG

    @property
    def _offset(self) -> int:
        return len(self._parts) * PART_BYTES

    def _enter_start(self) -> None:
        """Go down the buckets that lead to the start, and set where to begin in the deepest."""
        start = self._start
        while True:
            head, offset = self._frames[-1].head, self._offset
            if len(start) - offset <= PART_BYTES:
                self._seek = head + start[offset:]
                return
            part = start[offset : offset + PART_BYTES]
            self._seek = head + part + _LONG
            data = self._index._txn.get(self._seek, db=self._index._database)
            if data is None:
                return
            is_bucket, number = decode_entry(data)
            if not is_bucket:
                if self._index._read_value(number) < start:
                    self._seek = head + part + _BEHIND_LONG
                return
            self._push(part, number)

    def _push(self, part: bytes, bucket: int) -> None:
        offset = self._offset
        on_end = False
        if self._frames[-1].on_end and self._end is not None:
            on_end = self._end_part(offset) == part and len(self._end) > offset + PART_BYTES
        head = self._index._head(bucket)
        self._frames.append(_Frame(head, on_end))
        self._parts.append(part)
        self._seek = head
        self._size = min(_FIRST_CHUNK, self._chunk)

    def _end_part(self, offset: int) -> bytes:
        return b"" if self._end is None else self._end[offset : offset + PART_BYTES]

    def _bound(self) -> bytes:
        """The first key that lies behind the range, or behind the bucket."""
        frame, offset = self._frames[-1], self._offset
        if not frame.on_end or self._end is None:
            return (int.from_bytes(frame.head, "big") + 1).to_bytes(HEAD_BYTES, "big")
        if len(self._end) - offset <= PART_BYTES:
            return frame.head + self._end[offset:]
        # The entry that leads to the end itself is inside, and looked at more closely.
        return frame.head + self._end_part(offset) + _BEHIND_LONG

    def _read_bucket(self) -> Generator[list[bytes], None, bool]:
        """Yield values from where the walk stands; True as soon as it stepped into a bucket."""
        bound = self._bound()
        if not self._cursor.set_range(self._seek):
            return False
        rest = self._cursor.iternext(True, False)
        while keys := list(islice(rest, self._size)):
            self._size = min(2 * self._size, self._chunk)
            ended = keys[-1] >= bound
            if ended:
                del keys[bisect_left(keys, bound) :]
            if keys and (yield from self._read_keys(keys)):
                return True
            if ended:
                return False
        return False

    def _read_keys(self, keys: list[bytes]) -> Generator[list[bytes], None, bool]:
        prefix = b"".join(self._parts)
        if len(prefix) <= _SHORT_PREFIX and max(map(len, keys)) < LONG_KEY_BYTES:
            if prefix:
                yield [prefix + key[HEAD_BYTES:] for key in keys]
            else:
                yield [key[HEAD_BYTES:] for key in keys]
            return False
        values: list[bytes] = []
        size = 0
        on_end = self._frames[-1].on_end
        for key in keys:
            if len(key) < LONG_KEY_BYTES:
                value = prefix + key[HEAD_BYTES:]
            else:
                is_bucket, number = decode_entry(self._index._get(key))
                if is_bucket:
                    if values:
                        yield values
                    self._push(key[HEAD_BYTES:-1], number)
                    return True
                value = self._index._read_value(number)
                if on_end and self._end is not None and value >= self._end:
                    break
            values.append(value)
            size += len(value)
            if size >= _CHUNK_BYTES:
                yield values
                values, size = [], 0
        if values:
            yield values
        return False
