"""Connections of the pool: handshakes, hostile peers, foreign peers, back-pressure, limits."""

from __future__ import annotations

import pytest
from other_formats import write_frame
from pool_network import fired
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol
from twisted.logger import Logger, formatEvent

from hyperbloom.objects.limits import MAX_FRAME_BYTES
from hyperbloom.objects.service import AcceptFactory, DialFactory
from hyperbloom.objects.wire.aes import AesProcessing, NoProcessing
from hyperbloom.objects.wire.codec import encode
from hyperbloom.objects.wire.framing import encode_frame
from hyperbloom.objects.wire.payloads import (
    Change,
    Creation,
    Identify,
    Initialize,
    Kick,
    Ok,
    Ping,
    Pong,
    Rejection,
    Removal,
)
from hyperbloom.objects.wire.session import KIN, Session, Waiting
from hyperbloom.store import StoreError


class Foreign(Protocol):
    """A peer of another kind, played by hand: it keeps what it gets and sends what it is told."""

    def __init__(self, processing=None):
        self.session = Session(processing or NoProcessing())
        self.got = []
        self.lost = self.answers = False

    def dataReceived(self, data):
        self.session.receive_data(data)
        while not isinstance(event := self.session.next_event(), Waiting):
            self.got.append(event)
            if self.answers and isinstance(event, Ping):
                self.send(Pong(t=1))
            if not hasattr(event, "op"):
                break

    def connectionLost(self, reason=None):
        self.lost = True

    def send(self, *payloads):
        for payload in payloads:
            self.transport.write(self.session.send(payload))

    def of(self, kind):
        return [payload for payload in self.got if isinstance(payload, kind)]


def dial(net, node, foreign=None):
    """A foreign client that connects to a node."""
    foreign = foreign or Foreign()
    near, far = net.transports("foreign", node.name)
    near.protocol = foreign
    far.protocol = AcceptFactory(node.network).buildProtocol(None)
    far.protocol.makeConnection(far)
    foreign.makeConnection(near)
    return foreign


def serve(net, node, foreign=None):
    """A foreign server that a node has dialled."""
    foreign = foreign or Foreign()
    near, far = net.transports(node.name, "foreign")
    near.protocol = DialFactory(node.network).buildProtocol(None)
    far.protocol = foreign
    foreign.makeConnection(far)
    near.protocol.makeConnection(near)
    return foreign


def opened(net, node, *, kin=False, **more):
    foreign = dial(net, node, Foreign(**more))
    foreign.send(Identify(t=1, v=None, d={KIN: 1} if kin else None))
    net.run(1)
    assert foreign.of(Ok)
    return foreign


def closings(node):
    return [(status.kind, status.reason) for status in node.network.recently_closed]


def test_a_client_of_another_kind_gets_the_pool_and_every_change(net):
    node = net.add("node")
    number = node.put(n=1, x="a")
    foreign = opened(net, node)
    assert foreign.of(Initialize) == []
    (first,) = foreign.of(Creation)
    assert (first.d, first.h) == ({"n": 1, "x": "a"}, number)
    changed = node.change(number, n=2)
    node.remove(changed)
    again = node.put(n=3, x="b")
    net.run(1)
    assert [type(p) for p in foreign.got[-3:]] == [Change, Removal, Creation]
    assert foreign.of(Change)[0].d == {"n": 2}
    assert (foreign.of(Change)[0].oh, foreign.of(Change)[0].h) == (number, changed)
    assert foreign.of(Creation)[1].h == again


def test_a_change_of_two_fields_is_told_to_another_kind_as_removal_and_creation(net):
    node = net.add("node")
    number = node.put(n=1, x="a")
    foreign, kin = opened(net, node), net.add("kin")
    net.connect(kin, node)
    net.run(1)
    changed = node.change(number, n=2, x="b")
    net.run(1)
    assert [p.h for p in foreign.of(Removal)] == [number]
    assert [p.h for p in foreign.of(Creation)] == [number, changed]
    assert kin.contents() == {changed: {"n": 2, "x": "b"}}


def test_an_empty_pool_is_not_sent_to_another_kind_and_an_empty_one_is_taken(net):
    node = net.add("node")
    foreign = opened(net, node)
    foreign.send(Initialize(t=1, objects=(), respond=True))
    net.run(1)
    assert foreign.of(Initialize) == []
    assert not foreign.lost


