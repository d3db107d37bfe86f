"""What many ask alike is read, signed and encoded once; nobody gains memory or waits by it."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, succeed

from hyperbloom.keys import Identity
from hyperbloom.replication.limits import MAX_SHARED_BYTES, SHARED_SLICE_BYTES
from hyperbloom.replication.reading.shared_slices import (
    AnswerSlice,
    Question,
    SharedSlices,
    SignedValues,
)
from hyperbloom.replication.reading.slices import FeedSlices
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.sync.reply import asks_for_everything
from hyperbloom.wire import Range, Request, Session, Sync

EVERYTHING = Question(b"", None, 7, b"signer")


def slice_of(size):
    """A slice whose only frame has so many bytes."""
    return AnswerSlice(SignedValues([bytes(size)], 1, size), next_start=b"next", tested=1)


class Bench:
    """Peers that ask; `made` are the slices in the order in which they were made."""

    def __init__(self, askers=2, question=EVERYTHING):
        self.shared = SharedSlices()
        self.question = question
        self.made = []
        for _ in range(askers):
            self.shared.join(question)

    def get(self, start=b"", *, work=None, size=100):
        """What a peer is given: a list that has it once it is there, or what went wrong."""

        def make():
            self.made.append(start)
            return slice_of(size)

        outcome = []
        got = self.shared.get(self.question, start, make, work or (lambda call: succeed(call())))
        Deferred.fromCoroutine(got).addBoth(outcome.append)
        return outcome


class Turn:
    """A turn in a thread that comes when it is told to."""

    def __init__(self):
        self.is_cancelled = False

    def __call__(self, call):
        self.call, self.result = call, Deferred(self._cancel)
        return self.result

    def _cancel(self, _):
        self.is_cancelled = True

    def come(self):
        self.result.callback(self.call())


def test_a_slice_is_made_once_for_all_that_ask_alike():
    bench = Bench()
    (first,), (second,) = bench.get(), bench.get()
    assert second is first
    assert bench.made == [b""]
    bench.get(b"next")
    assert bench.made == [b"", b"next"]


def test_those_that_ask_otherwise_get_another_slice():
    bench = Bench()
    bench.get()
    for other in (
        Question(b"a", None, 7, b"signer"),
        Question(b"", b"z", 7, b"signer"),
        Question(b"", None, 8, b"signer"),
        Question(b"", None, 7, b"another"),
    ):
        bench.question = other
        bench.shared.join(other)
        bench.get()
    assert len(bench.made) == 5


def test_who_asks_alone_costs_no_memory():
    bench = Bench(askers=1)
    bench.get()
    assert (len(bench.shared), bench.shared.weight) == (0, 0)
    bench.shared.join(EVERYTHING)
    bench.get()
    assert len(bench.shared) == 1
    assert bench.shared.weight > 100


def test_what_nobody_asks_for_any_more_is_dropped():
    bench = Bench()
    bench.get()
    bench.shared.leave(EVERYTHING)
    assert len(bench.shared) == 1
    bench.shared.leave(EVERYTHING)
    assert (len(bench.shared), bench.shared.weight) == (0, 0)


def test_the_slice_that_was_asked_for_longest_ago_makes_room():
    bench = Bench()
    size = MAX_SHARED_BYTES // 4
    for start in (b"a", b"b", b"c"):
        bench.get(start, size=size)
    bench.get(b"a")
    bench.get(b"d", size=size)
    assert bench.shared.weight <= MAX_SHARED_BYTES
    assert len(bench.shared) == 3
    bench.get(b"a")
    bench.get(b"b", size=size)
    assert bench.made == [b"a", b"b", b"c", b"d", b"b"]


def test_slices_without_values_have_a_bound_too():
    bench = Bench()
    for number in range(MAX_SHARED_BYTES // 1_000):
        bench.get(b"%d" % number, size=0)
    assert len(bench.shared) <= MAX_SHARED_BYTES // 1_024


def test_whose_turn_comes_first_makes_it_and_the_others_wait_no_longer():
    bench = Bench(askers=3)
    turns = [Turn(), Turn(), Turn()]
    first, second, third = (bench.get(work=turn) for turn in turns)
    turns[1].come()
    assert len(second) == 1
    assert first == second == third, "the first of them may have to rest for long"
    assert (turns[0].is_cancelled, turns[2].is_cancelled) == (True, True)
    assert bench.made == [b""]


def test_a_peer_that_goes_while_it_waits_takes_nothing_from_the_others():
    bench = Bench()
    gone, there = Turn(), Turn()
    nothing, outcome = bench.get(work=gone), bench.get(work=there)
    gone.result.cancel()
    nothing[0].trap(CancelledError)
    there.come()
    assert outcome == [slice_of(100)]


def test_a_peer_that_fails_takes_nothing_from_the_others():
    bench = Bench()
    fails, there = Turn(), Turn()
    nothing, outcome = bench.get(work=fails), bench.get(work=there)
    fails.result.errback(ValueError())
    nothing[0].trap(ValueError)
    there.come()
    assert outcome == [slice_of(100)]


def test_nothing_that_was_read_before_values_were_removed_is_given_to_others():
    bench = Bench(askers=3)
    bench.get(b"kept")
    slow, later = Turn(), Turn()
    first = bench.get(b"being made", work=slow)
    waiting = bench.get(b"being made", work=later)
    bench.shared.clear()
    assert (len(bench.shared), bench.shared.weight) == (0, 0)
    slow.come()
    assert (len(first), len(waiting)) == (1, 0)
    later.come()
    bench.get(b"kept")
    assert bench.made == [b"kept", b"being made", b"being made", b"kept"]


def test_which_questions_ask_for_everything():
    def sync(filter_, **more):
        fields = {"size": 8 * len(filter_), "n": 1, "seed": 0, "limit": None, "range": None}
        return Sync(filter=filter_, **(fields | more))

    assert asks_for_everything(Request(start=b"a", end=b"b", limit=None))
    assert asks_for_everything(sync(bytes(16)))
    assert asks_for_everything(sync(bytes(16), range=Range(start=b"a", end=b"b")))
    assert not asks_for_everything(sync(bytes(15) + b"\x80"))
    assert not asks_for_everything(sync(bytes(16), limit=9))
    assert not asks_for_everything(Request(start=b"a", end=b"b", limit=9))


# Among nodes


def crowd_of(network, count, values, **more):
    """An owner with values, and members that have none and are not connected yet."""
    owner = network.add("owner", **more)
    owner.feed(owner.key).insert(values)
    feeds = (FeedSettings(key=owner.key),)
    members = [network.add(f"m{number}", feeds=feeds) for number in range(count)]
    for member in members:
        owner.invite(owner.key, member)
    return owner, members


VALUES = [b"%05d" % number + bytes(1_000) for number in range(400)]
SLICES = -(-400 * 1_005 // SHARED_SLICE_BYTES)


def count_calls(monkeypatch, of, name):
    calls, real = [], getattr(of, name)

    def counted(self, *arguments):
        calls.append((self, *arguments))
        return real(self, *arguments)

    monkeypatch.setattr(of, name, counted)
    return calls


def test_newcomers_that_ask_at_once_cost_one_reading_and_one_signature_a_slice(
    network, monkeypatch
):
    owner, members = crowd_of(network, 8, VALUES, thread_seconds=0.002)
    for member in members:
        network.connect(member, owner, owner.key)
    reads = count_calls(monkeypatch, FeedSlices, "portion")
    signed = count_calls(monkeypatch, Identity, "sign")
    sent = count_calls(monkeypatch, Session, "send_encoded_data")
    network.run_until(lambda: all(len(m.values(owner.key)) == 400 for m in members), 20, step=0.002)
    # Two threads may be at the same slice at once.
    assert SLICES <= len(reads) <= 2 * SLICES + 4
    data = [one for one in signed if one[0].public_key == owner.key]
    assert len(data) <= len(reads) + 2 * len(members), "the others are handshakes"
    assert len(sent) == 8 * SLICES
    assert len({one[1] for one in sent}) == SLICES, "all are sent the same frames"
    network.run(2)
    shared = owner.feed(owner.key).values.shared_slices
    assert (len(shared), shared.weight) == (0, 0)


def test_newcomers_are_not_asked_for_what_they_were_sent(network):
    """None of the owner's plans goes to who came for what the owner has."""
    owner, members = crowd_of(network, 3, VALUES, thread_seconds=0.002)
    for member in members:
        network.connect(member, owner, owner.key)
    network.run_until(lambda: all(len(m.values(owner.key)) == 400 for m in members), 20)
    network.run(8)
    assert [peer.last_sync_sent for peer in owner.node.peers()] == [None] * 3
    assert [peer.in_sync for peer in owner.node.peers()] == [True] * 3


