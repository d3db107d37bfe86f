"""The session: every input in every state, both flags, and what a hostile peer gets."""

from __future__ import annotations

import itertools
import random

import msgpack
import pytest
from drawn_states import diagram_in
from feeding import check_feedings
from hypothesis import given, settings
from hypothesis import strategies as st
from other_formats import write_frame

from hyperbloom.objects.limits import MAX_EARLY_FRAME_BYTES, MAX_EARLY_UNENCRYPTED
from hyperbloom.objects.wire.aes import AesProcessing, NoProcessing
from hyperbloom.objects.wire.codec import compressed, encode
from hyperbloom.objects.wire.compression import compress
from hyperbloom.objects.wire.errors import (
    FrameTooLong,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WrongFlag,
    WrongPassphrase,
)
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
from hyperbloom.objects.wire.session import (
    KIN,
    MAX_BUFFERED_BYTES,
    NEED_DATA,
    PAUSED,
    ConnectionEnded,
    Session,
)
from hyperbloom.objects.wire.states import TRANSITIONS, Input, State

EXAMPLES = {
    "IDENTIFY": Identify(t=1, v=1),
    "OK": Ok(t=2, v=1, d={KIN: 1}),
    "REJECTION": Rejection(t=3),
    "PING": Ping(t=4),
    "PONG": Pong(t=5),
    "KICK": Kick(t=6),
    "INITIALIZE": Initialize(t=7, objects=({"a": 1},), respond=False),
    "CREATION": Creation(t=8, d={"a": 1}, h=1),
    "CHANGE": Change(t=9, d={"a": 2}, h=2, oh=1),
    "REMOVAL": Removal(t=10, h=2),
}
FLAGS = ["nil", "aes"]
SALT = bytes(range(32))


def processings(flag):
    if flag == "nil":
        return NoProcessing(), NoProcessing()
    return AesProcessing("secret", salt=None), AesProcessing("secret", salt=SALT)


def pull(session):
    found = []
    while not isinstance(event := session.next_event(), type(NEED_DATA)):
        found.append(event)
        if isinstance(event, ConnectionEnded):
            break
    return found


class Pair:
    """A client's and a server's session, and the bytes between them."""

    def __init__(self, flag="nil"):
        self.client, self.server = map(Session, processings(flag))

    def to_server(self, payload):
        self.server.receive_data(self.client.send(payload))
        return pull(self.server)

    def to_client(self, payload):
        self.client.receive_data(self.server.send(payload))
        return pull(self.client)

    def open(self):
        assert self.to_server(EXAMPLES["IDENTIFY"]) == [EXAMPLES["IDENTIFY"]]
        assert self.to_client(EXAMPLES["OK"]) == [EXAMPLES["OK"]]
        return self


def session_in(state):
    """A session in a state, with a processing that encodes what its peer would send."""
    session = Session(NoProcessing())
    if state is State.IDENTIFY_SENT:
        session.send(EXAMPLES["IDENTIFY"])
    elif state in (State.IDENTIFIED, State.OPEN):
        session.receive_data(encode(EXAMPLES["IDENTIFY"], NoProcessing()))
        session.next_event()
        if state is State.OPEN:
            session.send(EXAMPLES["OK"])
    elif state is State.FAILED:
        session.receive_data(b"\xff")
        with pytest.raises(WrongFlag):
            session.next_event()
    elif state is State.CLOSED:
        session.close()
    assert session.state is state
    return session


SENT = [i for i in Input if i.name.startswith("SEND")]
RECEIVED = [i for i in Input if i.name.startswith("RECEIVE") and i is not Input.RECEIVE_EOF]


@pytest.mark.parametrize(("state", "sent"), list(itertools.product(State, SENT)), ids=str)
def test_every_sending_in_every_state(state, sent):
    session = session_in(state)
    payload = EXAMPLES[sent.name.removeprefix("SEND_")]
    if (target := TRANSITIONS.get((state, sent))) is None:
        with pytest.raises(LocalProtocolError, match=sent.value):
            session.send(payload)
        assert session.state is (State.CLOSED if state is State.CLOSED else State.FAILED)
    else:
        assert session.send(payload) == encode(payload, NoProcessing())
        assert session.state is target


@pytest.mark.parametrize(("state", "received"), list(itertools.product(State, RECEIVED)), ids=str)
def test_every_op_received_in_every_state(state, received):
    session = session_in(state)
    payload = EXAMPLES[received.name.removeprefix("RECEIVE_")]
    session.receive_data(encode(payload, NoProcessing()))
    target = TRANSITIONS.get((state, received))
    if state is State.IDENTIFIED:
        assert session.next_event() is PAUSED
        assert session.state is state
    elif state is State.CLOSED:
        assert session.next_event() == ConnectionEnded()
    elif target is None:
        with pytest.raises(RemoteProtocolError):
            session.next_event()
        assert session.state is State.FAILED
        # What the text asks for is still possible, and nothing else is.
        assert session.send(EXAMPLES["KICK"]) == encode(EXAMPLES["KICK"], NoProcessing())
        assert session.state is State.CLOSED
    else:
        assert session.next_event() == payload
        assert session.state is target


