"""What is used counts for a key and each branch above it: new keys bring nothing."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hyperbloom.connections.limits import (
    FORGIVEN_AFTER,
    LEAST_PART,
    LEAST_PART_OF_STRANGERS,
    MAX_SHARES,
    WEIGHT_SECONDS,
)
from hyperbloom.connections.shares import Shares
from hyperbloom.connections.workers import Workers
from hyperbloom.replication.limits import Limits


def keys(*names):
    return tuple(name.ljust(32).encode() for name in names)


def new_keys(*above):
    return ((*keys(*above), b"%032d" % number) for number in itertools.count())


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def shares(clock):
    return Shares(clock, Limits)


def work(shares, clock, path, seconds):
    """A connection of a path that comes, has so much done, and leaves."""
    share = shares.join(path)
    shares.charge(share, seconds)
    shares.leave(share)
    clock.advance(0.01)
    return share


def test_a_new_key_waits_as_its_branch_does(shares, clock):
    paths, honest = new_keys("hostile"), shares.join(keys("honest"))
    for _ in range(200):
        work(shares, clock, next(paths), 0.02)
    for _ in range(20):
        shares.charge(honest, 0.01)
        work(shares, clock, next(paths), 0.02)
    assert shares.rests(shares.join(next(paths))) > 0.02 * (1 / LEAST_PART - 1) / 2
    assert not shares.rests(honest)
    assert not shares.rests(shares.join(keys("newcomer")))


def test_within_a_branch_that_is_alone_one_gives_way_to_the_others_and_the_branch_does_not(
    shares, clock
):
    members = [shares.join(keys("coordinator", f"member {number}")) for number in range(10)]
    for _ in range(100):
        work(shares, clock, keys("coordinator", "hostile", "one key"), 0.02)
        work(shares, clock, keys("coordinator", "hostile", "another"), 0.02)
    for _ in range(20):
        for member in members:
            shares.charge(member, 0.004)
        work(shares, clock, keys("coordinator", "hostile", "another"), 0.02)
    assert shares.rests(shares.join(keys("coordinator", "hostile", "a third"))) > 0.1
    assert not any(shares.rests(member) for member in members)
    assert not shares.rests(shares.join(keys("coordinator")))


def test_a_branch_that_is_alone_never_rests_however_many_keys_it_has(shares, clock):
    paths = new_keys("coordinator")
    for _ in range(200):
        work(shares, clock, next(paths), 0.02)
    assert not shares.rests(shares.join(next(paths)))
    assert not shares.rests(shares.join(keys("coordinator")))


def test_a_branch_keeps_its_weight_when_its_keys_are_forgotten(shares, clock):
    paths = new_keys("hostile")
    for _ in range(200):
        work(shares, clock, next(paths), 0.05)
    clock.advance(FORGIVEN_AFTER + 1)
    shares.forget_gone()
    assert len(shares) == 0
    (branch,) = shares._branches.values()
    assert branch.weight(clock.seconds()) > 1.0
    clock.advance(10 * WEIGHT_SECONDS)
    shares.forget_gone()
    assert shares._branches == {}
    assert not shares.root.active


def test_a_key_that_was_alone_in_its_branch_keeps_its_own_weight_when_others_come(shares, clock):
    share = shares.join(keys("member"))
    shares.charge(share, 3.0)
    sub = shares.join(keys("member", "sub"))
    assert share.weight(clock.seconds()) == 3.0
    assert sub.weight(clock.seconds()) == 0.0
    shares.charge(sub, 1.0)
    assert share.weight(clock.seconds()) == 3.0
    assert share.parent.weight(clock.seconds()) == 4.0


def test_ten_thousand_keys_of_one_member_push_out_their_own_shares_alone(shares, clock):
    honest = [work(shares, clock, keys(f"member {number}"), 5.0) for number in range(50)]
    group = [work(shares, clock, keys("group", f"one {number}"), 5.0) for number in range(50)]
    for path in itertools.islice(new_keys("hostile"), 10_000):
        shares.leave(shares.join(path))
    assert len(shares) <= MAX_SHARES
    assert all(shares.join(share.path) is share for share in (*honest, *group))
    assert len(shares._branches) <= 2 * MAX_SHARES


def test_what_a_handshake_took_is_the_branchs_once_it_is_proved(shares, clock):
    strangers, paths = shares.strangers, new_keys("hostile")
    other = shares.join(keys("other"))
    for _ in range(300):
        clock.advance(0.01)
        shares.charge(other, 0.002)
        shares.charge(strangers, 0.003)
        shares.was_a_strangers(shares.join(next(paths)), 0.004, counted=0.003)
    now = clock.seconds()
    assert strangers.weight(now) == pytest.approx(0.0, abs=1e-9)
    assert not shares.rests(strangers)
    assert shares._branches[keys("hostile")].weight(now) == pytest.approx(1.2, rel=0.05)
    assert shares.rests(shares.join(next(paths))) > 0


def test_strangers_who_prove_nothing_rest_all_the_same(shares, clock):
    other = shares.join(keys("other"))
    for _ in range(300):
        clock.advance(0.01)
        shares.charge(other, 0.003)
        shares.charge(shares.strangers, 0.005)
    assert shares.rests(shares.strangers) > 0.005 * (1 / LEAST_PART_OF_STRANGERS - 1) / 2


def test_who_names_a_branch_that_rests_waits_for_its_turn(shares, clock):
    came = []

    def come(path):
        if not shares.wait_below(path, lambda: come(path)):
            came.append(path)
            shares.charge(shares.join(path), 0.001)

    paths = new_keys("hostile")
    shares.join(keys("hostile")).parent.rests_until = 1.0
    for _ in range(5):
        come(next(paths))
    come(keys("honest"))
    assert came == [keys("honest")]
    clock.advance(1.0)
    assert len(came) == 6, "nobody else is at work, so it does not rest again"


def test_of_those_who_wait_for_a_branch_each_may_make_it_rest_again(shares, clock):
    woken, paths = [], new_keys("hostile")
    branch = shares.join(keys("hostile")).parent

    def go_on():
        woken.append(clock.seconds())
        branch.rests_until = clock.seconds() + 1.0

    branch.rests_until = 1.0
    for path in itertools.islice(paths, 100):
        share = shares.join(path)
        share.wait(go_on)
        shares.wake_after_rest(share)
    assert len(clock.getDelayedCalls()) == 1, "one timer, however many keys wait"
    clock.pump([0.5] * 11)
    assert woken == [1.0, 2.0, 3.0, 4.0, 5.0]


class Inline:
    """Threads that take the seconds that a call returns."""

    def __init__(self, clock):
        self.clock, self.used = clock, 0.0

    def __call__(self, call):
        done = Deferred()
        before = self.used
        call()
        self.clock.callLater(self.used - before, done.callback, None)
        return done


def test_the_next_slice_is_of_the_branch_that_used_least_and_within_it_of_the_key(shares, clock):
    threads = Inline(clock)
    workers = Workers(threads, shares, clock, lambda: threads.used)
    done = Counter()

    def ask(name, path, seconds):
        def slice_():
            threads.used += seconds
            done[name] += 1

        work = workers.work_for(shares.join(path), slice_)
        work.addCallback(lambda _: ask(name, path, seconds))

    for path in itertools.islice(new_keys("hostile"), 50):
        ask("hostile", path, 0.01)
    ask("lonely", keys("lonely"), 0.01)
    ask("first", keys("group", "first"), 0.01)
    ask("second", keys("group", "second"), 0.01)
    clock.pump([0.005] * 4_000)
    assert done["hostile"] <= 1.3 * done["lonely"]
    assert done["lonely"] <= 1.3 * (done["first"] + done["second"])
    assert done["first"] == pytest.approx(done["second"], rel=0.2)
