"""Whatever a peer sends, in any dialect, nothing but RemoteProtocolError comes out of a session."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_peers import (
    EXTENSIONS,
    NOW,
    PEER_ID,
    Recorded,
    credentials_of,
    drive,
    each_dialect,
    recorded_sides,
    spoken_sides,
)

from hyperbloom.wire import (
    DIALECTS,
    NEED_DATA,
    PAUSED,
    Dialect,
    Digest,
    DigestRequest,
    FilterOptions,
    Link,
    Range,
    RemoteProtocolError,
    Request,
    Session,
    Sketch,
    SketchRequest,
    Sync,
    ValuesWanted,
)
from hyperbloom.wire.credentials import sign_data
from hyperbloom.wire.events import ConnectionEnded, DataReceived, HandshakeReceived
from hyperbloom.wire.extensions.broadcast_tree import LinkKind, ValuesPull, ValuesTold
from hyperbloom.wire.extensions.renew_links import RenewedChain
from hyperbloom.wire.framing import MAGIC, encode_varint
from hyperbloom.wire.states import State

REMOTES = {dialect: credentials_of(2, dialect=dialect) for dialect in DIALECTS.values()}
EXAMPLES = 300


def pull(session: Session) -> bool:
    """Pull until there is nothing more; whether the peer broke the protocol.

    Does what a careful owner would: sends its Open and its Handshake where they are due.
    """
    while True:
        try:
            event = session.next_event(now=NOW)
        except RemoteProtocolError:
            assert session.state is State.CLOSED
            assert session.buffered_bytes == 0
            return True
        if event is PAUSED and session.state is State.OPENED:
            session.send_handshake(peer_id=PEER_ID, extensions=EXTENSIONS)
        elif event in (NEED_DATA, PAUSED) or isinstance(event, ConnectionEnded):
            return False
        if isinstance(event, HandshakeReceived):
            # The fuzzer has no secret keys: who gets here is who it seems to be.
            assert event.peer == session.remote


def feed(session: Session, data: bytes, piece: int) -> None:
    for at in range(0, len(data), piece):
        session.receive_data(data[at : at + piece])
        if pull(session):
            return


@pytest.fixture(scope="module")
def sessions(hyperbloom_vectors: dict[str, Any]) -> list[tuple[Recorded, Recorded]]:
    """The recorded session, and one of two of ours in each dialect."""
    spoken = [spoken_sides(dialect) for dialect in DIALECTS.values()]
    return [recorded_sides(hyperbloom_vectors), *spoken]


@each_dialect
@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from([State.IDLE, State.OPEN_SENT, State.HANDSHAKE_SENT, State.SECURE]),
    st.binary(max_size=400),
    st.integers(1, 400),
)
def test_raw_bytes(dialect: Dialect, state: State, data: bytes, piece: int) -> None:
    feed(drive(state, dialect=dialect).session, data, piece)


@each_dialect
@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=140), st.integers(1, 200))
def test_raw_bytes_behind_the_magic(dialect: Dialect, body: bytes, piece: int) -> None:
    for prefix in (MAGIC, MAGIC + encode_varint(len(body))):
        for state in (State.IDLE, State.OPEN_SENT):
            feed(drive(state, dialect=dialect).session, prefix + body, piece)


changes = st.lists(
    st.tuples(
        st.sampled_from(["flip", "drop", "double", "insert"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


def changed(data: bytes, how: list[tuple[str, float, bytes]]) -> bytes:
    out = bytearray(data)
    for kind, where, extra in how:
        at = int(where * len(out))
        if kind == "flip" and out:
            out[at] ^= extra[0] or 1
        elif kind == "drop":
            del out[at : at + len(extra)]
        elif kind == "double":
            out[at:at] = out[at : at + 40]
        else:
            out[at:at] = extra
    return bytes(out)


@pytest.mark.parametrize("session_number", range(1 + len(DIALECTS)))
@settings(max_examples=EXAMPLES)
@given(role=st.integers(0, 1), how=changes, piece=st.integers(1, 900))
def test_a_recorded_session_that_was_changed_on_the_way(
    sessions: list[tuple[Recorded, Recorded]],
    session_number: int,
    role: int,
    how: list[tuple[str, float, bytes]],
    piece: int,
) -> None:
    sides = sessions[session_number]
    us, them = sides[role], sides[1 - role]
    session = Session()
    session.send_open(us.credentials, nonce=us.nonce)
    feed(session, changed(b"".join(them.chunks), how), piece)


MESSAGES = [
    Sync(filter=b"\xff\x00", size=16, n=3, seed=1).encode(),
    FilterOptions(size=800, n=3).encode(),
    *(sign_data(remote, [b"one", b"two"]).encode() for remote in REMOTES.values()),
    Request(start=b"a", end=b"b").encode(),
    *(Link(link=bytes(each.link_format.link_bytes)).encode() for each in DIALECTS.values()),
    DigestRequest(number=7, ranges=(Range(start=b"a", end=b"c"), Range(start=b"x"))).encode(),
    Digest(
        number=7,
        count=2,
        digest=b"d" * 32,
        settled_count=3,
        settled_digest=b"e" * 32,
        ranges=(Range(start=b""),),
    ).encode(),
    SketchRequest(number=7, salt=b"s" * 16, first=5, count=9, ranges=(Range(start=b""),)).encode(),
    Sketch(number=7, first=5, symbols=1, values=3, digest=b"d" * 32, packed=b"p" * 25).encode(),
    ValuesWanted(number=7, ids=b"i" * 16).encode(),
    ValuesTold(ids=b"i" * 16 + b"j" * 16).encode(),
    ValuesPull(link=LinkKind.PUSH, ids=b"i" * 16).encode(),
    RenewedChain(links=(b"l" * 137, b"m" * 137)).encode(),
]
bodies = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(MESSAGES),
    st.builds(changed, st.sampled_from(MESSAGES), changes),
)
ids = st.integers(0, 7) | st.integers(4365, 4373) | st.integers(0, 2**64 - 1)
frames = st.tuples(ids, bodies)


@each_dialect
@settings(max_examples=EXAMPLES)
@given(st.lists(frames, min_size=1, max_size=6))
def test_well_encrypted_frames_of_nonsense(dialect: Dialect, sent: list[tuple[int, bytes]]) -> None:
    peer = drive(State.SECURE, local=credentials_of(3, 4, 5, dialect=dialect))
    for message_id, body in sent:
        peer.send(message_id, body)
    pull(peer.session)


@each_dialect
@settings(max_examples=EXAMPLES)
@given(st.binary(min_size=1, max_size=300))
def test_well_encrypted_nonsense_that_is_not_even_frames(dialect: Dialect, clear: bytes) -> None:
    for state in (State.HANDSHAKE_SENT, State.SECURE):
        peer = drive(state, dialect=dialect)
        peer.send_raw(clear)
        pull(peer.session)


@each_dialect
@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=250) | st.builds(lambda raw: b"\x0a\x20" + raw, st.binary(max_size=250)))
def test_a_handshake_of_nonsense_never_makes_a_connection_secure(
    dialect: Dialect, body: bytes
) -> None:
    peer = drive(State.HANDSHAKE_SENT, dialect=dialect)
    peer.send(0, body)
    assert pull(peer.session)
    assert peer.session.remote is None


@pytest.mark.parametrize(
    "dialect", [each for each in DIALECTS.values() if each.data_signed], ids=lambda it: it.name
)
@settings(max_examples=EXAMPLES)
@given(changes)
def test_signed_values_that_were_changed_on_the_way_are_never_taken(
    dialect: Dialect, how: list[tuple[str, float, bytes]]
) -> None:
    genuine = sign_data(REMOTES[dialect], [b"one", b"two"])
    peer = drive(State.SECURE, remote=REMOTES[dialect])
    peer.send(3, changed(genuine.encode(), how))
    try:
        event = peer.session.next_event(now=NOW)
    except RemoteProtocolError:
        return
    if isinstance(event, DataReceived):
        # What is signed is the number of values and their joined bytes.
        assert b"".join(event.values) == b"onetwo"
        assert len(event.values) == len(genuine.values)


@each_dialect
def test_the_fuzzer_would_notice_a_secure_connection(dialect: Dialect) -> None:
    peer = drive(State.SECURE, dialect=dialect)
    peer.send(3, sign_data(REMOTES[dialect], [b"v"]).encode())
    assert isinstance(peer.session.next_event(now=NOW), DataReceived)
