"""Reading the values of a feed: those it has, in either order, and those it has forgotten."""

from collections.abc import Iterator, Sequence
from itertools import islice

import lmdb

from hyperbloom.digests import SUM_MODULUS, set_digest
from hyperbloom.store.lmdb.layout import (
    ASIDE_TAGS,
    LOG_HEAD,
    LOG_HEAD_BYTES,
    U32,
    U64,
    FeedState,
)
from hyperbloom.store.lmdb.transaction import Reader, ReadTransaction, read
from hyperbloom.store.records import (
    CountSlice,
    ForgottenFigures,
    Holding,
    LogRecord,
    LogSlice,
    OriginSlice,
    RangeSlice,
    RefusedRecord,
    SetFigures,
)
from hyperbloom.store.values.ordered_index import index_of
from hyperbloom.store.values.refused import parse_refused_record
from hyperbloom.store.values.value_set import forgotten_among, log_heads

__all__ = ["ValueReader", "holding_in", "settled_sets"]

_LAST_SEQ = (1 << 64) - 1
_HERE, _FORGOTTEN = (b"",), ASIDE_TAGS[:1]
"""Tags of sets: the feed's own values, and the forgotten ones kept whole."""


class ValueReader(Reader):
    """Reads values. What names a feed raises NoSuchFeed if the store does not hold it.

    A slice holds one value at least if there is one, be it longer than ``max_bytes``; a ``limit``
    below 1 is a ValueError.
    """

    def has(self, feed_key: bytes, values: Sequence[bytes]) -> list[bool]:
        """For each value whether the feed has it."""
        with read(self.environment) as transaction:
            find = index_of(transaction, transaction.feed(feed_key)).find
            return [find(value) is not None for value in values]

    def seqs(self, feed_key: bytes, values: Sequence[bytes]) -> list[int | None]:
        """The sequence number with which each value arrived, None for one that is not here."""
        with read(self.environment) as transaction:
            find = index_of(transaction, transaction.feed(feed_key)).find
            return [find(value) for value in values]

    def origins(self, feed_key: bytes, values: Sequence[bytes]) -> list[bytes | None]:
        """The 32-byte key of the peer that brought each value, None for one that is not here."""
        with read(self.environment) as transaction:
            feed = transaction.feed(feed_key)
            heads = dict(log_heads(transaction, feed, values))
        return [LOG_HEAD.unpack(heads[value])[1] if value in heads else None for value in values]

    def forgotten(self, feed_key: bytes, values: Sequence[bytes]) -> set[bytes]:
        """Those of the values that the feed has forgotten: no peer's word brings them back."""
        with read(self.environment) as transaction:
            return forgotten_among(transaction, transaction.feed(feed_key), values)

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

    def count_slice(
        self, feed_key: bytes, start: bytes = b"", end: bytes | None = None, *, limit: int
    ) -> CountSlice:
        """How many values v there are with start <= v < end (None: no end), some ``limit`` at most.

        Keys alone are read, but for values longer than a key; the whole feed's count is kept, and
        costs nothing. ``next_start`` is where to go on counting.
        """
        _check_limit(limit)
        with read(self.environment) as transaction:
            feed = transaction.feed(feed_key)
            if not start and end is None:
                return CountSlice(count=feed.count, bytes=feed.size, next_start=None)
            count = size = 0
            for chunk in index_of(transaction, feed).walk(start, end, wanted=limit):
                count += len(chunk)
                size += sum(map(len, chunk))
                if count >= limit:
                    return CountSlice(count=count, bytes=size, next_start=chunk[-1] + b"\x00")
        return CountSlice(count=count, bytes=size, next_start=None)

    def forgotten_slice(
        self,
        feed_key: bytes,
        start: bytes = b"",
        end: bytes | None = None,
        *,
        limit: int,
        max_bytes: int,
    ) -> RangeSlice:
        """The same of the values that the feed has forgotten and keeps whole (forgotten.py)."""
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
        pieces = []
        with read(self.environment) as transaction:
            for tag in sets:
                state = _set(transaction, feed_key, tag)
                if state is not None and state.count:
                    walk = index_of(transaction, state).walk(start, end, wanted=limit + 1)
                    pieces.append(_take(walk, limit, max_bytes))
        return _merged(pieces)

    def forgotten_figures(self, feed_key: bytes) -> ForgottenFigures:
        """How much the feed remembers of forgotten values."""
        with read(self.environment) as transaction:
            whole, hashed = (_set(transaction, feed_key, tag) for tag in ASIDE_TAGS)
        return ForgottenFigures(
            count=0 if whole is None else whole.count,
            bytes=0 if whole is None else whole.size,
            hashes=0 if hashed is None else hashed.count,
        )

    def holding(self, feed_key: bytes) -> Holding | None:
        """What the feed holds, and what it holds or has forgotten, at one moment.

        None while the digest of one of them is being computed (digest_migration.py).
        """
        with read(self.environment) as transaction:
            return holding_in(transaction, transaction.feed(feed_key))

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
        with read(self.environment) as transaction:
            state = _set(transaction, feed_key, *(_FORGOTTEN if forgotten else _HERE))
            if state is None:
                return OriginSlice(records=[], next_seq=None)
            prefix, cursor = state.prefix, transaction.cursor("log")
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

    def log_slice(self, feed_key: bytes, after_seq: int, *, limit: int, max_bytes: int) -> LogSlice:
        """The values that arrived after this sequence number, in that order, up to the limits.

        At least one record if there is one. ``last_seq`` is ``after_seq`` if there is none.
        """
        _check_limit(limit)
        if after_seq < 0:
            raise ValueError(f"a sequence number is not negative: {after_seq}")
        with read(self.environment) as transaction:
            prefix = transaction.feed(feed_key).prefix
            cursor = transaction.cursor("log")
            records: list[LogRecord] = []
            if cursor.set_range(prefix + U64.pack(min(after_seq + 1, _LAST_SEQ))):
                records = _read_log(cursor, prefix, limit, max_bytes)
        return LogSlice(records=records, last_seq=records[-1].seq if records else after_seq)

    def refused(self, feed_key: bytes) -> list[RefusedRecord]:
        """The feed's refused values, in no particular order."""
        with read(self.environment) as transaction:
            prefix = transaction.feed(feed_key).prefix
            return [parse_refused_record(*item) for item in transaction.scan("refused", prefix)]


