"""A topic's records on the DHT: looking them up, and the publishing procedure.

Whatever the DHT answers or fails of ends up as one of this module's two errors, so that the loops
around it go on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from hyperbloom.discovery.dht.common.items import MAX_SEQ, MutableItem
from hyperbloom.discovery.dht.reports import MutableLookup, PutReport
from hyperbloom.discovery.tracker.content import RecordContent
from hyperbloom.discovery.tracker.limits import ITEMS_PER_TURN
from hyperbloom.discovery.tracker.procedures import interval, is_published, may_publish
from hyperbloom.discovery.tracker.reading import Reading
from hyperbloom.discovery.tracker.record import (
    SEAL_ENTROPY_BYTES,
    Record,
    record_item,
    seal_record,
    sign_record,
)
from hyperbloom.discovery.tracker.settings import TrackerSettings
from hyperbloom.discovery.tracker.status import Tally
from hyperbloom.discovery.tracker.topic import Topic, unix_minute
from hyperbloom.errors import HyperbloomError
from hyperbloom.keys import Identity

__all__ = ["ItemStore", "LookupFailed", "PublishFailed", "TopicRecords"]

#: A DHT ends a lookup at its own cap with what it has found by then; being late by this many
#: seconds does not lose that when both have the same cap.
GRACE_SECONDS = 1.0

T = TypeVar("T")

log = Logger()


class LookupFailed(HyperbloomError):
    """The DHT could not be asked."""


class PublishFailed(HyperbloomError):
    """No DHT node took the record, in all tries."""


class ItemStore(Protocol):
    """Gets and puts mutable items; both Deferreds fire within the time of the DHT's settings.

    Neither fails for what the network does: who asks an empty network gets an empty answer.
    """

    def get_mutable(self, public_key: bytes, salt: bytes) -> Deferred[MutableLookup]:
        """All distinct authentic versions of the item under this key and salt."""

    def put_mutable(self, item: MutableItem, *, cas: int | None) -> Deferred[PutReport]:
        """Put an item to the nodes closest to its target, and read it back.

        With `cas`, a node stores it only in place of a version with that sequence number.
        """


class TopicRecords:
    """Reads and publishes the records of one topic.

    `random` also gives the one-time keys: outside of tests it has to be a `SystemRandom`. `now`
    gives seconds since 1970; `clock` measures waiting.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        identity: Identity,
        items: ItemStore,
        settings: TrackerSettings,
        clock: IReactorTime,
        now: Callable[[], float],
        random: Random,
        tally: Tally,
    ) -> None:
        self._topic = topic
        self._identity = identity
        self._items = items
        self._settings = settings
        self._clock = clock
        self._now = now
        self._random = random
        self._tally = tally
        self._is_closed = False

    def close(self) -> None:
        """From now on a cancelled question to the DHT ends what waits for it."""
        self._is_closed = True

    @property
    def minute(self) -> int:
        """The current minute."""
        return unix_minute(self._now())

    async def lookup(self, minute: int) -> tuple[Record, ...]:
        """The verified records of others in a minute. Raises `LookupFailed`."""
        keys = self._topic.keys(minute)
        seconds = self._settings.store.get_timeout + GRACE_SECONDS
        found = await self._asked(
            lambda: self._items.get_mutable(keys.signer.public_key, keys.salt), seconds
        )
        if found is None:
            raise LookupFailed(self._tally.problem)
        reading = Reading(keys, own=self._identity.public_key)
        for number, item in enumerate(found.items):
            if number and number % ITEMS_PER_TURN == 0:
                await deferLater(self._clock, 0)
            reading.take(item)
        self._tally.note_lookup(found, reading, now=self._now())
        return reading.records

    async def lookup_both(
        self, older: int, newer: int
    ) -> tuple[tuple[Record, ...], tuple[Record, ...]]:
        """The records of two minutes, looked up at once; none where the DHT could not be asked."""
        beside = Deferred.fromCoroutine(self._found(older))
        try:
            newer_records = await self._found(newer)
            return await beside, newer_records
        finally:
            beside.addErrback(lambda failure: failure.trap(CancelledError))
            beside.cancel()

    async def _found(self, minute: int) -> tuple[Record, ...]:
        try:
            return await self.lookup(minute)
        except LookupFailed:
            return ()

    async def publish(
        self,
        minute: int,
        content: RecordContent,
        *,
        known: tuple[Record, ...] | None = None,
    ) -> None:
        """The publishing procedure: put a record unless there are enough in that minute.

        `known` are the minute's records if they were just looked up. Raises `LookupFailed` and
        `PublishFailed`.
        """
        if not self._settings.publish:
            return
        records = await self.lookup(minute) if known is None else known
        limit = self._settings.max_bootstrap_records
        if not may_publish(records, max_bootstrap_records=limit, random=self._random):
            self._tally.rate_limited += 1
            return
        keys = self._topic.keys(minute)
        record = sign_record(self._identity, keys, content)
        entropy = self._random.randbytes(SEAL_ENTROPY_BYTES)
        await self._put(record_item(seal_record(record, keys, entropy=entropy), keys), minute)

    async def _put(self, item: MutableItem, minute: int) -> None:
        store = self._settings.store
        for left in reversed(range(1 + store.put_retries)):
            report: PutReport | None = await self._asked(
                lambda: self._items.put_mutable(item, cas=MAX_SEQ), store.put_timeout
            )
            if report is not None:
                self._tally.note_put(report, now=self._now())
                if is_published(report):
                    return
            if left:
                await deferLater(
                    self._clock, interval(store.retry_base, store.retry_jitter, self._random)
                )
            if self.minute > minute + 1:
                raise PublishFailed("nobody reads the records of that minute any more")
        raise PublishFailed(f"no DHT node kept a record in {1 + store.put_retries} tries")

    async def _asked(self, ask: Callable[[], Deferred[T]], seconds: float) -> T | None:
        """The DHT's answer; None for any failure, which is noted."""
        try:
            return await ask().addTimeout(seconds, self._clock)
        except Exception as error:
            if self._is_closed:
                raise
            self._tally.problem = f"the DHT failed: {type(error).__name__}"
            log.debug("the DHT failed: {error!r}", error=error)
            return None
