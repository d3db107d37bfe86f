"""What one key uses counts for all its connections together, and nobody waits for its backlog."""

from __future__ import annotations

import math
from collections import Counter, deque
from functools import partial
from itertools import count

import pytest
from players import Intruder, SlowWriter, numbered
from sim import pair
from twisted.internet.abstract import FileDescriptor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from hyperbloom.bloom import BloomFilter
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.door import Door
from hyperbloom.connections.limits import (
    ACTIVE_SECONDS,
    FORGIVEN_AFTER,
    FORGIVEN_WEIGHT,
    FREE_PART,
    LEAST_PART,
    MAX_SHARES,
    WEIGHT_SECONDS,
)
from hyperbloom.connections.shares import Shares
from hyperbloom.connections.workers import THREADS, Workers
from hyperbloom.replication.limits import (
    GROUPS_AHEAD,
    MAX_ASKED_BYTES,
    MAX_UNPACKED_FILTERS,
    MAX_UNSENT_BYTES,
    Limits,
)
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.sync.reply import reply_to_sync
from hyperbloom.store.limits import PIECE_BYTES
from hyperbloom.store.operations import written_bytes
from hyperbloom.store.records import RangeSlice
from hyperbloom.wire import Request, Sync


class Threads:
    """Two threads that take what they are given in that order, each for the seconds it says."""

    def __init__(self, clock):
        self.clock = clock
        self.used = 0.0
        self._waiting = deque()
        self._running = 0

    def work_seconds(self):
        return self.used

    def __call__(self, call):
        result = Deferred()
        self._waiting.append((call, result))
        self._go_on()
        return result

    def _go_on(self):
        while self._waiting and self._running < 2:
            self._running += 1
            call, result = self._waiting.popleft()
            before = self.used
            value = call()
            self.clock.callLater(self.used - before, self._end, value, result)

    def _end(self, value, result):
        self._running -= 1
        result.callback(value)
        self._go_on()


class Bench:
    """Workers on such threads; asks again and again, and counts what was done for whom."""

    def __init__(self):
        self.clock = Clock()
        self.shares = Shares(self.clock, Limits)
        self.threads = Threads(self.clock)
        self.workers = Workers(self.threads, self.shares, self.clock, self.threads.work_seconds)
        self.done = Counter()

    def ask(self, name, share, seconds, pause=0.0):
        def work():
            self.threads.used += seconds

        def ended(_):
            self.done[name] += 1
            self.clock.callLater(pause, self.ask, name, share, seconds, pause)

        asked = self.workers.own(work) if share is None else self.workers.work_for(share, work)
        asked.addCallback(ended)

    def run(self, seconds):
        self.clock.pump([0.001] * round(seconds * 1000))


def test_a_key_has_the_same_from_one_connection_as_from_hundreds():
    had = []
    for connections in (1, 300):
        bench = Bench()
        flood, honest = bench.shares.join((b"x" * 32,)), bench.shares.join((b"h" * 32,))
        for _ in range(connections):
            bench.ask("flood", flood, 0.06)
        bench.ask("honest", honest, 0.005, pause=0.04)
        bench.run(10)
        had.append(bench.done["honest"])
        assert bench.done["flood"] * 0.06 >= 0.5 * LEAST_PART * 10, "it is not shut out"
    alone = Bench()
    alone.ask("honest", alone.shares.join((b"h" * 32,)), 0.005, pause=0.04)
    alone.run(10)
    assert min(had) >= 0.8 * alone.done["honest"]


def test_own_work_waits_for_no_backlog():
    bench = Bench()
    for number in range(50):
        share = bench.shares.join((bytes([number]) * 32,))
        for _ in range(10):
            bench.ask("flood", share, 0.03)
    bench.ask("own", None, 0.01)
    bench.run(3)
    assert bench.done["own"] >= 40
    assert bench.done["flood"] >= 20


