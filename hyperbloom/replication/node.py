"""The node: its feeds, who listens and dials for them, and what is told about them.

A Twisted service. It owns the listeners and the timers; `net.admission` knows who is let in,
`net.dials` whom it dials. `hyperbloom.service` makes store and writer, and closes them after this
service has stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList, DeferredLock
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import Address
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.expiry_notices import ExpiryNotices
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.fetch import fetch
from hyperbloom.replication.feed.peers import FeedPeer
from hyperbloom.replication.feed.tombstones import TombstoneReader
from hyperbloom.replication.feeds import Feeds
from hyperbloom.replication.limits import RETENTION_SECONDS, Limits
from hyperbloom.replication.net.admission import Admission, key_in_log
from hyperbloom.replication.net.dialer import AcceptFactory
from hyperbloom.replication.net.dials import Dials
from hyperbloom.replication.net.discovered_peers import DiscoveredPeers
from hyperbloom.replication.overview import Overview
from hyperbloom.replication.ownership import Ownership
from hyperbloom.replication.petnames import Petnames
from hyperbloom.replication.settings import FeedSettings, NoisePolicy, SyncSettings, TrustSettings
from hyperbloom.replication.status import NodeStatus, NodeTraffic, PeerStatus
from hyperbloom.replication.sync.wait_synced import InSync, wait_synced
from hyperbloom.store import DropFeed, PutFeed, Store
from hyperbloom.store.records import DeniedRecord, FeedRecord, NoiseRecord
from hyperbloom.store.tables.denied import AllowKey, DenyKey, TooManyDenied

__all__ = ["Node"]

#: How often chains and stalled peers are looked at, in seconds.
SWEEP_SECONDS = 0.5

#: How often expired links are removed from graph and store, and ends are looked for, in seconds.
PURGE_SECONDS = 3_600.0

#: How long a link is kept behind its expiry: it tells "expired" from "never invited", and a clock
#: that is wrong for an hour must not cost a node its membership. A full feed drops them at once.
KEEP_EXPIRED_SECONDS = 30 * 86_400.0

log = Logger()


class Node(Service):
    """The feeds of one identity and everyone connected about them.

    `feeds` come from `settle_feeds`; `pinned` are the keys that the configuration names, and
    `default_feed` is its name for the feed that is meant where none is named.
    """

    def __init__(
        self,
        context: FeedContext,
        *,
        feeds: Iterable[FeedSettings],
        pinned: Iterable[bytes] = (),
        endpoints: Sequence[IStreamServerEndpoint] = (),
        advertise: Sequence[str] = (),
        default_feed: str | None = None,
    ) -> None:
        self.context = context
        self.identity = context.identity
        self.started = 0.0
        self._configured = list(feeds)
        self._feeds = Feeds(context, pinned, default_feed)
        self._endpoints = endpoints
        self._advertise = tuple(advertise)
        self._ports: list[IListeningPort] = []
        #: Feeds are joined and left one after the other: each closes connections, which takes time.
        self._changing = DeferredLock()
        #: Feeds are made, and their keys come and go, in the same turn.
        self.ownership = Ownership(self, context)
        self.connections = Admission(context, self._feeds.by_discovery_key, self._knows_key)
        #: What the operator calls keys.
        self.names = Petnames(context, self.connections.keys)
        self._dials = Dials(self.connections)
        self._overview = Overview(context, self._feeds, self.connections, self._dials)
        self._sweep = LoopingCall(self._look)
        self._notices = ExpiryNotices(context.now)
        self._purge = LoopingCall(self._look_after_links)
        self._retain = LoopingCall(self._feeds.look_after_all)
        for call in (self._sweep, self._purge, self._retain):
            call.clock = context.clock

    @property
    def store(self) -> Store:
        """Where everything is kept."""
        return self.context.store

    @property
    def feeds(self) -> Mapping[bytes, Feed]:
        """The feeds that are here, by key."""
        return self._feeds.by_key

    @property
    def discovered(self) -> Mapping[bytes, DiscoveredPeers]:
        """The found peers of each feed that takes part, by the feed's key."""
        return self._dials.discovered

    # Life

    def startService(self) -> None:
        """Open the feeds, listen, dial. Raises `CannotListenError` where a port is taken."""
        super().startService()
        self.started = self.context.now()
        self.context.denied.load(self.context.store.denied())
        self.connections.noise.load()
        self.names.load()
        for settings in self._configured:
            record = self.context.store.feed(settings.key)
            if record is None:
                raise LookupError("settle_feeds was not called for this store")
            self._feeds.take_in(settings, record)
        factory = AcceptFactory(self.connections)
        for endpoint in self._endpoints:
            self._listen(endpoint, factory)
        for feed in self.feeds.values():
            self._dials.begin(feed)
        self._sweep.start(SWEEP_SECONDS, now=False).addErrback(self._timer_failed)
        self._purge.start(PURGE_SECONDS).addErrback(self._timer_failed)
        self._retain.start(RETENTION_SECONDS).addErrback(self._timer_failed)

    def stopService(self) -> Deferred[None]:
        """Close every connection, then fire."""
        super().stopService()
        self._feeds.stop()
        for call in (self._sweep, self._purge, self._retain):
            if call.running:
                call.stop()
        waiting: list[Deferred[object]] = []
        for port in self._ports:
            stopped = port.stopListening()
            if stopped is not None:
                waiting.append(cast("Deferred[object]", stopped))
        waiting.append(cast("Deferred[object]", self._dials.end_all()))
        self._ports = []
        gone = self.connections.close_all(CloseReason("stopped", "this node is stopping"))
        waiting.append(cast("Deferred[object]", gone))
        return DeferredList(waiting).addCallback(lambda _: None)

    def _listen(self, endpoint: IStreamServerEndpoint, factory: AcceptFactory) -> None:
        """Raises `CannotListenError`, as `listen` of the endpoints here fails at once."""
        problems: list[BaseException] = []

        def listening(port: IListeningPort) -> None:
            self._ports.append(port)
            self.connections.door.add(port)

        endpoint.listen(factory).addCallbacks(
            listening, lambda failure: problems.append(failure.value)
        )
        if problems:
            raise problems[0]

    def _timer_failed(self, failure: Failure) -> None:
        log.failure("A timer of the node failed", failure=failure)

    # Feeds

    def join(self, settings: FeedSettings) -> Deferred[Feed]:
        """Take a feed in, or change the settings of one; fires when that is on disk.

        Raises `ValueError` for another dialect of a feed that is here: it would have to be left
        first.
        """
        present = self.feeds.get(settings.key)
        if present is not None and present.settings.dialect != settings.dialect:
            raise ValueError("the dialect of a feed that is here cannot change; leave it first")
        return cast("Deferred[Feed]", self._changing.run(self.take_feed, settings))

    async def connect_anew(self, feed: Feed, why: str) -> None:
        """Close what is open about a feed, and dial with what holds now."""
        await self._disconnect(feed.key, why)
        if self.running and feed.key in self.feeds:
            self._dials.begin(feed)

    def in_turn(self, change: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run a change of the feeds when no other one is under way."""
        return self._changing.run(change, *arguments)

    async def take_feed(self, settings: FeedSettings) -> Feed:
        """Take a feed in, in a turn that has begun; see `join`."""
        op = PutFeed(feed_key=settings.key, settings=settings.to_json())
        record: FeedRecord = await self.context.written(op)
        await self._disconnect(settings.key, "its settings have changed")
        feed = self.feeds.get(settings.key)
        if feed is None:
            feed = self._feeds.take_in(settings, record)
            log.info("The feed {feed} is joined", feed=feed.log_name)
        feed.settings = settings
        if self.running:
            self._dials.begin(feed)
            self._feeds.upkeep(feed).look()
        return feed

    def leave(self, feed_key: bytes, *, delete_key: bool = False) -> Deferred[None]:
        """Forget a feed and remove its values from the store.

        Raises `ValueError` for one that the configuration names, and for one whose key is held
        here unless `delete_key` is given: the key then goes, too, and with it the right to invite.
        """
        if feed_key in self._feeds.pinned:
            raise ValueError("this feed is named in the configuration file; remove it there first")
        if feed_key in self.context.feed_keys and not delete_key:
            raise ValueError(
                "this node holds the feed's key, which would be lost: hand it over first (`feed "
                "key FEED --to FILE --remove`), or give --delete-key to lose it for good"
            )
        return cast("Deferred[None]", self._changing.run(self._leave, feed_key))

    async def _leave(self, feed_key: bytes) -> None:
        # First of all, so that no connection about it comes in any more.
        feed = self._feeds.take_out(feed_key)
        await self._disconnect(feed_key, "the feed was left")
        await self.context.written(TombstoneReader.forget_position(feed_key))
        await self.context.written(DropFeed(feed_key=feed_key))
        if feed_key in self.context.feed_keys:
            await self.context.own_work(lambda: self.context.feed_keys.remove(feed_key))
        if feed is not None:
            feed.values.wake_all()
            log.info("The feed {feed} is left, its values are removed", feed=feed.log_name)

    def _disconnect(self, feed_key: bytes, why: str) -> Deferred[list[Any]]:
        """Stop dialling for a feed and close its connections."""
        ended = self._dials.end(feed_key)
        self.connections.close_feed(feed_key, CloseReason("stopped", why))
        return ended

    def resolve(self, name: str | None) -> Feed:
        """The feed of a name, see `Feeds.resolve`; raises `UnknownFeed`."""
        return self._feeds.resolve(name)

    def is_in_use(self, feed: Feed) -> bool:
        """Whether somebody wanted the feed to be here, see `Feeds.is_in_use`."""
        return self._feeds.is_in_use(feed)

    def wait_synced(
        self, feed_key: bytes, names: Sequence[str], *, timeout: float
    ) -> Deferred[list[InSync]]:
        """Fires when each of the named peers was in sync; see `sync.wait_synced.wait_synced`."""

        def dialled() -> Mapping[str, FeedPeer | None]:
            return self._dials.answering(feed_key)

        return wait_synced(self.feeds[feed_key], names, timeout=timeout, dialled=dialled)

    def fetch(
        self,
        feed_key: bytes,
        start: bytes,
        end: bytes | None,
        *,
        limit: int | None = None,
        timeout: float,
    ) -> Deferred[int]:
        """Ask a feed's peers for a range that is not kept here; see `feed.fetch.fetch`."""
        return fetch(self.feeds[feed_key], start, end, limit=limit, timeout=timeout)

    def use_settings(
        self,
        *,
        limits: Limits,
        sync: SyncSettings,
        advertise: Sequence[str],
        pinned: Iterable[bytes],
        default_feed: str | None = None,
        trust: TrustSettings | None = None,
    ) -> None:
        """Go on with other settings; what is connected or waits for its time keeps the old ones."""
        self.context.limits, self.context.sync = limits, sync
        self.context.trust = trust or self.context.trust
        self.connections.limits_changed()
        self._advertise = tuple(advertise)
        self._feeds.pinned = frozenset(pinned)
        self._feeds.default = default_feed

    async def use_noise(self, noise: NoisePolicy) -> None:
        """Protect streams with others from now on; feeds for which that changes connect anew."""
        before = [(feed, feed.wanted_noise) for feed in self.feeds.values()]
        self.context.noise = noise
        for feed, wanted in before:
            if feed.wanted_noise is not wanted:
                await self.connect_anew(feed, "which streams are protected has changed")

    async def forget_noise(self, key: bytes) -> bool:
        """Speak to a key without Noise again, though it has spoken it; whether it was remembered.

        Raises `StoreError`.
        """
        was_remembered = await self.connections.noise.forget(key)
        if was_remembered:
            log.info("{key} is not remembered as speaking noise any more", key=key_in_log(key))
        return was_remembered

    def _knows_key(self, key: bytes) -> bool:
        """Whether it is an owner's, has a name, or has answered at a configured address."""
        return key in self.feeds or self.names.get(key) is not None or self._dials.has_met(key)

    def noise_keys(self) -> list[NoiseRecord]:
        """The keys that have spoken Noise, those met longest ago first."""
        return self.context.store.noise_keys()

    # Keys that are denied

    async def deny(self, key: bytes, reason: str = "") -> bool:
        """Let a key take part in no feed from now on; whether it was not denied before.

        Its connections, and those of everyone whose chain leads through it, are closed at once;
        that it is so after a restart too is sure when this is answered. Raises `ValueError` for the
        node's own key, `TooManyDenied`, and `StoreError` (the key is then denied until the node
        stops).
        """
        if self.context.is_own(key):
            raise ValueError(
                "this is the node's own key, or that of a feed it owns; it cannot deny itself"
            )
        op = DenyKey(key, int(self.context.now() * 1e6), reason)
        self.context.denied.add(key)
        self._denied_changed()
        try:
            return cast("bool", await self.context.written(op))
        except TooManyDenied:
            self.context.denied.discard(key)
            self._denied_changed()
            raise

    async def allow(self, key: bytes) -> bool:
        """Let a key take part again; whether it was denied. Its links count again, if they hold.

        Raises `StoreError`.
        """
        was_denied = cast("bool", await self.context.written(AllowKey(key)))
        self.context.denied.discard(key)
        self._denied_changed()
        return was_denied

    def denied(self) -> list[DeniedRecord]:
        """The keys that are denied, since when and why."""
        return self.context.store.denied()

    def _denied_changed(self) -> None:
        for feed in self.feeds.values():
            feed.trust.membership.look_anew()
        self.connections.close_denied()
        self._prune_links()
        self._dials.forget_denied()

    # Timers

    def _look(self) -> None:
        self.connections.look()
        self._feeds.look_at_trust()

    def _look_after_links(self) -> None:
        """Say which of this node's own end soon, and remove those that ended long ago."""
        self._notices.look(self.feeds.values())
        self._prune_links()

    def _prune_links(self) -> None:
        before = self.context.now() - KEEP_EXPIRED_SECONDS
        for feed in self.feeds.values():
            feed.trust.prune(before=before)

    # What is told

    def addresses(self) -> list[Address]:
        """Where others can dial this node: as configured, else the listeners that name a host."""
        if self._advertise:
            return [Address.parse(text) for text in self._advertise]
        return [address for address in self.listening() if not address.is_wildcard]

    def listening(self) -> list[Address]:
        """The address of each listener."""
        found = []
        for port in self._ports:
            host = port.getHost()
            if isinstance(host, IPv4Address | IPv6Address):
                found.append(Address(host.host, host.port))
        return found

    def peers(self) -> list[PeerStatus]:
        """The secure connections."""
        return [self._with_name(peer) for peer in self.connections.peers()]

    def _with_name(self, peer: PeerStatus) -> PeerStatus:
        name = self.names.get(peer.key)
        return peer if name is None else replace(peer, name=name)

    def status(self) -> NodeStatus:
        """The node as a whole."""
        return self._overview.status(started=self.started, listening=self.listening())

    def traffic(self) -> NodeTraffic:
        """What has moved since the start, for metrics."""
        return self._overview.traffic(started=self.started)

    def store_problem(self) -> str | None:
        """Why the store takes no writes, or what is damaged in it; None: all is well."""
        return self._overview.store_problem()