def test_a_server_of_another_kind_is_asked_for_its_pool(net):
    node = net.add("node")
    node.put(n=1)
    foreign = serve(net, node)
    net.run(1)
    assert foreign.of(Identify)[0].d[KIN] == 1
    foreign.send(Ok(t=1))
    net.run(1)
    assert [type(p) for p in foreign.got] == [Identify, Ok, Ping, Creation]
    foreign.send(Initialize(t=5, objects=({"word": "x"}, {"word": "y"}), respond=False))
    net.run(1)
    assert {"word": "x"} in node.contents().values()
    assert len(node.contents()) == 3


def test_another_kind_gets_the_pool_object_by_object_and_for_its_asking_once_a_minute(net):
    node = net.add("node")
    for number in range(40):
        node.put(n=number, text="x" * 200)
    foreign = Foreign()
    foreign.answers = True
    dial(net, node, foreign)
    foreign.send(Identify(t=1))
    net.run(2)
    parts = foreign.of(Creation)
    assert sorted(part.d["n"] for part in parts) == list(range(40))
    # Asking again at once is answered already.
    foreign.send(*(Initialize(t=1, objects=(), respond=True) for _ in range(5)))
    net.run(5)
    assert len(foreign.of(Creation)) == len(parts)
    net.run(60)
    foreign.send(Ping(t=1), Initialize(t=1, objects=(), respond=True))
    net.run(2)
    assert len(foreign.of(Creation)) == 2 * len(parts)


def test_old_news_of_another_kind_is_told_what_holds(net):
    node = net.add("node")
    number = node.put(n=1, x="a")
    changed = node.change(number, n=2)
    foreign = opened(net, node)
    foreign.send(Initialize(t=1, objects=({"n": 1, "x": "a"},), respond=False))
    net.run(1)
    foreign.send(Creation(t=1, d={"n": 1, "x": "a"}, h=number))
    net.run(1)
    (told,) = foreign.of(Change)
    assert (told.oh, told.h, told.d) == (number, changed, {"n": 2})
    node.remove(changed)
    foreign.send(Change(t=1, d={"n": 9}, h=77, oh=changed))
    net.run(1)
    assert [p.h for p in foreign.of(Removal)] == [changed, 77]


def test_a_ping_is_answered_and_latency_is_measured(net):
    node = net.add("node")
    foreign = opened(net, node)
    assert foreign.of(Ping)
    foreign.send(Ping(t=1))
    net.run(1)
    assert foreign.of(Pong)
    one, two = net.add("one", ping_seconds=1.0), net.add("two")
    net.connect(one, two)
    net.run(2)
    (status,) = one.network.peers()
    assert 0.005 < status.latency < 0.06


def test_a_peer_that_says_nothing_is_left(net):
    node = net.add("node", silence_seconds=5.0, ping_seconds=1.0)
    foreign = opened(net, node)
    for _ in range(8):
        net.run(1)
        node.network.look()
    assert foreign.lost
    assert not foreign.of(Kick)
    assert closings(node)[0][0] == "silent"


def test_a_handshake_that_does_not_come_ends(net):
    node = net.add("node", handshake_seconds=3.0)
    foreign = dial(net, node)
    net.run(4)
    assert foreign.lost
    assert closings(node) == [("slow", "the handshake did not come in time")]
    server = serve(net, node)
    net.run(4)
    assert server.lost


HOSTILE = {
    "another flag": lambda: encode_frame(1, b"x"),
    "no frame": lambda: encode_frame(0, b"not lz4"),
    "no map": lambda: encode_frame(0, write_frame(b"\x90")),
    # With a byte behind it: of who mixes messages, the first zero of a length may be a flag.
    "too long": lambda: bytes([0]) + (MAX_FRAME_BYTES + 1).to_bytes(4, "big") + b"x",
    "bomb": lambda: encode_frame(0, __import__("lz4.frame").frame.compress(bytes(9_000_000))),
    "deep": lambda: encode_frame(0, write_frame(b"\x81\xa1d" + b"\x91" * 50_000)),
    "giant map": lambda: encode_frame(0, write_frame(b"\xdf\x7f\xff\xff\xff")),
    "second IDENTIFY": lambda: encode(Identify(t=1), NoProcessing()),
}