def test_who_is_alone_never_rests():
    bench = Bench()
    share = bench.shares.join((b"x" * 32,))
    bench.ask("alone", share, 0.05)
    bench.run(10)
    assert bench.done["alone"] >= 190
    assert not bench.shares.rests(share)


def test_many_who_ask_as_much_as_they_can_have_the_same():
    bench = Bench()
    for number in range(8):
        bench.ask(number, bench.shares.join((bytes([number]) * 32,)), 0.02)
    bench.run(20)
    assert max(bench.done.values()) <= 1.5 * min(bench.done.values())
    assert sum(bench.done.values()) * 0.02 >= 0.6 * THREADS * 20, "the threads are used"


def test_who_was_there_before_makes_nobody_wait_for_long():
    bench = Bench()
    light, heavy = bench.shares.join((b"l" * 32,)), bench.shares.join((b"x" * 32,))
    bench.shares.charge(light, 0.2)
    bench.clock.advance(ACTIVE_SECONDS + 0.1)
    bench.shares.charge(heavy, 2.0)
    assert not bench.shares.rests(heavy)


def test_what_a_key_has_used_is_kept_when_it_leaves():
    clock = Clock()
    shares = Shares(clock, lambda: Limits(sync_rate=1_000, sync_burst=10_000))
    share = shares.join((b"x" * 32,))
    assert share.budget.spend(30_000, now=0.0) == 20.0
    shares.leave(share)
    assert shares.join((b"x" * 32,)).budget.spend(0, now=0.0) == 20.0


def test_as_many_keys_are_kept_as_the_limit_says_and_none_that_is_connected_goes():
    shares = Shares(Clock(), Limits)
    connected = shares.join((b"c" * 32,))
    for number in range(MAX_SHARES - 1):
        shares.leave(shares.join((number.to_bytes(32, "big"),)))
    assert len(shares) == MAX_SHARES
    shares.leave(shares.join((b"one more".ljust(32),)))
    assert MAX_SHARES * 7 // 8 <= len(shares) < MAX_SHARES
    assert shares.join((b"c" * 32,)) is connected


def gone(clock, shares, key, *, seconds=0.0, tested=0):
    """A key that has worked so long here, has asked for so much, and has left."""
    share = shares.join((key,))
    share.budget.spend(tested, now=clock.seconds())
    shares.charge(share, seconds)
    shares.leave(share)
    return share


def is_kept(shares, key):
    """Whether a look leaves the share of a key as it is."""
    before = len(shares)
    shares.forget_gone()
    return len(shares) == before


def test_what_is_kept_after_a_crowd_is_nothing_once_it_owes_nothing():
    clock = Clock()
    shares = Shares(clock, Limits)
    for number in range(1_000):
        gone(clock, shares, number.to_bytes(32, "big"), seconds=0.02, tested=1_000)
    shares.forget_gone()
    assert len(shares) == 1_000
    clock.advance(FORGIVEN_AFTER)
    shares.forget_gone()
    assert len(shares) == 0
    assert not shares.root.active


def test_a_key_comes_again_with_the_weight_it_left_with_until_that_is_next_to_nothing():
    clock = Clock()
    shares = Shares(clock, Limits)
    share = gone(clock, shares, b"x" * 32, seconds=10.0)
    least = WEIGHT_SECONDS * math.log(10.0 / FORGIVEN_WEIGHT)
    clock.advance(least - 1.0)
    assert is_kept(shares, b"x" * 32)
    assert share.weight(clock.seconds()) > FORGIVEN_WEIGHT
    assert shares.join((b"x" * 32,)) is share
    shares.leave(share)
    clock.advance(1.1)
    assert not is_kept(shares, b"x" * 32)
    assert shares.join((b"x" * 32,)).weight(clock.seconds()) == 0.0


