"""The messages of `set-digest`: golden bytes, one encoding each, limits, who understands them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_peers import NOW, credentials_of, drive, events, pair

from hyperbloom.wire import (
    Digest,
    DigestRequest,
    LocalProtocolError,
    Range,
    RemoteProtocolError,
)
from hyperbloom.wire.events import DigestReceived, DigestRequested, UnknownIgnored
from hyperbloom.wire.extension_messages import EXTENSION_MESSAGES
from hyperbloom.wire.extensions.set_digest import SET_DIGEST, fits_set_digest
from hyperbloom.wire.limits import (
    MAX_ANSWERED_RANGES,
    MAX_ASKED_RANGES,
    MAX_DIGEST_BOUND_BYTES,
    MAX_FRAME_BYTES,
)
from hyperbloom.wire.states import State

WHOLE = (Range(start=b""),)
TWO = (Range(start=b"a", end=b"c"), Range(start=b"x"))
SUM = bytes(range(32))
ALL = bytes(range(32, 64))
NONE: dict[str, Any] = {
    "count": 0, "digest": bytes(32), "settled_count": 0, "settled_digest": bytes(32),
}  # fmt: skip
SOME: dict[str, Any] = {"count": 3, "digest": SUM, "settled_count": 4, "settled_digest": ALL}

#: As docs/extensions/set-digest.md shows them.
GOLDEN = [
    (DigestRequest(number=1, ranges=WHOLE), "0000000101000001"),
    (
        DigestRequest(number=0xFFFF_FFFF, ranges=TWO),
        "ffffffff020001610000016300017801",
    ),
    (
        Digest(number=1, **SOME, ranges=WHOLE),
        "000000010000000000000003" + SUM.hex() + "0000000000000004" + ALL.hex() + "01000001",
    ),
    (
        Digest(number=2, **NONE, ranges=()),
        "00000002" + "00" * 80 + "00",
    ),
]


@pytest.mark.parametrize(("message", "raw"), GOLDEN)
def test_golden_bytes_both_ways(message: Any, raw: str) -> None:
    assert message.encode().hex() == raw
    assert type(message).decode(bytes.fromhex(raw)) == message


@pytest.mark.parametrize(("message", "raw"), GOLDEN)
def test_nothing_but_the_one_encoding_is_taken(message: Any, raw: str) -> None:
    body = bytes.fromhex(raw)
    for end in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            type(message).decode(body[:end])
    with pytest.raises(RemoteProtocolError, match="behind its end"):
        type(message).decode(body + b"\x00")


@given(st.binary(max_size=120))
def test_whatever_is_decoded_encodes_to_the_same(body: bytes) -> None:
    for kind in (DigestRequest, Digest):
        try:
            message = kind.decode(body)
        except RemoteProtocolError:
            continue
        assert message.encode() == body


def request(*ranges: Range) -> DigestRequest:
    return DigestRequest(number=1, ranges=ranges)


def apart(count: int) -> tuple[Range, ...]:
    bounds = [index.to_bytes(2, "big") for index in range(2 * count)]
    return tuple(Range(start=bounds[2 * i], end=bounds[2 * i + 1]) for i in range(count))


@pytest.mark.parametrize(
    "ranges",
    [
        (),
        (Range(start=b"b", end=b"b"),),
        (Range(start=b"b", end=b"a"),),
        (Range(start=b"x"), Range(start=b"y")),
        (Range(start=b"a", end=b"c"), Range(start=b"b", end=b"d")),
        (Range(start=b"a", end=b"c"), Range(start=b"c", end=b"d")),
        (Range(start=b"x", end=b"y"), Range(start=b"a", end=b"b")),
        (Range(start=bytes(MAX_DIGEST_BOUND_BYTES + 1)),),
        (Range(start=b"", end=b"x" * (MAX_DIGEST_BOUND_BYTES + 1)),),
        apart(MAX_ASKED_RANGES + 1),
    ],
)
def test_ranges_that_are_refused(ranges: tuple[Range, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        request(*ranges)
    # The same from a peer, written by hand.
    raw = bytes(4) + bytes([len(ranges)])
    for one in ranges:
        raw += len(one.start).to_bytes(2, "big") + one.start
        raw += b"\x01" if one.end is None else b"\x00" + len(one.end).to_bytes(2, "big") + one.end
    with pytest.raises(RemoteProtocolError):
        DigestRequest.decode(raw)


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": -1},
        {"number": 2**32},
        {"count": 2**64},
        {"digest": bytes(31)},
        {"settled_count": 2**64},
        {"settled_digest": bytes(33)},
        {"count": 0},
        {"settled_count": 2},
        {"settled_count": 0, "count": 0, "digest": bytes(32)},
        {"ranges": ()},
        {"ranges": (), "count": 0, "digest": bytes(32)},
        {"ranges": apart(MAX_ANSWERED_RANGES + 1)},
    ],
)
def test_figures_that_are_refused(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"number": 1, **SOME, "ranges": WHOLE}
    Digest(**good)
    with pytest.raises(LocalProtocolError):
        Digest(**(good | wrong))


def test_numbers_are_as_large_as_their_bytes_hold() -> None:
    most = {"count": 2**64 - 1, "settled_count": 2**64 - 1}
    digest = Digest(number=2**32 - 1, **(SOME | most), ranges=WHOLE)
    assert Digest.decode(digest.encode()) == digest


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_number_that_four_bytes_do_not_hold_is_refused(number: int) -> None:
    with pytest.raises(LocalProtocolError, match="32-bit"):
        DigestRequest(number=number, ranges=WHOLE)


def test_a_range_neither_open_nor_ended_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="neither"):
        DigestRequest.decode(bytes.fromhex("0000000101000002"))


def test_the_longest_messages_fit_a_frame() -> None:
    def long(number: int) -> bytes:
        return number.to_bytes(2, "big") + bytes(MAX_DIGEST_BOUND_BYTES - 2)

    ranges = tuple(
        Range(start=long(2 * i), end=long(2 * i + 1)) for i in range(MAX_ANSWERED_RANGES)
    )
    answer = Digest(number=1, **SOME, ranges=ranges)
    assert len(answer.encode()) < MAX_FRAME_BYTES // 2 + 2_048
    assert Digest.decode(answer.encode()) == answer


def test_which_ranges_can_be_asked_about() -> None:
    assert fits_set_digest([(b"", None)])
    assert fits_set_digest([(b"a", b"b" * MAX_DIGEST_BOUND_BYTES)])
    assert not fits_set_digest([])
    assert not fits_set_digest([(b"a", b"b" * (MAX_DIGEST_BOUND_BYTES + 1))])
    assert not fits_set_digest([(bytes([i]), bytes([i, 1])) for i in range(MAX_ASKED_RANGES + 1)])


def test_both_arrive_as_events_where_both_announced() -> None:
    client, server = pair(credentials_of(), credentials_of(2), extensions=(SET_DIGEST,))
    asked, told = GOLDEN[0][0], GOLDEN[2][0]
    server.receive_data(client.send_extension(asked))
    assert events(server) == [DigestRequested(request=asked)]
    client.receive_data(server.send_extension(told))
    assert events(client) == [DigestReceived(digest=told)]


def test_nothing_is_sent_to_a_peer_that_did_not_announce_it() -> None:
    client, _ = pair(credentials_of(), credentials_of(2))
    for send in (
        lambda: client.send_extension(GOLDEN[0][0]),
        lambda: client.send_extension(GOLDEN[2][0]),
    ):
        with pytest.raises(LocalProtocolError, match="announce"):
            send()
    assert client.state is State.SECURE


@pytest.mark.parametrize("message_id", EXTENSION_MESSAGES)
def test_who_did_not_announce_it_skips_it(message_id: int) -> None:
    peer = drive(State.OPENED)
    peer.session.send_handshake(peer_id=b"\x0c" * 32)
    peer.send(message_id, b"\xff" * 9)
    assert peer.session.next_event(now=NOW) == UnknownIgnored(message_id=message_id, size=11)
    assert peer.session.state is State.HANDSHAKE_SENT
