"""The stream of a feed: slices are made once for all, rounds join what comes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hyperbloom.keys import Identity
from hyperbloom.replication.broadcast.stream import FeedStream, StreamSlice
from hyperbloom.replication.limits import (
    BROADCAST_SECONDS,
    BROADCASTS_PER_TURN,
    LEAST_SLICE_BYTES,
    MAX_JOIN_SECONDS,
    MAX_STREAM_BYTES,
    ROUND_BYTES,
    SLICE_BYTES,
    SLICE_VALUES,
    STREAM_SECONDS,
)
from hyperbloom.store.records import Appended, LogRecord, LogSlice
from hyperbloom.trust import owner_chain
from hyperbloom.wire import DIALECTS, Credentials, Data
from hyperbloom.wire.framing import FrameReader, split_frame

OWNER = Identity(bytes(32))
OTHER = b"o" * 32


def credentials():
    dialect = DIALECTS["2"]
    chain = owner_chain(OWNER, format=dialect.link_format)
    return Credentials(feed_key=OWNER.public_key, identity=OWNER, chain=chain, dialect=dialect)


#: A turn of the reactor, in seconds.
TURN = 1e-6


class Turns(Clock):
    """A clock that calls in the next turn what is to be called at once."""

    def callLater(self, delay, call, *arguments, **named):
        return super().callLater(max(delay, TURN), call, *arguments, **named)


@dataclass(eq=False)
class Reader:
    """A peer that takes what is at hand behind its cursor, `seconds` long, or fails."""

    bench: Bench
    cursor: int = 0
    seconds: float = 0.0
    fails: bool = False
    name: str = "192.0.2.1:1"
    taken: list[StreamSlice] = field(default_factory=list)
    at: list[float] = field(default_factory=list)

    def tell(self):
        if self.fails:
            raise RuntimeError("this peer fails")
        self.bench.clock.rightNow += self.seconds
        self.at.append(self.bench.clock.seconds())
        while (piece := self.bench.stream.slice_after(self.cursor)) is not None:
            self.taken.append(piece)
            self.cursor = piece.last_seq

    @property
    def values(self):
        return [value for piece in self.taken for value in piece.values]


class Bench:
    """A stream, the log that it reads, and the peers in it."""

    def __init__(self) -> None:
        self.clock = Turns()
        self.readers: list[Reader] = []
        self.log: list[LogRecord] = []
        self.asked: list[tuple[int, int, int]] = []
        self.reads: list[Deferred] = []
        self.may_write = True
        self.stream = FeedStream(
            0,
            self.readers,
            lambda: credentials() if self.may_write else None,
            self.read_log,
            self.clock,
        )

    def read_log(self, seq, limit, max_bytes):
        self.asked.append((seq, limit, max_bytes))
        self.reads.append(Deferred())
        return self.reads[-1]

    def answer(self, seconds=0.0):
        """The oldest read is done."""
        seq, limit, max_bytes = self.asked[-len(self.reads)]
        records, size = [], 0
        for one in self.log:
            if one.seq > seq and len(records) < limit and size < max_bytes:
                records.append(one)
                size += len(one.value)
        piece = LogSlice(records=records, last_seq=records[-1].seq if records else seq)
        self.reads.pop(0).callback((piece, seconds))

    def join(self, count=1, **how):
        joined = [Reader(self, cursor=self.stream.top, **how) for _ in range(count)]
        self.readers += joined
        return joined[0]

    def store(self, *values, origin=OWNER.public_key):
        first = len(self.log) + 1
        self.log += [LogRecord(first + at, 1, origin, value) for at, value in enumerate(values)]
        top = len(self.log)
        self.stream.offer(Appended(values=list(values), first_seq=first, top_seq=top), origin)

    def turns(self, count=1):
        """So many turns of the reactor: each calls what is due when it begins."""
        for _ in range(count):
            self.clock.rightNow += TURN * 1.01
            for call in [one for one in self.clock.calls if one.time <= self.clock.rightNow]:
                self.clock.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)


@pytest.fixture
def bench():
    return Bench()


def values_of(frames):
    reader, values = FrameReader(), []
    reader.feed(b"".join(frames))
    while (frame := reader.next_frame()) is not None:
        values += Data.decode(split_frame(frame)[1]).values
    return values


def test_what_is_stored_goes_to_all_in_one_slice_that_is_signed_once(bench):
    first, last = bench.join(), bench.join()
    bench.store(b"a", b"b")
    bench.store(b"c", origin=OTHER)
    assert not first.taken, "whoever stored it is answered first"
    bench.turns()
    assert first.taken == last.taken
    (piece,) = first.taken
    assert (piece.after, piece.last_seq, piece.values) == (0, 3, [b"a", b"b", b"c"])
    assert list(piece.origins) == [OWNER.public_key, OWNER.public_key, OTHER]
    assert piece.of == {OWNER.public_key, OTHER}
    assert piece.frames is piece.frames
    assert values_of(piece.frames) == [b"a", b"b", b"c"]


def test_without_a_chain_nothing_is_told(bench):
    reader = bench.join()
    bench.may_write = False
    bench.store(b"a")
    bench.turns()
    assert reader.taken[0].frames == []


def test_a_peer_that_fails_keeps_nothing_from_the_others(bench):
    bench.join()
    bench.join(fails=True)
    last = bench.join()
    bench.store(b"a")
    bench.turns()
    assert last.values == [b"a"]


def test_values_that_come_during_a_round_go_out_together_in_the_next(bench):
    first = bench.join(3, seconds=BROADCAST_SECONDS * 2)
    bench.store(b"a")
    bench.turns()
    assert first.values == [b"a"]
    assert bench.readers[1].values == [], "a turn is over after some milliseconds"
    bench.store(b"b")
    bench.store(b"c")
    bench.turns(2)
    ended = bench.clock.seconds()
    assert [reader.values for reader in bench.readers] == [[b"a"]] * 3
    took = 3 * BROADCAST_SECONDS * 2
    bench.clock.advance(took * 0.9)
    assert first.values == [b"a"], "half of the time is for others"
    bench.clock.advance(took * 0.2)
    bench.turns(3)
    assert [reader.values for reader in bench.readers] == [[b"a", b"b", b"c"]] * 3
    assert [len(reader.taken) for reader in bench.readers] == [2] * 3
    assert first.at[1] >= ended + took


def test_values_wait_no_longer_than_they_may(bench):
    reader = bench.join(seconds=10.0)
    bench.store(b"a")
    bench.turns()
    bench.store(b"b")
    bench.clock.advance(MAX_JOIN_SECONDS)
    assert reader.values == [b"a", b"b"]


def test_a_turn_tells_so_many_peers(bench):
    bench.join(BROADCASTS_PER_TURN + 1)
    bench.store(b"a")
    bench.turns()
    assert [bool(reader.taken) for reader in bench.readers[-2:]] == [True, False]
    bench.turns()
    assert bench.readers[-1].taken


def test_turns_are_by_peer(bench):
    """One that has hundreds of turns to take does not go before another one."""
    bench.join()
    fired = []
    while bench.stream.turn("fast").called:
        pass
    for _ in range(300):
        bench.stream.turn("fast").addCallback(lambda _: fired.append("fast"))
    bench.stream.turn("slow").addCallback(lambda _: fired.append("slow"))
    assert not fired
    bench.turns()
    assert "slow" in fired[:2]


def test_nobody_waits_so_nothing_is_kept(bench):
    bench.store(b"a")
    reader = bench.join()
    assert reader.cursor == 1
    bench.store(b"b")
    bench.turns()
    assert reader.values == [b"b"]


def test_what_is_too_much_for_a_slice_is_left_to_the_log(bench):
    reader = bench.join()
    bench.store(bytes(SLICE_BYTES + 1))
    bench.store(*[b"%05d" % number for number in range(SLICE_VALUES + 1)])
    bench.store(b"small")
    bench.turns()
    assert reader.taken == []
    read = bench.stream.read_after(0)
    assert bench.asked == [(0, SLICE_VALUES, SLICE_BYTES)]
    bench.answer()
    assert len(read.result.values) == 1
    behind = bench.stream.slice_after(len(bench.log) - 1)
    assert behind is not None
    assert behind.values == [b"small"]


def test_slices_for_many_peers_are_smaller(bench):
    bench.join(ROUND_BYTES // SLICE_BYTES * 4)
    bench.stream.read_after(0)
    assert bench.asked[-1][2] == SLICE_BYTES // 4
    bench.join(ROUND_BYTES // LEAST_SLICE_BYTES)
    bench.stream.read_after(1)
    assert bench.asked[-1][2] == LEAST_SLICE_BYTES


def test_the_log_is_read_once_for_all_that_wait_and_they_share_the_work(bench):
    bench.join()
    bench.store(b"a", b"b")
    bench.turns()
    bench.stream.forget()
    reads = [bench.stream.read_after(0) for _ in range(4)]
    assert len(bench.asked) == 1
    bench.answer(seconds=2.0)
    assert len({id(read.result) for read in reads}) == 1
    assert reads[0].result.seconds == 0.5
    assert bench.stream.slice_after(0) is reads[0].result


def test_a_slice_of_the_log_ends_where_the_round_does(bench):
    """For whoever reads it stands with all others afterwards."""
    bench.join()
    bench.store(b"a")
    bench.turns()
    bench.stream.forget()
    bench.store(b"b")
    read = bench.stream.read_after(0)
    bench.answer()
    assert (read.result.values, read.result.last_seq) == ([b"a"], 1)


def test_behind_the_last_value_of_the_log_all_is_forgotten(bench):
    bench.join()
    bench.store(b"a", b"b")
    bench.turns()
    bench.log.clear()
    bench.stream.forget()
    read = bench.stream.read_after(0)
    bench.answer()
    assert (read.result.values, read.result.last_seq) == ([], 2)


def test_a_read_that_fails_fails_for_all_that_wait(bench):
    bench.join()
    reads = [bench.stream.read_after(0) for _ in range(2)]
    failed = []
    for read in reads:
        read.addErrback(lambda failure: failed.append(failure.type))
    bench.reads.pop().errback(OSError("the disk"))
    assert failed == [OSError, OSError]
    bench.stream.read_after(0)
    assert len(bench.asked) == 2, "the next one tries again"


def test_what_is_forgotten_is_told_no_more(bench):
    reader = bench.join()
    bench.store(b"a")
    bench.stream.forget()
    bench.turns()
    assert reader.taken == []
    assert bench.stream.top == 1
    bench.store(b"b")
    bench.turns()
    assert bench.stream.slice_after(1).values == [b"b"]


def test_of_news_no_more_is_kept_than_may_be(bench):
    reader = bench.join()
    value = bytes(SLICE_BYTES // 2)
    for _ in range(MAX_STREAM_BYTES // len(value)):
        bench.store(value)
    bench.turns()
    assert reader.taken == [], "all of it is read from the log"
    bench.store(b"a")
    bench.turns()
    assert bench.stream.slice_after(len(bench.log) - 1).values == [b"a"]


def test_of_slices_the_oldest_go_first(bench):
    bench.join()
    value = bytes(SLICE_BYTES - 64)
    count = MAX_STREAM_BYTES // SLICE_BYTES
    for _ in range(count):
        bench.store(value)
        bench.turns()
    assert bench.stream.slice_after(0) is not None
    bench.store(value)
    bench.turns()
    assert bench.stream.slice_after(0) is None
    assert bench.stream.slice_after(1) is not None
    assert bench.stream.slice_after(count) is not None


def test_slices_are_kept_for_some_seconds(bench):
    bench.join()
    bench.store(b"a")
    bench.turns()
    bench.clock.advance(STREAM_SECONDS * 0.9)
    bench.store(b"b")
    bench.turns()
    bench.clock.advance(STREAM_SECONDS * 0.9)
    assert bench.stream.slice_after(1) is not None
    bench.clock.advance(STREAM_SECONDS)
    assert bench.stream.slice_after(1) is None
    assert not bench.clock.getDelayedCalls()