def test_coming_and_going_forgives_less_than_a_key_may_use_anyway():
    """One that leaves as soon as it would be forgotten has less than who stays and never rests."""
    clock = Clock()
    shares = Shares(clock, Limits)
    had = 0.0
    while clock.seconds() < 600:
        share = shares.join((b"x" * 32,))
        used = max(0.0, FORGIVEN_WEIGHT - share.weight(clock.seconds()))
        shares.charge(share, used)
        had += used
        shares.leave(share)
        clock.advance(FORGIVEN_AFTER)
        shares.forget_gone()
    assert 0.0 < had < FREE_PART * clock.seconds() / 10


def test_a_debt_of_questions_is_kept_until_it_is_paid():
    clock = Clock()
    limits = Limits()
    shares = Shares(clock, lambda: limits)
    share = gone(clock, shares, b"x" * 32, tested=3 * limits.sync_burst)
    until = 3 * limits.sync_burst / limits.sync_rate
    assert until > FORGIVEN_AFTER, "or this shows nothing"
    clock.advance(until - 1.0)
    assert is_kept(shares, b"x" * 32)
    assert shares.join((b"x" * 32,)) is share
    assert not share.budget.is_full(now=clock.seconds())
    shares.leave(share)
    clock.advance(1.0)
    assert not is_kept(shares, b"x" * 32)


@pytest.mark.parametrize("what", ["unwritten", "writing", "asked", "unsent", "filters"])
def test_a_key_of_which_something_is_under_way_is_kept(what):
    clock = Clock()
    shares = Shares(clock, Limits)
    share = gone(clock, shares, b"x" * 32)

    def change(amount):
        if what == "writing":
            share.writing += amount
        else:
            getattr(shares.rooms, what).hold(share, amount)

    change(1)
    clock.advance(10 * FORGIVEN_AFTER)
    assert is_kept(shares, b"x" * 32)
    change(-1)
    assert not is_kept(shares, b"x" * 32)


def test_a_key_that_is_connected_rests_or_is_waited_for_is_kept():
    clock = Clock()
    shares = Shares(clock, Limits)
    share = gone(clock, shares, b"x" * 32)
    clock.advance(10 * FORGIVEN_AFTER)
    shares.join((b"x" * 32,))
    assert is_kept(shares, b"x" * 32)
    shares.leave(share)

    def go_on():
        pass

    share.wait(go_on)
    assert is_kept(shares, b"x" * 32)
    share.forget(go_on)
    share.rests_until = clock.seconds() + 1
    assert is_kept(shares, b"x" * 32)
    shares.wake_after_rest(share)
    clock.advance(FORGIVEN_AFTER + 1)
    assert not is_kept(shares, b"x" * 32)


def test_a_filter_counts_by_the_hashes_that_it_takes():
    values = [b"%08d" % number for number in range(4_000)]

    def tested(sync):
        reply = reply_to_sync(
            sync, lambda start, end, most: RangeSlice(values=values, next_start=None), lambda v: v
        )
        reply.next_portion()
        return reply.take_tested()

    plain = tested(Sync(filter=bytes(8), size=64, n=64, seed=0))
    dear = tested(Sync(filter=b"\xff" * 8, size=64, n=64, seed=0))
    long = tested(Sync(filter=bytes(200_000), size=1_600_000, n=64, seed=0))
    assert dear >= plain + 2 * len(values)
    assert long >= plain + 3_000


def test_a_bloom_filter_tells_how_many_hashes_it_has_computed():
    bloom = BloomFilter(64, 64, 0)
    bloom.add([b"one"])
    every = BloomFilter.from_bytes(b"\xff" * 8, size=64, n=64, seed=0)
    every.missing([b"%06d" % number for number in range(3_000)])
    assert every.take_hashed() == 64 * 3_000
    assert every.take_hashed() == 0


def second(network, member, owner, feed, name="second"):
    """Another process of the same key."""
    twin = network.add(name, feeds=(FeedSettings(key=feed),), identity=member.identity)
    owner.invite(feed, twin)
    return twin