def test_who_asks_is_sent_what_was_there_then(network):
    """A value that is put between two questions is in the second answer alone."""
    owner, (first, second) = crowd_of(network, 2, VALUES, thread_seconds=0.02)
    feed = owner.feed(owner.key)
    network.connect(first, owner, owner.key)
    network.run_until(lambda: len(first.values(owner.key)) > 0, 10, step=0.005)
    assert len(first.values(owner.key)) < 400
    feed.insert([b"99999 is new"])
    network.connect(second, owner, owner.key)
    network.run_until(
        lambda: all(len(m.values(owner.key)) == 401 for m in (first, second)), 20, step=0.005
    )
    by_first, by_second = (
        next(p for p in owner.feed(owner.key).peers if p.remote_key == m.key).counters.values_out
        for m in (first, second)
    )
    assert (by_first, by_second) == (401, 401), "nobody was sent it twice"


def test_a_forgotten_value_is_not_sent_from_what_was_read_before(network):
    owner, members = crowd_of(network, 2, VALUES, thread_seconds=0.02)
    feed = owner.feed(owner.key)
    for member in members:
        network.connect(member, owner, owner.key)
    network.run_until(lambda: len(feed.values.shared_slices) > 0, 10, step=0.005)
    feed.values.shrunk(0, 0)
    assert len(feed.values.shared_slices) == 0


