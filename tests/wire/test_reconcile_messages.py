"""The messages of `reconcile`: golden bytes, one encoding each, limits, who understands them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_peers import credentials_of, events, pair

from hyperbloom.wire import (
    LocalProtocolError,
    Range,
    RemoteProtocolError,
    Sketch,
    SketchRequest,
    ValuesWanted,
)
from hyperbloom.wire.events import SketchReceived, SketchRequested, ValuesAskedFor
from hyperbloom.wire.extensions.reconcile import RECONCILE
from hyperbloom.wire.extensions.set_digest import SET_DIGEST
from hyperbloom.wire.limits import (
    MAX_ANSWERED_RANGES,
    MAX_ASKED_SYMBOLS,
    MAX_SKETCH_BYTES,
    MAX_SKETCH_SYMBOLS,
    MAX_WANTED_IDS,
    SEND_FRAME_BYTES,
)
from hyperbloom.wire.states import State

WHOLE = (Range(start=b""),)
SALT = bytes(range(16))
DIGEST = bytes(range(32))
IDS = bytes(range(16)) + bytes(range(1, 17))

#: As docs/extensions/reconcile.md shows them.
GOLDEN: list[tuple[Any, str]] = [
    (
        SketchRequest(number=1, salt=b"", first=0, count=128, ranges=WHOLE),
        "0000000100000000000000008001000001",
    ),
    (
        SketchRequest(
            number=0xFFFF_FFFF,
            salt=SALT,
            first=128,
            count=256,
            ranges=(Range(start=b"a", end=b"c"),),
        ),
        "ffffffff10" + SALT.hex() + "00000080000001000100016100000163",
    ),
    (
        Sketch(number=1, first=0, symbols=1, values=3, digest=DIGEST, packed=bytes(24) + b"\x01"),
        "0000000100000000000000010000000000000003" + DIGEST.hex() + "00" * 24 + "01",
    ),
    (Sketch.nothing(2, 4_096), "000000020000100000000000" + "00" * 40),
    (ValuesWanted(number=1, ids=IDS), "00000001" + IDS.hex()),
    (ValuesWanted(number=1, ids=b""), "00000001"),
]


@pytest.mark.parametrize(("message", "raw"), GOLDEN)
def test_golden_bytes_both_ways(message: Any, raw: str) -> None:
    assert message.encode().hex() == raw
    assert type(message).decode(bytes.fromhex(raw)) == message


@pytest.mark.parametrize("raw", [raw for message, raw in GOLDEN[:2]])
def test_nothing_but_the_one_encoding_of_a_request_is_taken(raw: str) -> None:
    body = bytes.fromhex(raw)
    for end in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            SketchRequest.decode(body[:end])
    with pytest.raises(RemoteProtocolError, match="behind its end"):
        SketchRequest.decode(body + b"\x00")


@pytest.mark.parametrize(
    ("kind", "raw", "ends"),
    [(Sketch, GOLDEN[2][1], range(52)), (ValuesWanted, GOLDEN[4][1], [*range(4), 5, 19, 21, 35])],
)
def test_a_message_that_is_cut_short_is_refused(kind: Any, raw: str, ends: Any) -> None:
    for end in ends:
        with pytest.raises(RemoteProtocolError):
            kind.decode(bytes.fromhex(raw)[:end])


@given(st.binary(max_size=120))
def test_whatever_is_decoded_encodes_to_the_same(body: bytes) -> None:
    for kind in (SketchRequest, Sketch, ValuesWanted):
        try:
            message = kind.decode(body)
        except RemoteProtocolError:
            continue
        assert message.encode() == body


def apart(count: int) -> tuple[Range, ...]:
    bounds = [index.to_bytes(2, "big") for index in range(2 * count)]
    return tuple(Range(start=bounds[2 * i], end=bounds[2 * i + 1]) for i in range(count))


ASKED = {"number": 1, "salt": b"", "first": 0, "count": 1, "ranges": WHOLE}
TOLD = {"number": 1, "first": 0, "symbols": 1, "values": 3, "digest": DIGEST, "packed": bytes(25)}
WANTED = {"number": 1, "ids": IDS}


@pytest.mark.parametrize(
    ("kind", "good", "wrong"),
    [
        (SketchRequest, ASKED, {"number": -1}),
        (SketchRequest, ASKED, {"number": 2**32}),
        (SketchRequest, ASKED, {"salt": bytes(15)}),
        (SketchRequest, ASKED, {"salt": bytes(17)}),
        (SketchRequest, ASKED, {"first": 2**32}),
        (SketchRequest, ASKED, {"count": 0}),
        (SketchRequest, ASKED, {"count": MAX_ASKED_SYMBOLS + 1}),
        (SketchRequest, ASKED, {"ranges": ()}),
        (SketchRequest, ASKED, {"ranges": apart(MAX_ANSWERED_RANGES + 1)}),
        (Sketch, TOLD, {"number": 2**32}),
        (Sketch, TOLD, {"first": -1}),
        (Sketch, TOLD, {"symbols": MAX_SKETCH_SYMBOLS + 1}),
        (Sketch, TOLD, {"symbols": 0}),
        (Sketch, TOLD, {"symbols": 0, "packed": b""}),
        (Sketch, TOLD, {"symbols": 0, "values": 0, "digest": bytes(32)}),
        (Sketch, TOLD, {"values": 2**64}),
        (Sketch, TOLD, {"values": 0}),
        (Sketch, TOLD, {"digest": bytes(31)}),
        (Sketch, TOLD, {"packed": bytes(MAX_SKETCH_BYTES + 1)}),
        (ValuesWanted, WANTED, {"number": -1}),
        (ValuesWanted, WANTED, {"ids": IDS[:-1]}),
        (ValuesWanted, WANTED, {"ids": IDS[16:] + IDS[:16]}),
        (ValuesWanted, WANTED, {"ids": IDS[:16] * 2}),
    ],
)
def test_fields_that_are_refused(kind: Any, good: dict[str, Any], wrong: dict[str, Any]) -> None:
    kind(**good)
    with pytest.raises(LocalProtocolError):
        kind(**(good | wrong))


def test_a_peer_is_told_which_rule_it_broke() -> None:
    with pytest.raises(RemoteProtocolError, match="a salt has 16 bytes, or none"):
        SketchRequest.decode(bytes.fromhex("0000000101ff000000000000000101000001"))
    with pytest.raises(RemoteProtocolError, match="in order, each once"):
        ValuesWanted.decode(bytes(4) + IDS[:16] * 2)
    with pytest.raises(RemoteProtocolError, match="digest of no values"):
        Sketch.decode(bytes.fromhex(GOLDEN[2][1].replace("0000000000000003", "00" * 8)))


def numbered(count: int) -> bytes:
    return b"".join(index.to_bytes(16, "big") for index in range(count))


def test_the_longest_messages_fit_a_frame_and_one_id_more_is_refused() -> None:
    longest = ValuesWanted(number=1, ids=numbered(MAX_WANTED_IDS))
    assert len(longest.encode()) + 2 <= SEND_FRAME_BYTES
    with pytest.raises(LocalProtocolError, match="at most 16000 ids"):
        ValuesWanted(number=1, ids=numbered(MAX_WANTED_IDS + 1))
    with pytest.raises(RemoteProtocolError, match="at most 16000 ids"):
        ValuesWanted.decode(bytes(4) + numbered(MAX_WANTED_IDS + 1))
    full = Sketch(
        number=1,
        first=0,
        symbols=MAX_SKETCH_SYMBOLS,
        values=3,
        digest=DIGEST,
        packed=bytes(MAX_SKETCH_BYTES),
    )
    assert len(full.encode()) + 2 <= SEND_FRAME_BYTES
    assert MAX_SKETCH_SYMBOLS * (24 + 7) <= MAX_SKETCH_BYTES


BOTH = (SET_DIGEST, RECONCILE)


def test_all_arrive_as_events_where_both_announced() -> None:
    client, server = pair(credentials_of(), credentials_of(2), extensions=BOTH)
    request, sketch, wanted = GOLDEN[1][0], GOLDEN[2][0], GOLDEN[4][0]
    server.receive_data(client.send_extension(request))
    assert events(server) == [SketchRequested(request=request)]
    client.receive_data(server.send_extension(sketch))
    assert events(client) == [SketchReceived(sketch=sketch)]
    server.receive_data(client.send_extension(wanted))
    assert events(server) == [ValuesAskedFor(wanted=wanted)]


def test_nothing_is_sent_to_a_peer_that_did_not_announce_it() -> None:
    client, _ = pair(credentials_of(), credentials_of(2), extensions=(SET_DIGEST,))
    for send in (
        lambda: client.send_extension(GOLDEN[0][0]),
        lambda: client.send_extension(GOLDEN[2][0]),
        lambda: client.send_extension(GOLDEN[4][0]),
    ):
        with pytest.raises(LocalProtocolError, match="did not announce reconcile-1"):
            send()
    assert client.state is State.SECURE
