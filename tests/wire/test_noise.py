"""The extension `noise` in the session: golden transcripts, marks, handshake, records, the end."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from golden_noise import golden, played
from hypothesis import given
from hypothesis import strategies as st
from wire_peers import (
    FEED,
    IDENTITIES,
    LOCAL_EPHEMERAL,
    LOCAL_NONCE,
    NOW,
    OWNER,
    PEER_ID,
    REMOTE_EPHEMERAL,
    REMOTE_NONCE,
    RawPeer,
    credentials_of,
    drive,
    events,
    handshake_body,
    hashed,
    marked_by_hand,
    open_bytes,
    protected_pair,
)

from hyperbloom.keys import Identity, exchange_key
from hyperbloom.wire import NEED_DATA, LocalProtocolError, RemoteProtocolError, Request, Session
from hyperbloom.wire.dialect import DIALECT_1, DIALECT_DRAFT
from hyperbloom.wire.errors import AnnouncementStripped, StreamAltered
from hyperbloom.wire.events import (
    ConnectionEnded,
    DataReceived,
    HandshakeReceived,
    PeerEnded,
    RequestReceived,
    UnknownIgnored,
)
from hyperbloom.wire.extensions.noise import (
    NOISE,
    NoiseHandshake,
    NoiseMessage,
    is_marked,
    marked,
    shared_secret,
)
from hyperbloom.wire.framing import FrameReader, encode_frame
from hyperbloom.wire.limits import MAX_EARLY_FRAME_BYTES, MAX_FRAME_BYTES, SEND_FRAME_BYTES
from hyperbloom.wire.records import (
    LAST_NONCE,
    MAX_RECORD_CONTENT,
    REKEY_BYTES,
    RecordReader,
    RecordWriter,
)
from hyperbloom.wire.states import State
from hyperbloom.wire.stream_cipher import XSalsa20Stream

A_REQUEST = Request(start=b"")


# The page


def test_the_page_s_transcript_comes_out_again() -> None:
    assert played().items() <= golden().items()


def test_the_page_s_keys() -> None:
    page = {name: bytes.fromhex(digits) for name, digits in golden().items()}
    assert page["feed key"] == FEED
    assert page["psk"] == shared_secret(FEED)
    for side, pair in (("dialler", 2), ("other", 1)):
        assert page[f"{side} static private"] == IDENTITIES[pair].exchange_seed()
        assert page[f"{side} static public"] == exchange_key(IDENTITIES[pair].public_key)


def test_both_forms_of_a_pair_belong_together() -> None:
    other = Identity(b"\x77" * 32)
    # Two parties agree on a secret only if each one's public form is that of its private one.
    pairs = [(OWNER, other), (other, OWNER)]
    messages = [handshake(pair, dialled=pair[0] is OWNER) for pair in pairs]
    first = messages[0].write(ephemeral=LOCAL_EPHEMERAL)
    messages[1].read(first)
    messages[0].read(messages[1].write(ephemeral=REMOTE_EPHEMERAL))


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31), b"\xff" * 32, b"short"])
def test_what_is_no_point_has_no_x25519_form(key: bytes) -> None:
    with pytest.raises(ValueError, match="no point of the curve"):
        exchange_key(key)
    with pytest.raises(RemoteProtocolError, match="cannot be used for Noise"):
        NoiseHandshake(dialled=True, identity=OWNER, peer_key=key, psk=bytes(32), prologue=b"")


def handshake(
    pair: tuple[Identity, Identity], *, dialled: bool, prologue: bytes = b"seen"
) -> NoiseHandshake:
    ours, theirs = pair
    return NoiseHandshake(
        dialled=dialled,
        identity=ours,
        peer_key=theirs.public_key,
        psk=shared_secret(FEED),
        prologue=prologue,
    )


# The mark


@given(st.binary(min_size=24, max_size=24))
def test_a_marked_nonce_keeps_its_random_part(nonce: bytes) -> None:
    told = marked(nonce, FEED)
    assert told[:16] == nonce[:16]
    assert len(told) == 24
    assert told == marked_by_hand(nonce)
    assert is_marked(told, FEED)
    assert not is_marked(told, bytes(32)), "the mark is of another feed"
    for at in range(24):
        changed = bytearray(told)
        changed[at] ^= 1
        assert not is_marked(bytes(changed), FEED)


def shaken(
    *, speaks: bool, is_marked: bool, announces: bool, dialect: object = None
) -> tuple[Session, RawPeer]:
    """A session of ours that has a peer's Handshake to read."""
    credentials = credentials_of(**({"dialect": dialect} if dialect else {}))  # type: ignore[arg-type]
    session = Session()
    opened = session.send_open(credentials, nonce=LOCAL_NONCE, speaks_noise=speaks)
    nonce = marked_by_hand(REMOTE_NONCE) if is_marked else REMOTE_NONCE
    session.receive_data(open_bytes(nonce, dialect=credentials.dialect))
    events(session)
    session.send_handshake(peer_id=PEER_ID)
    peer = RawPeer(session, XSalsa20Stream(FEED, nonce))
    remote = credentials_of(2, dialect=credentials.dialect)
    names = [NOISE] if announces else []
    peer.send(0, handshake_body(remote, sent=nonce, received=opened[-24:], extensions=names))
    return session, peer


