"""Who is written when several wait: own operations, and those of peers by key."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from dataclasses import dataclass

import pytest

from hyperbloom.store import AppendValues, PutFeed, Writer
from hyperbloom.store.limits import (
    GROUP_BYTES,
    GROUP_OPERATIONS,
    GROUP_SECONDS,
    OWN_GROUP_SECONDS,
    OWN_LATELY_SECONDS,
    OWN_WAITS_SECONDS,
    PIECE_BYTES,
    QUANTUM_BYTES,
    VALUE_COST_BYTES,
)
from hyperbloom.store.operations import pieces_of, written_bytes
from hyperbloom.store.write_queue import OWN, Queued, WriteQueue

FEED = b"f" * 32
A, B = b"a" * 32, b"b" * 32
OF_A, OF_B = (A,), (B,)


@dataclass
class Weight:
    """An operation of a given weight; `apply` notes that it was done."""

    size: int
    done: list
    name: object = None

    def apply(self, transaction):
        self.done.append(self.name)


def queued(origin, size, name=None):
    return Queued(Weight(size, [], name), size, origin, lambda result: None)


def names(group):
    return [one.operation.name for one in group]


def test_own_operations_do_not_wait_behind_what_a_peer_has_queued():
    waiting = WriteQueue()
    for number in range(1_000):
        waiting.add(queued(OF_A, PIECE_BYTES, number))
    waiting.add(queued(OWN, 300, "own"))
    group = waiting.take()
    assert "own" in names(group)
    assert sum(one.size for one in group) <= GROUP_BYTES
    assert names(group)[1:] == list(range(len(group) - 1))


def test_a_peer_does_not_wait_behind_own_operations_either():
    waiting = WriteQueue()
    for _ in range(4 * GROUP_OPERATIONS):
        waiting.add(queued(OWN, 300))
    waiting.add(queued(OF_A, PIECE_BYTES, "theirs"))
    group = waiting.take()
    assert "theirs" in names(group)
    assert len(group) <= GROUP_OPERATIONS


def test_own_operations_go_alone_behind_a_group_of_others(store, monkeypatch):
    groups, runs, done = [], [], threading.Event()

    def commit(environment, operations, *, is_late, run_bytes):
        runs.append(run_bytes)
        groups.append([operation.name for operation in operations])
        if len(groups) == 1:
            desk.writer.submit(Weight(300, [], "own"), lambda result: None)
        if groups[-1][-1] == 39:
            done.set()
        return [None for _ in operations]

    desk = Desk(store)
    desk.hold()
    monkeypatch.setattr("hyperbloom.store.writer.commit_group", commit)
    for number in range(40):
        desk.writer.submit(Weight(PIECE_BYTES, [], number), lambda result: None, origin=OF_A)
    desk.let_go()
    assert done.wait(30)
    desk.finish()
    assert groups[1] == ["own"]
    assert runs[1] == GROUP_BYTES, "nobody else waits for it in this group"
    assert {*runs} - {GROUP_BYTES} == {PIECE_BYTES}
    assert runs[0] == PIECE_BYTES
    assert [name for group in groups for name in group if name != "own"] == list(range(40))
    assert len(groups) <= 5, "others have their turn behind it"


@pytest.mark.parametrize(("part", "group"), [(1e6, ["a", "first", "b"]), (0.0, ["a"])])
def test_callers_who_were_answered_together_are_written_together_again(
    store, monkeypatch, part, group
):
    """Else callers that once were parted into two groups would stay so, with two syncs for one."""
    written, began, go_on, answered = [], threading.Event(), threading.Event(), threading.Event()

    def commit(environment, operations, *, is_late, run_bytes):
        written.append([getattr(operation, "name", None) for operation in operations])
        if written[-1] == ["first"]:
            began.set()
            assert go_on.wait(60)
        return [None] * len(operations)

    monkeypatch.setattr("hyperbloom.store.writer.commit_group", commit)
    writer = Writer(store, deliver=lambda call: call())
    again = [Weight(300, [], "first")]
    writer.submit(Weight(300, [], "first"), lambda _: writer.submit(again[0], lambda _: None))
    assert began.wait(60)
    monkeypatch.setattr("hyperbloom.store.writer.GATHER_PART", part)
    monkeypatch.setattr("hyperbloom.store.writer.OWN_WAITS_SECONDS", 60.0)
    # Both stand in the next group. One comes again while it is answered, the other a little later.
    writer.submit(Weight(300, [], "a"), lambda _: writer.submit(Weight(300, [], "a"), ended))
    writer.submit(Weight(300, [], "b"), lambda _: answered.set())

    def ended(_):
        if part == 0.0:
            late.set()

    late = threading.Event()
    go_on.set()
    assert answered.wait(60)
    if part == 0.0:
        assert late.wait(60)
    for name in ("first", "b"):
        writer.submit(Weight(300, [], name), lambda _: None)
    writer.close()
    together = next(number for number, names in enumerate(written) if "b" in names)
    assert written[together + 1] == group


@pytest.mark.parametrize("sizes", [(PIECE_BYTES, PIECE_BYTES), (PIECE_BYTES, 3_000)])
def test_two_peers_have_the_same_however_much_one_has_queued(sizes):
    waiting = WriteQueue()
    for _ in range(5_000):
        waiting.add(queued(OF_A, sizes[0]))
    for _ in range(2_000):
        waiting.add(queued(OF_B, sizes[1]))
    had = Counter()
    for _ in range(3):
        for one in waiting.take():
            had[one.origin] += one.size
    assert abs(had[A] - had[B]) <= QUANTUM_BYTES + max(sizes)


def test_who_is_alone_has_all_of_a_group_and_the_order_stays():
    waiting = WriteQueue()
    for number in range(100):
        waiting.add(queued(OF_A, PIECE_BYTES, number))
    assert waiting.bytes == 100 * PIECE_BYTES
    taken = names(waiting.take())
    assert len(taken) == GROUP_BYTES // PIECE_BYTES
    while waiting:
        taken += names(waiting.take())
    assert taken == list(range(100))
    assert waiting.bytes == 0


def test_a_transaction_has_so_many_operations_of_a_peer_and_no_more():
    waiting = WriteQueue()
    for number in range(GROUP_OPERATIONS + 1):
        waiting.add(queued(OF_A, 1, number))
    assert names(waiting.take()) == list(range(GROUP_OPERATIONS))
    assert names(waiting.take()) == [GROUP_OPERATIONS]


def test_what_was_not_written_comes_first_the_next_time():
    waiting = WriteQueue()
    for number in range(8):
        waiting.add(queued(OF_A, PIECE_BYTES, number))
    waiting.add(queued(OWN, 300, "own"))
    group = waiting.take()
    waiting.put_back(group[3:])
    assert names(group)[:3] == ["own", 0, 1]
    assert names(waiting.take())[0] == 2


def test_an_operation_of_more_than_a_turn_has_its_turn_all_the_same():
    waiting = WriteQueue()
    waiting.add(queued(OF_A, 3 * QUANTUM_BYTES, "long"))
    waiting.add(queued(OF_B, 300, "short"))
    assert sorted(names(waiting.take())) == ["long", "short"]


def test_a_value_weighs_what_it_costs_and_not_its_bytes_alone():
    tiny = [b"%04d" % number for number in range(10_000)]
    assert AppendValues(FEED, tiny, A, 1).size >= 10_000 * (4 + VALUE_COST_BYTES)
    assert written_bytes(tiny) == 10_000 * (4 + VALUE_COST_BYTES)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b"v"],
        [b"%05d" % number for number in range(40_000)],
        [b"x" * 200_000, *(b"%05d" % number for number in range(3_000)), b"y" * 261_000],
    ],
)
def test_pieces_are_bounded_and_leave_nothing_out(values):
    pieces = [list(piece) for piece in pieces_of(values)]
    assert [value for piece in pieces for value in piece] == values
    assert all(len(piece) == 1 or written_bytes(piece) <= PIECE_BYTES for piece in pieces)
    assert len(pieces) <= 2 + 2 * written_bytes(values) // PIECE_BYTES


class Desk:
    """A writer whose first transaction waits until all is queued, on a clock that tests move."""

    def __init__(self, store):
        self.now = 0.0
        self.done = []
        self.deliveries = queue.SimpleQueue()
        self.writer = Writer(store, deliver=self.deliveries.put, clock=lambda: self.now)
        self._begun, self._go_on = threading.Event(), threading.Event()

    def hold(self):
        self.writer.submit(self, lambda result: None)
        assert self._begun.wait(30)

    size = 1

    def apply(self, transaction):
        self._begun.set()
        self._go_on.wait(30)

    def let_go(self):
        self._go_on.set()

    def finish(self):
        self.let_go()
        self.writer.close()


def test_a_transaction_ends_when_it_has_taken_its_time(store):
    desk = Desk(store)
    desk.hold()

    class Slow(Weight):
        def apply(self, transaction):
            super().apply(transaction)
            commits.append(transaction)
            desk.now += GROUP_SECONDS * 0.6

    commits = []
    answers = []
    for number in range(6):
        desk.writer.submit(Slow(300, desk.done, number), answers.append, origin=OF_A)
    desk.finish()
    while not desk.deliveries.empty():
        desk.deliveries.get()()
    assert desk.done == list(range(6))
    assert len(answers) == 6
    assert len({id(transaction) for transaction in commits}) == 3


def test_others_have_less_time_beside_own_operations_from_when_theirs_begin(store):
    desk = Desk(store)
    desk.hold()

    class Slow(Weight):
        def apply(self, transaction):
            super().apply(transaction)
            groups.setdefault(id(transaction), []).append(self.name)
            kept.append(transaction)
            desk.now += OWN_WAITS_SECONDS * 0.6

    groups, kept = {}, []
    for name in ("own", "own too"):
        desk.writer.submit(Slow(300, desk.done, name), lambda result: None)
    for number in range(4):
        desk.writer.submit(Slow(300, desk.done, number), lambda result: None, origin=OF_A)
    desk.finish()
    assert 4 * 0.6 * OWN_WAITS_SECONDS < GROUP_SECONDS, "else all of it would be late"
    assert list(groups.values()) == [["own", "own too", 0, 1], [2, 3]]


def test_callers_who_are_parted_are_waited_for_until_all_are_there(store, monkeypatch):
    written, began, go_on, answered = [], threading.Event(), threading.Event(), threading.Event()

    def commit(environment, operations, *, is_late, run_bytes):
        written.append([getattr(operation, "name", None) for operation in operations])
        if written[-1] == ["first"]:
            began.set()
            assert go_on.wait(60)
        return [None] * len(operations)

    monkeypatch.setattr("hyperbloom.store.writer.commit_group", commit)
    writer = Writer(store, deliver=lambda call: call())
    writer.submit(Weight(300, [], "first"), lambda _: answered.set())
    assert began.wait(60)
    monkeypatch.setattr("hyperbloom.store.writer.GATHER_PART", 1e6)
    monkeypatch.setattr("hyperbloom.store.writer.OWN_WAITS_SECONDS", 60.0)
    for name in ("a", "b"):
        writer.submit(Weight(300, [], name), lambda _: None)
    go_on.set()
    assert answered.wait(60)
    time.sleep(0.1)  # in which "a" and "b" would be written, if nobody was waited for
    writer.submit(Weight(300, [], "again"), lambda _: None)
    writer.close()
    assert written[-1] == ["a", "b", "again"]


@pytest.mark.parametrize("origin", [OWN, A])
def test_a_writer_at_rest_begins_with_the_first_operation_that_comes(store, origin):
    desk = Desk(store)
    desk.hold()
    for _ in range(3):
        desk.writer.submit(Weight(300, []), lambda result: None)
    desk.let_go()
    for _ in range(2):
        desk.deliveries.get(timeout=60)()
    for _ in range(3):
        time.sleep(0.05)  # in which the writer goes to rest
        desk.writer.submit(Weight(300, []), lambda result: None, origin=origin)
        desk.deliveries.get(timeout=60)()
    desk.finish()


@pytest.mark.parametrize("somebody_comes", [False, True])
def test_own_operations_take_the_time_they_need_until_somebody_waits(store, somebody_comes):
    desk = Desk(store)
    desk.hold()

    class Slow(Weight):
        def apply(self, transaction):
            super().apply(transaction)
            commits.append(transaction)
            desk.now += OWN_GROUP_SECONDS * 0.6
            if somebody_comes and self.name == 0:
                desk.writer.submit(Slow(300, desk.done, "late"), answers.append)

    commits = []
    answers = []
    for number in range(4):
        desk.writer.submit(Slow(300, desk.done, number), answers.append)
    desk.let_go()
    while len(answers) < 4 + somebody_comes:
        desk.deliveries.get(timeout=60)()
    desk.finish()
    assert len({id(transaction) for transaction in commits}) == (2 if somebody_comes else 1)


def test_an_insert_is_answered_before_the_flood_that_was_there_first(store):
    desk = Desk(store)
    desk.writer.submit(PutFeed(FEED, {}), lambda result: None)
    desk.hold()
    answered = []
    tiny = [b"%07d" % number for number in range(80_000)]
    for piece in pieces_of(tiny):
        op = AppendValues(FEED, piece, A, 1)
        desk.writer.submit(op, lambda result: answered.append(A), origin=OF_A)
    for number in range(20):
        op = AppendValues(FEED, [b"own %d" % number], B, 1)
        desk.writer.submit(op, lambda result: answered.append(OWN))
    desk.finish()
    groups = []
    while not desk.deliveries.empty():
        before = len(answered)
        desk.deliveries.get()()
        groups.append(answered[before:])
    with_own = [number for number, group in enumerate(groups) if OWN in group]
    assert len(with_own) == 1
    assert with_own[0] <= 2
    assert len(groups) >= written_bytes(tiny) // GROUP_BYTES
    assert store.feed(FEED).count == 80_020


def test_a_transaction_of_others_is_short_by_what_the_disk_took_while_own_inserts_come(
    store, monkeypatch
):
    """Where values lie far apart the disk takes most of the time, behind the last operation."""
    groups = []

    def commit(environment, operations, *, is_late, run_bytes):
        groups.append([getattr(operation, "name", "own") for operation in operations])
        desk.now += 0.02 * len(operations)
        return [None for _ in operations]

    desk = Desk(store)
    desk.now = 100.0
    desk.hold()
    monkeypatch.setattr("hyperbloom.store.writer.commit_group", commit)
    for number in range(200):
        desk.writer.submit(Weight(PIECE_BYTES, [], number), lambda result: None, origin=OF_A)
    desk.writer.submit(AppendValues(FEED, [b"own"], B, 1), lambda result: None)
    desk.finish()
    assert "own" in groups[0]
    lengths = [len(group) for group in groups]
    assert lengths[0] > 10, "nothing is known of the disk yet"
    short = lengths[1 : 1 + int(OWN_LATELY_SECONDS / 0.04)]
    assert max(short) <= 2 * GROUP_SECONDS / 0.02
    assert sum(lengths) == 201
    assert max(lengths[len(short) :]) > 10, "nothing is inserted any more"
