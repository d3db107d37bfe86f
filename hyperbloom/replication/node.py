"""The node: its feeds, who listens and dials for them, and what is told about them.

A Twisted service. It owns the listeners, the dialers and the timers; `connections` knows who is
let in. Store and writer are made by who makes the
node (`hyperbloom.service`) and closed by it, after this service has stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList, DeferredLock, gatherResults
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom import __version__
from hyperbloom.addresses import format_host_port
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.feed_keys import HeldKey
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.feed.tombstones import TombstoneReader
from hyperbloom.replication.limits import RETENTION_SECONDS, Limits
from hyperbloom.replication.net.admission import Admission
from hyperbloom.replication.net.dialer import AcceptFactory, Dialer
from hyperbloom.replication.net.discovered_peers import FoundPeers
from hyperbloom.replication.ownership import Ownership, settings_for
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.replication.status import FeedStatus, NodeStatus, NodeTraffic, PeerStatus
from hyperbloom.replication.sync.wait_synced import InSync, wait_synced
from hyperbloom.store import (
    DropFeed,
    PutFeed,
    Store,
    WriterInline,
)
from hyperbloom.store.records import DeniedRecord, FeedRecord
from hyperbloom.store.tables.denied import AllowKey, DenyKey
from hyperbloom.store.tables.links import DropExpiredLinks

if TYPE_CHECKING:
    from hyperbloom.replication.sync.peer import Peering

__all__ = ["Node", "UnknownFeed", "settle_feeds"]

#: How often chains and stalled peers are looked at, in seconds.
SWEEP_SECONDS = 0.5

#: How often expired links are removed from graph and store, in seconds.
PURGE_SECONDS = 3_600.0

#: How long a link is kept behind its expiry: it tells "expired" from "never invited", and a clock
#: that is wrong for an hour must not cost a node its membership. A full feed drops them at once.
KEEP_EXPIRED_SECONDS = 30 * 86_400.0

#: Listeners on every interface do not say where others can reach them.
_WILDCARDS = ("0.0.0.0:", "[::]:")

log = Logger()


class UnknownFeed(HyperbloomError):
    """No feed of this node goes by that key or alias; the text lists what there is."""

    kind = ErrorKind.UNKNOWN_FEED


def settle_feeds(
    store: Store,
    own_key: bytes,
    configured: Iterable[FeedSettings],
    held: Iterable[HeldKey] = (),
) -> list[FeedSettings]:
    """The feeds a node starts with, each known to the store from then on.

    They are the configuration's, those joined at run time (the configuration's settings win), and
    those whose keys are `held`. A feed whose key is the node's own, `own_key`, is one of them where
    the store has it from before, or the configuration names it: none is made any more, for who
    knows the node's key can read it. Called before the writer's thread runs; raises `StoreError`.
    """
    settings = {s.key: s for s in configured}
    for record in store.feeds():
        if record.key not in settings and (record.settings or record.key == own_key):
            settings[record.key] = (
                FeedSettings.from_json(record.settings)
                if record.settings
                else FeedSettings(key=own_key)
            )
    for pair in held:
        if pair.identity.public_key not in settings:
            settings[pair.identity.public_key] = settings_for(pair, settings.values())
    writer = WriterInline(store)
    problems: list[BaseException] = []

    def done(outcome: FeedRecord | BaseException) -> None:
        if isinstance(outcome, BaseException):
            problems.append(outcome)

    for key, one in settings.items():
        record_now = store.feed(key)
        if record_now is None or dict(record_now.settings) != one.to_json():
            writer.submit(PutFeed(feed_key=key, settings=one.to_json()), done)
    if problems:
        raise problems[0]
    return list(settings.values())


class Node(Service):
    """The feeds of one identity and everyone connected about them.

    `feeds` come from `settle_feeds`; `pinned` are the keys that the configuration names.
    """

    def __init__(
        self,
        context: FeedContext,
        *,
        feeds: Iterable[FeedSettings],
        pinned: Iterable[bytes] = (),
        endpoints: Sequence[IStreamServerEndpoint] = (),
        advertise: Sequence[str] = (),
    ) -> None:
        self.context = context
        self.identity = context.identity
        self.feeds: dict[bytes, Feed] = {}
        self.started = 0.0
        self._configured = list(feeds)
        self._pinned = frozenset(pinned)
        self._endpoints = endpoints
        self._advertise = tuple(advertise)
        self._ports: list[IListeningPort] = []
        #: Feeds are joined and left one after the other: each closes connections, which takes time.
        self._changing = DeferredLock()
        #: Feeds are made, and their keys come and go, in the same turn.
        self.ownership = Ownership(self)
        self._by_discovery_key: dict[bytes, Feed] = {}
        self._dialers: dict[bytes, list[Dialer]] = {}
        #: The found peers of each feed that takes part, by the feed's key.
        self.found: dict[bytes, FoundPeers] = {}
        self.connections = Admission(context, self._by_discovery_key.get)
        self._sweep = LoopingCall(self.connections.look)
        self._purge = LoopingCall(self._purge_links)
        self._retain = LoopingCall(self._look_at_retention)
        for call in (self._sweep, self._purge, self._retain):
            call.clock = context.clock

    @property
    def store(self) -> Store:
        """Where everything is kept."""
        return self.context.store

    # Life

    def startService(self) -> None:
        """Open the feeds, listen, dial. Raises `CannotListenError` where a port is taken."""
        super().startService()
        self.started = self.context.now()
        self.context.denied.load(self.context.store.denied())
        for settings in self._configured:
            record = self.context.store.feed(settings.key)
            if record is None:
                raise LookupError("settle_feeds was not called for this store")
            self._take_in(settings, record)
        factory = AcceptFactory(self.connections)
        for endpoint in self._endpoints:
            self._listen(endpoint, factory)
        for feed in self.feeds.values():
            self._dial(feed)
        self._sweep.start(SWEEP_SECONDS, now=False).addErrback(self._timer_failed)
        self._purge.start(PURGE_SECONDS).addErrback(self._timer_failed)
        self._retain.start(RETENTION_SECONDS).addErrback(self._timer_failed)

    def stopService(self) -> Deferred[None]:
        """Close every connection, then fire."""
        super().stopService()
        for feed in self.feeds.values():
            feed.retention.stop()
            feed.tombstones.stop()
        for call in (self._sweep, self._purge, self._retain):
            if call.running:
                call.stop()
        waiting: list[Deferred[object]] = []
        for port in self._ports:
            stopped = port.stopListening()
            if stopped is not None:
                waiting.append(cast("Deferred[object]", stopped))
        for dialers in self._dialers.values():
            waiting += [cast("Deferred[object]", dialer.stop()) for dialer in dialers]
        waiting += [found.stop() for found in self.found.values()]
        self._ports, self._dialers, self.found = [], {}, {}
        gone = self.connections.close_all(CloseReason("stopped", "this node is stopping"))
        waiting.append(cast("Deferred[object]", gone))
        return DeferredList(waiting).addCallback(lambda _: None)

    def _listen(self, endpoint: IStreamServerEndpoint, factory: AcceptFactory) -> None:
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

    def _take_in(self, settings: FeedSettings, record: FeedRecord) -> Feed:
        feed = Feed(settings, record, self.context)
        self.feeds[feed.key] = feed
        self._by_discovery_key[feed.discovery_key] = feed
        self._warn_of(feed)
        return feed

    def _warn_of(self, feed: Feed) -> None:
        """Log what the feed's dialect does not protect, and what it makes of no use."""
        warnings = list(feed.dialect.lacks)
        if feed.membership.unreadable:
            warnings.append(f"{feed.membership.unreadable} links of another dialect do not count")
        for warning in warnings:
            log.warn(
                "{name}, dialect {dialect}: {warning}",
                name=feed.log_name,
                dialect=feed.dialect.name,
                warning=warning,
                feed=feed.log_name,
            )

    def join(self, settings: FeedSettings) -> Deferred[Feed]:
        """Take a feed in, or change the settings of one; fires when that is on disk.

        Raises `ValueError` for another dialect of a feed that is here: it would have to be left
        first.
        """
        present = self.feeds.get(settings.key)
        if present is not None and present.settings.dialect != settings.dialect:
            raise ValueError("the dialect of a feed that is here cannot change; leave it first")
        return cast("Deferred[Feed]", self._changing.run(self._join, settings))

    async def connect_anew(self, feed: Feed, why: str) -> None:
        """Close what is open about a feed, and dial with what holds now."""
        await self._disconnect(feed.key, why)
        if self.running and feed.key in self.feeds:
            self._dial(feed)

    def in_turn(self, change: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Run a change of the feeds when no other one is under way."""
        return self._changing.run(change, *arguments)

    async def take_feed(self, settings: FeedSettings) -> Feed:
        """Take a feed in, in a turn that has begun; see `join`."""
        return await self._join(settings)

    async def _join(self, settings: FeedSettings) -> Feed:
        op = PutFeed(feed_key=settings.key, settings=settings.to_json())
        record: FeedRecord = await self.context.written(op)
        await self._disconnect(settings.key, "its settings have changed")
        feed = self.feeds.get(settings.key) or self._take_in(settings, record)
        feed.settings = settings
        if self.running:
            self._dial(feed)
            feed.retention.look()
            feed.tombstones.look()
        return feed

    def leave(self, feed_key: bytes, *, delete_key: bool = False) -> Deferred[None]:
        """Forget a feed and remove its values from the store.

        Raises `ValueError` for one that the configuration names, and for one whose key is held
        here unless `delete_key` is given: the key then goes, too, and with it the right to invite.
        """
        if feed_key in self._pinned:
            raise ValueError("this feed is named in the configuration file; remove it there first")
        if feed_key in self.context.feed_keys and not delete_key:
            raise ValueError(
                "this node holds the feed's key, which would be lost: hand it over first (`feed "
                "key FEED --to FILE --remove`), or give --delete-key to lose it for good"
            )
        return cast("Deferred[None]", self._changing.run(self._leave, feed_key))

    async def _leave(self, feed_key: bytes) -> None:
        feed = self.feeds.pop(feed_key, None)
        if feed is not None:
            feed.retention.stop()
            feed.tombstones.stop()
            # First of all, so that no connection about it comes in any more.
            del self._by_discovery_key[feed.discovery_key]
        await self._disconnect(feed_key, "the feed was left")
        await self.context.written(TombstoneReader.forget_position(feed_key))
        await self.context.written(DropFeed(feed_key=feed_key))
        if feed_key in self.context.feed_keys:
            await self.context.own_work(lambda: self.context.feed_keys.remove(feed_key))
        if feed is not None:
            feed.wake_all()

    def _disconnect(self, feed_key: bytes, why: str) -> Deferred[object]:
        """Stop dialling for a feed and close its connections."""
        stopping: list[Deferred[Any]] = [
            dialer.stop() for dialer in self._dialers.pop(feed_key, [])
        ]
        if feed_key in self.found:
            stopping.append(self.found.pop(feed_key).stop())
        self.connections.close_feed(feed_key, CloseReason("stopped", why))
        return cast("Deferred[object]", gatherResults(stopping))

    def _dial(self, feed: Feed) -> None:
        dialers = [Dialer(self.connections, feed, address) for address in feed.settings.peers]
        self._dialers[feed.key] = dialers
        for dialer in dialers:
            dialer.start()
        found = FoundPeers(
            self.connections,
            feed,
            skip=frozenset(feed.settings.peers),
            configured=lambda: {dialer.answered for dialer in dialers},
        )
        self.found[feed.key] = found
        found.start()

    def resolve(self, name: str | None) -> Feed:
        """The feed of a key in hex or an alias; None: the only feed in use, see `is_in_use`.

        Where none is in use, it is the only feed there is. A node that has a feed whose key is its
        own goes on meaning that one once it is in use, or nothing else is. Raises `UnknownFeed`.
        """
        if name is None:
            return self._only_feed()
        for feed in self.feeds.values():
            if name in (feed.settings.alias, feed.key.hex()) or name.lower() == feed.key.hex():
                return feed
        raise UnknownFeed(f"there is no feed {name!r} on this node; {self._names()}")

    def _only_feed(self) -> Feed:
        own = self.feeds.get(self.identity.public_key)
        used = [feed for feed in self.feeds.values() if self.is_in_use(feed)]
        if own is not None and (own in used or len(used) != 1):
            return own
        among = used or list(self.feeds.values())
        if len(among) == 1:
            return among[0]
        if not among:
            raise UnknownFeed(
                "this node has no feed yet; make one with `hyperbloom feed create NAME`, or take "
                "an invitation with `hyperbloom join -`"
            )
        raise UnknownFeed(f"say which feed is meant: {self._names()}")

    def _names(self) -> str:
        names = ", ".join(feed.log_name for feed in self.feeds.values())
        return f"it has {names}" if names else "it has none"

    def is_in_use(self, feed: Feed) -> bool:
        """Whether somebody wanted the feed to be here.

        One that this node owns may only have been made by `init`, or by an older version: it is in
        use once it holds a value or a link, or is named in the configuration.
        """
        if not feed.is_owned:
            return True
        return bool(feed.count or feed.key in self._pinned or feed.membership.has_links)

    def wait_synced(
        self, feed_key: bytes, names: Sequence[str], *, timeout: float
    ) -> Deferred[list[InSync]]:
        """Fires when each of the named peers was in sync; see `waiting.wait_synced`."""

        def dialled() -> dict[str, Peering | None]:
            return {one.address: one.peering for one in self._dialers.get(feed_key, ())}

        return wait_synced(self.feeds[feed_key], names, timeout=timeout, dialled=dialled)

    def use_settings(
        self,
        *,
        limits: Limits,
        sync: SyncSettings,
        advertise: Sequence[str],
        pinned: Iterable[bytes],
    ) -> None:
        """Go on with other settings; what is connected or waits for its time keeps the old ones."""
        self.context.limits, self.context.sync = limits, sync
        self.connections.limits_changed()
        self._advertise = tuple(advertise)
        self._pinned = frozenset(pinned)

    # Keys that are denied

    async def deny(self, key: bytes, reason: str = "") -> bool:
        """Let a key take part in no feed from now on; whether it was not denied before.

        Its connections, and those of everyone whose chain leads through it, are closed at once;
        that it is so after a restart too is sure when this is answered. Raises `ValueError` for the
        node's own key and beyond `MAX_DENIED_KEYS`, `StoreError` (the key is then denied until the
        node stops).
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
        except ValueError:
            self.context.denied.discard(key)
            self._denied_changed()
            raise

    async def allow(self, key: bytes) -> bool:
        """Deny a key no more; whether it was denied. Its links count again, if they still hold."""
        was_denied = cast("bool", await self.context.written(AllowKey(key)))
        self.context.denied.discard(key)
        self._denied_changed()
        return was_denied

    def denied(self) -> list[DeniedRecord]:
        """The keys that are denied, since when and why."""
        return self.context.store.denied()

    def _denied_changed(self) -> None:
        for feed in self.feeds.values():
            feed.membership.look_anew()
        self.connections.close_denied()
        for found in self.found.values():
            found.forget_denied()

    # Timers

    def _look_at_retention(self) -> None:
        for feed in self.feeds.values():
            feed.retention.look()
            feed.tombstones.look()

    def _purge_links(self) -> None:
        before = self.context.now() - KEEP_EXPIRED_SECONDS
        for feed in self.feeds.values():
            feed.membership.forget_expired(now=before)
            feed.write(DropExpiredLinks(feed_key=feed.key, now=before))

    # What is told

    def addresses(self) -> list[str]:
        """Where others can dial this node: as configured, else the listeners that name a host."""
        if self._advertise:
            return list(self._advertise)
        return [text for text in self.listening() if not text.startswith(_WILDCARDS)]

    def listening(self) -> list[str]:
        """HOST:PORT of each listener."""
        found = []
        for port in self._ports:
            host = port.getHost()
            if isinstance(host, IPv4Address | IPv6Address):
                found.append(format_host_port(host.host, host.port))
        return found

    def problem(self, feed: Feed) -> str | None:
        """Why this node cannot take part in a feed, or what its dialers say; None: all is well."""
        try:
            feed.membership.require_chain(now=self.context.now())
        except NotTrusted as error:
            return str(error)
        if feed.peers:
            return None
        problems = [
            f"{d.address}: {d.last_problem}"
            for d in self._dialers.get(feed.key, ())
            if d.last_problem
        ]
        return "; ".join(problems) or None

    def peers(self) -> list[PeerStatus]:
        """The secure connections."""
        return self.connections.peers()

    def status(self) -> NodeStatus:
        """The node as a whole."""
        size = self.context.store.size()
        return NodeStatus(
            version=__version__,
            public_key=self.identity.public_key,
            started=self.started,
            listening=tuple(self.listening()),
            connections=len(self.connections),
            feeds=tuple(self.feed_status(feed) for feed in self.feeds.values()),
            refusals=tuple(self.connections.recently_closed),
            store={
                "map_bytes": size.map_bytes,
                "used_bytes": size.used_bytes,
                "free_bytes": size.free_bytes,
                "file_bytes": size.file_bytes,
            },
            queued_bytes=self.context.writer.queued_bytes,
            denied=len(self.context.denied),
            store_problem=self.store_problem(),
        )

    def store_problem(self) -> str | None:
        """Why the store takes no writes, or what is damaged in it; None: all is well."""
        problem = self.context.store.condition.problem
        return None if problem is None else str(problem)

    def traffic(self) -> NodeTraffic:
        """What has moved since the start, for metrics."""
        connections, writer = self.connections, self.context.writer
        bytes_in, bytes_out = connections.moved()
        feeds = tuple(feed.traffic() for feed in self.feeds.values())
        return NodeTraffic(
            started=self.started,
            connections=len(connections),
            secure=sum(feed.peers for feed in feeds),
            dialled=connections.opened[True],
            accepted=connections.opened[False],
            closed=dict(connections.closed),
            strikes=connections.strikes,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            feeds=feeds,
            store=self.context.store.size(),
            queued_bytes=writer.queued_bytes,
            commits=writer.figures,
            store_problem=self.store_problem(),
        )

    def feed_status(self, feed: Feed) -> FeedStatus:
        """One feed."""
        record = feed.record()
        forgotten = feed.forgetting.figures()
        chain = feed.membership.chain(now=self.context.now())
        return FeedStatus(
            key=feed.key,
            discovery_key=feed.discovery_key,
            alias=feed.settings.alias,
            mode=feed.settings.mode,
            dialect=feed.settings.dialect,
            data_signed=feed.dialect.data_signed,
            lacks=feed.dialect.lacks,
            own=feed.key == self.identity.public_key,
            owner=feed.is_owned,
            count=record.count,
            bytes=record.bytes,
            digest=record.digest,
            digest_left=record.digest_left,
            top_seq=record.top_seq,
            peers=len(feed.peers),
            peers_in_sync=sum(peer.rounds.is_in_sync for peer in feed.peers),
            chain_links=None if chain is None else len(chain),
            chain_expires=chain.expires if chain and math.isfinite(chain.expires) else None,
            trusted=chain is not None,
            problem=self.problem(feed),
            is_full=feed.is_full,
            forgotten=forgotten.count,
            forgotten_hashes=forgotten.hashes,
            forgotten_refused=feed.forgetting.refused,
            retained_out=feed.retention.forgotten,
        )