@pytest.mark.parametrize("speaks", [False, True])
def test_an_announcement_that_was_struck_out_is_noticed(speaks: bool) -> None:
    session, _ = shaken(speaks=speaks, is_marked=True, announces=False)
    with pytest.raises(AnnouncementStripped, match="somebody on the path"):
        session.next_event(now=NOW)
    assert session.state is State.CLOSED


@pytest.mark.parametrize("speaks", [False, True])
def test_an_announcement_that_was_added_is_noticed(speaks: bool) -> None:
    session, _ = shaken(speaks=speaks, is_marked=False, announces=True)
    with pytest.raises(RemoteProtocolError, match="the nonce does not say so"):
        session.next_event(now=NOW)


@pytest.mark.parametrize(("speaks", "peer_speaks"), [(True, False), (False, True), (False, False)])
def test_where_one_side_does_not_speak_it_the_old_stream_goes_on(
    speaks: bool, peer_speaks: bool
) -> None:
    session, peer = shaken(speaks=speaks, is_marked=peer_speaks, announces=peer_speaks)
    event = session.next_event(now=NOW)
    assert isinstance(event, HandshakeReceived)
    assert not event.speaks_noise
    assert session.state is State.SECURE
    assert not session.is_protected
    peer.send(NoiseMessage.message_id, bytes(48))
    assert session.next_event(now=NOW) == UnknownIgnored(message_id=4372, size=50)
    assert session.send_end() == b""


def test_dialect_1_carries_it() -> None:
    session, _ = shaken(speaks=True, is_marked=True, announces=True, dialect=DIALECT_1)
    event = session.next_event(now=NOW)
    assert isinstance(event, HandshakeReceived)
    assert event.speaks_noise


@pytest.mark.parametrize(("is_marked", "announces"), [(True, False), (True, True), (False, True)])
def test_the_draft_does_not(is_marked: bool, announces: bool) -> None:
    session, _ = shaken(
        speaks=True, is_marked=is_marked, announces=announces, dialect=DIALECT_DRAFT
    )
    event = session.next_event(now=NOW)
    assert isinstance(event, HandshakeReceived)
    assert not event.speaks_noise
    assert session.state is State.SECURE


def test_the_draft_announces_and_marks_nothing() -> None:
    session = Session()
    credentials = credentials_of(dialect=DIALECT_DRAFT)
    opened = session.send_open(credentials, nonce=LOCAL_NONCE, speaks_noise=True)
    assert opened.endswith(LOCAL_NONCE)
    session.receive_data(open_bytes(dialect=DIALECT_DRAFT))
    events(session)
    sent = session.send_handshake(peer_id=PEER_ID)
    assert NOISE.encode() not in XSalsa20Stream(FEED, LOCAL_NONCE).process(sent)


