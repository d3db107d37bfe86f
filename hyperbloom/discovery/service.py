"""Discovery as a service: one DHT node, and for each feed a tracker and an announcer.

Nothing waits for it. The feeds it is to search for are asked for again and again, so that a feed
that is joined, left, or may be written to from now on needs to tell nobody. The DHT's table goes
into `save` now and then and at the end, so that the next start needs no bootstrap nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.error import CannotListenError
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import Address
from hyperbloom.discovery.announcer import Announcer
from hyperbloom.discovery.dht.reports import DhtStatus
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.discovery.feeds import FeedDiscoveryStatus, SearchedFeed, SearchedFeeds
from hyperbloom.discovery.lan import LanDiscovery, LanStatus
from hyperbloom.discovery.settings import DiscoverySettings
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.discovery.tracker.tracker import Tracker
from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = ["DhtPortTaken", "DiscoveryService", "DiscoveryStatus"]

#: How often the feeds are asked for, in seconds.
LOOK_SECONDS = 1.0

#: How often the table is saved, in seconds.
SAVE_SECONDS = 600.0

log = Logger()


class DhtPortTaken(HyperbloomError):
    """The DHT's UDP port cannot be had; the text says why."""

    kind = ErrorKind.BUSY


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryStatus:
    """Discovery at a glance; `lan` is None where multicast DNS is off."""

    dht: DhtStatus
    lan: LanStatus | None
    feeds: tuple[FeedDiscoveryStatus, ...]

    def as_json(self) -> dict[str, Any]:
        """For JSON: bytes as hex."""
        return {
            "dht": self.dht.as_json(),
            "lan": None if self.lan is None else self.lan.as_json(),
            "feeds": [feed.as_json() for feed in self.feeds],
        }


@dataclass(frozen=True, slots=True)
class _Search:
    """The search for one feed's peers."""

    searched: SearchedFeed
    tracker: Tracker
    announcer: Announcer | None

    def start(self) -> None:
        self.tracker.start()
        if self.announcer is not None:
            self.announcer.start()

    def stop(self) -> list[Deferred[None]]:
        ending = [self.tracker.stop()]
        if self.announcer is not None:
            ending.append(self.announcer.stop())
        return ending

    def status(self) -> FeedDiscoveryStatus:
        return FeedDiscoveryStatus(
            feed=self.searched.feed_key,
            tracker=self.tracker.status(),
            swarm=None if self.announcer is None else self.announcer.status(),
        )


class DiscoveryService(Service):
    """Finds the peers of `feeds`.

    `reactor` brings time, UDP, names and threads; `now` gives seconds since 1970; `random` gives
    ids, keys and jitter, so that outside of tests it has to be a `random.SystemRandom`. `state` is
    what an earlier `save` was called with. `secret` seals the records in place of the feeds' keys.
    """

    def __init__(
        self,
        settings: DiscoverySettings,
        *,
        feeds: SearchedFeeds,
        reactor: Any,
        now: Callable[[], float],
        random: Random,
        state: bytes = b"",
        save: Callable[[bytes], None] = lambda _: None,
        secret: bytes | None = None,
    ) -> None:
        self.setName("discovery")
        self.dht = DhtNode(reactor, settings.for_dht(), random_bytes=random.randbytes, state=state)
        self.lan = LanDiscovery.for_settings(settings, reactor=reactor, random=random)
        self._settings = settings
        self._feeds = feeds
        self._reactor = reactor
        self._now = now
        self._random = random
        self._save = save
        self._secret = secret
        self._searches: dict[bytes, _Search] = {}
        self._bootstrapping: Deferred[Any] | None = None
        self._look = LoopingCall(self._look_at_feeds)
        self._saving = LoopingCall(self._save_table)
        for call in (self._look, self._saving):
            call.clock = reactor

    def startService(self) -> None:
        """Open the UDP socket and begin; raises `DhtPortTaken`."""
        try:
            self.dht.listen(self._settings.port, self._settings.interface)
        except CannotListenError as error:
            reason = getattr(error.socketError, "strerror", None) or error.socketError
            raise DhtPortTaken(f"cannot listen on UDP port {error.port}: {reason}") from error
        super().startService()
        self._bootstrapping = self.dht.bootstrap()
        self._bootstrapping.addCallbacks(self._bootstrapped, self._bootstrap_failed)
        if self.lan is not None:
            self.lan.start()
        self._look.start(LOOK_SECONDS).addErrback(_timer_failed)
        self._saving.start(SAVE_SECONDS, now=False).addErrback(_timer_failed)

    def stopService(self) -> Deferred[None]:
        """End every search, save the table and close the socket."""
        super().stopService()
        for call in (self._look, self._saving):
            if call.running:
                call.stop()
        self._save_table()
        ending: list[Deferred[Any]] = []
        for search in self._searches.values():
            ending += search.stop()
        self._searches.clear()
        if self._bootstrapping is not None:
            self._bootstrapping.cancel()
        if self.lan is not None:
            ending.append(self.lan.stop())
        ending.append(self.dht.stop())
        return DeferredList(ending, consumeErrors=True).addCallback(lambda _: None)

    def status(self) -> DiscoveryStatus:
        """How it is doing."""
        return DiscoveryStatus(
            dht=self.dht.status(),
            lan=None if self.lan is None else self.lan.status(),
            feeds=tuple(search.status() for search in self._searches.values()),
        )

    def _look_at_feeds(self) -> None:
        wanted = self._feeds()
        # One that is another object now was joined anew, or is proved to by another key.
        over = [
            key
            for key, search in self._searches.items()
            if key not in wanted or wanted[key] is not search.searched
        ]
        for key in over:
            for ending in self._searches.pop(key).stop():
                ending.addErrback(_timer_failed)
        for key, feed in wanted.items():
            if key not in self._searches:
                search = self._searches[key] = self._search_for(feed)
                search.start()
        if self.lan is not None:
            self.lan.serve(list(wanted.values()))

    def _search_for(self, feed: SearchedFeed) -> _Search:
        settings = self._settings
        topic = Topic.of_feed(feed.feed_key, named=feed.discovery_key)
        if self._secret is not None:
            topic = replace(topic, secret_hash=Topic.named(b"", self._secret).secret_hash)
        tracker = Tracker(
            topic,
            identity=feed.identity,
            items=self.dht,
            neighbourhood=feed,
            settings=replace(settings.tracker, publish=settings.announce),
            clock=self._reactor,
            now=self._now,
            random=self._random,
        )
        return _Search(feed, tracker, self._announcer_for(feed) if settings.legacy else None)

    def _announcer_for(self, feed: SearchedFeed) -> Announcer:
        def found(address: Address) -> None:
            feed.found(address, source="swarm")

        return Announcer(
            feed.discovery_key,
            peers=self.dht,
            port=feed.own_port if self._settings.announce else lambda: None,
            found=found,
            is_joined=feed.is_joined,
            settings=self._settings.swarm,
            clock=self._reactor,
            now=self._now,
            random=self._random,
        )

    def _save_table(self) -> None:
        self._save(self.dht.save())

    def _bootstrapped(self, nodes: int) -> None:
        if nodes:
            log.info("The DHT is reached: {nodes} nodes are known", nodes=nodes)
        else:
            log.warn("No node of the DHT answers yet; it is tried again")

    def _bootstrap_failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            log.warn(
                "The DHT is not reached yet: {why}; it is tried again",
                why=failure.getErrorMessage(),
            )


def _timer_failed(failure: Failure) -> None:
    if not failure.check(CancelledError):
        log.failure("A timer of discovery failed", failure=failure)