@pytest.mark.parametrize("kin", [True, False])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_breach_of_the_protocol_ends_with_kick_for_who_keeps_its_pool_then(net, name, kin):
    node = net.add("node")
    foreign = opened(net, node, kin=kin)
    foreign.transport.write(HOSTILE[name]())
    net.run(1)
    assert bool(foreign.of(Kick)) == kin
    assert closings(node)[0][0] == "protocol"
    net.run(10)
    assert foreign.lost
    assert len(node.network) == 0


@pytest.mark.parametrize("name", ["another flag", "no frame", "too long"])
def test_before_the_handshake_only_who_cannot_read_a_kick_is_told_one(net, name):
    node = net.add("node")
    foreign = dial(net, node)
    foreign.transport.write(HOSTILE[name]())
    net.run(1)
    assert foreign.lost
    assert bool(foreign.of(Kick)) == (name == "another flag")


def test_another_passphrase_ends_with_kick_and_says_so(net):
    one, two = net.add("one", passphrase="x"), net.add("two", passphrase="y")
    net.connect(one, two)
    net.run(2)
    assert "passphrase" in closings(one)[0][1] + closings(two)[0][1]
    plain = net.add("plain")
    net.connect(plain, one)
    net.run(2)
    assert "flag" in closings(one)[0][1]


def test_the_handshake_of_the_aes_flag_with_another_implementation(net):
    node = net.add("node", passphrase="x")
    node.put(n=1)
    foreign = opened(net, node, processing=AesProcessing("x", salt=None))
    assert foreign.of(Creation)[0].d == {"n": 1}
    server = serve(net, node, Foreign(AesProcessing("x", salt=bytes(range(32)))))
    net.run(1)
    server.send(Ok(t=1))
    net.run(1)
    assert server.of(Creation)


def test_the_application_decides_who_is_let_in(net):
    asked = []
    later = Deferred()

    def decide(identify, address):
        asked.append((identify.v, identify.d, address.split(":")[0]))
        return later if identify.v == 7 else identify.v == 1

    node = net.add("node", decide=decide)
    good, bad, slow = dial(net, node), dial(net, node), dial(net, node)
    good.send(Identify(t=1, v=1, d={"name": "x"}))
    bad.send(Identify(t=1, v=2))
    slow.send(Identify(t=1, v=7))
    net.run(1)
    assert (len(good.of(Ok)), len(bad.of(Rejection)), slow.got) == (1, 1, [])
    assert (1, {"name": "x"}, "foreign") in asked
    later.callback(True)
    net.run(1)
    assert slow.of(Ok)

    def fails(identify, address):
        raise ZeroDivisionError

    unsure = net.add("unsure", decide=fails)
    refused = dial(net, unsure)
    refused.send(Identify(t=1))
    net.run(1)
    assert refused.of(Rejection)


def test_a_node_that_dials_itself_is_rejected(net):
    node = net.add("node")
    net.connect(node, node)
    net.run(1)
    assert {kind for kind, _ in closings(node)} == {"own", "rejected"}
    assert node.network.peers() == []


def test_connections_are_bounded_in_all_and_from_one_address(net):
    node = net.add("node", connections=3, connections_per_address=2)
    foreign = [dial(net, node) for _ in range(3)]
    net.run(1)
    assert [peer.lost for peer in foreign] == [True, False, False]
    friends = [net.add(name) for name in ("one", "two", "three", "four")]
    for friend in friends:
        net.connect(friend, node)
        net.run(1)
    # Those that had not been let in yet made room; then there was none for the last.
    assert [kind for kind, _ in closings(node)] == ["crowded"] * 4
    assert [peer.lost for peer in foreign] == [True, True, True]
    assert [len(friend.network.peers()) for friend in friends] == [1, 1, 1, 0]


def test_junk_is_counted_and_not_told_one_by_one(net, monkeypatch):
    node = net.add("node", connections=1_000, connections_per_address=1_000)
    lines = []
    monkeypatch.setattr(node.network.strangers, "_log", Logger(observer=lines.append))
    for _ in range(300):
        near, far = net.transports("stranger", "node")
        near.protocol = Protocol()
        far.protocol = AcceptFactory(node.network).buildProtocol(near.local)
        far.protocol.makeConnection(far)
        near.protocol.makeConnection(near)
        near.write(b"\xff" * 64)
    net.run(2)
    assert len(closings(node)) > 0
    assert len(lines) == 1
    net.clock.advance(60)
    assert [formatEvent(line) for line in lines][1:] == [
        "Connections of strangers to the pool in the last minute, not told one by one: "
        "protocol 299; from 1 address"
    ]


