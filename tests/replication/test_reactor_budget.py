"""No turn of the reactor takes long, whatever comes at once."""

from __future__ import annotations

from players import Instead, Intruder
from sim import pair
from twisted.internet.task import Clock

from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.replication.limits import BROADCASTS_PER_TURN, FRAMES_PER_TURN
from hyperbloom.replication.settings import FeedSettings

#: A frame that costs next to nothing.
FILTER_OPTIONS = bytes.fromhex("05 02 08 08 08 01")


def turn(clock):
    """One turn of a reactor: what is due now, and nothing that this makes due."""
    for call in [call for call in clock.calls if call.getTime() <= clock.seconds()]:
        clock.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)


def test_a_turn_gives_out_so_much_and_the_next_as_much_again():
    clock = Clock()
    budget = ReactorBudget(clock, most=3, seconds=1.0)
    assert [budget.take() for _ in range(5)] == [True] * 3 + [False] * 2
    turn(clock)
    assert budget.take()
    turn(clock)
    assert not clock.getDelayedCalls()


def test_a_turn_that_has_taken_its_time_gives_out_no_more():
    clock = Clock()
    budget = ReactorBudget(clock, most=100, seconds=1.0)
    assert budget.take()
    clock.rightNow += 2.0  # time passes, and the reactor has not come back
    assert not budget.take()


def test_those_in_the_row_come_in_turn_and_nobody_starves():
    clock = Clock()
    budget = ReactorBudget(clock, most=2, seconds=1.0)
    served = []

    def greedy(name):
        while budget.take((name,)):
            served.append(name)
        budget.wait((name,), lambda: greedy(name))

    for name in "abc":
        budget.wait((name,), lambda name=name: greedy(name))
    for _ in range(6):
        turn(clock)
    assert [served.count(name) for name in "abc"] == [4, 4, 4]


def test_a_turn_that_is_asked_for_comes_in_its_row():
    clock = Clock()
    budget = ReactorBudget(clock, most=2, seconds=1.0)
    given = []
    for name in "aabbc":
        budget.turn((name,)).addCallback(lambda _, name=name: given.append(name))
    assert given == ["a", "a"], "there was room at once"
    turn(clock)
    assert given == ["a", "a", "b", "c"], "who waits comes in turn, one row after the other"
    turn(clock)
    assert given == ["a", "a", "b", "c", "b"]
    turn(clock)
    assert not clock.getDelayedCalls()


def test_frames_of_many_floods_are_taken_turn_by_turn(network):
    owner, first, feed = pair(network)
    nodes = [first]
    for number in range(7):
        node = network.add(f"more{number}", feeds=(FeedSettings(key=feed),))
        owner.invite(feed, node)
        nodes.append(node)
    floods = [Intruder(network, node, owner, feed) for node in nodes]
    taken = []
    for peering in owner.feed(feed).peers:
        peering.connection.peering = Instead(peering, take=taken.append)
    for flood in floods:
        flood.write(flood.encrypt(FILTER_OPTIONS * 500))
    network.clock.rightNow += 1.0
    most = 0
    while len(taken) < 500 * len(floods):
        before = len(taken)
        turn(network.clock)
        most = max(most, len(taken) - before)
    assert 0 < most <= FRAMES_PER_TURN


class GroupedWriter:
    """A writer that answers all callers of a group at once, as the real one does."""

    queued_bytes = 0

    def __init__(self, inner):
        self.inner, self.answers, self.figures = inner, [], inner.figures

    def submit(self, op, done, **more):
        self.inner.submit(op, lambda result: self.answers.append((done, result)))

    def answer(self):
        answers, self.answers = self.answers, []
        for done, result in answers:
            done(result)


def test_many_small_values_stored_together_go_out_in_few_messages(network):
    owner, first, feed = pair(network)
    nodes = [first]
    for number in range(3):
        node = network.add(f"more{number}", feeds=(FeedSettings(key=feed),))
        owner.invite(feed, node)
        nodes.append(node)
    for node in nodes:
        network.connect(node, owner, feed)
    network.run(2)
    writer = GroupedWriter(owner.context.writer)
    object.__setattr__(owner.context, "writer", writer)
    before = sum(connection.bytes_out for connection in owner.node.peers())
    values = [b"%04d" % number for number in range(1_000)]
    for value in values:
        owner.feed(feed).insert([value])
    writer.answer()
    at_once = BROADCASTS_PER_TURN * 80 + len(nodes) * len(values) * 6
    assert sum(connection.bytes_out for connection in owner.node.peers()) - before < at_once * 1.1
    network.run(2)
    assert all(node.values(feed) == values for node in nodes)


def test_a_peer_with_hundreds_of_connections_has_no_more_turns_than_one_with_one():
    clock = Clock()
    budget = ReactorBudget(clock, most=64, seconds=1.0)
    served = []

    def greedy(name):
        while budget.take((name,)):
            served.append(name)
        budget.wait((name,), lambda: greedy(name))

    for _ in range(300):
        budget.wait(("flood",), lambda: greedy("flood"))
    budget.wait(("honest",), lambda: greedy("honest"))
    for _ in range(20):
        turn(clock)
    assert served.count("honest") >= 0.4 * len(served)


def test_strangers_of_many_networks_have_half_of_the_turns_at_most():
    clock = Clock()
    budget = ReactorBudget(clock, most=64, seconds=1.0)
    served = []

    def greedy(name, is_stranger):
        while budget.take((name,)):
            served.append(name)
        budget.wait((name,), lambda: greedy(name, is_stranger), is_stranger=is_stranger)

    for number in range(49):
        budget.wait((number,), lambda number=number: greedy(number, True), is_stranger=True)
    budget.wait(("member",), lambda: greedy("member", False))
    for _ in range(20):
        turn(clock)
    assert served.count("member") >= 0.4 * len(served)
    assert len(set(served)) == 50, "and every network has some"