def test_an_open_that_was_refused_announces_nothing() -> None:
    session = Session()
    session.receive_data(open_bytes(marked_by_hand(LOCAL_NONCE)))
    events(session)
    with pytest.raises(LocalProtocolError, match="not fresh"):
        session.send_open(credentials_of(), nonce=LOCAL_NONCE, speaks_noise=True)
    opened = session.send_open(credentials_of(), nonce=REMOTE_NONCE)
    sent = session.send_handshake(peer_id=PEER_ID)
    assert NOISE.encode() not in XSalsa20Stream(FEED, opened[-24:]).process(sent)


# The handshake


@pytest.mark.parametrize("state", [State.NOISE_SENT, State.NOISE_AWAITED])
def test_a_message_that_is_not_the_peer_s(state: State) -> None:
    peer = drive(state)
    assert peer.noise is not None
    body = bytearray(peer.noise.write(ephemeral=REMOTE_EPHEMERAL).body)
    body[-1] ^= 1
    peer.send(NoiseMessage.message_id, bytes(body))
    with pytest.raises(StreamAltered, match="not authentic"):
        peer.session.next_event(now=NOW)
    assert peer.session.state is State.CLOSED


@pytest.mark.parametrize("state", [State.NOISE_SENT, State.NOISE_AWAITED])
@pytest.mark.parametrize("size", [0, 47, 49])
def test_a_message_of_another_length(state: State, size: int) -> None:
    peer = drive(state)
    peer.send(NoiseMessage.message_id, bytes(size))
    with pytest.raises(RemoteProtocolError, match=f"has 48 bytes, not {size}"):
        peer.session.next_event(now=NOW)


@pytest.mark.parametrize("state", [State.NOISE_SENT, State.NOISE_AWAITED])
@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_a_key_of_low_order(state: State, point: bytes) -> None:
    peer = drive(state)
    peer.send(NoiseMessage.message_id, point + bytes(16))
    with pytest.raises(RemoteProtocolError, match="the key in the peer's NoiseMessage is none"):
        peer.session.next_event(now=NOW)


def test_our_own_message_sent_back_is_not_the_peer_s() -> None:
    ours = handshake((OWNER, IDENTITIES[2]), dialled=True)
    sent = ours.write(ephemeral=LOCAL_EPHEMERAL)
    with pytest.raises(StreamAltered):
        ours.read(sent)


def test_an_ephemeral_key_has_32_bytes() -> None:
    session = drive(State.NOISE_DUE).session
    with pytest.raises(LocalProtocolError, match="an ephemeral key has 32 bytes"):
        session.send_noise(ephemeral=b"short")
    assert session.state is State.NOISE_DUE
    session.send_noise(ephemeral=LOCAL_EPHEMERAL)


def test_ciphers_come_with_the_second_message() -> None:
    ours = handshake((OWNER, IDENTITIES[2]), dialled=True)
    ours.write(ephemeral=LOCAL_EPHEMERAL)
    with pytest.raises(LocalProtocolError, match="not done"):
        ours.ciphers()


def test_a_handshake_leaves_nothing_behind() -> None:
    def shake_hands() -> None:
        ours = handshake((OWNER, IDENTITIES[2]), dialled=True)
        theirs = handshake((IDENTITIES[2], OWNER), dialled=False)
        theirs.read(ours.write(ephemeral=LOCAL_EPHEMERAL))
        ours.read(theirs.write(ephemeral=REMOTE_EPHEMERAL))

    shake_hands()
    only = [tracemalloc.Filter(True, "*/noise/*"), tracemalloc.Filter(True, "*/hyperbloom/*")]
    tracemalloc.start()
    try:
        for _ in range(50):
            shake_hands()
        gc.collect()
        left = tracemalloc.take_snapshot().filter_traces(only).statistics("filename")
    finally:
        tracemalloc.stop()
    # A name that each handshake made anew was kept by Python's cache of methods: 50 bytes.
    assert sum(one.size for one in left) < 50 * 50