def test_the_status_tells_what_a_connection_has_moved(net):
    one, two = net.add("one"), net.add("two")
    one.put(text="x" * 1_000)
    net.connect(one, two)
    net.run(1)
    (here,), (there,) = one.network.peers(), two.network.peers()
    assert (here.bytes_in, here.bytes_out) == (there.bytes_out, there.bytes_in)
    assert here.bytes_out > there.bytes_out > 0
    assert one.network.moved() == (here.bytes_in, here.bytes_out)


def test_kick_is_said_when_a_node_stops_and_heard(net):
    one, two = net.add("one"), net.add("two")
    peer = net.connect(one, two)
    net.run(1)
    from hyperbloom.connections.close_reason import CloseReason

    two.network.close_all(CloseReason("stopped", "this node is stopping"))
    net.run(1)
    assert peer.close_reason.kind == "kicked"
    assert fired(peer.when_lost()) is None


def test_a_pool_takes_no_more_objects_than_its_setting(net):
    node = net.add("node", objects=3)
    foreign = opened(net, node)
    foreign.send(*(Creation(t=1, d={"n": n}, h=n) for n in range(5)))
    net.run(1)
    assert sorted(node.contents()) == [0, 1, 2]
    assert not foreign.lost


def test_objects_beyond_the_bounds_of_the_store_are_refused_one_by_one(net):
    node, far = net.add("node"), net.add("far")
    net.connect(far, node)
    foreign = opened(net, node)
    big = {"text": "x" * 70_000}
    foreign.send(Creation(t=1, d=big, h=1), Creation(t=1, d={"x" * 300: 1}, h=2))
    foreign.send(Initialize(t=1, objects=(big, {"n": 1}), respond=False))
    net.run(1)
    assert list(node.contents().values()) == [{"n": 1}]
    assert far.contents() == node.contents()
    assert not foreign.lost


def test_a_clash_from_a_peer_is_counted_and_not_passed_on(net):
    node, far = net.add("node"), net.add("far")
    net.connect(far, node)
    foreign = opened(net, node)
    foreign.send(Creation(t=1, d={"n": 1}, h=5))
    net.run(1)
    before = far.messages_in()
    foreign.send(Creation(t=2, d={"other": 1}, h=5))
    net.run(1)
    assert node.pool.clashes == 1
    assert far.messages_in() == before
    assert node.contents() == {5: {"n": 1}}


class Holding:
    """A writer whose disk does nothing until it is told to."""

    def __init__(self, inner):
        self.inner, self.waiting = inner, []

    def submit(self, operation, done, *, origin):
        self.waiting.append((operation, done))

    def go_on(self):
        waiting, self.waiting = self.waiting, []
        for operation, done in waiting:
            self.inner.submit(operation, done)


def test_a_peer_that_sends_faster_than_the_disk_is_slowed(net):
    node = net.add("node", unwritten_bytes=65_536)
    foreign = opened(net, node)
    node.pool._writer = writer = Holding(node.pool._writer)
    for number in range(60):
        foreign.send(Creation(t=1, d={"n": number, "text": "x" * 10_000}, h=number))
    net.run(2)
    assert len(writer.waiting) == 1
    held = foreign.transport.other.protocol.incoming_objects.unwritten
    assert 65_536 < held < 65_536 + 10_400
    assert not foreign.transport.other.reading
    for _ in range(20):
        writer.go_on()
        net.run(0.2)
    assert len(node.contents()) == 60
    assert foreign.transport.other.reading


def test_nothing_is_passed_on_before_it_is_on_disk(net):
    node, far = net.add("node"), net.add("far")
    net.connect(far, node)
    net.run(1)
    node.pool._writer = writer = Holding(node.pool._writer)
    waiting = node.pool.put_fields({"n": 1})
    net.run(2)
    assert (waiting.called, far.contents()) == (False, {})
    writer.go_on()
    net.run(1)
    assert far.contents() == {fired(waiting).hash: {"n": 1}}