def holding_in(transaction: ReadTransaction, feed: FeedState) -> Holding | None:
    """What a feed holds and what is settled; None while a digest of it is being computed."""
    forgotten = transaction.find_aside(feed, *_FORGOTTEN)
    if forgotten is None or not forgotten.count:
        if transaction.unsummed(feed):
            return None
        figures = SetFigures(feed.count, feed.digest)
        return Holding(here=figures, settled=figures)
    sums = [transaction.sum_of(state) for state in (feed, forgotten)]
    if any(kept.left for kept in sums):
        return None
    count = feed.count + forgotten.count
    total = sum(kept.total for kept in sums) % SUM_MODULUS
    return Holding(
        here=SetFigures(feed.count, feed.digest),
        settled=SetFigures(count, set_digest(count, total)),
    )


def settled_sets(transaction: ReadTransaction, feed: FeedState) -> dict[bytes, FeedState]:
    """The sets whose values are settled, by their tags: the feed's own, and forgotten ones."""
    forgotten = transaction.find_aside(feed, *_FORGOTTEN)
    return {b"": feed} if forgotten is None else {b"": feed, _FORGOTTEN[0]: forgotten}


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


def _set(transaction: ReadTransaction, feed_key: bytes, tag: bytes) -> FeedState | None:
    """A feed's own values (an empty tag) or a set kept aside for it, None without one."""
    feed = transaction.feed(feed_key)
    return transaction.find_aside(feed, tag) if tag else feed
