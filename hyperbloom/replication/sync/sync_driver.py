"""Runs what the schedule of one connection says: its alarm, our questions, our plans."""

from __future__ import annotations

from hyperbloom.bloom import estimate_count, optimal_parameters
from hyperbloom.connections.timer import Alarm
from hyperbloom.replication.schedule.plan import Asked, SyncPlan
from hyperbloom.replication.schedule.sketch_try import SketchOutcome
from hyperbloom.replication.schedule.sync_commands import (
    BeginPlan,
    BeginSketch,
    ChangeWay,
    Command,
    CompareDigests,
    Situation,
    Way,
)
from hyperbloom.replication.schedule.sync_schedule import SyncSchedule
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import SyncRound, SyncState
from hyperbloom.replication.sync.digest_exchange import DigestExchange
from hyperbloom.replication.sync.peer_port import PeerPort
from hyperbloom.replication.sync.send_jobs import PlanJob, plan_of
from hyperbloom.replication.sync.send_scheduler import Job
from hyperbloom.replication.sync.sketch_exchange import SketchExchange
from hyperbloom.wire import Sync

__all__ = ["SyncDriver"]


class SyncDriver:
    """What one peer is asked to keep in sync, from `begin` to `stop`."""

    __slots__ = (
        "_alarm",
        "_asked",
        "_catch_up",
        "_clock",
        "_peer",
        "_plan",
        "_schedule",
        "_way",
        "digests",
        "last_round",
        "sketches",
    )

    def __init__(self, peer: PeerPort, asked: Asked) -> None:
        self._peer = peer
        self._asked = asked
        self._catch_up = peer.feed.tree.catch_up
        self._clock = peer.context.clock
        self._schedule = SyncSchedule(
            peer.feed.kept, interval=peer.context.interval, now=self._clock.seconds()
        )
        self.digests = DigestExchange(peer, self)
        self.sketches = SketchExchange(peer, self)
        self._plan: SyncPlan | None = None
        self._way = Way.FILTERS
        #: How the peer was last asked for what differs.
        self.last_round: SyncRound | None = None
        self._alarm = Alarm(self)

    @property
    def state(self) -> SyncState | None:
        """What is known of whether the peer is in sync, None: nothing yet."""
        return self._schedule.state

    @property
    def is_in_sync(self) -> bool:
        """Whether the peer was in sync when that was seen last."""
        return self.state is not None and self.state.in_sync

    def begin(self, wait: float) -> None:
        """The first round begins after so many seconds, or with the peer's first Sync."""
        self._schedule.begin(wait, now=self._clock.seconds())
        self._set_alarm()

    def stop_asking(self) -> None:
        """The peer answers nothing more."""
        self._schedule.stop()
        self.sketches.stop_asking()
        self._set_alarm()

    def stop(self) -> None:
        """The connection is over."""
        self.stop_asking()
        self.sketches.stop()

    @property
    def answering(self) -> tuple[Job, ...]:
        """The jobs that answer the peer's questions by digests and symbols."""
        return self.digests.answer, self.sketches.answers

    def hurry(self) -> None:
        """Somebody waits until this peer is in sync: do not wait for the interval."""
        self._schedule.hurry(now=self._clock.seconds())
        self._set_alarm()

    def filters_recommended(self, filter_bytes: int) -> None:
        """The peer recommends filters of so many bytes."""
        self._schedule.filters_recommended(filter_bytes)

    def peer_asked(self, sync: Sync) -> None:
        """A Sync of the peer came: its filter tells how much the peer holds."""
        if self.sketches.peer_sends_filters():
            self._schedule.symbols_failed()
        held = None
        if sync.range is None:
            set_bits = int.from_bytes(sync.filter, "little").bit_count()
            count = estimate_count(set_bits, sync.size, sync.n)
            held = count * self._peer.feed.values.mean_bytes
        self._run(
            self._schedule.peer_asked(held, now=self._clock.seconds(), situation=self._situation())
        )

    def peer_was_sent(self, size: int) -> None:
        """The peer holds values of so many bytes more from now on."""
        self._schedule.peer_was_sent(size)

    def peer_was_answered(self, bounds: KeyRange) -> None:
        """A Sync of the peer, about this range and without a limit, was answered to its end."""
        self._schedule.peer_was_answered(bounds)

    # What the schedule is told, and says

    def _situation(self) -> Situation:
        peer, feed = self._peer, self._peer.feed
        settled = feed.values.count + feed.forgetting.kept
        bits, _ = optimal_parameters(settled, peer.context.sync.false_positive)
        sent = 0 if self._plan is None else self._plan.sent_bytes
        return Situation(
            at=peer.context.now(),
            can_compare=self.digests.is_possible,
            can_reconcile=self.sketches.is_possible,
            may_salt=self.sketches.may_salt(self.digests.ranges),
            is_reconciled=self.sketches.peer_is_asking,
            keeps_anything=bool(feed.lacking),
            was_asked=peer.counters.last_sync_sent is not None,
            is_receiving=peer.is_receiving,
            is_sending=peer.is_sending,
            awaits_reply=peer.awaits_reply,
            another_brings=self._catch_up.is_of_another(peer, peer.path, now=self._clock.seconds()),
            values_new=peer.counters.values_new,
            moved_at=peer.counters.moved_at,
            values_sent=peer.counters.values_out,
            filters_bytes=bits / 8 - sent,
            peers=len(feed.peers),
        )

    def digest_came(self, number: int) -> bool:
        """Whether the digest of this number is awaited."""
        is_awaited = self._schedule.digest_came(number, now=self._clock.seconds())
        self._set_alarm()
        return is_awaited

    def compared(self, number: int, state: SyncState | None, seconds: float) -> None:
        """What an answer showed, and the seconds of adding up here."""
        now, situation = self._clock.seconds(), self._situation()
        told = self.digests.told
        counts = None if told is None else (told[1].settled.count, told[0].settled.count)
        if state is not None and state.in_sync:
            self._catch_up.ends(self._peer, now=now)
        command = self._schedule.compared(
            number, state, seconds, now=now, situation=situation, counts=counts
        )
        if command is None:
            self._peer.counters.sync_seconds += seconds
        self._run(command)

    def sketch_moved(self, awaited: int) -> None:
        """A step of our try was made, or so many symbols were asked for."""
        self._schedule.sketch_moved(awaited, now=self._clock.seconds())
        self._set_alarm()

    def peer_tried(self) -> None:
        """The peer's try is over."""
        self._schedule.peer_tried(now=self._clock.seconds())
        self._set_alarm()

    def sketch_over(self, outcome: SketchOutcome, seconds: float) -> None:
        """Our try ended."""
        if outcome is not SketchOutcome.CROSSED:
            self._round_asked(self.sketches.last)
        self._peer.counters.sync_seconds += seconds
        now, situation = self._clock.seconds(), self._situation()
        self._catch_up.goes_on(self._peer, now=now)
        self._run(self._schedule.sketch_over(outcome, seconds, now=now, situation=situation))

    def _plan_asked(self, seconds: float) -> None:
        self._round_asked(
            SyncRound(
                way=self._way.value,
                at=self._peer.context.now(),
                symbols=0,
                bytes=0 if self._plan is None else self._plan.sent_bytes,
                differences=None,
            )
        )
        self._plan = None
        self._peer.counters.sync_seconds += seconds
        self._schedule.plan_asked(seconds, now=self._clock.seconds(), situation=self._situation())
        self._set_alarm()

    def _round_asked(self, one: SyncRound | None) -> None:
        self.last_round = one
        if one is not None:
            self._peer.feed.peers.round_asked(one)

    def wake(self) -> None:
        """What the schedule said is due."""
        self._run(self._schedule.wake(now=self._clock.seconds(), situation=self._situation()))

    def _run(self, command: Command | None) -> None:
        self._set_alarm()
        if isinstance(command, BeginSketch | BeginPlan):
            self._catch_up.begins(self._peer, self._peer.path, now=self._clock.seconds())
        match command:
            case CompareDigests(number=number):
                self.digests.ask(number)
            case BeginSketch(first=first, most=most, is_salted=is_salted):
                ranges = self.digests.ranges
                self.sketches.begin(ranges, first=first, most=most, is_salted=is_salted)
            case BeginPlan(way=way, filter_bytes=filter_bytes):
                self.sketches.give_up()
                self._plan = plan_of(self._peer.feed, filter_bytes)
                self._go(way)
                self._peer.scheduler.add(
                    PlanJob(self._peer, self._plan, self._asked, self._plan_asked)
                )
            case ChangeWay(way=way):
                self._go(way)

    def _go(self, way: Way) -> None:
        """Have the plan ask in this way for all that is left."""
        self._way = way
        if self._plan is not None and way is Way.EMPTY_FILTER:
            self._plan.collapse()

    def _set_alarm(self) -> None:
        """One alarm, at the schedule's next deadline."""
        self._peer.context.alarms.set(self._alarm, self._schedule.next_deadline)