def test_two_connections_of_a_key_have_one_budget_and_coming_again_brings_no_other(network):
    limits = Limits(sync_rate=100, sync_burst=10_000)
    owner, member, feed = pair(network, owner={"limits": limits})
    first = Intruder(network, member, owner, feed)
    (peering,) = owner.feed(feed).peers
    for _ in range(200):
        first.write(first.session.send_request(Request(start=b"x")))
    network.run(5)
    tested = peering.counters.values_tested
    assert tested >= 10_000
    network.cut(first.connection.transport)
    network.run(1)
    other = second(network, member, owner, feed)
    intruder = Intruder(network, other, owner, feed)
    again = next(one for one in owner.feed(feed).peers)
    for _ in range(200):
        intruder.write(intruder.session.send_request(Request(start=b"x")))
    network.run(5)
    assert again.counters.values_tested <= 2_000


def test_tiny_values_of_one_key_wait_for_the_disk_by_what_they_cost(network):
    owner, member, feed = pair(network, owner={"limits": Limits(unwritten_bytes=300_000)})
    writer = SlowWriter(owner.context.writer, network.clock)
    object.__setattr__(owner.context, "writer", writer)
    floods = [Intruder(network, member, owner, feed)]
    floods.append(Intruder(network, second(network, member, owner, feed), owner, feed))
    assert len(owner.feed(feed).peers) == 2
    for number, flood in enumerate(floods):
        for frame in range(10):
            values = [b"%d%d%04d" % (number, frame, value) for value in range(1_000)]
            flood.write(flood.session.send_data(values))
    network.run(0.5)
    unwritten = sum(peering.intake.unwritten for peering in owner.feed(feed).peers)
    assert 0 < unwritten <= 300_000 + written_bytes(values)
    writer.seconds = 0.0
    network.run_until(lambda: owner.feed(feed).values.count == 20_000, 60)


def test_a_peer_whose_values_wait_for_the_disk_is_not_read_until_there_is_room(network):
    owner, member, feed = pair(network, owner={"limits": Limits(unwritten_bytes=20_000)})
    writer = SlowWriter(owner.context.writer, network.clock)
    object.__setattr__(owner.context, "writer", writer)
    flood = Intruder(network, member, owner, feed)
    transport = flood.connection.wire.other
    for frame in range(10):
        flood.write(flood.session.send_data([b"%d%04d" % (frame, one) for one in range(1_000)]))
    network.run(0.5)
    assert not transport.reading, "so that TCP slows the peer"
    assert transport.arrived
    writer.seconds = 0.0
    network.run_until(lambda: owner.feed(feed).values.count == 10_000, 60)
    assert transport.reading
    assert not transport.arrived


def test_what_a_resting_key_has_sent_waits_before_the_writer(network):
    owner, member, feed = pair(network)
    writer = SlowWriter(owner.context.writer, network.clock)
    owner.context.writer = writer
    writer.seconds = 0.01
    writer.figures.group_bytes = PIECE_BYTES
    flood = Intruder(network, member, owner, feed)
    network.run(2)
    (peering,) = owner.feed(feed).peers
    share, shares = peering.share, owner.context.shares
    unwritten = shares.rooms.unwritten
    for frame in range(4):
        values = [b"%d%05d" % (frame, value) for value in range(5_000)]
        flood.write(flood.session.send_data(values))
    network.run_until(lambda: unwritten.of(share) > 4 * GROUPS_AHEAD * PIECE_BYTES, 5)
    assert 0 < share.writing <= (GROUPS_AHEAD + 1) * PIECE_BYTES
    share.rests_until = network.clock.seconds() + 1.0
    network.run(0.5)
    assert share.writing == 0
    assert unwritten.of(share) > 0
    stored = owner.feed(feed).values.count
    assert 0 < stored < 20_000
    peering.connection.close(CloseReason("stopped", "the test ends it"))
    assert shares.rests(share)
    network.run_until(lambda: owner.feed(feed).values.count == 20_000, 60)
    assert unwritten.of(share) == share.writing == 0


