"""The node: its feeds, its connections and who is let in.

A Twisted service. It owns the listeners, the dialers and one timer that looks every second for
chains that have run out and peers that read nothing. Store and writer are made by who makes the
node (`hyperbloom.service`) and closed by it, after this service has stopped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import cast

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList, gatherResults, succeed
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom import __version__
from hyperbloom.addresses import format_host_port
from hyperbloom.replication.dialer import AcceptFactory, Dialer
from hyperbloom.replication.feed import Feed, FeedContext
from hyperbloom.replication.limits import MAX_REFUSALS_SHOWN
from hyperbloom.replication.membership import NotTrusted
from hyperbloom.replication.protocol import PeerProtocol
from hyperbloom.replication.refusal import Refused
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.status import FeedStatus, NodeStatus, PeerStatus, RefusalStatus
from hyperbloom.replication.strikes import Strikes
from hyperbloom.store import (
    DropExpiredLinks,
    DropFeed,
    FeedRecord,
    PutFeed,
    Store,
    WriterInline,
)
from hyperbloom.wire import RemotePeer

__all__ = ["Node", "UnknownFeed", "settle_feeds"]

#: How often chains and stalled peers are looked at, in seconds.
SWEEP_SECONDS = 0.5

#: How often expired links are removed from graph and store, in seconds.
PURGE_SECONDS = 3_600.0

#: Listeners on every interface do not say where others can reach them.
_WILDCARDS = ("0.0.0.0:", "[::]:")

log = Logger()


class UnknownFeed(Exception):
    """No feed of this node goes by that key or alias; the text lists what there is."""


def settle_feeds(
    store: Store, own_key: bytes, configured: Iterable[FeedSettings]
) -> list[FeedSettings]:
    """The feeds a node starts with, each known to the store from then on.

    They are the configuration's, those joined at run time (the configuration's settings win), and
    the node's own. Called before the writer's thread runs; raises `StoreError`.
    """
    settings = {s.key: s for s in configured}
    for record in store.feeds():
        if record.key not in settings and record.settings:
            settings[record.key] = FeedSettings.from_json(record.settings)
    settings.setdefault(own_key, FeedSettings(key=own_key))
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
        self._by_discovery_key: dict[bytes, Feed] = {}
        self._dialers: dict[bytes, list[Dialer]] = {}
        self._connections: set[PeerProtocol] = set()
        self._per_host: Counter[str] = Counter()
        self._refusals: deque[RefusalStatus] = deque(maxlen=MAX_REFUSALS_SHOWN)
        self._strikes = Strikes(most=context.limits.strikes, memory=context.limits.ban_seconds)
        self._all_closed: list[Deferred[None]] = []
        self._sweep = LoopingCall(self._look_at_peers)
        self._purge = LoopingCall(self._purge_links)
        for call in (self._sweep, self._purge):
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
        for settings in self._configured:
            record = self.context.store.feed(settings.key)
            if record is None:
                raise LookupError("settle_feeds was not called for this store")
            self._take_in(settings, record)
        factory = AcceptFactory(self)
        for endpoint in self._endpoints:
            self._listen(endpoint, factory)
        for feed in self.feeds.values():
            self._dial(feed)
        self._sweep.start(SWEEP_SECONDS, now=False).addErrback(self._timer_failed)
        self._purge.start(PURGE_SECONDS).addErrback(self._timer_failed)

    def stopService(self) -> Deferred[None]:
        """Close every connection, then fire."""
        super().stopService()
        for call in (self._sweep, self._purge):
            if call.running:
                call.stop()
        waiting: list[Deferred[object]] = []
        for port in self._ports:
            stopped = port.stopListening()
            if stopped is not None:
                waiting.append(cast("Deferred[object]", stopped))
        for dialers in self._dialers.values():
            waiting += [cast("Deferred[object]", dialer.stop()) for dialer in dialers]
        self._ports, self._dialers = [], {}
        for connection in list(self._connections):
            connection.close(Refused("stopped", "this node is stopping"))
        if self._connections:
            gone: Deferred[None] = Deferred()
            self._all_closed.append(gone)
            waiting.append(cast("Deferred[object]", gone))
        return DeferredList(waiting).addCallback(lambda _: None)

    def _listen(self, endpoint: IStreamServerEndpoint, factory: AcceptFactory) -> None:
        problems: list[BaseException] = []
        endpoint.listen(factory).addCallbacks(
            self._ports.append, lambda failure: problems.append(failure.value)
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
        if not feed.dialect.data_signed:
            log.warn("Feed {feed}: its dialect does not sign values", feed=feed.key.hex())
        return feed

    def join(self, settings: FeedSettings) -> Deferred[Feed]:
        """Take a feed in, or change the settings of one; fires when that is on disk."""
        result: Deferred[Feed] = Deferred()

        def done(outcome: FeedRecord | BaseException) -> None:
            if isinstance(outcome, BaseException):
                result.errback(outcome)
                return

            def reopen(_: object) -> Feed:
                feed = self._take_in(settings, outcome)
                self._dial(feed)
                return feed

            closing = self._close_feed(settings.key, "its settings have changed")
            closing.addCallback(reopen).addCallbacks(result.callback, result.errback)

        op = PutFeed(feed_key=settings.key, settings=settings.to_json())
        self.context.writer.submit(op, done)
        return result

    def leave(self, feed_key: bytes) -> Deferred[None]:
        """Forget a feed and remove its values from the store. The node's own cannot be left."""
        if feed_key == self.identity.public_key:
            raise ValueError("this is the node's own feed; it cannot be left")
        if feed_key in self._pinned:
            raise ValueError("this feed is named in the configuration file; remove it there first")
        result: Deferred[None] = Deferred()

        def done(outcome: object) -> None:
            if isinstance(outcome, BaseException):
                result.errback(outcome)
            else:
                result.callback(None)

        def drop(_: object) -> None:
            self.context.writer.submit(DropFeed(feed_key=feed_key), done)

        self._close_feed(feed_key, "the feed was left").addCallback(drop)
        return result

    def _close_feed(self, feed_key: bytes, why: str) -> Deferred[object]:
        """Stop dialling for a feed and close its connections."""
        feed = self.feeds.pop(feed_key, None)
        stopping = [dialer.stop() for dialer in self._dialers.pop(feed_key, [])]
        if feed is not None:
            self._by_discovery_key.pop(feed.discovery_key, None)
            for connection in list(self._connections):
                if connection.feed is feed:
                    connection.close(Refused("stopped", why))
        return cast("Deferred[object]", gatherResults(stopping)) if stopping else succeed(None)

    def _dial(self, feed: Feed) -> None:
        dialers = [Dialer(self, feed, address) for address in feed.settings.peers]
        self._dialers[feed.key] = dialers
        for dialer in dialers:
            dialer.start()

    def resolve(self, name: str | None) -> Feed:
        """The feed of a key in hex or an alias; None: the only one joined, or the node's own.

        Raises `UnknownFeed`.
        """
        own = self.identity.public_key
        if name is None:
            joined = [feed for key, feed in self.feeds.items() if key != own]
            return joined[0] if len(joined) == 1 else self.feeds[own]
        for feed in self.feeds.values():
            if name in (feed.settings.alias, feed.key.hex()) or name.lower() == feed.key.hex():
                return feed
        names = ", ".join(f.settings.alias or f.key.hex()[:16] + "…" for f in self.feeds.values())
        raise UnknownFeed(f"there is no feed {name!r} on this node; it has {names}")

    def feed_by_discovery_key(self, discovery_key: bytes) -> Feed | None:
        """The feed a peer asks for in its Open."""
        return self._by_discovery_key.get(discovery_key)

    # Connections: called by PeerProtocol

    def admit(self, peer: PeerProtocol) -> Refused | None:
        """Take a new connection in, or say why not."""
        limits = self.context.limits
        now = self.context.clock.seconds()
        self._connections.add(peer)
        self._per_host[peer.host] += 1
        if peer.outgoing:
            return None
        if self._strikes.is_banned(peer.host, now=now):
            return Refused("banned", "its address has broken the protocol too often")
        if len(self._connections) > limits.connections:
            return Refused("crowded", "there are as many connections as there may be")
        if self._per_host[peer.host] > limits.connections_per_address:
            return Refused("crowded", "its address has as many connections as it may")
        return None

    def check_secure(self, peer: PeerProtocol, remote: RemotePeer) -> Refused | None:
        """Whether a peer that has proved itself is one too many: ourselves, or a twin.

        Two nodes that dial each other have two connections; both keep the one dialled by the
        side with the smaller peer id.
        """
        own_id = self.context.peer_id
        if remote.id == own_id:
            return Refused("own", "this node dialled itself")
        for twin in self._connections:
            if twin is peer or twin.peering is None or twin.feed is not peer.feed:
                continue
            if twin.peering.remote.id != remote.id or twin.close_reason is not None:
                continue
            keep_outgoing = own_id < remote.id
            if twin.outgoing == peer.outgoing or twin.outgoing == keep_outgoing:
                return Refused("twin", "there is a connection with this peer already")
            twin.close(Refused("twin", "there is another connection with this peer"))
        return None

    def forget(self, peer: PeerProtocol) -> None:
        """The connection is gone."""
        self._connections.discard(peer)
        self._per_host[peer.host] -= 1
        if self._per_host[peer.host] <= 0:
            del self._per_host[peer.host]
        if not self._connections:
            waiting, self._all_closed = self._all_closed, []
            for deferred in waiting:
                deferred.callback(None)

    def refused(self, peer: PeerProtocol, why: Refused) -> None:
        """A connection is being closed by this node; what may interest a person is kept."""
        if why.kind in ("stopped", "twin", "own", "lost"):
            return
        log.info("{peer}: closed, {why}", peer=peer.address, why=str(why))
        self._refusals.appendleft(
            RefusalStatus(
                at=self.context.now(), address=peer.address, kind=why.kind, reason=str(why)
            )
        )

    def strike(self, peer: PeerProtocol) -> None:
        """A peer broke the protocol."""
        if self._strikes.strike(peer.host, now=self.context.clock.seconds()):
            log.warn("{host} is banned for a while", host=peer.host)
            peer.close(Refused("banned", "it has broken the protocol too often"))

    # Timers

    def _look_at_peers(self) -> None:
        now = self.context.now()
        moment = self.context.clock.seconds()
        for peer in list(self._connections):
            peering = peer.peering
            if peering is None or peer.close_reason is not None:
                continue
            if peering.remote.expires + self.context.leeway < now:
                peer.close(Refused("expired", "a link of its chain has expired"))
            elif peering.outflow.stalled_since(moment) > self.context.limits.stall_seconds:
                peer.abort(Refused("stalled", "it reads nothing of what waits for it"))

    def _purge_links(self) -> None:
        now = self.context.now()
        for feed in self.feeds.values():
            feed.membership.forget_expired(now=now)
            feed.write(DropExpiredLinks(feed_key=feed.key, now=now))

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
        return [
            connection.peering.status(connection.bytes_in, connection.bytes_out, connection.strikes)
            for connection in self._connections
            if connection.peering is not None and connection.close_reason is None
        ]

    def status(self) -> NodeStatus:
        """The node as a whole."""
        size = self.context.store.size()
        return NodeStatus(
            version=__version__,
            public_key=self.identity.public_key,
            started=self.started,
            listening=tuple(self.listening()),
            connections=len(self._connections),
            feeds=tuple(self.feed_status(feed) for feed in self.feeds.values()),
            refusals=tuple(self._refusals),
            store={
                "map_bytes": size.map_bytes,
                "used_bytes": size.used_bytes,
                "free_bytes": size.free_bytes,
                "file_bytes": size.file_bytes,
            },
            queued_bytes=self.context.writer.queued_bytes,
        )

    def feed_status(self, feed: Feed) -> FeedStatus:
        """One feed."""
        record = feed.record()
        chain = feed.membership.chain(now=self.context.now())
        return FeedStatus(
            key=feed.key,
            discovery_key=feed.discovery_key,
            alias=feed.settings.alias,
            mode=feed.settings.mode,
            dialect=feed.settings.dialect,
            data_signed=feed.dialect.data_signed,
            own=feed.key == self.identity.public_key,
            count=record.count,
            bytes=record.bytes,
            digest=record.digest,
            top_seq=record.top_seq,
            peers=len(feed.peers),
            chain_links=None if chain is None else len(chain),
            chain_expires=None if chain is None or not len(chain) else chain.expires,
            trusted=chain is not None,
            problem=self.problem(feed),
            is_full=feed.is_full,
        )
