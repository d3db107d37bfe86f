"""The values of a feed: what is here, what is let in, and who is told of what was stored.

Values of a peer (`accept`) and our own (`insert`) go to the writer, which stores them in one synced
transaction; then `stored` tells every subscriber. Nothing is told to anyone before it is on disk,
and the store never calls up: the writer's answer comes back as a Deferred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.refused_values import RefusedValues
from hyperbloom.replication.reading.range_digests import RangeDigests
from hyperbloom.replication.reading.ranges import union, within
from hyperbloom.replication.reading.shared_slices import SharedSlices
from hyperbloom.replication.reading.slices import FeedSlices
from hyperbloom.replication.settings import FeedSettings, KeyRange
from hyperbloom.store import AppendValues
from hyperbloom.store.operations import pieces_of
from hyperbloom.store.records import Appended, CountSlice, FeedRecord, Holding, LogSlice, RangeSlice
from hyperbloom.store.values.refused import RememberRefused
from hyperbloom.store.values.scan import feed_life
from hyperbloom.trust import Path
from hyperbloom.wire.packing import MAX_VALUE_BYTES

__all__ = ["FeedValues", "Subscriber"]

#: Called with what was stored and the key of the peer that brought it.
Subscriber = Callable[[Appended, bytes], None]

log = Logger()


def all_of(pieces: Sequence[Deferred[Appended]]) -> Deferred[Appended]:
    """Fires when all have: with what all have stored, or with the first failure."""

    def put_together(outcomes: list[tuple[bool, Any]]) -> Appended:
        for fine, outcome in outcomes:
            if not fine:
                cast("Failure", outcome).raiseException()
        stored = [cast("Appended", outcome) for _, outcome in outcomes]
        return Appended(
            values=[value for one in stored for value in one.values],
            first_seq=stored[0].first_seq,
            top_seq=stored[-1].top_seq,
            forgotten=sum(one.forgotten for one in stored),
        )

    return DeferredList(pieces, consumeErrors=True).addCallback(put_together)


class FeedValues:
    """The values of one feed; `settings` gives what is set for it at the moment."""

    def __init__(
        self, settings: Callable[[], FeedSettings], record: FeedRecord, context: FeedContext
    ) -> None:
        self.key = record.key
        self.top_seq = record.top_seq
        self.slices = FeedSlices(
            context.store, self.key, lambda: self.top_seq, lambda: context.slice_bytes
        )
        #: Slices of answers that several peers are sent alike.
        self.shared_slices = SharedSlices()
        #: Digests of parts of the feed, which peers are compared by.
        self.range_digests = RangeDigests(self.holding)
        #: Ranges that somebody here waits for, beside those that this node keeps.
        self.interests: list[KeyRange] = []
        #: Values that came since the start and were not let in, by reason.
        self.kept_out: Counter[str] = Counter()
        #: The same, of those that are forgotten.
        self.forgotten_refused = 0
        self._settings = settings
        self._context = context
        self._count, self._bytes = record.count, record.bytes
        self._subscribers: list[Subscriber] = []
        self._watchers: list[Callable[[], None]] = []
        known = sorted(context.store.refused(self.key), key=lambda one: one.last_seen)
        self._refused = RefusedValues(one.value for one in known)

    # What is here

    @property
    def count(self) -> int:
        """How many values are here."""
        return self._count

    @property
    def size(self) -> int:
        """How many bytes the values here have."""
        return self._bytes

    @property
    def mean_bytes(self) -> float:
        """Mean length of the values here; a guess of 64 while there are none."""
        return self._bytes / self._count if self._count else 64.0

    @property
    def is_full(self) -> bool:
        """Whether the feed has reached the size that `[limits]` gives it."""
        limits = self._context.limits
        return bool(
            (limits.feed_values and self._count >= limits.feed_values)
            or (limits.feed_bytes and self._bytes >= limits.feed_bytes)
        )

    @property
    def refused(self) -> Sequence[bytes]:
        """The values that are kept out for good, as far as they are remembered."""
        return tuple(self._refused)

    def record(self) -> FeedRecord:
        """Count, bytes, digest and settings as they stand on disk.

        Raises `LookupError` where the feed was left.
        """
        record = self._context.store.feed(self.key)
        if record is None:
            raise LookupError("the feed was left")
        return record

    def holding(self) -> Holding | None:
        """Count and digest of what is here, and of that with what was forgotten.

        None while these digests are being computed, in a store of an older version.
        """
        return self._context.store.holding(self.key)

    def has(self, values: Sequence[bytes]) -> list[bool]:
        """Which of `values` are here."""
        return self._context.store.has(self.key, values)

    def read(
        self, start: bytes = b"", end: bytes | None = None, *, limit: int, max_bytes: int
    ) -> Deferred[RangeSlice]:
        """A slice of the values with start ≤ value < end, in byte order."""

        def read() -> RangeSlice:
            return self._context.store.range_slice(
                self.key, start, end, limit=limit, max_bytes=max_bytes
            )

        return succeed(read()) if limit <= 64 else self._context.own_work(read)

    def count_slice(
        self, start: bytes = b"", end: bytes | None = None, *, limit: int
    ) -> Deferred[CountSlice]:
        """How many values there are with start ≤ value < end, some `limit` at most."""
        count = self._context.store.count_slice
        return self._context.own_work(lambda: count(self.key, start, end, limit=limit))

    def log_after(self, seq: int, *, limit: int, max_bytes: int) -> Deferred[LogSlice]:
        """A slice of the arrivals behind `seq`, oldest first."""

        def read() -> LogSlice:
            return self._context.store.log_slice(self.key, seq, limit=limit, max_bytes=max_bytes)

        return self._context.own_work(read)

    def life(self) -> tuple[int, int]:
        """Of which life the arrival log is, and how many values the feed has ever forgotten.

        The first number is another one when the feed was left and joined anew.
        """
        return feed_life(self._context.store, self.key)

    def read_log(self, seq: int, limit: int, max_bytes: int) -> Deferred[tuple[LogSlice, float]]:
        """The same, and the seconds of work it has taken."""
        work_seconds = self._context.work_seconds

        def read() -> tuple[LogSlice, float]:
            begun = work_seconds()
            piece = self._context.store.log_slice(self.key, seq, limit=limit, max_bytes=max_bytes)
            return piece, work_seconds() - begun

        return self._context.own_work(read)

    # Values on their way in

    def insert(self, values: Sequence[bytes]) -> Deferred[Appended]:
        """Store values of our own; fires when they are on disk.

        One that was forgotten is a value of the feed again. Raises `ValueError` for an empty or
        too long value. `Feed.insert` sees first that this node may write.
        """
        longest = self.longest
        for value in values:
            if not value:
                raise ValueError("a value has at least one byte")
            if len(value) > longest:
                raise ValueError(f"a value has at most {longest:,} bytes, this one {len(value):,}")
        return self._append(values, self._context.identity.public_key, restores=True)

    def accept(
        self, values: Sequence[bytes], origin: bytes, *, path: Path | None = None
    ) -> Deferred[Appended]:
        """Store what a peer sent, as far as settings and limits let it in.

        `origin` is the peer's key; `path` is where it takes turns in writing, by itself if None.

        It is written in pieces, between which others write. Each is told to everyone once it is on
        disk; fires when all are, with the values of all. Fails as the first that fails does.
        """
        wanted = () if origin in self._context.denied else self._wanted(values)
        path = path or (origin,)
        refused = self._refuse(wanted, path)
        if refused:
            wanted = [value for value in wanted if value not in refused]
        if not wanted:
            return succeed(Appended(values=[], first_seq=self.top_seq + 1, top_seq=self.top_seq))
        pieces = [self._append(piece, origin, path) for piece in pieces_of(wanted)]
        return pieces[0] if len(pieces) == 1 else all_of(pieces)

    def _wanted(self, values: Sequence[bytes]) -> Sequence[bytes]:
        settings = self._settings()
        if settings.mode == "full":
            return values
        return within(union([*settings.synced, *self.interests]), values)

    @property
    def longest(self) -> int:
        """The longest value taken in: a longer one could not be sent on."""
        return min(self._context.limits.value_bytes, MAX_VALUE_BYTES)

    def _refuse(self, values: Sequence[bytes], path: Path) -> set[bytes]:
        """The values that policy keeps out; what is too long is remembered for good."""
        if self.is_full:
            self.kept_out["full"] += len(values)
            return set(values)
        longest = self.longest
        if not self._refused and max(map(len, values), default=0) <= longest:
            return set()
        refused = {v for v in values if len(v) > longest or v in self._refused}
        self.kept_out["too-long"] += len(refused)
        fresh = [value for value in refused if value not in self._refused]
        if fresh:
            self._refused.add(fresh)
            remember = RememberRefused(
                feed_key=self.key,
                refused=tuple((value, "too long") for value in fresh),
                at=int(self._context.now() * 1e6),
            )
            self._context.write(remember, path)
        return refused

    def _append(
        self,
        values: Sequence[bytes],
        origin: bytes,
        path: Path | None = None,
        *,
        restores: bool = False,
    ) -> Deferred[Appended]:
        op = AppendValues(
            feed_key=self.key,
            values=values,
            origin=origin,
            received_at=int(self._context.now() * 1e6),
            restores=restores,
        )

        def stored(outcome: Appended) -> Appended:
            self.forgotten_refused += outcome.forgotten
            self.stored(outcome, origin)
            return outcome

        is_own = origin in self._context.own_keys
        return self._context.written(op, None if is_own else path).addCallback(stored)

    # What is on disk

    def stored(self, appended: Appended, origin: bytes) -> None:
        """Values are on disk: tell everyone who waits for them."""
        if not appended.values:
            return
        self._count += len(appended.values)
        self._bytes += sum(map(len, appended.values))
        self.top_seq = max(self.top_seq, appended.top_seq)
        self._tell(appended, origin)

    def shrunk(self, count: int, size: int) -> None:
        """So many values of so many bytes have been removed from disk."""
        self._count -= count
        self._bytes -= size
        self.shared_slices.clear()
        if count:
            self._say_changed()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` for all that is stored from now on; returns how to end that."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` whenever there are other values here than before: new ones, ones that have
        come back, or fewer; returns how to end that."""
        self._watchers.append(watcher)

        def unwatch() -> None:
            if watcher in self._watchers:
                self._watchers.remove(watcher)

        return unwatch

    def wake_all(self) -> None:
        """Have every subscriber look again: the feed is gone, and the store will say so."""
        self._tell(Appended(values=[], first_seq=self.top_seq + 1, top_seq=self.top_seq), b"")

    def _tell(self, appended: Appended, origin: bytes) -> None:
        for subscriber in list(self._subscribers):
            try:
                subscriber(appended, origin)
            except Exception:
                # The values are on disk: who brought them and everyone else must hear of it.
                log.failure("A subscriber failed")
        self._say_changed()

    def _say_changed(self) -> None:
        for watcher in list(self._watchers):
            try:
                watcher()
            except Exception:
                log.failure("A watcher failed")
