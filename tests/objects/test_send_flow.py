"""How messages go to a peer that reads whole messages only: in packets, with pauses for a PONG."""

from __future__ import annotations

import pytest

from hyperbloom.objects.limits import FOREIGN_WINDOW_BYTES, FOREIGN_WINDOW_WRITES
from hyperbloom.objects.peers.send_flow import WAIT_SECONDS, ForeignFlow


class Peer:
    """A connection that notes what is written, each turn of the reactor by itself."""

    def __init__(self, most):
        self.now = 0.0
        self.due = []
        self.may_write = True
        self.stream = []
        self.pings = 0
        self.turns = []
        self._turn = []
        self.flow = ForeignFlow(self, most=most, later=self.later)

    def later(self, seconds, call):
        self.due.append((self.now + seconds, call))

    def refill(self):
        if self.stream:
            self.flow.put(self.stream.pop(0))

    def write_frame(self, frame):
        self._turn.append(frame)

    def ping(self):
        self.pings += 1

    def run(self, turns=1, *, after=0.0):
        self.now += after
        for _ in range(turns):
            calls = [call for at, call in self.due if at <= self.now]
            self.due = [(at, call) for at, call in self.due if at > self.now]
            for call in calls:
                call()
            if self._turn:
                self.turns.append(self._turn)
                self._turn = []


def frames(count, size):
    return [bytes([number]) * size for number in range(count)]


def test_a_turn_writes_as_many_whole_messages_as_a_packet_takes():
    peer = Peer(most=100)
    said = frames(7, 30)
    for frame in said:
        peer.flow.put(frame)
    assert peer.flow.queued == 210
    peer.run()
    assert peer.turns == [said[:3]]
    assert peer.flow.queued == 120
    peer.run(5)
    assert peer.turns == [said[:3], said[3:6], said[6:]]
    assert peer.flow.queued == 0
    assert peer.due == []


def test_messages_that_fill_a_packet_exactly_share_it():
    peer = Peer(most=100)
    said = [b"a" * 60, b"b" * 40, b"c"]
    for frame in said:
        peer.flow.put(frame)
    peer.run(3)
    assert peer.turns == [said[:2], said[2:]]


def test_a_message_longer_than_a_packet_goes_alone():
    peer = Peer(most=100)
    said = [b"a" * 10, b"b" * 300, b"c" * 10]
    for frame in said:
        peer.flow.put(frame)
    peer.run(4)
    assert peer.turns == [[frame] for frame in said]


def test_what_the_pool_streams_is_made_when_there_is_room():
    peer = Peer(most=100)
    peer.stream = frames(3, 60)
    peer.flow.go_on()
    peer.run(5)
    assert [len(turn) for turn in peer.turns] == [1, 1, 1]
    assert peer.stream == []


def test_after_some_writes_it_waits_for_a_pong():
    peer = Peer(most=10)
    for frame in frames(3 * FOREIGN_WINDOW_WRITES, 10):
        peer.flow.put(frame)
    peer.run(30)
    assert (len(peer.turns), peer.pings) == (FOREIGN_WINDOW_WRITES, 1)
    peer.flow.put(b"more")
    peer.run(3)
    assert len(peer.turns) == FOREIGN_WINDOW_WRITES, "what is put meanwhile waits, too"
    peer.flow.acknowledged()
    peer.run(30)
    assert (len(peer.turns), peer.pings) == (2 * FOREIGN_WINDOW_WRITES, 2)


def test_after_some_bytes_it_waits_for_a_pong():
    peer = Peer(most=FOREIGN_WINDOW_BYTES)
    half = FOREIGN_WINDOW_BYTES // 2
    for frame in (*frames(2, half), *frames(2, half - 1), *frames(2, half)):
        peer.flow.put(frame)
    peer.run()
    assert (len(peer.turns), peer.pings) == (1, 1)
    peer.flow.acknowledged()
    peer.run()
    assert (len(peer.turns), peer.pings) == (2, 1), "two bytes are left of the window"
    peer.run(5)
    assert (len(peer.turns), peer.pings) == (3, 2)


def test_a_pong_nobody_waits_for_opens_the_window_anew():
    peer = Peer(most=10)
    for number in range(4 * FOREIGN_WINDOW_WRITES):
        peer.flow.put(b"x" * 10)
        peer.run()
        if number % 4 == 3:
            peer.flow.acknowledged()
    assert (len(peer.turns), peer.pings) == (4 * FOREIGN_WINDOW_WRITES, 0)


def test_where_no_pong_comes_it_goes_on_after_a_while():
    peer = Peer(most=10)
    for frame in frames(4 * FOREIGN_WINDOW_WRITES, 10):
        peer.flow.put(frame)
    peer.run(20)
    peer.run(20, after=WAIT_SECONDS / 2)
    assert (len(peer.turns), peer.pings) == (FOREIGN_WINDOW_WRITES, 1)
    peer.flow.acknowledged()
    peer.run(20)
    assert (len(peer.turns), peer.pings) == (2 * FOREIGN_WINDOW_WRITES, 2)
    # The time of the first PING is over; the second has as long.
    peer.run(20, after=WAIT_SECONDS / 2)
    assert len(peer.turns) == 2 * FOREIGN_WINDOW_WRITES
    peer.run(20, after=WAIT_SECONDS / 2)
    assert (len(peer.turns), peer.pings) == (3 * FOREIGN_WINDOW_WRITES, 3)


@pytest.mark.parametrize("size", [5, 500])
def test_nothing_is_written_while_the_transport_is_full(size):
    peer = Peer(most=10)
    peer.may_write = False
    peer.flow.put(b"x" * size)
    peer.run(3)
    assert peer.turns == []
    assert peer.flow.queued == size
    peer.may_write = True
    peer.flow.go_on()
    peer.flow.go_on()
    peer.run(3)
    assert peer.turns == [[b"x" * size]]
