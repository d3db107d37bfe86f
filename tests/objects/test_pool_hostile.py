"""Peers of the pool that mean harm: what they send costs no long turn, no memory, no log."""

from __future__ import annotations

import msgpack
import pytest
from other_formats import write_frame
from pool_network import fired
from test_pool_peers import dial, opened
from twisted.logger import LogLevel, globalLogPublisher

from hyperbloom.objects.limits import (
    BUFFERED_BYTES_IN_ALL,
    LONG_MESSAGES,
    MAX_DEPTH,
    MAX_ENTRIES,
    PIECES_PER_TURN,
    WAITING_BYTES_IN_ALL,
    WAITING_FLOOR_BYTES,
)
from hyperbloom.objects.peers.memory import PoolMemory
from hyperbloom.objects.wire.errors import LocalProtocolError
from hyperbloom.objects.wire.framing import encode_frame
from hyperbloom.objects.wire.payloads import Change, Creation

PING = encode_frame(0, write_frame(b"\x82\xa1t\x01\xa2op\x03"))
LATEST = 2**63 - 1
INSIDE_INITIALIZE = MAX_DEPTH - 4
"""Levels of a field's value: the message, its `d`, the list of objects and the object are four."""


@pytest.fixture
def logged():
    """What is logged."""
    events = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def send(foreign, found):
    foreign.transport.write(encode_frame(0, write_frame(msgpack.packb(found))))


def initialize(*objects):
    return {"t": 1, "op": 6, "d": {"p": list(objects), "r": False}}


def test_a_message_of_very_many_objects_is_taken_in_many_turns(net):
    node = net.add("node")
    foreign = opened(net, node)
    sizes, offer = [], node.pool.offer
    node.pool.offer = lambda offers, *more, **named: (
        sizes.append(len(offers)) or offer(offers, *more, **named)
    )
    send(foreign, initialize(*({"n": n} for n in range(2_000))))
    foreign.send(Creation(t=1, d={"last": True}, h=1))
    net.run(3)
    assert max(sizes) == PIECES_PER_TURN
    assert len(node.contents()) == 2_001


def test_what_is_left_of_a_message_goes_with_its_connection(net):
    node = net.add("node")
    foreign = opened(net, node)
    offer = node.pool.offer

    def cut(offers, *more, **named):
        net.cut(foreign)
        return offer(offers, *more, **named)

    node.pool.offer = cut
    send(foreign, initialize(*({"n": n} for n in range(1_000))))
    net.run(1)
    assert 0 < len(node.contents()) <= PIECES_PER_TURN


def test_an_object_too_large_for_the_store_is_not_hashed(net):
    node = net.add("node")
    foreign = opened(net, node)
    hashed, hash_of = [], node.pool.types.hash_of
    node.pool.types.hash_of = lambda name, fields: hashed.append(fields) or hash_of(name, fields)
    many = {str(n): n for n in range(300)}
    send(foreign, initialize({"text": "x" * 1_000_000}, many, {"n": 1}))
    net.run(2)
    assert hashed == [{"n": 1}]
    assert list(node.contents().values()) == [{"n": 1}]


def test_refusals_do_not_fill_the_log(net, logged):
    node = net.add("node")
    foreign = opened(net, node)
    foreign.send(Creation(t=1, d={"n": 1}, h=5))
    logged.clear()
    send(foreign, initialize(*({"": n} for n in range(1_000))))
    foreign.send(*(Creation(t=1, d={"other": n}, h=5) for n in range(500)))
    net.run(3)
    lines = [event for event in logged if event["log_level"] >= LogLevel.info]
    refused = [event["what"] for event in lines if "objects refused" in event.get("what", "")]
    assert [int(what.split()[0]) for what in refused] == [
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512,
    ]  # fmt: skip
    assert node.pool.clashes == 500
    assert len(lines) == 10 + 9


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "before the handshake"])
def test_pings_of_a_peer_that_does_not_read_are_not_answered_one_by_one(net, is_open):
    node = net.add("node")
    foreign = opened(net, node) if is_open else dial(net, node)
    here, got = foreign.transport.other, bytearray()
    foreign.dataReceived = got.extend
    foreign.transport.write(PING)
    net.run(1)
    pong = len(got)
    assert pong > 0
    foreign.transport.pauseProducing()
    before = here.written
    for _ in range(100):
        foreign.transport.write(100 * PING)
        net.run(0.04)
    assert 65_536 < here.written - before < 80_000
    foreign.transport.resumeProducing()
    net.run(1)
    # What was on its way, and one for all that came meanwhile.
    assert len(got) == pong + here.written - before
    assert (here.written - before) // pong < 3_000
    before = len(got)
    foreign.transport.write(PING)
    net.run(1)
    assert len(got) == before + pong


