"""What the feeds and connections of a node share: everything that is not pure comes in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from hyperbloom.connections.bandwidth import Bandwidth
from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.connections.shares import Share, Shares
from hyperbloom.connections.timer import Alarms
from hyperbloom.connections.workers import InThread, Workers
from hyperbloom.feed_keys import FeedKeys
from hyperbloom.keys import Identity
from hyperbloom.replication.deny_list import DenyList
from hyperbloom.replication.limits import (
    ANSWERING_SECONDS,
    ANSWERS_PER_TURN,
    LEAST_RATE,
    SHARED_SLICE_BYTES,
    SLICE_BYTES,
    WAKING_SECONDS,
    WAKINGS_PER_TURN,
    Limits,
)
from hyperbloom.replication.message_pace import MessagePace
from hyperbloom.replication.settings import NoisePolicy, SyncSettings, TrustSettings
from hyperbloom.replication.sketch_slots import SketchSlots
from hyperbloom.store import Operation, Store, StoreError, Writer, WriterInline
from hyperbloom.trust import Path

__all__ = ["FeedContext", "InThread"]

T = TypeVar("T")

log = Logger()


@dataclass(slots=True, kw_only=True)
class FeedContext:
    """What the feeds of a node share; everything that is not pure comes in here.

    identity: the node's own pair. feed_keys: the pairs of the feeds it owns, by which it proves
    itself there. now: seconds since 1970. random_bytes: unpredictable bytes. in_thread: runs a
    blocking call and answers with a Deferred; the feeds call it by `own_work` and `work_for` alone.
    work_seconds: the processor time of the thread it is called in. peer_id: this process's id in
    handshakes. denied: the keys that the operator denies, which a node takes from its store. noise:
    with whom streams about feeds that say nothing else are protected. alarms: what
    each connection waits for. bandwidth: the rates that peers are held to. limits, sync and
    trust may be replaced while the node runs (`Node.use_settings`), noise by `Node.use_noise`: they
    are read again wherever they count.
    """

    identity: Identity
    store: Store
    writer: Writer | WriterInline
    limits: Limits
    sync: SyncSettings
    clock: IReactorTime
    now: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    in_thread: InThread
    work_seconds: Callable[[], float]
    peer_id: bytes
    leeway: float = 0.0
    noise: NoisePolicy = NoisePolicy.PREFER
    trust: TrustSettings = field(default_factory=TrustSettings)
    denied: DenyList = field(default_factory=DenyList)
    feed_keys: FeedKeys = field(default_factory=FeedKeys)
    sketch_slots: SketchSlots = field(init=False)
    shares: Shares = field(init=False)
    workers: Workers = field(init=False)
    answer_turns: ReactorBudget = field(init=False)
    #: What is due in the broadcast trees of all feeds.
    waking_turns: ReactorBudget = field(init=False)
    pace: MessagePace = field(init=False)
    alarms: Alarms = field(init=False)
    bandwidth: Bandwidth = field(init=False)
    #: Seconds from one round to the next, given the least: one object, for each peer keeps it.
    interval: Callable[[float], float] = field(init=False)

    def __post_init__(self) -> None:
        self.sketch_slots = SketchSlots(self.clock)
        self.shares = Shares(self.clock, lambda: self.limits)
        self.workers = Workers(self.in_thread, self.shares, self.clock, self.work_seconds)
        self.answer_turns = ReactorBudget(
            self.clock, most=ANSWERS_PER_TURN, seconds=ANSWERING_SECONDS
        )
        self.waking_turns = ReactorBudget(self.clock, most=WAKINGS_PER_TURN, seconds=WAKING_SECONDS)
        self.pace = MessagePace(self.clock)
        self.alarms = Alarms(self.clock)
        self.bandwidth = Bandwidth(self.clock, self.limits)
        self.interval = lambda least: self.jittered(max(self.sync.interval, least))

    @property
    def slice_bytes(self) -> int:
        """What a slice of values for a peer has: little under a rate, as nothing overtakes it."""
        limit = self.bandwidth.sending
        if not limit.is_on:
            return SLICE_BYTES
        rate = min(rate for rate in (limit.rate, limit.peer_rate) if rate)
        return max(LEAST_RATE, min(SHARED_SLICE_BYTES, int(rate)))

    @property
    def own_keys(self) -> frozenset[bytes]:
        """Every key that this node proves itself with anywhere. No peer can have one of them."""
        return frozenset((self.identity.public_key, *self.feed_keys.public_keys))

    def identity_on(self, feed_key: bytes) -> Identity:
        """The pair by which this node proves itself on a feed: the feed's own where it is held."""
        return self.feed_keys.get(feed_key) or self.identity

    def is_own(self, key: bytes) -> bool:
        """Whether it is one of `own_keys`."""
        return key == self.identity.public_key or key in self.feed_keys

    def own_work(self, call: Callable[[], T]) -> Deferred[T]:
        """Do blocking work of this node's own beside the reactor."""
        return self.workers.own(call)

    def work_for(self, share: Share | None, call: Callable[[], T]) -> Deferred[T]:
        """Do blocking work that a peer has caused; None: it is this node's own."""
        return self.workers.own(call) if share is None else self.workers.work_for(share, call)

    def written(self, op: Operation, path: Path | None = None) -> Deferred[Any]:
        """Hand an operation to the writer; fires with its result once that is on disk.

        What a peer has sent takes turns by its `path` with what others have.
        """
        result: Deferred[Any] = Deferred()

        def done(outcome: object) -> None:
            if isinstance(outcome, BaseException):
                result.errback(outcome)
            else:
                result.callback(outcome)

        self.submit(op, done, path)
        return result

    def submit(self, op: Operation, done: Callable[[Any], None], path: Path | None) -> None:
        """The same with a callback."""
        if path is None:
            self.writer.submit(op, done)
        else:
            self.writer.submit(op, done, origin=path)

    def write(self, op: Operation, path: Path | None = None) -> None:
        """Store what nobody waits for; a failure is logged, not lost in silence.

        `path` is that of the peer that caused it, if one did.
        """

        def done(outcome: object) -> None:
            if isinstance(outcome, StoreError):
                log.error("Could not store: {reason}", reason=outcome)
            elif isinstance(outcome, BaseException):
                log.failure("Could not store", exc_info=outcome)

        self.submit(op, done, path)

    def jittered(self, seconds: float) -> float:
        """`seconds` varied at random by the setting `[sync] jitter`, so that nodes spread out."""
        fraction = int.from_bytes(self.random_bytes(4), "big") / 2**32
        return seconds * (1 + self.sync.jitter * (2 * fraction - 1))
