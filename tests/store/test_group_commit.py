"""The writer: who is answered when, and with what."""

import queue
import threading
import weakref
from dataclasses import dataclass

import pytest

from hyperbloom.store import (
    AppendValues,
    NoSuchFeed,
    PutFeed,
    Store,
    StoreClosed,
    Writer,
    WriterInline,
)
from hyperbloom.store.limits import GROUP_OPERATIONS, OWN_GROUP_BYTES
from hyperbloom.store.records import Appended

FEED = b"f" * 32
ORIGIN = b"o" * 32


def append(*values, feed=FEED):
    return AppendValues(feed, values, ORIGIN, 1)


@dataclass
class Blocked:
    """An operation that holds the writer until it is let go, so that others queue up behind it."""

    begun: threading.Event
    go_on: threading.Event
    size: int = 1

    def apply(self, transaction):
        self.begun.set()
        self.go_on.wait(240)


@dataclass
class Failing:
    """An operation that writes and then fails."""

    size: int = 1

    def apply(self, transaction):
        transaction.put("meta", b"half", b"done")
        raise ZeroDivisionError("on purpose")


class Desk:
    """A writer whose deliveries are taken by hand, as an event loop takes them."""

    def __init__(self, store):
        self.deliveries = queue.SimpleQueue()
        self.writer = Writer(store, deliver=self.deliveries.put)
        self.answers = []

    def submit(self, operation):
        self.writer.submit(operation, self.answers.append)

    def hold(self):
        """Block the writer; returns the event that lets it go on."""
        block = Blocked(threading.Event(), threading.Event())
        self.writer.submit(block, lambda result: None)
        assert block.begun.wait(240)
        return block.go_on

    def take(self, count):
        """Take deliveries until there are so many answers; returns how many it took."""
        taken = 0
        while len(self.answers) < count:
            self.deliveries.get(timeout=240)()
            taken += 1
        return taken


@pytest.fixture
def desk(store):
    made = Desk(store)
    made.submit(PutFeed(FEED, {}))
    made.take(1)
    made.answers.clear()
    yield made
    made.writer.close()


def test_what_queues_up_during_a_commit_is_committed_together(store, desk):
    before = transactions(store)
    go_on = desk.hold()
    for number in range(100):
        desk.submit(append(b"%d" % number))
    go_on.set()
    desk.take(100)
    assert [answer.values for answer in desk.answers] == [[b"%d" % n] for n in range(100)]
    assert transactions(store) - before <= 3
    assert store.feed(FEED).count == 100


def test_a_group_has_its_limits(store, desk):
    before = transactions(store)
    go_on = desk.hold()
    value = b"x" * 200_000
    many = OWN_GROUP_BYTES // len(value) + 2
    for number in range(many):
        desk.submit(append(b"%d" % number + value))
    for number in range(GROUP_OPERATIONS + 1):
        desk.submit(append(b"%d" % number))
    go_on.set()
    desk.take(many + GROUP_OPERATIONS + 1)
    assert transactions(store) - before >= 3


def transactions(store) -> int:
    with store.environment.read() as txn:
        return txn.id()


def test_nobody_is_answered_before_the_commit(store, desk):
    seen = []
    done = threading.Event()

    def answered(result):
        seen.append((store.has(FEED, [b"v"]), threading.current_thread()))
        done.set()

    desk.writer.submit(append(b"v"), answered)
    desk.deliveries.get(timeout=240)()
    assert done.is_set()
    assert seen == [([True], threading.current_thread())]


def test_a_failing_operation_harms_only_itself(store, desk):
    go_on = desk.hold()
    desk.submit(append(b"before"))
    desk.submit(Failing())
    desk.submit(append(b"lost", feed=b"s" * 32))
    desk.submit(append(b"after"))
    go_on.set()
    desk.take(4)
    first, failed, stranger, last = desk.answers
    assert (first.values, last.values) == ([b"before"], [b"after"])
    assert isinstance(failed, ZeroDivisionError)
    assert isinstance(stranger, NoSuchFeed)
    assert store.get_meta("half") is None
    assert store.feed(FEED).count == 2
    assert store.verify().ok