@pytest.mark.parametrize("state", State)
def test_the_end_of_the_stream_and_closing_in_every_state(state):
    session = session_in(state)
    session.receive_eof()
    if state is State.FAILED:
        with pytest.raises(RemoteProtocolError):
            session.next_event()
    else:
        assert session.next_event() == ConnectionEnded()
        assert session.next_event() == ConnectionEnded()
        assert session.state is State.CLOSED
    session = session_in(state)
    session.close()
    assert session.state is State.CLOSED


def test_the_table_knows_every_state_and_input():
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert {happened for _, happened in TRANSITIONS} == set(Input)


def test_the_diagram_says_what_the_table_says():
    first, *arrows, last = diagram_in("objects.md")
    assert (first, last) == (("[*]", "IDLE", ""), ("CLOSED", "[*]", ""))
    breaches = {arrow for arrow in arrows if arrow[2] == "anything else"}
    ends = (State.FAILED, State.CLOSED)
    assert breaches == {
        (state.name, "FAILED", "anything else") for state in State if state not in ends
    }
    drawn = {
        (State[state], Input(happened)): State[target]
        for state, target, happened in set(arrows) - breaches
    }
    assert drawn == dict(TRANSITIONS)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_conversation(flag):
    pair = Pair(flag).open()
    assert pair.client.is_kin
    assert not pair.server.is_kin
    for name in ("PING", "PONG", "INITIALIZE", "CREATION", "CHANGE", "REMOVAL"):
        assert pair.to_server(EXAMPLES[name]) == [EXAMPLES[name]]
        assert pair.to_client(EXAMPLES[name]) == [EXAMPLES[name]]
    assert pair.to_server(EXAMPLES["KICK"]) == [EXAMPLES["KICK"], ConnectionEnded()]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_rejection_is_read_whatever_the_flag(flag):
    pair = Pair(flag)
    pair.to_server(EXAMPLES["IDENTIFY"])
    assert pair.to_client(EXAMPLES["REJECTION"]) == [EXAMPLES["REJECTION"], ConnectionEnded()]
    assert pair.server.state is State.CLOSED


@pytest.mark.parametrize("flag", FLAGS)
def test_a_conversation_in_whatever_pieces(flag):
    def make():
        pair = Pair(flag)
        client, server = pair.client, pair.server
        server.receive_data(client.send(EXAMPLES["IDENTIFY"]))
        server.next_event()
        client.receive_data(server.send(EXAMPLES["OK"]))
        client.next_event()

        def feed(piece):
            server.receive_data(piece)
            return pull(server)

        return feed

    sender = Pair(flag).open().client
    names = ["CREATION", "CHANGE", "PING"]
    data = b"".join(sender.send(EXAMPLES[name]) for name in names)
    check_feedings(make, data, [EXAMPLES[name] for name in names], behind=data[:3])


def test_nothing_is_read_until_the_application_has_decided():
    session = Session(NoProcessing())
    session.receive_data(encode(EXAMPLES["IDENTIFY"], NoProcessing()))
    session.receive_data(encode(EXAMPLES["CREATION"], NoProcessing()))
    assert session.next_event() == EXAMPLES["IDENTIFY"]
    assert session.next_event() is PAUSED
    session.send(EXAMPLES["OK"])
    assert session.next_event() == EXAMPLES["CREATION"]
    assert session.next_event() is NEED_DATA


def test_another_flag_is_refused_at_the_first_byte():
    session = Session(NoProcessing())
    session.receive_data(b"\x01")
    with pytest.raises(WrongFlag, match="1, and 0 is set"):
        session.next_event()
    with pytest.raises(RemoteProtocolError, match="has failed"):
        session.next_event()


def test_a_stranger_may_announce_little_and_a_peer_more():
    header = bytes([0]) + (MAX_EARLY_FRAME_BYTES + 1).to_bytes(4, "big")
    session = Session(NoProcessing())
    session.receive_data(header)
    with pytest.raises(FrameTooLong):
        session.next_event()
    session = session_in(State.OPEN)
    session.receive_data(header)
    assert session.next_event() is NEED_DATA