@pytest.mark.parametrize("what", ["prologue", "psk", "ours", "theirs"])
def test_what_both_sides_have_to_agree_on(what: str) -> None:
    theirs = NoiseHandshake(
        dialled=True,
        identity=IDENTITIES[3 if what == "theirs" else 2],
        peer_key=IDENTITIES[4 if what == "ours" else 1].public_key,
        psk=bytes(32) if what == "psk" else shared_secret(FEED),
        prologue=b"other" if what == "prologue" else b"seen",
    )
    ours = handshake((OWNER, IDENTITIES[2]), dialled=False)
    with pytest.raises(StreamAltered):
        ours.read(theirs.write(ephemeral=REMOTE_EPHEMERAL))


def test_frames_of_unknown_ids_before_the_handshake_are_among_what_was_seen() -> None:
    session = Session()
    opened = session.send_open(credentials_of(), nonce=LOCAL_NONCE, speaks_noise=True)
    nonce = marked_by_hand(REMOTE_NONCE)
    session.receive_data(open_bytes(nonce))
    events(session)
    sent = XSalsa20Stream(FEED, opened[-24:]).process(session.send_handshake(peer_id=PEER_ID))
    peer = RawPeer(session, XSalsa20Stream(FEED, nonce))
    body = handshake_body(credentials_of(2), sent=nonce, received=opened[-24:], extensions=[NOISE])
    peer.send(99, b"whatever")
    peer.send(0, body)
    assert len(events(session)) == 2
    frames = encode_frame(99, b"whatever") + encode_frame(0, body)
    seen = hashed(open_bytes(nonce) + frames) + hashed(opened + sent)
    dialler = handshake((IDENTITIES[2], OWNER), dialled=True, prologue=b"noise-1 prologue" + seen)
    peer.send(NoiseMessage.message_id, dialler.write(ephemeral=REMOTE_EPHEMERAL).body)
    events(session)
    assert session.state is State.NOISE_RECEIVED


def test_until_it_is_secure_frames_are_short() -> None:
    for state in (State.NOISE_SENT, State.NOISE_AWAITED):
        peer = drive(state)
        peer.send(NoiseMessage.message_id, bytes(MAX_EARLY_FRAME_BYTES - 1))
        with pytest.raises(RemoteProtocolError, match="the length of a frame"):
            peer.session.next_event(now=NOW)


def test_a_third_message_breaks_the_protocol() -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    frame = encode_frame(NoiseMessage.message_id, bytes(48))
    theirs.receive_data(ours.send_encoded_data(frame))
    with pytest.raises(RemoteProtocolError, match="may not receive NoiseMessage"):
        theirs.next_event(now=NOW)


# The stream


def test_what_is_sent_right_behind_the_second_message_is_taken() -> None:
    client, server = Session(dialled=True), Session()
    server.receive_data(client.send_open(credentials_of(2), nonce=LOCAL_NONCE, speaks_noise=True))
    events(server)
    client.receive_data(server.send_open(credentials_of(), nonce=REMOTE_NONCE, speaks_noise=True))
    events(client)
    client.receive_data(server.send_handshake(peer_id=PEER_ID))
    server.receive_data(client.send_handshake(peer_id=PEER_ID))
    events(client)
    server.receive_data(client.send_noise(ephemeral=LOCAL_EPHEMERAL))
    events(server)
    sent = server.send_noise(ephemeral=REMOTE_EPHEMERAL)
    sent += server.send_data([b"one"]) + server.send_data([b"two"]) + server.send_end()
    client.receive_data(sent)
    _, one, two, end = events(client)
    assert isinstance(one, DataReceived)
    assert isinstance(two, DataReceived)
    assert (one.values, two.values) == ((b"one",), (b"two",))
    assert end == PeerEnded()