def test_queued_bytes_rise_and_fall(desk):
    go_on = desk.hold()
    low = desk.writer.queued_bytes
    desk.submit(append(b"x" * 5_000))
    assert desk.writer.queued_bytes >= low + 5_000
    go_on.set()
    desk.take(1)
    assert desk.writer.queued_bytes == 0


def test_close_writes_what_is_queued(store, desk):
    go_on = desk.hold()
    for number in range(10):
        desk.submit(append(b"%d" % number))
    closing = threading.Thread(target=desk.writer.close)
    closing.start()
    go_on.set()
    closing.join(240)
    assert store.feed(FEED).count == 10
    desk.take(10)
    assert all(isinstance(answer, Appended) for answer in desk.answers)
    desk.writer.close()
    desk.submit(append(b"late"))
    desk.take(11)
    assert isinstance(desk.answers[-1], StoreClosed)
    assert store.has(FEED, [b"late"]) == [False]


def test_a_closed_store_is_said_to_every_caller(store, desk):
    go_on = desk.hold()
    closing = threading.Thread(target=store.close)
    closing.start()
    desk.submit(append(b"a"))
    desk.submit(append(b"b"))
    go_on.set()
    closing.join(240)
    desk.submit(append(b"c"))
    desk.take(3)
    assert isinstance(desk.answers[-1], StoreClosed)
    assert all(isinstance(answer, (StoreClosed, Appended)) for answer in desk.answers)
    with pytest.raises(StoreClosed):
        store.feeds()


def test_an_answer_that_raises_keeps_no_other_from_its_own(store, desk):
    go_on = desk.hold()

    def broken(result):
        raise ZeroDivisionError("in a caller")

    desk.writer.submit(append(b"a"), broken)
    desk.submit(append(b"b"))
    go_on.set()
    desk.deliveries.get(timeout=240)()
    with pytest.raises(ZeroDivisionError):
        desk.deliveries.get(timeout=240)()
    assert [answer.values for answer in desk.answers] == [[b"b"]]


def test_a_delivery_that_raises_does_not_end_the_writer(store, monkeypatch):
    reported = []
    monkeypatch.setattr("sys.excepthook", lambda kind, error, trace: reported.append(kind))
    answers = []
    told = threading.Event()

    def deliver(answer):
        answer()
        if len(answers) == 1:
            raise ZeroDivisionError("in the event loop")
        told.set()

    writer = Writer(store, deliver=deliver)
    writer.submit(PutFeed(FEED, {}), answers.append)
    writer.submit(append(b"a"), answers.append)
    writer.close()
    assert len(answers) == 2
    assert told.is_set() or reported == [ZeroDivisionError]
    assert store.has(FEED, [b"a"]) == [True]


def test_many_threads_write_one_value_each(tmp_path):
    store = Store.open(tmp_path / "durable")
    writer = Writer(store, deliver=lambda answer: answer())
    ready = threading.Event()
    writer.submit(PutFeed(FEED, {}), lambda result: ready.set())
    assert ready.wait(240)

    def caller(name):
        for number in range(20):
            stored = threading.Event()
            writer.submit(append(b"%d %d" % (name, number)), lambda result, e=stored: e.set())
            assert stored.wait(240)

    threads = [threading.Thread(target=caller, args=(name,)) for name in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    writer.close()
    assert store.feed(FEED).count == 320
    assert store.verify().ok
    store.close()


def test_an_inline_writer_answers_at_once(store):
    writer = WriterInline(store)
    answers = []
    writer.submit(PutFeed(FEED, {}), answers.append)
    writer.submit(append(b"a"), answers.append)
    writer.submit(Failing(), answers.append)
    writer.close()
    writer.submit(append(b"b"), answers.append)
    assert answers[1].values == [b"a"]
    assert isinstance(answers[2], ZeroDivisionError)
    assert isinstance(answers[3], StoreClosed)
    assert writer.queued_bytes == 0


class Caller:
    """Notes what it is answered."""

    def __init__(self):
        self.answers = []

    def __call__(self, answer):
        self.answers.append(answer)


def test_nothing_of_a_group_is_kept_while_the_writer_waits_for_the_next(desk):
    caller, gone = Caller(), threading.Event()
    weakref.finalize(caller, gone.set)
    desk.writer.submit(append(b"value"), caller)
    while not caller.answers:
        desk.deliveries.get(timeout=240)()
    del caller
    assert gone.wait(240)
