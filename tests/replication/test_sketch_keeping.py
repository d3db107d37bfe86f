"""A node keeps the sketches of its feeds by itself, when it is quiet, and in steps."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from players import fired, numbered
from sim import pair
from sketch_players import check, set_limits
from twisted.internet.defer import Deferred
from twisted.logger import formatEvent, globalLogPublisher

from hyperbloom.replication.feed import sketch_keeping
from hyperbloom.replication.limits import SKETCH_PAUSE, SKETCH_QUIET_SECONDS
from hyperbloom.store import ForgetValues, StoreFull
from hyperbloom.store.sketches.writing import DropSketch, KeepSketch

RUN_OF = 20


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    set_limits(monkeypatch.setattr, RUN_VALUES=RUN_OF, SKETCH_STEP=7)
    monkeypatch.setattr(sketch_keeping, "RUN_VALUES", RUN_OF)
    monkeypatch.setattr(sketch_keeping, "SKETCH_QUIET_VALUES", 0)


@pytest.fixture
def owner(network):
    one, _, _ = pair(network)
    return one


def insert(owner, *values) -> None:
    fired(owner.feed(owner.key).insert(values))


def lag(owner) -> int:
    return owner.store.sketch_lag(owner.key)


def test_what_has_come_is_kept_once_it_is_quiet(network, owner):
    insert(owner, *numbered(50))
    network.run(SKETCH_QUIET_SECONDS - 0.1)
    assert lag(owner) == 50
    network.run(1)
    assert lag(owner) == 10
    check(owner.store, owner.key)


def test_it_waits_while_values_come(network, owner):
    for number in range(60):
        insert(owner, b"%d" % number)
        network.run(1, step=0.5)
    assert lag(owner) == 60
    network.run(5)
    assert lag(owner) == 0


def test_few_values_that_come_all_the_time_do_not_hold_it_up(network, owner, monkeypatch):
    monkeypatch.setattr(sketch_keeping, "SKETCH_QUIET_VALUES", 6)
    for number in range(60):
        insert(owner, b"%d" % number)
        network.run(0.5, step=0.1)
    assert lag(owner) <= RUN_OF + 1
    for number in range(60, 180):
        insert(owner, b"%d" % number)
        network.run(0.25, step=0.05)
    assert lag(owner) > 100
    network.run(5)
    assert lag(owner) == 0
    check(owner.store, owner.key)


def test_it_does_not_wait_with_much_behind(network, owner, monkeypatch):
    monkeypatch.setattr(sketch_keeping, "SKETCH_FAR_BEHIND", 100)
    for number in range(200):
        insert(owner, b"%d" % number)
        network.run(0.1)
    assert lag(owner) in range(80, 130)


def test_few_values_are_not_kept_and_cost_no_look(network, owner, monkeypatch):
    looks = []
    real = owner.store.sketch_lag
    monkeypatch.setattr(owner.store, "sketch_lag", lambda key: looks.append(key) or real(key))
    for number in range(RUN_OF - 1):
        insert(owner, b"%d" % number)
    assert looks == []
    network.run(30)
    assert lag(owner) == RUN_OF - 1
    insert(owner, b"one more")
    network.run(5)
    assert lag(owner) == 0


def test_steps_have_a_pause_between_them(network, owner):
    steps = []
    real = owner.store.begin_piece

    def begin(key):
        piece = real(key)
        if piece is not None:
            step = piece.step
            piece.step = lambda: steps.append(network.now()) or step()
        return piece

    owner.store.begin_piece = begin
    insert(owner, *numbered(RUN_OF))
    network.run(SKETCH_QUIET_SECONDS + 1, step=0.01)
    assert lag(owner) == 0
    assert len(steps) == 3
    assert min(b - a for a, b in pairwise(steps)) >= SKETCH_PAUSE - 1e-6


def test_what_is_forgotten_is_kept_by_the_look_of_each_minute(network, owner):
    insert(owner, *numbered(50))
    network.run(5)
    fired(Deferred.fromCoroutine(owner.feed(owner.key).forgetting.forget(numbered(50)[:30])))
    assert lag(owner) == 30
    network.run(70)
    assert lag(owner) == 10
    check(owner.store, owner.key)


def test_values_that_go_meanwhile_put_it_off(network, owner):
    submit = owner.context.writer.submit
    refused = []

    def forget_first(op, done):
        if isinstance(op, KeepSketch) and not refused:
            refused.append(op)
            submit(ForgetValues(owner.key, numbered(50)[:1]), lambda result: None)
        submit(op, done)

    owner.context.writer.submit = forget_first
    insert(owner, *numbered(50))
    network.run(SKETCH_QUIET_SECONDS + 1)
    assert lag(owner) == 49
    network.run(3 * SKETCH_QUIET_SECONDS)
    assert lag(owner) == 9
    check(owner.store, owner.key)


def test_what_cannot_be_used_is_made_anew(network, owner):
    insert(owner, *numbered(50))
    network.run(5)
    with owner.store.environment.write() as txn:
        sketches = owner.store.environment.databases["sketches"]
        cursor = txn.cursor(sketches)
        for key, data in list(cursor):
            if key[4:] == b"s":
                txn.put(key, data[1:], db=sketches)
    submitted = []
    submit = owner.context.writer.submit
    owner.context.writer.submit = lambda op, done: submitted.append(op) or submit(op, done)
    insert(owner, *numbered(80))
    network.run(5)
    assert [type(op) for op in submitted[1:]] == [DropSketch] + [KeepSketch] * 4
    assert lag(owner) == 0
    check(owner.store, owner.key)


def test_a_full_disk_is_said_in_one_line_and_tried_again(network, owner):
    submit = owner.context.writer.submit
    full = StoreFull("no room on the disk")
    owner.context.writer.submit = lambda op, done: (
        done(full) if isinstance(op, KeepSketch) else submit(op, done)
    )
    logged = []
    globalLogPublisher.addObserver(logged.append)
    try:
        insert(owner, *numbered(30))
        network.run(10)
    finally:
        globalLogPublisher.removeObserver(logged.append)
        owner.context.writer.submit = submit
    about = [event for event in logged if "no room" in formatEvent(event)]
    assert [formatEvent(event) for event in about] == [
        "keeping the sketch of a feed ended early: no room on the disk"
    ]
    assert lag(owner) == 30
    network.run(70)
    assert lag(owner) == 10


def test_a_node_that_stops_and_a_feed_that_is_left_end_it(network, owner):
    insert(owner, *numbered(50))
    network.run(1)
    owner.node.stopService()
    network.run(10)
    assert lag(owner) == 50
    owner.node.startService()
    network.run(5)
    assert lag(owner) == 10
    insert(owner, *map(partial(bytes.__add__, b"more"), numbered(50)))
    network.run(1)
    fired(owner.node.leave(owner.key))
    network.run(10)
    assert owner.store.feeds() == []
