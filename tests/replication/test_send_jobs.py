"""The jobs of a connection one step at a time, and what a connection counts."""

from __future__ import annotations

from types import SimpleNamespace

from twisted.internet.defer import ensureDeferred, succeed
from twisted.internet.task import Clock

from hyperbloom.replication.counters import Counters
from hyperbloom.replication.schedule.plan import Asked as OpenQuestions
from hyperbloom.replication.sync.send_jobs import FollowUps, PlanJob
from hyperbloom.replication.sync.send_scheduler import SendScheduler
from hyperbloom.wire import Request


def result_of(coroutine):
    results = []
    ensureDeferred(coroutine).addBoth(results.append)
    (result,) = results
    return result


class Peer:
    """What the job of a plan asks of its peer: a second of work in a thread, a place to ask."""

    def __init__(self):
        self.clock = Clock()
        self.context = SimpleNamespace(clock=self.clock)
        self.owes_answers = False
        self.asked, self.plans = [], []

    def reply_limit(self):
        return 7

    def work(self, call):
        result = call()
        self.clock.rightNow += 1.0
        return succeed(result)

    def ask(self, message, *wanted):
        self.asked.append(message)


class Plan:
    """Three questions."""

    def __init__(self):
        self.left = ["a", "b", "c"]

    @property
    def done(self):
        return not self.left

    def next_sync(self, *, limit):
        return (self.left.pop(0), limit)


class Asked:
    full = False

    def is_full(self, *, now):
        return self.full


def test_our_questions_wait_while_answers_are_owed_and_while_many_are_open():
    peer, plan, asked = Peer(), Plan(), Asked()
    job = PlanJob(peer, plan, asked, peer.plans.append)
    assert result_of(job.step()) is True
    assert peer.asked == [("a", 7)]
    for owes, full in ((True, False), (False, True)):
        peer.owes_answers, asked.full = owes, full
        assert result_of(job.step()) is True, "the job goes on"
        assert job.ready_at == peer.clock.seconds() + 0.1
    assert peer.asked == [("a", 7)]
    asked.full = False
    assert result_of(job.step()) is True
    assert peer.plans == []
    assert result_of(job.step()) is False
    assert peer.asked == [("a", 7), ("b", 7), ("c", 7)]
    assert peer.plans == [3.0], "the seconds it took to make them"


def test_two_replies_that_were_full_are_both_asked_on():
    peer, questions = Peer(), OpenQuestions()
    peer.scheduler = SendScheduler(peer.clock, failed=lambda failure: failure.raiseException())
    follow_ups = FollowUps(peer, questions)
    for start, end in ((b"a", b"c"), (b"c", b"e")):
        questions.ask(Request(start=start, end=end, limit=1), deadline=10)
    peer.scheduler.pauseProducing()
    assert follow_ups.received([b"b"])
    assert follow_ups.received([b"d"])
    assert peer.asked == []
    peer.scheduler.resumeProducing()
    assert [question.start for question in peer.asked] == [b"b\0", b"d\0"]
    assert len(peer.scheduler) == 0


def test_what_connections_count_starts_with_nothing_and_adds_up():
    total = Counters()
    names = list(total.sums())
    assert set(total.sums().values()) == {0}
    for number in (1, 2):
        one = Counters(**{name: number * 10**place for place, name in enumerate(names)})
        one.last_data = 5.0
        total.add(one)
    assert list(total.sums().values()) == [3 * 10**n for n in range(len(names))]
    assert total.last_data is None
