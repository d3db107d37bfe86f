"""The bootstrap loop: look records up, join whom they name, until there is a neighbour.

The text's procedure, whose steps are the methods below, in their order. A node that finds nobody
publishes a record of its own, at most one a minute, and looks again; so does one that could join
nobody it found.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from hyperbloom.discovery.tracker.neighbourhood import Candidate, Neighbourhood
from hyperbloom.discovery.tracker.procedures import bootstrap_candidates, bootstrap_minutes
from hyperbloom.discovery.tracker.record import Record
from hyperbloom.discovery.tracker.settings import BootstrapSettings
from hyperbloom.discovery.tracker.topic_records import TopicRecords

__all__ = ["Bootstrap"]

#: Publishes a record in a minute, with that minute's records if they are known; does not wait.
Publish = Callable[[int, tuple[Record, ...] | None], None]


class Bootstrap:
    """Runs the loop once, and again each time the node has lost all of its neighbours."""

    def __init__(
        self,
        records: TopicRecords,
        neighbourhood: Neighbourhood,
        *,
        own: bytes,
        settings: BootstrapSettings,
        clock: IReactorTime,
        random: Random,
        publish: Publish,
        join: Callable[[Candidate], None],
    ) -> None:
        self._records = records
        self._neighbourhood = neighbourhood
        self._own = own
        self._settings = settings
        self._clock = clock
        self._random = random
        self._publish = publish
        self._join = join
        self._last_published: int | None = None
        self._is_first_attempt = True
        self._waiting: Deferred[None] | None = None

    def wake(self) -> None:
        """End the present waiting: a neighbour has come or gone."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.callback(None)

    async def run(self) -> None:
        """Look for peers until one has been joined."""
        if self._is_first_attempt and self._settings.publish_on_startup:
            self._publish_once(self._records.minute, None)
        while not self._neighbourhood.is_joined():
            await self._attempt()

    async def _attempt(self) -> None:
        minute = self._records.minute
        older, newer = bootstrap_minutes(
            minute,
            is_first_attempt=self._is_first_attempt,
            check_older_first=self._settings.check_older_first,
        )
        self._is_first_attempt = False
        older_records, newer_records = await self._records.lookup_both(older, newer)
        current = newer_records if newer == minute else None
        candidates = bootstrap_candidates(
            (*older_records, *newer_records), own=self._own, random=self._random
        )
        if not candidates:
            self._publish_once(minute, current)
            await self._wait(self._settings.no_peers_retry)
            return
        await self._join_one_by_one(candidates)
        if self._neighbourhood.is_joined():
            return
        self._publish_once(minute, current)
        await self._wait(self._settings.discovery_poll)

    async def _join_one_by_one(self, candidates: list[Candidate]) -> None:
        """So that a node that is new disturbs no more nodes than it has to."""
        for candidate in candidates:
            if self._neighbourhood.is_joined():
                return
            self._join(candidate)
            await self._wait(self._settings.join_settle)
        if not self._neighbourhood.is_joined():
            await self._wait(self._settings.join_confirmation)

    def _publish_once(self, minute: int, known: tuple[Record, ...] | None) -> None:
        if minute != self._last_published:
            self._last_published = minute
            self._publish(minute, known)

    async def _wait(self, seconds: float) -> None:
        """Wait, at most until the node has joined."""
        if self._neighbourhood.is_joined():
            return
        waiting: Deferred[None] = Deferred()
        self._waiting = waiting
        call = self._clock.callLater(seconds, self.wake)
        try:
            await waiting
        finally:
            self._waiting = None
            if call.active():
                call.cancel()