def test_a_stranger_may_say_little_after_decompression_too():
    def stranger(size):
        session = Session(NoProcessing())
        packed = msgpack.packb({"op": 0, "t": 1, "d": {"x": bytes(size - 16)}})
        session.receive_data(encode_frame(0, compress(packed)))
        return len(packed), session

    size, session = stranger(MAX_EARLY_FRAME_BYTES)
    assert size == MAX_EARLY_FRAME_BYTES
    assert isinstance(session.next_event(), Identify)
    _, session = stranger(MAX_EARLY_FRAME_BYTES + 1)
    with pytest.raises(RemoteProtocolError, match="longer than 65536 bytes when decompressed"):
        session.next_event()


def test_so_many_messages_are_passed_over_that_come_before_the_salt():
    session = Session(AesProcessing("one", salt=None))
    session.send(EXAMPLES["IDENTIFY"])
    early = encode_frame(1, compress(b"x" * 40))
    for number in range(1, MAX_EARLY_UNENCRYPTED + 1):
        session.receive_data(early)
        assert session.next_event() is NEED_DATA
        assert session.passed_over == number
    session.receive_data(early)
    with pytest.raises(RemoteProtocolError, match="too much comes unencrypted"):
        session.next_event()


def test_another_passphrase_is_named_with_the_first_message_that_shows_it():
    client = Session(AesProcessing("one", salt=None))
    server = Session(AesProcessing("two", salt=SALT))
    server.receive_data(client.send(EXAMPLES["IDENTIFY"]))
    pull(server)
    client.receive_data(server.send(EXAMPLES["OK"]))
    assert pull(client) == [EXAMPLES["OK"]]
    server.receive_data(client.send(EXAMPLES["CREATION"]))
    with pytest.raises(WrongPassphrase):
        server.next_event()
    client.receive_data(server.send(EXAMPLES["KICK"]))
    with pytest.raises(WrongPassphrase):
        client.next_event()


def test_reading_on_without_pulling_is_our_mistake():
    session = session_in(State.OPEN)
    session.receive_data(bytes(MAX_BUFFERED_BYTES))
    with pytest.raises(LocalProtocolError):
        session.receive_data(b"x")
    session = session_in(State.OPEN)
    session.receive_eof()
    with pytest.raises(LocalProtocolError):
        session.receive_data(b"x")


def test_an_unfinished_message_is_told_at_the_end():
    session = session_in(State.OPEN)
    session.receive_data(encode(EXAMPLES["PING"], NoProcessing())[:-1])
    session.receive_eof()
    event = session.next_event()
    assert event.unread == len(encode(EXAMPLES["PING"], NoProcessing())) - 1


def drain(session, data):
    """Feed bytes and pull; whatever escapes but a RemoteProtocolError fails the test."""
    try:
        session.receive_data(data)
        for _ in range(1_000):
            if isinstance(session.next_event(), type(NEED_DATA) | ConnectionEnded):
                return
    except RemoteProtocolError:
        assert session.state is State.FAILED


STATES = st.sampled_from([State.IDLE, State.IDENTIFY_SENT, State.OPEN])


@settings(max_examples=300, deadline=None)
@given(STATES, st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_else(state, data):
    drain(session_in(state), data)


@settings(max_examples=300, deadline=None)
@given(STATES, st.binary(max_size=200))
def test_arbitrary_bytes_in_a_frame_raise_nothing_else(state, data):
    drain(session_in(state), encode_frame(0, data))
    drain(session_in(state), encode_frame(0, write_frame(data)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
KEYS = st.sampled_from(["v", "t", "op", "d", "h", "oh", "x"])


@settings(max_examples=400, deadline=None)
@given(STATES, st.dictionaries(KEYS, JSON, max_size=7), st.integers(0, 9))
def test_arbitrary_maps_raise_nothing_else(state, found, op):
    import umsgpack

    for form in (found, {**found, "op": op}, {**found, "op": op, "t": 1}):
        drain(session_in(state), encode_frame(0, write_frame(umsgpack.packb(form))))


@pytest.mark.parametrize("flag", FLAGS)
def test_bytes_changed_on_the_way_raise_nothing_else(flag):
    chance = random.Random(7)
    for _ in range(300):
        pair = Pair(flag).open()
        data = bytearray(b"".join(pair.client.send(EXAMPLES[n]) for n in ("CREATION", "CHANGE")))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        drain(pair.server, bytes(data[: chance.randrange(len(data) + 1)]))


def test_a_payload_made_once_is_sent_to_many():
    data = compressed(EXAMPLES["CHANGE"])
    for flag in FLAGS:
        pair = Pair(flag).open()
        pair.server.receive_data(pair.client.send_compressed(Change, data))
        assert pull(pair.server) == [EXAMPLES["CHANGE"]]


def test_every_error_is_a_protocol_error():
    assert issubclass(WrongPassphrase, ProtocolError)
    assert issubclass(FrameTooLong, RemoteProtocolError)