def test_a_peer_that_reads_too_slowly_is_kicked_at_the_bound(net):
    node = net.add("node", queued_bytes=65_536)
    foreign = opened(net, node, kin=True)
    foreign.transport.pauseProducing()
    peer = foreign.transport.other.protocol
    texts = net.random
    for number in range(40):
        node.put(n=number, text=texts.randbytes(4_000).hex())
        assert peer.outgoing_objects.queued <= 65_536
        assert number > 8 or closings(node) == []
    net.run(8)
    assert closings(node)[0][0] == "slow"
    assert peer.outgoing_objects.queued == 0


@pytest.mark.parametrize("kin", [True, False])
def test_a_slow_reader_within_the_bound_gets_everything(net, kin):
    node = net.add("node")
    foreign = opened(net, node, kin=kin)
    foreign.transport.pauseProducing()
    for number in range(40):
        node.put(n=number, text=net.random.randbytes(4_000 if kin else 500).hex())
    net.run(2)
    assert foreign.of(Creation) == []
    foreign.transport.resumeProducing()
    net.run(20)
    assert [p.d["n"] for p in foreign.of(Creation)] == list(range(40))


@pytest.mark.parametrize("thread_seconds", [None, 0.3])
def test_a_large_pool_is_streamed_while_it_changes(net, thread_seconds):
    node = net.add("node", thread_seconds=thread_seconds)
    numbers = [node.put(n=number, name=net.random.randbytes(8).hex()) for number in range(3_000)]
    far = net.add("far")
    net.connect(far, node)
    for _ in range(50):
        net.run(0.02)
        index = net.random.randrange(len(numbers))
        numbers[index] = node.change(numbers[index], n=net.random.randrange(10_000, 20_000))
    net.run(3)
    assert far.contents() == node.contents()
    assert len(far.contents()) == 3_000


def test_a_node_that_comes_back_from_its_disk_reconciles(net):
    one, two = net.add("one"), net.add("two")
    peer = net.connect(one, two)
    net.run(1)
    kept, changed, gone = (one.put(n=n, name=f"{n}" * 9) for n in range(3))
    net.run(1)
    net.cut(peer)
    two.store.close()
    changed = one.change(changed, n=7)
    one.remove(gone)
    two.open()
    assert len(two.contents()) == 3
    two.change(kept, n=8)
    net.connect(two, one)
    net.run(2)
    assert one.contents() == two.contents()
    assert sorted(fields["n"] for fields in one.contents().values()) == [7, 8]


def test_what_changes_before_it_was_streamed_is_streamed_as_it_is_then(net):
    node, far = net.add("node", thread_seconds=0.3), net.add("far")
    text = net.random
    numbers = [node.put(n=n, text=text.randbytes(100).hex()) for n in range(2_000)]
    peer = net.connect(far, node)
    net.run(0.2)
    assert peer.is_open
    peer.transport.pauseProducing()
    net.run(1)
    # Part of the pool waits in the transport, the rest to be read; now all of it changes.
    for index, number in enumerate(numbers):
        node.change(number, n=10_000 + index)
    assert len(far.contents()) < len(numbers)
    peer.transport.resumeProducing()
    net.run(3)
    assert far.contents() == node.contents()
    assert len(far.contents()) == len(numbers)


@pytest.mark.parametrize("skew", [-100.0, 100.0])
def test_an_object_that_changed_more_often_than_its_ancestors_are_told(net, skew):
    one, two = net.add("one"), net.add("two", skew=skew)
    peer = net.connect(one, two)
    net.run(1)
    number = one.put(n=0, name="a name")
    net.run(1)
    net.cut(peer)
    two.change(number, n=100)
    for n in range(1, 30):
        net.run(0.02)
        number = one.change(number, n=n)
    net.connect(two, one)
    net.run(2)
    assert one.contents() == two.contents()
    assert [fields["n"] for fields in one.contents().values()] == [100 if skew > 0 else 29]


def test_a_stream_that_cannot_go_on_ends_the_connection(net):
    node, far = net.add("node"), net.add("far")
    for n in range(300):
        node.put(n=n)
    read, calls = node.store.objects, []

    def fails_later(numbers):
        calls.append(1)
        if len(calls) > 1:
            raise StoreError("the disk does not answer")
        return read(numbers)

    node.store.objects = fails_later
    net.connect(far, node)
    net.run(1)
    assert len(far.contents()) == 128
    assert ("failed", "this node could not send its pool") in closings(node)
    node.store.objects = read
    net.connect(far, node)
    net.run(1)
    assert far.contents() == node.contents()
