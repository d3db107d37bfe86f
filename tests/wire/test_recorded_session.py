"""The session recorded from two npm peers, replayed in both roles."""

from __future__ import annotations

from typing import Any

import pytest
from feeding import feedings
from wire_peers import IDENTITIES, Recorded, events, recorded_sides

from hyperbloom.wire import (
    Range,
    Request,
    Session,
    Sync,
)
from hyperbloom.wire.dialect import DIALECT_2
from hyperbloom.wire.events import (
    DataReceived,
    Event,
    HandshakeReceived,
    LinkReceived,
    OpenReceived,
    RequestReceived,
    SyncReceived,
)
from hyperbloom.wire.framing import FrameReader, encode_frame, split_frame
from hyperbloom.wire.states import State
from hyperbloom.wire.stream_cipher import XSalsa20Stream

ROLES = [("a", "b"), ("b", "a")]


@pytest.fixture(scope="session")
def sides(hyperbloom_vectors: dict[str, Any]) -> dict[str, Recorded]:
    a, b = recorded_sides(hyperbloom_vectors)
    return {"a": a, "b": b}


def unhex(body: dict[str, Any], *names: str) -> list[Any]:
    return [None if body[name] is None else bytes.fromhex(body[name]) for name in names]


def sync_of(body: dict[str, Any]) -> Sync:
    """A recorded Sync; the peer says "no limit" with a zero."""
    bounds = body["range"]
    if bounds is not None:
        start, end = unhex(bounds, "start", "end")
        bounds = Range(start=start, end=end)
    return Sync(
        filter=bytes.fromhex(body["filter"]),
        size=body["size"],
        n=body["n"],
        seed=body["seed"],
        limit=body["limit"] or None,
        range=bounds,
    )


def request_of(body: dict[str, Any]) -> Request:
    start, end = unhex(body, "start", "end")
    return Request(start=start, end=end, limit=body["limit"] or None)


def check_alike(ours: Event, theirs: dict[str, Any]) -> None:
    if "secure" in theirs:
        assert isinstance(ours, HandshakeReceived)
        assert ours.peer.id.hex() == theirs["secure"]["id"]
        assert [link.hex() for link in ours.peer.chain.to_wire()] == theirs["secure"]["chain"]
    elif "chain_update" in theirs:
        assert isinstance(ours, LinkReceived)
        assert [link.hex() for link in ours.chain.to_wire()] == theirs["chain_update"]
    elif theirs["message"] == "data":
        assert isinstance(ours, DataReceived)
        assert [value.hex() for value in ours.values] == theirs["body"]["values"]
    elif theirs["message"] == "sync":
        assert ours == SyncReceived(sync=sync_of(theirs["body"]))
    else:
        assert theirs["message"] == "request"
        assert ours == RequestReceived(request=request_of(theirs["body"]))


def opened(us: Recorded) -> Session:
    session = Session()
    assert session.send_open(us.credentials, nonce=us.nonce) == us.chunks[0]
    return session


def run(us: Recorded, pieces: list[bytes]) -> list[Event]:
    """Our side of the session, given the other's bytes in pieces; our Handshake when it is due."""
    session = opened(us)
    told: list[Event] = []
    for piece in pieces:
        session.receive_data(piece)
        told += events(session)
        if session.state is State.OPENED:
            assert session.send_handshake(peer_id=us.peer_id) == us.chunks[1]
            told += events(session)
    assert session.buffered_bytes == 0
    return told


@pytest.mark.parametrize(("we", "they"), ROLES)
def test_we_tell_what_the_peer_told(
    we: str, they: str, sides: dict[str, Recorded], hyperbloom_vectors: dict[str, Any]
) -> None:
    told = run(sides[we], sides[they].chunks)
    recorded = hyperbloom_vectors["session"][f"{we}_events"]
    assert told[0] == OpenReceived(feed=sides[we].credentials.discovery_key)
    assert len(told) == len(recorded) + 1
    for ours, theirs in zip(told[1:], recorded, strict=True):
        check_alike(ours, theirs)