def test_a_key_that_reads_nothing_is_sent_so_much_over_all_its_connections(network):
    owner, member, feed = pair(network)
    for part in range(6):
        owner.feed(feed).insert(numbered(5_000, b"%d" % part + b"x" * 200))
    floods = []
    for number in range(4):
        other = second(network, member, owner, feed, f"more{number}")
        floods.append(Intruder(network, other, owner, feed))
    share = next(iter(owner.feed(feed).peers)).share
    unsent = owner.context.shares.rooms.unsent
    unsent.hold(share, MAX_UNSENT_BYTES)
    before = sum(peering.counters.values_out for peering in owner.feed(feed).peers)
    for flood in floods:
        flood.write(flood.session.send_request(Request(start=b"")))
    network.run(2)
    after = sum(peering.counters.values_out for peering in owner.feed(feed).peers)
    assert after == before
    unsent.hold(share, -MAX_UNSENT_BYTES)
    network.run(5)
    assert sum(peering.counters.values_out for peering in owner.feed(feed).peers) > before


def test_questions_of_a_key_wait_here_by_the_bytes_of_their_filters(network):
    owner, member, feed = pair(network, owner={"limits": Limits(pending_requests=1_000)})
    intruder = Intruder(network, member, owner, feed)
    (peering,) = owner.feed(feed).peers
    network.run(2)
    peering.scheduler.pauseProducing()
    dear = Sync(filter=b"\xff" * 250_000, size=2_000_000, n=64, seed=0)
    for _ in range(40):
        intruder.write(intruder.session.send_sync(dear))
    network.run(3)
    asked = owner.context.shares.rooms.asked
    assert 0 < asked.of(peering.share) <= MAX_ASKED_BYTES + 300_000
    assert peering.is_behind
    peering.scheduler.resumeProducing()
    network.run_until(lambda: asked.of(peering.share) == 0, 30)


def test_few_filters_of_a_key_are_kept_unpacked(network):
    owner, member, feed = pair(network, owner={"limits": Limits(connections_per_key=20)})
    for part in range(10):
        owner.feed(feed).insert(numbered(5_000, b"%d" % part))
    floods = []
    for number in range(MAX_UNPACKED_FILTERS + 3):
        other = second(network, member, owner, feed, f"more{number}")
        floods.append(Intruder(network, other, owner, feed))
    owner.thread_seconds = 0.2
    dear = Sync(filter=b"\xff" * 8, size=64, n=64, seed=0)
    for flood in floods:
        flood.write(flood.session.send_sync(dear))
    (share,) = {peering.share for peering in owner.feed(feed).peers}
    rooms, most = owner.context.shares.rooms, 0
    for _ in range(200):
        network.run(0.05)
        most = max(most, rooms.filters.of(share))
    assert most == MAX_UNPACKED_FILTERS
    assert not rooms.has(share)


def test_who_used_much_for_long_gives_way_though_it_uses_less_now():
    clock = Clock()
    shares = Shares(clock, Limits)
    flood, honest = shares.join((b"f" * 32,)), shares.join((b"h" * 32,))
    for _ in range(50):
        clock.advance(0.1)
        shares.charge(flood, 0.1)
    for _ in range(80):
        clock.advance(0.1)
        shares.charge(honest, 0.03)
        assert not shares.rests(honest)
    shares.charge(flood, 0.03)
    assert flood.part(clock.seconds()) < honest.part(clock.seconds())
    assert shares.rests(flood) > 0.1


def test_a_flood_gives_way_to_a_newcomer_at_once():
    clock = Clock()
    shares = Shares(clock, Limits)
    flood, honest = shares.join((b"f" * 32,)), shares.join((b"h" * 32,))
    for _ in range(50):
        clock.advance(0.1)
        shares.charge(flood, 0.1)
    assert not shares.rests(flood)
    for _ in range(5):
        clock.advance(0.1)
        shares.charge(honest, 0.04)
    shares.charge(flood, 0.1)
    assert shares.rests(flood) >= 0.9 * 0.1 * (1 / LEAST_PART - 1)
    assert not shares.rests(honest)


