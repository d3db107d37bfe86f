"""Rates of bytes: the mean holds, bursts are bounded, peers take turns, nothing waits for ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from twisted.internet.task import Clock

from hyperbloom.connections.bandwidth import Bandwidth
from hyperbloom.connections.limits import BURST_SECONDS, LARGEST_PIECE, LEAST_PIECE
from hyperbloom.connections.pacing import Paced

KIB = 1024


@dataclass
class Rates:
    send_rate: float = 0.0
    receive_rate: float = 0.0
    peer_send_rate: float = 0.0
    peer_receive_rate: float = 0.0


class Wire:
    """A transport that keeps what is written to it; `takes` bytes fill it."""

    def __init__(self):
        self.written = bytearray()
        self.bufferSize = LARGEST_PIECE
        self.reads = True

    def write(self, data):
        assert len(data) <= LARGEST_PIECE
        self.written += data

    def pauseProducing(self):
        self.reads = False


class Source:
    """Makes a slice whenever it may, as the jobs of a connection do; keeps what it was told."""

    def __init__(self, size=0):
        self.size = size
        self.state = "runs"
        self.paced = None

    def hold(self):
        self.state = "held"

    def pauseProducing(self):
        self.state = "full"

    def resumeProducing(self):
        self.state = "runs"
        while self.size and self.state == "runs":
            self.paced.write(bytes(self.size))

    def stopProducing(self):
        self.state = "stopped"


class Line:
    """Connections under one `Bandwidth`, and a clock that runs in steps of 10 ms."""

    def __init__(self, **rates):
        self.clock = Clock()
        self.bandwidth = Bandwidth(self.clock, Rates(**rates))
        self.readers = []

    def connect(self, whose, *, slice_bytes=0):
        source, wire = Source(slice_bytes), Wire()

        def read_on():
            wire.reads = True

        paced = Paced(self.bandwidth, wire, source, whose=(whose,), read_on=read_on)
        source.paced = paced
        if slice_bytes:
            source.resumeProducing()
        return paced, wire, source

    def comes(self, whose):
        """A connection whose peer sends as fast as it is read; a list with what was read."""
        paced, wire, _ = self.connect(whose)
        read = [0]
        self.readers.append((paced, wire, read))
        return read

    def run(self, seconds):
        for _ in range(round(seconds / 0.01)):
            for paced, wire, read in self.readers:
                while wire.reads:
                    read[0] += wire.bufferSize
                    paced.received(wire.bufferSize)
            self.clock.advance(0.01)


def most(rate, seconds, connections=1):
    """What may have moved at most: the rate, what was saved, and a piece for each connection."""
    piece = max(LEAST_PIECE, min(LARGEST_PIECE, rate / 20))
    return rate * (seconds + BURST_SECONDS) + connections * piece


@pytest.mark.parametrize("rate", [8 * KIB, 100 * KIB, 2_000_000, 8_000_000])
def test_the_mean_of_what_is_sent_is_the_rate(rate):
    line = Line(send_rate=rate)
    _, wire, _ = line.connect("one", slice_bytes=65_536)
    line.run(20)
    assert 0.95 * rate * 20 <= len(wire.written) <= most(rate, 20)
    before = len(wire.written)
    line.run(10)
    assert 0.95 * rate * 10 <= len(wire.written) - before <= 1.05 * rate * 10


@pytest.mark.parametrize("rate", [8 * KIB, 100 * KIB, 2_000_000])
def test_the_mean_of_what_is_read_is_the_rate(rate):
    line = Line(receive_rate=rate)
    one, other = line.comes("one"), line.comes("other")
    line.run(20)
    assert 0.95 * rate * 20 <= one[0] + other[0] <= most(rate, 20, connections=2)


@pytest.mark.parametrize("way", ["send", "receive"])
def test_after_a_rest_a_burst_is_bounded(way):
    rate = 100 * KIB
    line = Line(**{f"{way}_rate": rate})
    line.run(3_600)
    if way == "send":
        _, wire, _ = line.connect("one", slice_bytes=65_536)
        line.run(0.01)
        moved = len(wire.written)
    else:
        read = line.comes("one")
        line.run(0.01)
        moved = read[0]
    assert 0 < moved <= most(rate, 0.01)


@pytest.mark.parametrize("way", ["send", "receive"])
def test_peers_have_equal_parts_however_many_connections_they_have(way):
    rate = 100 * KIB
    line = Line(**{f"{way}_rate": rate})
    whose = ["one", "many", "many", "many", "many"]
    if way == "send":
        wires = [line.connect(who, slice_bytes=65_536)[1] for who in whose]
        line.run(20)
        moved = [len(wire.written) for wire in wires]
    else:
        reads = [line.comes(who) for who in whose]
        line.run(20)
        moved = [read[0] for read in reads]
    assert moved[0] == pytest.approx(sum(moved[1:]), rel=0.1)
    assert max(moved[1:]) == pytest.approx(min(moved[1:]), rel=0.2)
    assert sum(moved) <= most(rate, 20, connections=5)


@pytest.mark.parametrize("way", ["send", "receive"])
def test_a_peer_has_its_own_rate_and_leaves_the_rest_to_others(way):
    line = Line(**{f"{way}_rate": 100 * KIB, f"peer_{way}_rate": 30 * KIB})
    if way == "send":
        wires = [line.connect(who, slice_bytes=65_536)[1] for who in ("one", "one", "other")]
        line.run(20)
        one, again, other = (len(wire.written) for wire in wires)
    else:
        reads = [line.comes(who) for who in ("one", "one", "other")]
        line.run(20)
        one, again, other = (read[0] for read in reads)
    for moved in (one + again, other):
        assert 0.95 * 30 * KIB * 20 <= moved <= most(30 * KIB, 20, connections=2)


def test_while_bytes_wait_the_source_makes_no_more():
    line = Line(send_rate=8 * KIB)
    paced, wire, source = line.connect("one", slice_bytes=65_536)
    for _ in range(100):
        line.run(0.5)
        assert paced.queued <= 65_536, "one slice"
        assert source.state == "held"
    assert len(wire.written) >= 0.95 * 50 * 8 * KIB


def test_bytes_keep_their_order():
    line = Line(send_rate=8 * KIB)
    paced, wire, _ = line.connect("one")
    sent = b"".join(bytes([number % 251]) * (37 * number % 4_000) for number in range(60))
    at = 0
    for size in (1, 70_000, 3, 1_400, 1_401, len(sent)):
        paced.write(sent[at : at + size])
        at += size
    line.run(30)
    assert wire.written == sent
    assert paced.queued == 0


def test_a_full_transport_is_not_written_to_and_the_peer_is_to_blame():
    line = Line(send_rate=8 * KIB)
    paced, wire, source = line.connect("one", slice_bytes=65_536)
    line.run(1)
    paced.pauseProducing()
    assert source.state == "full"
    before = len(wire.written)
    line.run(5)
    assert len(wire.written) == before
    paced.resumeProducing()
    assert source.state == "held", "what waits goes first"
    line.run(5)
    assert len(wire.written) > before


def test_a_full_transport_does_not_hold_up_others():
    line = Line(send_rate=100 * KIB)
    paced, *_ = line.connect("full", slice_bytes=65_536)
    _, wire, _ = line.connect("other", slice_bytes=65_536)
    paced.pauseProducing()
    before = len(wire.written)
    line.run(10)
    assert len(wire.written) - before >= 0.95 * 100 * KIB * 10


def test_closing_flushes_and_others_wait_for_it():
    line = Line(send_rate=8 * KIB)
    paced, wire, _ = line.connect("one", slice_bytes=65_536)
    paced.flush()
    paced.stop()
    assert len(wire.written) >= 65_536
    _, other, _ = line.connect("other", slice_bytes=65_536)
    line.run(5)
    assert not other.written
    line.run(5)
    assert other.written


def test_who_has_gone_leaves_nothing_behind():
    line = Line(send_rate=8 * KIB, receive_rate=8 * KIB, peer_send_rate=8 * KIB)
    for _ in range(3):
        paced, *_ = line.connect("one", slice_bytes=65_536)
        line.comes("other")
        line.run(1)
        paced.stop()
        for reader, *_ in line.readers:
            reader.stop()
        line.readers = []
    line.run(10)
    for limit in (line.bandwidth.sending, line.bandwidth.receiving):
        assert limit.figures().waiting == 0
    assert line.clock.getDelayedCalls() == []


def test_without_a_rate_nothing_waits_and_no_timer_is_set():
    line = Line()
    assert not line.bandwidth.is_on
    paced, wire, source = line.connect("one")
    paced.write(bytes(1_000_000 // 16))
    paced.received(65_536)
    assert (len(wire.written), wire.reads, source.state) == (62_500, True, "runs")
    assert line.clock.getDelayedCalls() == []


def test_other_rates_hold_at_once_for_those_that_wait():
    line = Line(send_rate=8 * KIB, peer_send_rate=8 * KIB)
    _, wire, _ = line.connect("one", slice_bytes=65_536)
    line.run(5)
    before = len(wire.written)
    assert line.bandwidth.set_rates(Rates(send_rate=500 * KIB))
    line.run(5)
    assert len(wire.written) - before == pytest.approx(5 * 500 * KIB, rel=0.05)
    assert not line.bandwidth.set_rates(Rates(send_rate=500 * KIB)), "the same ones"


def test_no_rate_any_more_lets_all_go_that_waits():
    line = Line(send_rate=8 * KIB)
    paced, wire, source = line.connect("one")
    paced.write(bytes(65_536))
    assert source.state == "held"
    line.bandwidth.set_rates(Rates())
    line.run(0.1)
    assert (len(wire.written), source.state) == (65_536, "runs")


def test_what_is_held_back_is_told():
    line = Line(send_rate=8 * KIB, peer_send_rate=50 * KIB)
    line.run(5)
    found = line.bandwidth.sending.figures()
    assert (found.rate, found.peer_rate, found.waiting, found.held_seconds) == (
        8 * KIB,
        50 * KIB,
        0,
        0.0,
    )
    line.connect("one", slice_bytes=65_536)
    line.run(5)
    found = line.bandwidth.sending.figures()
    assert found.waiting == 1
    assert found.held_seconds == pytest.approx(5, abs=0.1)