@pytest.mark.parametrize(("we", "they"), ROLES)
def test_however_the_bytes_are_cut(we: str, they: str, sides: dict[str, Recorded]) -> None:
    data = b"".join(sides[they].chunks)
    expected = run(sides[we], [data])
    for name, pieces in feedings(data):
        assert run(sides[we], pieces) == expected, name


@pytest.mark.parametrize(("we", "they"), ROLES)
def test_an_open_that_comes_first(we: str, they: str, sides: dict[str, Recorded]) -> None:
    session = Session()
    session.receive_data(b"".join(sides[they].chunks))
    (first,) = events(session)
    assert first == OpenReceived(feed=sides[we].credentials.discovery_key)
    assert session.state is State.OPEN_RECEIVED
    assert session.send_open(sides[we].credentials, nonce=sides[we].nonce) == sides[we].chunks[0]
    assert session.send_handshake(peer_id=sides[we].peer_id) == sides[we].chunks[1]
    assert [first, *events(session)] == run(sides[we], sides[they].chunks)


@pytest.mark.parametrize(("we", "they"), ROLES)
def test_we_send_what_the_peer_sent(we: str, they: str, sides: dict[str, Recorded]) -> None:
    """Byte for byte, the whole session; Ed25519 is deterministic. Only `limit: 0` is not ours."""
    us, them = sides[we], sides[they]
    session = opened(us)
    session.receive_data(b"".join(them.chunks))
    events(session)
    sent = session.send_handshake(peer_id=us.peer_id)
    events(session)
    for event in run(them, us.chunks)[2:]:
        match event:
            case LinkReceived(chain=chain):
                assert session.link_due() == chain.expires
                sent += session.send_link(chain.links[-1])
            case DataReceived(values=values):
                sent += session.send_data(values)
            case RequestReceived(request=request):
                sent += session.send_request(request)
            case SyncReceived(sync=sync):
                sent += session.send_sync(sync)
    clear = XSalsa20Stream(us.credentials.feed_key, us.nonce).process(sent)
    assert frames_of(clear) == [without_zero_limit(f) for f in frames_of(b"".join(us.frames()))]
    if we == "a":
        # Side a sent no Sync, so that even its ciphertext is the same.
        assert sent == b"".join(us.chunks[1:])


def frames_of(clear: bytes) -> list[bytes]:
    reader = FrameReader()
    reader.feed(clear)
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    assert len(reader) == 0
    return frames


def without_zero_limit(frame: bytes) -> bytes:
    message_id, _ = split_frame(frame)
    return frame.removesuffix(b"\x28\x00") if message_id == Sync.message_id else frame


def test_the_recorded_frames_are_framed_as_ours(sides: dict[str, Recorded]) -> None:
    for side in sides.values():
        for clear in side.frames():
            (frame,) = frames_of(clear)
            assert encode_frame(*split_frame(frame)) == clear


def test_the_recorded_signature_of_data(hyperbloom_vectors: dict[str, Any]) -> None:
    recorded = hyperbloom_vectors["data"]
    feed = bytes.fromhex(recorded["feed"])
    values = [bytes.fromhex(value) for value in recorded["values"]]
    covered = DIALECT_2.data_input(feed, values)
    assert covered.hex() == recorded["hash"]
    assert IDENTITIES[recorded["signer"]].sign(covered).hex() == recorded["signature"]


def test_lengths_of_values_are_not_signed() -> None:
    feed = bytes(32)
    joined = DIALECT_2.data_input(feed, [b"ab", b"c"])
    assert joined == DIALECT_2.data_input(feed, [b"a", b"bc"])
    assert joined != DIALECT_2.data_input(feed, [b"abc"])


def test_the_peers_link_lasts_as_long_as_our_chain(sides: dict[str, Recorded]) -> None:
    told = run(sides["b"], sides["a"].chunks)
    (taken,) = (event for event in told if isinstance(event, LinkReceived))
    assert taken.chain.expires == sides["b"].chain.expires
    assert taken.chain.holder == sides["b"].identity.public_key
