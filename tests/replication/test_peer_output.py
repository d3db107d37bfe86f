"""What is written to a peer: counted as values, as bytes that it has not read, and as work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from hyperbloom.connections.shares import Shares
from hyperbloom.replication.counters import Counters
from hyperbloom.replication.limits import MAX_UNSENT_BYTES, Limits
from hyperbloom.replication.reading.shared_slices import SignedValues
from hyperbloom.replication.sync.peer_output import PeerOutput
from hyperbloom.wire import Digest, DigestRequest, Range, Sketch, SketchRequest, ValuesWanted

OTHERS_UNSENT = 1_000


class Bytes:
    """A session whose messages are so many bytes."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        def send(message: Any) -> bytes:
            self.sent.append((name.removeprefix("send_"), message))
            return bytes(100)

        return send


class Scheduler:
    def __init__(self) -> None:
        self.paused = False
        self.stopped = 0

    def stopProducing(self) -> None:
        self.stopped += 1


class Bench:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.told: list[int] = []
        self.turns: list[Deferred[None]] = []
        self.charged: list[float] = []
        self.session, self.scheduler, self.counters = Bytes(), Scheduler(), Counters()
        shares = Shares(Clock(), Limits)
        self.share, self.unsent = shares.join((b"k" * 32,)), shares.rooms.unsent
        self.unsent.hold(self.share, OTHERS_UNSENT)
        clock = iter(range(1, 100))
        context = SimpleNamespace(
            work_seconds=lambda: 0.25 * next(clock),
            now=lambda: 77.0,
            clock=SimpleNamespace(seconds=lambda: 55.0),
            shares=SimpleNamespace(
                charge=lambda share, seconds: self.charged.append(seconds), rooms=shares.rooms
            ),
            answer_turns=SimpleNamespace(turn=self.turn),
        )
        nothing = lambda *_: None  # noqa: E731
        connection = SimpleNamespace(
            name="peer",
            outgoing=True,
            write=self.written.append,
            look_again=nothing,
            strike=nothing,
            close=nothing,
            tell=nothing,
        )
        self.output = PeerOutput(
            connection,  # type: ignore[arg-type]
            self.session,  # type: ignore[arg-type]
            self.scheduler,  # type: ignore[arg-type]
            self.share,  # type: ignore[arg-type]
            self.counters,
            context,  # type: ignore[arg-type]
            SimpleNamespace(peer_was_sent=self.told.append),
        )

    def turn(self, path: object) -> Deferred[None]:
        assert path == self.share.path
        return self.turns.pop(0) if self.turns else succeed(None)

    @property
    def unread(self) -> int:
        return self.unsent.of(self.share)

    def answer(self, signed: SignedValues) -> None:
        Deferred.fromCoroutine(self.output.send_answer(signed))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_values_are_counted_and_told(bench: Bench) -> None:
    bench.output.send_values([])
    assert bench.session.sent == []
    bench.output.send_values([b"a", b"b"])
    assert [(kind, list(values)) for kind, values in bench.session.sent] == [("data", [b"a", b"b"])]
    bench.output.send_frames([b"frame"], [b"c"])
    assert [kind for kind, _ in bench.session.sent] == ["data", "encoded_data"]
    assert bench.told == [2, 1]
    assert (bench.counters.values_out, bench.counters.moved_at) == (3, 55.0)
    assert len(bench.written) == 2


def test_many_values_go_in_as_many_messages_as_they_need(bench: Bench) -> None:
    values = [bytes([number]) * 60_000 for number in range(40)]
    bench.output.send_values(values)
    assert 1 < len(bench.written) < len(values)
    assert sum(bench.told) == 40 * 60_000
    assert bench.counters.values_out == len(values)


