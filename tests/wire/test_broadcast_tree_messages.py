"""The messages of `broadcast-tree`: golden bytes, one encoding each, limits, who knows them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_peers import credentials_of, events, pair

from hyperbloom.wire import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.events import IdsTold, UnknownIgnored, ValuesPulled
from hyperbloom.wire.extensions.broadcast_tree import (
    BROADCAST_TREE,
    LinkKind,
    ValuesPull,
    ValuesTold,
)
from hyperbloom.wire.extensions.set_digest import SET_DIGEST
from hyperbloom.wire.limits import MAX_TOLD_IDS, SEND_FRAME_BYTES
from hyperbloom.wire.states import State

IDS = bytes(range(16)) + bytes(range(1, 17))

#: As docs/extensions/broadcast-tree.md shows them.
GOLDEN: list[tuple[Any, str]] = [
    (ValuesTold(ids=IDS), IDS.hex()),
    (ValuesPull(link=LinkKind.PUSH, ids=IDS[:16]), "01" + IDS[:16].hex()),
    (ValuesPull(link=LinkKind.AS_BEFORE, ids=IDS), "00" + IDS.hex()),
    (ValuesPull(link=LinkKind.TELL, ids=b""), "02"),
]


@pytest.mark.parametrize(("message", "raw"), GOLDEN)
def test_golden_bytes_both_ways(message: Any, raw: str) -> None:
    assert message.encode().hex() == raw
    assert type(message).decode(bytes.fromhex(raw)) == message


def test_the_numbers_of_the_messages() -> None:
    assert (ValuesTold.message_id, ValuesPull.message_id) == (4370, 4371)


@pytest.mark.parametrize(
    ("kind", "raw", "rule"),
    [
        (ValuesTold, b"", "not empty"),
        (ValuesTold, IDS[:-1], "an id in ValuesTold has 16 bytes"),
        (ValuesTold, IDS[16:] + IDS[:16], "in order, each once"),
        (ValuesTold, IDS[:16] * 2, "in order, each once"),
        (ValuesPull, b"", "ends inside"),
        (ValuesPull, b"\x03", "0, 1 or 2"),
        (ValuesPull, b"\x00" + IDS[:15], "an id in ValuesPull has 16 bytes"),
        (ValuesPull, b"\x01" + IDS[16:] + IDS[:16], "in order, each once"),
    ],
)
def test_bodies_that_break_a_rule_are_refused(kind: Any, raw: bytes, rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        kind.decode(raw)


@given(st.binary(max_size=70))
def test_whatever_is_decoded_encodes_to_the_same(body: bytes) -> None:
    for kind in (ValuesTold, ValuesPull):
        try:
            message = kind.decode(body)
        except RemoteProtocolError:
            continue
        assert message.encode() == body


def test_the_longest_messages_fit_a_frame_and_one_id_more_is_refused() -> None:
    ids = b"".join(index.to_bytes(16, "big") for index in range(MAX_TOLD_IDS + 1))
    longest = ValuesPull(link=LinkKind.PUSH, ids=ids[:-16])
    assert len(longest.encode()) + 2 <= SEND_FRAME_BYTES
    assert ValuesTold(ids=ids[:-16]).ids == longest.ids
    for make in (
        lambda: ValuesTold(ids=ids),
        lambda: ValuesPull(link=LinkKind.PUSH, ids=ids),
    ):
        with pytest.raises(LocalProtocolError, match="at most 4096 ids"):
            make()
    for kind, body in ((ValuesTold, ids), (ValuesPull, b"\x00" + ids)):
        with pytest.raises(RemoteProtocolError, match="at most 4096 ids"):
            kind.decode(body)


def test_they_arrive_as_events_where_both_announced() -> None:
    client, server = pair(
        credentials_of(), credentials_of(2), extensions=(SET_DIGEST, BROADCAST_TREE)
    )
    server.receive_data(client.send_extension(GOLDEN[0][0]))
    assert events(server) == [IdsTold(told=GOLDEN[0][0])]
    client.receive_data(server.send_extension(GOLDEN[1][0]))
    assert events(client) == [ValuesPulled(pull=GOLDEN[1][0])]


def test_nothing_is_sent_to_a_peer_that_did_not_announce_it() -> None:
    client, _ = pair(credentials_of(), credentials_of(2), extensions=(SET_DIGEST,))
    for send in (
        lambda: client.send_extension(GOLDEN[0][0]),
        lambda: client.send_extension(GOLDEN[3][0]),
    ):
        with pytest.raises(LocalProtocolError, match="did not announce broadcast-tree-1"):
            send()
    assert client.state is State.SECURE


def test_to_who_did_not_announce_it_they_are_unknown() -> None:
    client, server = pair(
        credentials_of(), credentials_of(2), extensions=(SET_DIGEST, BROADCAST_TREE)
    )
    told = client.send_extension(GOLDEN[0][0])
    server._announced = frozenset((SET_DIGEST,))
    server.receive_data(told)
    assert events(server) == [UnknownIgnored(message_id=4370, size=34)]