def test_nothing_of_a_frame_shows_in_its_record() -> None:
    ours, _ = protected_pair(credentials_of(), credentials_of(2))
    record = ours.send_data([b"a value that is long enough to be looked for"])
    assert b"a value" not in record
    for nonce in (marked_by_hand(LOCAL_NONCE), marked_by_hand(REMOTE_NONCE)):
        for at in range(1_000):
            cipher = XSalsa20Stream(FEED, nonce)
            cipher.process(bytes(at))
            assert b"a value" not in cipher.process(record)


def test_the_longest_frame_takes_several_records() -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    value = bytes(SEND_FRAME_BYTES - 100)
    sent = ours.send_data([value])
    records = -(-len(value) // MAX_RECORD_CONTENT)
    assert len(sent) - len(value) < 100 + 18 * records
    for at in range(0, len(sent), 1_000):
        theirs.receive_data(sent[at : at + 1_000])
        assert theirs.buffered_bytes <= MAX_FRAME_BYTES
    (event,) = events(theirs)
    assert isinstance(event, DataReceived)
    assert event.values == (value,)
    assert theirs.buffered_bytes == 0


@given(st.data(), st.integers(0, 10_000))
def test_any_splitting_gives_the_same(data: st.DataObject, extra: int) -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    sent = ours.send_request(A_REQUEST) + ours.send_data([bytes(extra + 1)]) + ours.send_end()
    got: list[object] = []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        theirs.receive_data(sent[:size])
        sent = sent[size:]
        got += events(theirs)
    asked, told, end = got
    assert asked == RequestReceived(request=A_REQUEST)
    assert isinstance(told, DataReceived)
    assert told.values == (bytes(extra + 1),)
    assert end == PeerEnded()


@given(st.integers(0, 2**32), st.integers(0, 7))
def test_any_flipped_bit_ends_it_and_gives_nothing(position: int, bit: int) -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    sent = bytearray(ours.send_data([b"first"]) + ours.send_data([b"second"]))
    whole = len(sent)
    at = position % whole
    sent[at] ^= 1 << bit
    # A length may have become longer than what follows: then more has to come.
    theirs.receive_data(bytes(sent) + bytes(65_537))
    with pytest.raises(RemoteProtocolError):
        theirs.next_event(now=NOW)
    assert theirs.state is State.CLOSED
    with pytest.raises(RemoteProtocolError, match="has ended"):
        theirs.next_event(now=NOW)


def test_records_repeated_left_out_swapped_and_sent_back() -> None:
    for order in ([0, 0], [1], [0, 2], [0, 1, 0]):
        ours, theirs = protected_pair(credentials_of(), credentials_of(2))
        sent = [ours.send_data([bytes([number + 1])]) for number in range(3)]
        *good, bad = order
        for one in good:
            theirs.receive_data(sent[one])
        assert len(events(theirs)) == len(good)
        theirs.receive_data(sent[bad])
        with pytest.raises(StreamAltered):
            theirs.next_event(now=NOW)
        assert theirs.state is State.CLOSED
    ours, _ = protected_pair(credentials_of(), credentials_of(2))
    ours.receive_data(ours.send_data([b"mine"]))
    with pytest.raises(StreamAltered):
        ours.next_event(now=NOW)


@pytest.mark.parametrize("length", range(16))
def test_a_record_shorter_than_its_tag(length: int) -> None:
    _, theirs = protected_pair(credentials_of(), credentials_of(2))
    theirs.receive_data(bytes([0, length]))
    with pytest.raises(StreamAltered, match="a record has"):
        theirs.next_event(now=NOW)


def test_the_end_is_told_and_closes() -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    end = ours.send_end()
    assert len(end) == 18
    assert ours.state is State.CLOSED
    assert ours.send_end() == b""
    assert not theirs.end_received
    theirs.receive_data(end)
    assert theirs.end_received
    assert theirs.next_event(now=NOW) == PeerEnded()
    assert theirs.state is State.PEER_ENDED
    assert theirs.next_event(now=NOW) is NEED_DATA


def test_who_has_ended_is_sent_what_it_is_owed_and_then_our_end() -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    theirs.receive_data(ours.send_request(A_REQUEST) + ours.send_end())
    assert events(theirs) == [RequestReceived(request=A_REQUEST), PeerEnded()]
    theirs.receive_data(b"dropped")
    assert theirs.buffered_bytes == 0
    assert len(theirs.send_data([b"the answer"])) > 18
    assert len(theirs.send_end()) == 18
    assert theirs.state is State.CLOSED


@pytest.mark.parametrize("missing", [0, 1, 20])
def test_the_end_of_the_transport_is_none_of_a_protected_stream(missing: int) -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    sent = ours.send_request(A_REQUEST)
    theirs.receive_data(sent[: len(sent) - missing])
    theirs.end_data()
    told = events(theirs)
    asked = [] if missing else [RequestReceived(request=A_REQUEST)]
    assert told == [*asked, ConnectionEnded()]
    assert not theirs.end_received
    assert len(theirs.send_end()) == 18, "our own end can be said all the same"


def test_the_end_comes_after_what_was_sent_before_it() -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    theirs.receive_data(ours.send_data([b"last"]) + ours.send_end())
    assert isinstance(theirs.next_event(now=NOW), DataReceived)
    assert theirs.next_event(now=NOW) == PeerEnded()


def test_an_end_inside_a_frame() -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    theirs.receive_data(ours.send_encoded_data(b"\x05\x63") + ours.send_end())
    with pytest.raises(RemoteProtocolError, match="ends inside a frame"):
        theirs.next_event(now=NOW)


@pytest.mark.parametrize("is_apart", [False, True])
def test_bytes_behind_the_end(is_apart: bool) -> None:
    ours, theirs = protected_pair(credentials_of(), credentials_of(2))
    end = ours.send_end()
    theirs.receive_data(end if is_apart else end + b"\x00")
    if is_apart:
        theirs.receive_data(b"\x00")
    with pytest.raises(StreamAltered, match="behind the end"):
        theirs.next_event(now=NOW)


# Keys that change


KEY = b"\x05" * 32


def test_a_direction_takes_a_new_key_after_a_gibibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    assert REKEY_BYTES == 1 << 30
    monkeypatch.setattr("hyperbloom.wire.records.REKEY_BYTES", 4 * MAX_RECORD_CONTENT)
    writer, reader = RecordWriter(KEY), RecordReader(KEY)
    cipher = ChaCha20Poly1305(KEY)

    def is_under_the_first(record: bytes, nonce: int) -> bool:
        with contextlib.suppress(InvalidTag):
            cipher.decrypt(bytes(4) + nonce.to_bytes(8, "little"), record[2:], None)
            return True
        return False

    for nonce in range(4):
        record = writer.process(bytes(MAX_RECORD_CONTENT))
        assert is_under_the_first(record, nonce)
        assert reader.process(record)
    record = writer.process(b"x")
    assert not is_under_the_first(record, 4)
    assert reader.process(record) == b"x"


def test_a_counter_never_wraps() -> None:
    writer, reader = RecordWriter(KEY, nonce=LAST_NONCE), RecordReader(KEY, nonce=LAST_NONCE)
    assert reader.process(writer.process(b"x")) == b"x"
    with pytest.raises(LocalProtocolError, match="used all its nonces"):
        writer.process(b"x")
    with pytest.raises(RemoteProtocolError, match="used all its nonces"):
        reader.process(b"\x00\x11" + bytes(17))


def test_a_transcript_is_asked_for_once() -> None:
    reader = FrameReader()
    assert reader.end_transcript() == hashed(b"")
    with pytest.raises(LocalProtocolError, match="has ended"):
        reader.end_transcript()