def test_the_work_of_an_answer_is_charged(bench: Bench) -> None:
    bench.answer(SignedValues([b"a frame", b"another"], 3, 70))
    assert bench.session.sent == [("encoded_data", b"a frame"), ("encoded_data", b"another")]
    assert bench.charged == [0.25, 0.25]
    assert bench.told == [70]
    assert (bench.counters.values_out, bench.counters.moved_at) == (3, 55.0)


def test_each_frame_of_an_answer_waits_for_its_turn(bench: Bench) -> None:
    bench.turns = [Deferred(), Deferred()]
    first, second = bench.turns
    bench.answer(SignedValues([b"a frame", b"another"], 3, 70))
    assert bench.session.sent == []
    first.callback(None)
    assert bench.session.sent == [("encoded_data", b"a frame")]
    bench.output.stop()
    second.callback(None)
    assert len(bench.session.sent) == 1, "the connection ended while it waited"


def test_what_is_not_read_is_counted_while_the_connection_is_full(bench: Bench) -> None:
    for _ in range(3):
        bench.output.send_values([b"a"])
    assert bench.unread == OTHERS_UNSENT, "the transport took what came before"
    bench.scheduler.paused = True
    for _ in range(3):
        bench.output.send_values([b"a"])
    assert bench.unread == OTHERS_UNSENT + 300
    bench.output.stop()
    assert bench.unread == OTHERS_UNSENT
    assert bench.scheduler.stopped == 1
    bench.output.stop()
    assert bench.unread == OTHERS_UNSENT


def test_there_is_room_below_the_limit(bench: Bench) -> None:
    bench.unsent.hold(bench.share, MAX_UNSENT_BYTES - 1 - OTHERS_UNSENT)
    assert bench.output.has_room
    bench.unsent.hold(bench.share, 1)
    assert not bench.output.has_room


QUESTIONS = ("sync", "request", "filter_options", "link")
WHOLE = (Range(start=b""),)
COMPARED = [
    DigestRequest(number=1, ranges=WHOLE),
    Digest(
        number=1,
        count=0,
        digest=bytes(32),
        settled_count=0,
        settled_digest=bytes(32),
        ranges=WHOLE,
    ),
]
RECONCILED = [
    SketchRequest(number=1, salt=b"", first=0, count=1, ranges=WHOLE),
    Sketch.nothing(1, 0),
    ValuesWanted(number=1, ids=b""),
]


def test_everything_else_is_written_as_it_is(bench: Bench) -> None:
    for kind in QUESTIONS:
        getattr(bench.output, f"send_{kind}")(f"a {kind}")
    assert bench.session.sent == [(kind, f"a {kind}") for kind in QUESTIONS]
    assert len(bench.written) == len(QUESTIONS)
    assert (bench.counters.syncs_sent, bench.counters.last_sync_sent) == (1, 77.0)


def test_what_a_try_by_symbols_takes_is_counted_and_a_comparison_is_not(bench: Bench) -> None:
    bench.scheduler.paused = True
    for message in COMPARED:
        bench.output.send_extension(message)
    assert (bench.counters.sketch_bytes, bench.unread) == (0, OTHERS_UNSENT)
    for message in RECONCILED:
        bench.output.send_extension(message)
    assert (bench.counters.sketch_bytes, bench.unread) == (300, OTHERS_UNSENT + 300)
    assert [message for _, message in bench.session.sent] == [*COMPARED, *RECONCILED]
    assert len(bench.written) == 5


def test_nothing_is_sent_after_the_end(bench: Bench) -> None:
    bench.output.stop()
    for kind in QUESTIONS:
        getattr(bench.output, f"send_{kind}")(f"a {kind}")
    for message in [*COMPARED, *RECONCILED]:
        bench.output.send_extension(message)
    bench.output.send_values([b"a"])
    bench.answer(SignedValues([b"a frame"], 3, 70))
    bench.output.send_frames([b"frame"], [b"c"])
    assert bench.session.sent == []
    assert bench.written == []
    assert bench.told == []
    assert (bench.counters.values_out, bench.counters.syncs_sent) == (0, 0)
