"""A feed on this node: its values on their way to the disk and from there to everyone else.

One value's way: `accept` (from a peer) or `insert` (from here) → the writer, one synced
transaction → `stored` → peers, watchers. Nothing is told to anyone before it is on disk, and the
store never calls up: the writer's answer comes back as a Deferred.

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.connections.shares import Share
from hyperbloom.keys import Identity
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.counters import COUNTS, Figures
from hyperbloom.replication.feed.fetch import fetch
from hyperbloom.replication.feed.forgetting import Forgetting
from hyperbloom.replication.feed.membership import Membership
from hyperbloom.replication.feed.refused_values import RefusedValues
from hyperbloom.replication.feed.retention import Retention
from hyperbloom.replication.feed.tombstones import TombstoneReader
from hyperbloom.replication.limits import (
    BROADCASTS_PER_TURN,
    LEAST_REPLY_SCALE,
    LONGEST_VALUE_BYTES,
    MAX_REPLY_SCALES,
    SLICE_BYTES,
    SLICE_VALUES,
    TURN_SECONDS,
)
from hyperbloom.replication.settings import FeedSettings, KeyRange
from hyperbloom.replication.status import FeedTraffic
from hyperbloom.replication.sync.plan import FILTER_BYTES, SyncPlan, union, within
from hyperbloom.replication.sync.range_digests import KeptSums
from hyperbloom.replication.sync.reply import WasHere
from hyperbloom.store import AppendValues, Operation, StoreError
from hyperbloom.store.operations import pieces_of
from hyperbloom.store.records import (
    Appended,
    FeedRecord,
    Holding,
    LinkRecord,
    LogSlice,
    RangeSlice,
)
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.store.values.refused import RememberRefused
from hyperbloom.trust import Chain, Member, TrustLink
from hyperbloom.wire import DIALECTS, Credentials, Data
from hyperbloom.wire.credentials import sign_data
from hyperbloom.wire.packing import MAX_VALUE_BYTES, pack_values
from hyperbloom.wire.set_digest import fits_set_digest

if TYPE_CHECKING:
    from hyperbloom.replication.sync.peer import Peering

__all__ = ["Feed", "Subscriber"]

T = TypeVar("T")

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


class Feed:
    """One feed: its settings, its members, its connected peers and who waits for its values."""

    def __init__(self, settings: FeedSettings, record: FeedRecord, context: FeedContext) -> None:
        self.settings = settings
        self.context = context
        self.dialect = DIALECTS[settings.dialect]
        self.key = settings.key
        self.discovery_key = self.dialect.discovery_key(settings.key)
        self.top_seq = record.top_seq
        self.peers: set[Peering] = set()
        #: What connections that are over have moved, and the values that policy kept out.
        self.past = Figures()
        self.kept_out: Counter[str] = Counter()
        self.membership = Membership(
            settings.key,
            self.identity,
            self.dialect,
            context.store.links(settings.key),
            leeway=context.leeway,
            denied=context.denied,
        )
        self.forgetting = Forgetting(self)
        self.retention = Retention(self)
        self.tombstones = TombstoneReader(self)
        self._count, self._bytes = record.count, record.bytes
        self._subscribers: list[Subscriber] = []
        self._peers_changed: list[Callable[[], None]] = []
        self._interests: list[KeyRange] = []
        self._reply_scale: dict[bytes, float] = {}
        #: Broadcasts that go out in the turn in which their values are stored.
        self.broadcasts = ReactorBudget(
            context.clock, most=BROADCASTS_PER_TURN, seconds=TURN_SECONDS
        )
        #: Sums of parts of the feed, which peers are compared by.
        self.sums = KeptSums(self.holding)
        #: Calls that wait until peers are in sync.
        self.waits = 0
        self._signed: tuple[Appended, Sequence[Data]] | None = None
        known = sorted(context.store.refused(settings.key), key=lambda one: one.last_seen)
        self._refused = RefusedValues(one.value for one in known)

    # What is here

    def record(self) -> FeedRecord:
        """Count, bytes, digest and settings as they stand on disk."""
        record = self.context.store.feed(self.key)
        if record is None:
            raise LookupError("the feed was left")
        return record

    def holding(self) -> Holding | None:
        """Count and digest of what is here, and of that with what was forgotten.

        None while these digests are being computed, in a store of an older version.
        """
        return self.context.store.holding(self.key)

    def has(self, values: Sequence[bytes]) -> list[bool]:
        """Which of `values` are here."""
        return self.context.store.has(self.key, values)

    def read(
        self, start: bytes = b"", end: bytes | None = None, *, limit: int, max_bytes: int
    ) -> Deferred[RangeSlice]:
        """A slice of the values with start ≤ value < end, in byte order."""

        def read() -> RangeSlice:
            return self.context.store.range_slice(
                self.key, start, end, limit=limit, max_bytes=max_bytes
            )

        return succeed(read()) if limit <= 64 else self.context.own_work(read)

    def log_after(
        self, seq: int, *, limit: int, max_bytes: int, share: Share | None = None
    ) -> Deferred[LogSlice]:
        """A slice of the arrivals behind `seq`, oldest first; for a peer, if its share is given."""

        def read() -> LogSlice:
            return self.context.store.log_slice(self.key, seq, limit=limit, max_bytes=max_bytes)

        return self.context.work_for(share, read)

    @property
    def count(self) -> int:
        """How many values are here."""
        return self._count

    @property
    def value_bytes(self) -> int:
        """How many bytes the values here have."""
        return self._bytes

    @property
    def mean_value_bytes(self) -> float:
        """Mean length of the values here; a guess of 64 while there are none."""
        return self._bytes / self._count if self._count else 64.0

    @property
    def is_full(self) -> bool:
        """Whether the feed has reached the size that `[limits]` gives it."""
        limits = self.context.limits
        return bool(
            (limits.feed_values and self._count >= limits.feed_values)
            or (limits.feed_bytes and self._bytes >= limits.feed_bytes)
        )

    @property
    def kept(self) -> list[KeyRange]:
        """The ranges this node keeps, in byte order and apart; none in a light node."""
        return union(self.settings.synced)

    @property
    def speaks_set_digest(self) -> bool:
        """Whether peers can compare with this node by digest: it keeps something, in few ranges."""
        return fits_set_digest(self.kept)

    # Values on their way in

    def insert(self, values: Sequence[bytes]) -> Deferred[Appended]:
        """Store values of our own; fires when they are on disk.

        One that was forgotten is a value of the feed again.
        Raises `ValueError` for an empty or too long value and `NotTrusted` without a chain.
        """
        longest = self._longest
        for value in values:
            if not value:
                raise ValueError("a value has at least one byte")
            if len(value) > longest:
                raise ValueError(f"a value has at most {longest:,} bytes, this one {len(value):,}")
        self.membership.require_chain(now=self.context.now())
        return self._append(values, self.context.identity.public_key, restores=True)

    def accept(self, values: Sequence[bytes], origin: bytes) -> Deferred[Appended]:
        """Store what a peer sent, as far as settings and limits let it in.

        It is written in pieces, between which others write. Each is told to everyone once it is on
        disk; fires when all are, with the values of all. Fails as the first that fails does.
        """
        wanted = () if origin in self.context.denied else self._wanted(values)
        refused = self._refuse(wanted, origin)
        if refused:
            wanted = [value for value in wanted if value not in refused]
        if not wanted:
            return succeed(Appended(values=[], first_seq=self.top_seq + 1, top_seq=self.top_seq))
        pieces = [self._append(piece, origin) for piece in pieces_of(wanted)]
        return pieces[0] if len(pieces) == 1 else all_of(pieces)

    def _wanted(self, values: Sequence[bytes]) -> Sequence[bytes]:
        if self.settings.mode == "full":
            return values
        return within(union([*self.settings.synced, *self._interests]), values)

    @property
    def _longest(self) -> int:
        """The longest value taken in: a longer one could not be sent on."""
        return min(self.context.limits.value_bytes, MAX_VALUE_BYTES)

    def _refuse(self, values: Sequence[bytes], origin: bytes) -> set[bytes]:
        """The values that policy keeps out; what is too long is remembered for good."""
        if self.is_full:
            self.kept_out["full"] += len(values)
            return set(values)
        longest = self._longest
        if not self._refused and max(map(len, values), default=0) <= longest:
            return set()
        refused = {v for v in values if len(v) > longest or v in self._refused}
        self.kept_out["too-long"] += len(refused)
        fresh = [value for value in refused if value not in self._refused]
        if fresh:
            self._refused.add(fresh)
            self.write(
                RememberRefused(
                    feed_key=self.key,
                    refused=tuple((value, "too long") for value in fresh),
                    at=int(self.context.now() * 1e6),
                ),
                origin,
            )
        return refused

    def _append(
        self, values: Sequence[bytes], origin: bytes, *, restores: bool = False
    ) -> Deferred[Appended]:
        op = AppendValues(
            feed_key=self.key,
            values=values,
            origin=origin,
            received_at=int(self.context.now() * 1e6),
            restores=restores,
        )

        def stored(outcome: Appended) -> Appended:
            self.forgetting.refused += outcome.forgotten
            self.stored(outcome, origin)
            return outcome

        is_own = origin in self.context.own_keys
        return self.context.written(op, None if is_own else origin).addCallback(stored)

    def shrunk(self, count: int, size: int) -> None:
        """So many values of so many bytes have been removed from disk."""
        self._count -= count
        self._bytes -= size

    def stored(self, appended: Appended, origin: bytes) -> None:
        """Values are on disk: tell everyone who waits for them."""
        if not appended.values:
            return
        self._count += len(appended.values)
        self._bytes += sum(map(len, appended.values))
        self.top_seq = max(self.top_seq, appended.top_seq)
        self._tell(appended, origin)
        self._signed = None
        self.tombstones.look()

    def write(self, op: Operation, origin: bytes | None = None) -> None:
        """Store what nobody waits for; a failure is logged, not lost in silence.

        `origin` is the key of the peer that caused it, if one did.
        """

        def done(outcome: object) -> None:
            if isinstance(outcome, StoreError):
                log.error("Could not store: {reason}", reason=outcome)
            elif isinstance(outcome, BaseException):
                log.failure("Could not store", exc_info=outcome)

        self.context.submit(op, done, origin)

    # Who waits for values

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` for all that is stored from now on; returns how to end that."""
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

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

    def take_interest(
        self, start: bytes, end: bytes | None, *, limit: int | None = None
    ) -> Callable[[], None]:
        """Let values of a range in that this node does not keep; returns how to end that.

        A light node asks its peers for the range at once, and each new peer when it is secure.
        """
        bounds = (start, end)
        self._interests.append(bounds)
        if self.settings.mode != "full":
            for peer in self.peers:
                peer.request(bounds, limit)

        def lose_interest() -> None:
            if bounds in self._interests:
                self._interests.remove(bounds)

        return lose_interest

    def fetch(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, timeout: float
    ) -> Deferred[int]:
        """Ask the peers for a range that is not kept here; see `fetch.fetch`."""
        return fetch(self, start, end, limit=limit, timeout=timeout)

    @property
    def interests(self) -> list[KeyRange]:
        """The ranges that were asked for beside those this node keeps."""
        return [] if self.settings.mode == "full" else list(self._interests)

    # Peers

    def add_peer(self, peer: Peering) -> None:
        """Take a secure peer in; its chain is learnt."""
        self.peers.add(peer)
        self._tell_of_peers()

    def remove_peer(self, peer: Peering) -> None:
        """The peer is gone."""
        self.peers.discard(peer)
        self._tell_of_peers()

    def when_peers_change(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` when a secure peer has come or gone; returns what ends that."""
        self._peers_changed.append(changed)
        return lambda: self._peers_changed.remove(changed)

    def traffic(self) -> FeedTraffic:
        """What has moved since the start, over connections that are open or over."""
        moved = Figures()
        for figures in (self.past, *(peer.figures for peer in self.peers)):
            moved.add(figures)
        return FeedTraffic(
            key=self.key,
            alias=self.settings.alias,
            count=self._count,
            bytes=self._bytes,
            peers=len(self.peers),
            kept_out=dict(self.kept_out),
            **{name: getattr(moved, name) for name in COUNTS},
        )

    def _tell_of_peers(self) -> None:
        for changed in list(self._peers_changed):
            changed()

    def reply_scale(self, peer_key: bytes) -> float:
        """By how much the replies asked of a peer are shortened: it died on a longer one."""
        return self._reply_scale.get(peer_key, 1.0)

    def reply_was_too_big(self, peer_key: bytes) -> bool:
        """A peer that cannot split its replies was lost while one was awaited: ask for less.

        Whether there is less to ask for.
        """
        if len(self._reply_scale) >= MAX_REPLY_SCALES:
            self._reply_scale.clear()
        before = self.reply_scale(peer_key)
        self._reply_scale[peer_key] = max(before / 4, LEAST_REPLY_SCALE)
        return before > LEAST_REPLY_SCALE

    def reply_arrived(self, peer_key: bytes) -> None:
        """A full reply of such a peer arrived: by and by it is asked for more again."""
        scale = self._reply_scale.pop(peer_key, 1.0) * 1.1
        if scale < 1:
            self._reply_scale[peer_key] = scale

    def plan(self, filter_bytes: int = FILTER_BYTES) -> SyncPlan:
        """A fresh plan of what to ask a peer for, with filters of at most `filter_bytes`."""
        return SyncPlan(
            () if self.is_full else self.settings.synced,
            read=self._read_for_plan,
            seed=lambda: int.from_bytes(self.context.random_bytes(4), "big"),
            false_positive=self.context.sync.false_positive,
            refused=tuple(self._refused),
            filter_bytes=filter_bytes,
        )

    def read_slice(self, start: bytes, end: bytes | None) -> RangeSlice:
        """The next values of a range, as many as a slice holds."""
        return self.context.store.range_slice(
            self.key, start, end, limit=SLICE_VALUES, max_bytes=SLICE_BYTES
        )

    def read_forgotten(self, start: bytes, end: bytes | None) -> RangeSlice:
        """The next forgotten values of a range, of those that are kept whole."""
        return self.context.store.forgotten_slice(
            self.key, start, end, limit=SLICE_VALUES, max_bytes=SLICE_BYTES
        )

    def _read_for_plan(self, start: bytes, end: bytes | None) -> RangeSlice:
        # What is forgotten is listed as well, or peers would send it with every Sync.
        return self.context.store.settled_slice(
            self.key, start, end, limit=SLICE_VALUES, max_bytes=SLICE_BYTES
        )

    def read_for_reply(self, start: bytes, end: bytes | None, most: int) -> RangeSlice:
        """A slice for a reply, of `most` values (0: as many as a slice holds)."""
        return self.context.store.range_slice(
            self.key,
            start,
            end,
            limit=min(most or SLICE_VALUES, SLICE_VALUES),
            max_bytes=SLICE_BYTES,
        )

    def was_here(self) -> WasHere:
        """Tells of values which of them were here at this moment."""
        asked_at = self.top_seq

        def was_here(values: list[bytes]) -> list[bytes]:
            if self.top_seq <= asked_at or not values:
                return values
            later = self._arrived_after(asked_at, most=len(values) // 4)
            if later is not None:
                return [value for value in values if value not in later]
            seqs = self.context.store.seqs(self.key, values)
            return [v for v, seq in zip(values, seqs, strict=True) if seq and seq <= asked_at]

        return was_here

    def _arrived_after(self, seq: int, *, most: int) -> set[bytes] | None:
        """All that arrived behind `seq`; None if they are many, or long."""
        if not 0 <= self.top_seq - seq < most:
            return None
        log = self.context.store.log_slice(self.key, seq, limit=most, max_bytes=SLICE_BYTES)
        values = {record.value for record in log.records}
        was_cut = sum(map(len, values)) > SLICE_BYTES - LONGEST_VALUE_BYTES
        return None if was_cut or len(log.records) == most else values

    # Trust

    @property
    def identity(self) -> Identity:
        """The pair by which this node proves itself here: the feed's own where it is held."""
        return self.context.identity_on(self.key)

    @property
    def is_owned(self) -> bool:
        """Whether this node holds the feed's key."""
        return self.identity.public_key == self.key

    @property
    def log_name(self) -> str:
        """What the feed is called in the log, where its key never stands."""
        return self.settings.log_name

    def identity_changed(self) -> None:
        """The feed's key has come to this node, or has left it."""
        self.membership.prove_by(self.identity)
        self._signed = None

    @property
    def chain(self) -> Chain | None:
        """The chain this node proves itself with now, or None when it has none."""
        return self.membership.chain(now=self.context.now())

    def credentials(self) -> Credentials | None:
        """What this node proves itself with now, or None without a chain."""
        chain = self.chain
        if chain is None:
            return None
        return Credentials(
            feed_key=self.key, identity=self.identity, chain=chain, dialect=self.dialect
        )

    def sign(self, appended: Appended) -> Sequence[Data]:
        """What was stored, as signed Data messages: one signature for all peers it goes to."""
        if self._signed is None or self._signed[0] is not appended:
            credentials = self.credentials()
            portions = pack_values(appended.values) if credentials is not None else ()
            signed = [sign_data(credentials, portion) for portion in portions if credentials]
            self._signed = (appended, signed)
        return self._signed[1]

    def learn(self, chain: Chain, introduced_by: bytes) -> None:
        """Store the links of a chain that a peer proved."""
        put = self.membership.learn(chain, introduced_by=introduced_by, now=self.context.now())
        if put is not None:
            self.write(put, introduced_by)

    def add_links(self, raw: Sequence[bytes]) -> Deferred[Chain]:
        """Store a chain handed over by hand.

        Raises `ChainError` when it does not hold, `ValueError` where there is no room for it.
        """
        now = self.context.now()
        chain = self.membership.verify(raw, now=now)
        return self._answer(self.membership.add(chain, now=now), chain)

    def issue_link(
        self, trustee: bytes, *, expires: float, share: float = 1.0
    ) -> Deferred[TrustLink]:
        """Sign a link for `trustee` and store it; raises `NotTrusted` or `ValueError`.

        `share` is the part of the room for links that it may fill.
        """
        link, put = self.membership.issue(
            trustee,
            expires=expires,
            nonce=self.context.random_bytes(32),
            now=self.context.now(),
            share=share,
        )
        return self._answer(put, link)

    def _answer(self, put: PutLinks | None, value: T) -> Deferred[T]:
        if put is None:
            return succeed(value)
        return self.context.written(put).addCallback(lambda _: value)

    def members(self) -> list[Member]:
        """Who may write now, through whom and until when."""
        return self.membership.members(now=self.context.now())

    def links(self) -> list[LinkRecord]:
        """Every link stored, expired ones among them until they are purged."""
        return self.context.store.links(self.key)