def test_the_greatest_stamp_does_not_end_an_object_s_life(net, logged):
    node, far = net.add("node"), net.add("far")
    net.connect(far, node)
    foreign = opened(net, node)
    foreign.send(Creation(t=LATEST, d={"n": 1}, h=5), Creation(t=LATEST, d={"n": 2}, h=6))
    net.run(1)
    changed = far.change(5, n=3)
    node.remove(6)
    net.run(1)
    assert node.contents() == far.contents() == {changed: {"n": 3}}
    assert [event for event in logged if event["log_level"] >= LogLevel.error] == []


def test_an_object_too_deep_for_a_pool_s_stream_is_refused(net):
    node = net.add("node")
    foreign = opened(net, node)
    deep, fits = nested(INSIDE_INITIALIZE + 1), nested(INSIDE_INITIALIZE)
    foreign.send(Creation(t=1, d={"x": deep}, h=1), Creation(t=1, d={"x": fits, "y": 1}, h=2))
    foreign.send(Change(t=2, d={"x": deep}, h=3, oh=2))
    net.run(1)
    for refused in (
        lambda: node.put(x=deep),
        lambda: node.change(2, x=deep),
        lambda: node.put(x={n: n for n in range(300)}),
        lambda: node.put(x={(1, 2): 3}),
    ):
        with pytest.raises(LocalProtocolError, match="an object cannot be sent"):
            refused()
    assert node.contents() == {2: {"x": fits, "y": 1}}
    far = net.add("far")
    net.connect(far, node)
    net.run(1)
    assert far.contents() == node.contents()


def test_objects_of_very_many_entries_are_streamed_in_parts_that_may_hold_them(net):
    node = net.add("node")
    for n in range(5):
        node.put(n=n, x=[1] * 60_000)
    assert MAX_ENTRIES < 5 * 60_000
    far = net.add("far")
    net.connect(far, node)
    foreign = opened(net, node)
    net.run(1)
    assert far.contents() == node.contents()
    assert len(foreign.of(Creation)) == 5
    # No packet takes this one, and the JVM reads no message in pieces.
    large = node.put(n=6, x=net.random.randbytes(2_000).hex())
    node.put(n=7, x="")
    net.run(1)
    assert [creation.d["n"] for creation in foreign.of(Creation)[5:]] == [7]
    assert large in far.contents()
    (status,) = [peer for peer in node.network.peers() if not peer.kin]
    assert status.untold == 1
    assert "a packet takes" in status.untold_why


def test_a_field_that_is_not_equal_to_itself_is_no_clash(net):
    node, far = net.add("node"), net.add("far")
    number = node.put(x=float("nan"), n=1)
    far.put(x=float("nan"), n=1)
    net.connect(far, node)
    foreign = opened(net, node)
    foreign.send(*(Creation(t=1, d={"n": 1, "x": float("nan")}, h=number) for _ in range(2)))
    net.run(1)
    assert (node.pool.clashes, far.pool.clashes) == (0, 0)
    assert fired(node.pool.put_fields({"x": float("nan"), "n": 1}, "Thing")).hash == number
    foreign.send(Creation(t=1, d={"n": 2, "x": float("nan")}, h=number))
    net.run(1)
    assert node.pool.clashes == 1


@pytest.mark.parametrize("what", ["change", "remove"])
def test_what_was_created_anew_under_a_slow_clock_can_be_changed_at_once(net, what):
    ahead, behind = net.add("ahead", skew=100.0), net.add("behind")
    net.connect(ahead, behind)
    number = ahead.put(n=1)
    net.run(1)
    ahead.remove(number)
    net.run(1)
    assert behind.put(n=1) == number
    net.run(1)
    if what == "change":
        number = behind.change(number, n=2)
    else:
        behind.remove(number)
    net.run(1)
    expected = {number: {"n": 2}} if what == "change" else {}
    assert ahead.contents() == behind.contents() == expected


