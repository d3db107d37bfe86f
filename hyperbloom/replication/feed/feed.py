"""A feed on this node: its values, who may write them, and its peers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from hyperbloom.replication.broadcast.stream import FeedStream
from hyperbloom.replication.broadcast.tree_driver import TreeDriver
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.forgetting import Forgetting
from hyperbloom.replication.feed.peers import FeedPeers
from hyperbloom.replication.feed.renewals import Renewals
from hyperbloom.replication.feed.trust import FeedTrust
from hyperbloom.replication.feed.values import FeedValues
from hyperbloom.replication.reading.ranges import union
from hyperbloom.replication.settings import FeedSettings, KeyRange, NoisePolicy, why_no_noise
from hyperbloom.replication.status import FeedTraffic
from hyperbloom.store import StoreError
from hyperbloom.store.records import Appended, FeedRecord, ForgottenFigures
from hyperbloom.wire import DIALECTS
from hyperbloom.wire.extensions.set_digest import fits_set_digest

__all__ = ["Feed"]


class Feed:
    """One feed: `values`, `trust`, `peers` and `forgetting`, and where they meet.

    `settings` may be replaced while the node runs; key and dialect stay.
    """

    def __init__(self, settings: FeedSettings, record: FeedRecord, context: FeedContext) -> None:
        self.settings = settings
        #: What `kept` was worked out from, and what it came to: one object for all peers.
        self._kept = settings, union(settings.synced)
        self.context = context
        self.key = settings.key
        self.dialect = DIALECTS[settings.dialect]
        self.discovery_key = self.dialect.discovery_key(settings.key)
        self.trust = FeedTrust(self.key, self.dialect, context)
        self.values = FeedValues(lambda: self.settings, record, context)
        self.peers = FeedPeers()
        self.stream = FeedStream(
            self.values.top_seq,
            self.peers,
            self.trust.credentials,
            self.values.read_log,
            context.clock,
            most_bytes=lambda: context.slice_bytes,
        )
        #: Along which links values are pushed, and along which their ids are told.
        self.tree = TreeDriver(context)
        self.values.subscribe(self.tree.stored)
        self.values.subscribe(self.stream.offer)
        self.renewals = Renewals(self.trust, context, self.peers, lambda: self.log_name)
        self.forgetting = Forgetting(
            self.key, context, shrunk=self._shrunk, restored=self._restored
        )

    @property
    def log_name(self) -> str:
        """What the feed is called in the log, where its key never stands."""
        return self.settings.log_name

    @property
    def kept(self) -> list[KeyRange]:
        """The ranges this node keeps, in byte order and apart; none in a light node."""
        settings, ranges = self._kept
        if settings is not self.settings:
            ranges = union(self.settings.synced)
            self._kept = self.settings, ranges
        return ranges

    @property
    def lacking(self) -> Sequence[KeyRange]:
        """The ranges that peers are asked for by plans; none while the feed is full."""
        return () if self.values.is_full else self.settings.synced

    @property
    def speaks_noise(self) -> bool:
        """Whether this node announces the extension `noise` for the feed."""
        return self.noise is not NoisePolicy.OFF

    @property
    def speaks_set_digest(self) -> bool:
        """Whether peers can compare with this node by digest: it keeps something, in few ranges."""
        return fits_set_digest(self.kept)

    @property
    def speaks_reconcile(self) -> bool:
        """Whether peers can find by symbols what differs: it is on, and they can compare."""
        return self.context.sync.reconcile and self.speaks_set_digest

    @property
    def speaks_broadcast_tree(self) -> bool:
        """Whether peers can tell this node ids in place of values: it passes all of them on."""
        return self.settings.mode == "full"

    @property
    def speaks_renew_links(self) -> bool:
        """Whether peers can send this node a renewed chain: the links of the feed end at all."""
        return self.dialect.link_format.has_expiry

    @property
    def noise(self) -> NoisePolicy:
        """With whom streams about the feed are protected: in the draft with nobody."""
        return self.wanted_noise if self.dialect.carries_noise else NoisePolicy.OFF

    @property
    def wanted_noise(self) -> NoisePolicy:
        """What the operator said of it, for this feed or for all."""
        return NoisePolicy(self.settings.noise or self.context.noise)

    @property
    def why_shut(self) -> str | None:
        """Why nobody can be spoken to about it, whoever it is: it cannot be protected, and must."""
        why = why_no_noise(self.dialect.name)
        if why is None or self.wanted_noise is not NoisePolicy.REQUIRE:
            return None
        return (
            f'nobody is spoken to: this node requires protected streams (`noise = "require"`), and '
            f'{why}; set `noise = "off"` for this feed, or leave it'
        )

    def insert(self, values: Sequence[bytes]) -> Deferred[Appended]:
        """Store values of our own; fires when they are on disk.

        Raises `NotTrusted` without a chain, `ValueError` for an empty or too long value.
        """
        self.trust.require_chain()
        return self.values.insert(values)

    def _shrunk(self, count: int, size: int) -> None:
        self.values.shrunk(count, size)
        self.stream.forget()

    def _restored(self, appended: Appended) -> None:
        self.values.stored(appended, self.context.identity.public_key)

    @property
    def interests(self) -> list[KeyRange]:
        """The ranges that were asked for beside those this node keeps."""
        return [] if self.settings.mode == "full" else list(self.values.interests)

    def take_interest(
        self, start: bytes, end: bytes | None, *, limit: int | None = None
    ) -> Callable[[], None]:
        """Let values of a range in that this node does not keep; returns how to end that.

        A light node asks its peers for the range at once, and each new peer when it is secure.
        """
        bounds = (start, end)
        self.values.interests.append(bounds)
        if self.settings.mode != "full":
            for peer in self.peers:
                peer.request(bounds, limit)

        def lose_interest() -> None:
            if bounds in self.values.interests:
                self.values.interests.remove(bounds)

        return lose_interest

    def traffic(self, *, retained_out: int) -> FeedTraffic:
        """What has moved since the start, over connections that are open or over.

        `retained_out`: values that retention has forgotten.
        """
        until, issued, peers = self.trust.writes_until, self.trust.issued, self.peers
        forgotten = self._forgotten()
        return FeedTraffic(
            key=self.key,
            alias=self.settings.alias,
            count=self.values.count,
            bytes=self.values.size,
            is_shared=self.trust.membership.has_links,
            trusted=until is not None,
            chain_expires=until if until is not None and math.isfinite(until) else None,
            issued_links=issued.count,
            issued_expire=issued.first_expires,
            peers=len(peers),
            peers_in_sync=peers.in_sync,
            peers_differing=peers.differing,
            peers_unprotected=peers.unprotected,
            last_sync=peers.last_sync,
            rounds=dict(peers.rounds),
            round_bytes=dict(peers.round_bytes),
            forgotten=None if forgotten is None else forgotten.count,
            forgotten_hashes=None if forgotten is None else forgotten.hashes,
            retained_out=retained_out,
            kept_out={**self.values.kept_out, "forgotten": self.values.forgotten_refused},
            **peers.moved().sums(),
        )

    def _forgotten(self) -> ForgottenFigures | None:
        """None where the store cannot be read: who watches has to be told that all the same."""
        try:
            return self.forgetting.figures()
        except StoreError:
            return None