def test_one_piece_of_work_does_not_look_like_a_flood():
    clock = Clock()
    shares = Shares(clock, Limits)
    heavy, light = shares.join((b"x" * 32,)), shares.join((b"l" * 32,))
    clock.advance(1.0)
    shares.charge(heavy, 1.0)
    shares.charge(light, 0.002)
    assert light.part(clock.seconds()) < 0.01
    shares.charge(heavy, 0.1)
    assert shares.rests(heavy) < 0.01


def test_work_that_waits_is_dropped_when_it_is_cancelled():
    bench = Bench()
    share = bench.shares.join((b"x" * 32,))
    done, failed = [], []
    for number in range(3):
        work = bench.workers.work_for(share, lambda number=number: done.append(number))
        work.addErrback(failed.append)
        if number < 2:
            work.cancel()
    bench.run(1)
    assert done == [0, 2], "one slice of a key is under way at a time"
    assert [failure.type for failure in failed] == 2 * [CancelledError]


def test_who_waits_for_a_rest_to_end_goes_on_until_the_next_rest():
    clock = Clock()
    shares = Shares(clock, Limits)
    share, went_on = shares.strangers, []

    def go_on(number):
        went_on.append(number)
        if number == 1:
            share.rests_until = clock.seconds() + 1.0

    share.rests_until = 1.0
    for number in range(4):
        share.wait(partial(go_on, number))
    shares.wake_after_rest(share)
    clock.advance(1.0)
    assert went_on == [0, 1]
    clock.advance(1.0)
    assert went_on == [0, 1, 2, 3]


class Port(FileDescriptor):
    """A port that notes whether it is listened at."""

    connected = True
    is_read = True

    def startReading(self):
        self.is_read = True

    def stopReading(self):
        self.is_read = False


def test_nobody_is_let_in_while_strangers_rest():
    clock = Clock()
    shares = Shares(clock, Limits)
    door, port, stopped = Door(shares, clock), Port(clock), Port(clock)
    door.add(port)
    door.add(stopped)
    honest = shares.join((b"h" * 32,))
    for _ in range(10):
        clock.advance(0.1)
        shares.charge(honest, 0.04)
        shares.charge(shares.strangers, 0.0001)
        door.look()
        assert port.is_read, "they use little"
    for _ in range(10):
        shares.charge(shares.strangers, 0.1)
    door.look()
    door.look()
    assert not port.is_read
    stopped.connected = False
    clock.advance(shares.rests(shares.strangers) + 0.01)
    assert port.is_read
    assert not stopped.is_read


def test_to_accept_a_connection_and_to_lose_it_is_the_strangers_work(network):
    owner, member, feed = pair(network)
    owner.context.work_seconds = partial(next, count(0.0, 0.01))
    strangers = owner.context.shares.strangers
    assert strangers.weight(network.clock.seconds()) == 0
    network.connect(member, owner, feed)
    accepted = strangers.weight(network.clock.seconds())
    assert accepted > 0
    network.cut(next(one for one in network.transports if one.connected))
    assert strangers.weight(network.clock.seconds()) > accepted


def test_a_crowd_that_knocks_is_not_accepted_while_it_rests(network):
    owner, member, feed = pair(network)
    port = Port(network.clock)
    owner.node.connections.door.add(port)
    shares = owner.context.shares
    network.run(2)
    for _ in range(10):
        shares.charge(shares.join((b"h" * 32,)), 0.04)
        network.run(0.1)
    owner.context.work_seconds = partial(next, count(0.0, 2.0))
    network.connect(member, owner, feed)
    assert not port.is_read
    owner.context.work_seconds = lambda: 0.0
    network.run(shares.rests(shares.strangers) + 0.1)
    assert port.is_read