def test_a_network_has_one_row_at_the_writer(net):
    node = net.add("node")
    one, other, far = opened(net, node), opened(net, node), net.add("far")
    net.connect(node, far)
    origins, submit = [], node.pool._writer.submit

    def noted(operation, done, *, origin):
        origins.append((origin, operation.origin))
        submit(operation, done, origin=origin)

    node.pool._writer.submit = noted
    for n, peer in enumerate((one, other)):
        peer.transport.other.protocol.incoming_objects._origin = b"net"
        peer.send(*(Creation(t=1, d={"n": n}, h=n + 2 * k) for k in range(5)))
        net.run(1)
    far.put(n=100)
    net.run(1)
    node.put(n=101)
    assert {origin for origin, _ in origins} == {(b"net",), (b"peer far:6000",), ()}
    assert all(row == ((owner,) if owner else ()) for row, owner in origins)


def test_a_ring_with_a_clock_far_ahead_comes_to_rest(net):
    """Each would tell the others of a later time for what they have, for an hour."""
    ahead, two, three = net.add("ahead", skew=3_600.0), net.add("two"), net.add("three")
    for one, other in ((ahead, two), (two, three), (three, ahead)):
        net.connect(one, other)
    net.run(1)
    number = ahead.put(n=1)
    net.run(2)
    number = two.change(number, n=2)
    net.run(2)
    ahead.change(number, n=3)
    net.run(2)
    before = net.messages()
    net.run(5)
    assert net.messages() == before
    assert ahead.contents() == two.contents() == three.contents()


def test_early_messages_are_bounded_in_bytes(net):
    node = net.add("node")
    foreign = dial(net, node)
    for n in range(20):
        send(foreign, {"t": 1, "op": 7, "d": {"n": n, "x": [[]] * 10_000}, "h": n})
    net.run(1)
    early = foreign.transport.other.protocol._early
    assert 65_536 - 10_100 < sum(map(len, early)) <= 65_536
    assert all(type(one) is bytes for one in early)


def test_what_waits_in_all_holds_back_those_who_have_more_than_the_floor():
    memory = PoolMemory()
    memory.waits("one", WAITING_BYTES_IN_ALL - WAITING_FLOOR_BYTES)
    memory.waits("two", WAITING_FLOOR_BYTES)
    assert not memory.is_behind("one")
    memory.waits("three", 1)
    assert [memory.is_behind(name) for name in ("one", "two", "three", "four")] == [
        True, False, False, False,
    ]  # fmt: skip
    memory.waits("two", 1)
    assert memory.is_behind("two")
    memory.waits("one", -WAITING_FLOOR_BYTES)
    assert not memory.is_behind("two")


class Holder:
    def __init__(self, network):
        self.network, self.closed, self.came = network, False, 0

    def close(self, why):
        self.closed = True

    def room_came(self):
        self.came += 1


def test_long_messages_wait_and_networks_take_turns():
    memory = PoolMemory()
    greedy = [Holder("one") for _ in range(LONG_MESSAGES + 3)]
    taken = [memory.may_take_long(holder) for holder in greedy]
    assert taken == [True] * LONG_MESSAGES + [False] * 3
    honest = Holder("two")
    assert not memory.may_take_long(honest)
    memory.took_long(greedy[0])
    memory.took_long(greedy[1])
    assert [holder.came for holder in (*greedy[2:], honest)] == [1, 0, 0, 1]
    for holder in (*greedy, honest):
        memory.forget(holder)
    assert memory.may_take_long(Holder("three"))


def test_who_has_most_of_what_is_buffered_goes():
    memory = PoolMemory()
    many, large = [Holder("many") for _ in range(10)], Holder("large")
    part = BUFFERED_BYTES_IN_ALL // 20 + 10
    memory.buffers(large, BUFFERED_BYTES_IN_ALL - 10 * part)
    for holder in many:
        memory.buffers(holder, part)
    assert not any(holder.closed for holder in (*many, large))
    memory.buffers(many[3], part + 1)
    assert [holder for holder in (*many, large) if holder.closed] == [many[3]]
