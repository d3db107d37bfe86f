"""The tracker of one topic: it finds peers by the records on the DHT, and keeps them connected.

It starts with the bootstrap loop. From the first neighbour on it also publishes what the node
knows, and looks in two ways for nodes of the topic that it has no path to: bubbles, when it
has few neighbours, and partitions, when others got messages that it did not. A node that has lost
all of its neighbours goes through the bootstrap loop again.

All of it runs beside the node: nothing waits for it, and nothing that the DHT says or fails of
ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, gatherResults, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.discovery.tracker.bootstrap import Bootstrap
from hyperbloom.discovery.tracker.content import RecordContent
from hyperbloom.discovery.tracker.neighbourhood import Candidate, Neighbourhood
from hyperbloom.discovery.tracker.procedures import (
    bubble_candidates,
    overlap_candidates,
    published_content,
)
from hyperbloom.discovery.tracker.record import Record
from hyperbloom.discovery.tracker.settings import TrackerSettings
from hyperbloom.discovery.tracker.status import Tally, TrackerStatus
from hyperbloom.discovery.tracker.ticker import Timing, tick
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.discovery.tracker.topic_records import (
    ItemStore,
    LookupFailed,
    PublishFailed,
    TopicRecords,
)
from hyperbloom.keys import Identity

__all__ = ["Tracker"]

log = Logger()


class Tracker:
    """Finds the peers of one topic.

    `now` gives seconds since 1970, `clock` measures waiting; `random` gives jitter and the
    one-time keys of records, so that outside of tests it has to be a `random.SystemRandom`.
    """

    def __init__(
        self,
        topic: Topic,
        *,
        identity: Identity,
        items: ItemStore,
        neighbourhood: Neighbourhood,
        settings: TrackerSettings,
        clock: IReactorTime,
        now: Callable[[], float],
        random: Random,
    ) -> None:
        self._topic = topic
        self._own = identity.public_key
        self._neighbourhood = neighbourhood
        self._settings = settings
        self._clock = clock
        self._random = random
        self._tally = Tally()
        self._records = TopicRecords(
            topic,
            identity=identity,
            items=items,
            settings=settings,
            clock=clock,
            now=now,
            random=random,
            tally=self._tally,
        )
        self._bootstrap = Bootstrap(
            self._records,
            neighbourhood,
            own=self._own,
            settings=settings.bootstrap,
            clock=clock,
            random=random,
            publish=self._publish_beside,
            join=self._join,
        )
        self._running: set[Deferred[None]] = set()
        self._bootstrapping = False
        self._has_joined = False
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin to look for peers; returns at once. A tracker is started once."""
        self._unsubscribe = self._neighbourhood.subscribe(self._neighbourhood_changed)
        self._look_for_peers()

    def stop(self) -> Deferred[None]:
        """End all that is going on; the Deferred fires when it has ended."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._records.close()
        running = list(self._running)
        for each in running:
            each.cancel()
        return gatherResults(running).addCallback(lambda _: None) if running else succeed(None)

    def status(self) -> TrackerStatus:
        """How it is doing."""
        return self._tally.status(
            topic_hash=self._topic.hash, joined=self._neighbourhood.is_joined()
        )

    def _neighbourhood_changed(self) -> None:
        if self._neighbourhood.is_joined():
            self._bootstrap.wake()
        elif not self._bootstrapping:
            self._look_for_peers()

    def _look_for_peers(self) -> None:
        self._bootstrapping = True
        self._run(Deferred.fromCoroutine(self._bootstrap_and_maintain()))

    async def _bootstrap_and_maintain(self) -> None:
        try:
            await self._bootstrap.run()
        finally:
            self._bootstrapping = False
        if not self._has_joined:
            self._has_joined = True
            self._tick(self._publish_now, self._settings.publisher)
            self._tick(self._merge_bubbles, self._settings.bubble_merge)
            self._tick(self._merge_partitions, self._settings.overlap_merge)

    def _tick(
        self, action: Callable[[], Coroutine[Deferred[Any], Any, None]], timing: Timing
    ) -> None:
        self._run(tick(action, timing, clock=self._clock, random=self._random))

    async def _publish_now(self) -> None:
        await self._records.publish(self._records.minute, self._content())

    async def _merge_bubbles(self) -> None:
        for candidate in bubble_candidates(
            await self._recent_records(),
            neighbours=self._neighbourhood.neighbours(),
            own=self._own,
            min_neighbours=self._settings.min_neighbours,
            max_join_peers=self._settings.max_join_peers,
            random=self._random,
        ):
            self._join(candidate)

    async def _merge_partitions(self) -> None:
        for candidate in overlap_candidates(
            await self._recent_records(),
            neighbours=self._neighbourhood.neighbours(),
            own=self._own,
            hashes=self._neighbourhood.recent_message_hashes(),
            max_join_peers=self._settings.max_join_peers,
            random=self._random,
        ):
            self._join(candidate)

    async def _recent_records(self) -> tuple[Record, ...]:
        """The records of this minute and the one before."""
        minute = self._records.minute
        before, current = await self._records.lookup_both(max(0, minute - 1), minute)
        return (*current, *before)

    def _join(self, candidate: Candidate) -> None:
        self._tally.candidates += 1
        self._neighbourhood.join(candidate)

    def _content(self) -> RecordContent:
        return published_content(
            addresses=self._neighbourhood.own_addresses(),
            neighbours=self._neighbourhood.neighbours(),
            hashes=self._neighbourhood.recent_message_hashes(),
            random=self._random,
        )

    def _publish_beside(self, minute: int, known: tuple[Record, ...] | None) -> None:
        """Publish while the bootstrap loop goes on."""

        async def publish() -> None:
            try:
                await self._records.publish(minute, self._content(), known=known)
            except (LookupFailed, PublishFailed) as failed:
                log.debug("{failed}", failed=failed)

        self._run(Deferred.fromCoroutine(publish()))

    def _run(self, task: Deferred[None]) -> None:
        """Keep hold of something that goes on, so that stopping ends it."""

        def ended(result: object) -> None:
            self._running.discard(task)
            if isinstance(result, Failure) and not result.check(CancelledError):
                log.failure("the tracker met an error of its own", failure=result)

        self._running.add(task)
        task.addBoth(ended)
