"""What is told about a node and its feeds, gathered from where it is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hyperbloom import __version__
from hyperbloom.addresses import Address
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.feeds import Feeds
from hyperbloom.replication.net.admission import Admission
from hyperbloom.replication.net.dials import Dials
from hyperbloom.replication.status import FeedStatus, NodeStatus, NodeTraffic

__all__ = ["Overview"]


class Overview:
    """Reads the state of a node; see `hyperbloom.replication.status` for what it tells."""

    def __init__(
        self, context: FeedContext, feeds: Feeds, connections: Admission, dials: Dials
    ) -> None:
        self._context = context
        self._feeds = feeds
        self._connections = connections
        self._dials = dials

    def problem(self, feed: Feed) -> str | None:
        """Why this node cannot take part in a feed, or what its dialers say; None: all is well."""
        try:
            feed.trust.require_chain()
        except NotTrusted as error:
            return str(error)
        if feed.why_shut is not None:
            return feed.why_shut
        if feed.peers:
            return None
        return self._dials.problem(feed.key)

    def status(self, *, started: float, listening: Sequence[Address]) -> NodeStatus:
        """The node as a whole; `started` in seconds since 1970, `listening`: of each port."""
        size = self._context.store.size()
        return NodeStatus(
            version=__version__,
            public_key=self._context.identity.public_key,
            started=started,
            listening=tuple(map(str, listening)),
            connections=len(self._connections),
            feeds=tuple(self.feed_status(feed) for feed in self._feeds.by_key.values()),
            refusals=tuple(self._connections.recently_closed),
            store={
                "map_bytes": size.map_bytes,
                "used_bytes": size.used_bytes,
                "free_bytes": size.free_bytes,
                "file_bytes": size.file_bytes,
            },
            queued_bytes=self._context.writer.queued_bytes,
            denied=len(self._context.denied),
            store_problem=self.store_problem(),
            sending=self._context.bandwidth.sending.figures(),
            receiving=self._context.bandwidth.receiving.figures(),
        )

    def store_problem(self) -> str | None:
        """Why the store takes no writes, or what is damaged in it; None: all is well."""
        problem = self._context.store.condition.problem
        return None if problem is None else str(problem)

    def traffic(self, *, started: float) -> NodeTraffic:
        """What has moved since the start."""
        connections, writer = self._connections, self._context.writer
        bytes_in, bytes_out = connections.moved()
        feeds = tuple(
            feed.traffic(retained_out=self._feeds.upkeep(feed).retention.forgotten)
            for feed in self._feeds.by_key.values()
        )
        return NodeTraffic(
            started=started,
            connections=len(connections),
            secure=sum(feed.peers for feed in feeds),
            dialled=connections.opened[True],
            accepted=connections.opened[False],
            closed=dict(connections.closed),
            secured_protected=connections.secured[True],
            secured_plain=connections.secured[False],
            denied=len(self._context.denied),
            strikes=connections.strikes,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            feeds=feeds,
            store=self._context.store.size(),
            disk=self._context.store.disk(),
            queued_bytes=writer.queued_bytes,
            commits=writer.figures,
            store_problem=self.store_problem(),
            sending=self._context.bandwidth.sending.figures(),
            receiving=self._context.bandwidth.receiving.figures(),
        )

    def feed_status(self, feed: Feed) -> FeedStatus:
        """One feed. Raises `LookupError` where it was left."""
        record = feed.values.record()
        forgotten = feed.forgetting.figures()
        chain, until = feed.trust.chain, feed.trust.writes_until
        return FeedStatus(
            key=feed.key,
            discovery_key=feed.discovery_key,
            alias=feed.settings.alias,
            mode=feed.settings.mode,
            dialect=feed.settings.dialect,
            noise=feed.noise.value,
            data_signed=feed.dialect.data_signed,
            lacks=feed.dialect.lacks,
            own=feed.key == self._context.identity.public_key,
            owner=feed.trust.is_owned,
            count=record.count,
            bytes=record.bytes,
            digest=record.digest,
            digest_left=record.digest_left,
            top_seq=record.top_seq,
            peers=len(feed.peers),
            peers_in_sync=feed.peers.in_sync,
            peers_unprotected=feed.peers.unprotected,
            last_round=feed.peers.last_round,
            chain_links=None if chain is None else len(chain),
            chain_expires=until if until is not None and math.isfinite(until) else None,
            trusted=chain is not None,
            problem=self.problem(feed),
            is_full=feed.values.is_full,
            forgotten=forgotten.count,
            forgotten_hashes=forgotten.hashes,
            forgotten_refused=feed.values.forgotten_refused,
            retained_out=self._feeds.upkeep(feed).retention.forgotten,
            invited=len(feed.trust.invited()),
        )