def test_a_peer_that_does_not_read_costs_a_slice(network):
    owner, members = crowd_of(network, 2, VALUES, thread_seconds=0.05)
    connections = [network.connect(member, owner, owner.key) for member in members]
    network.run_until(lambda: all(m.values(owner.key) for m in members), 10, step=0.005)
    for connection in connections:
        connection.transport.pauseProducing()
    moved = {one: one.bytes_out for one in owner.node.connections._open}
    network.run(3)
    assert all(len(m.values(owner.key)) < 400 for m in members)
    for connection, before in moved.items():
        assert connection.bytes_out - before < 2.5 * SHARED_SLICE_BYTES


def test_a_key_that_rests_is_sent_nothing_of_what_is_there_for_others(network):
    owner, (heavy, light) = crowd_of(network, 2, VALUES, thread_seconds=0.02)
    for member in (heavy, light):
        network.connect(member, owner, owner.key)
    network.run_until(lambda: heavy.values(owner.key) and light.values(owner.key), 10, step=0.005)
    (peer,) = (p for p in owner.feed(owner.key).peers if p.remote_key == heavy.key)
    peer.share.rests_until = network.clock.seconds() + 2.0
    network.run(0.2)
    had = len(heavy.values(owner.key))
    network.run_until(lambda: len(light.values(owner.key)) == 400, 1.5)
    assert len(heavy.values(owner.key)) == had < 400
    network.run_until(lambda: len(heavy.values(owner.key)) == 400, 5)
