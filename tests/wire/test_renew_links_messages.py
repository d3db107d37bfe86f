"""The message of `renew-links`: golden bytes, one encoding, limits, who knows it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_peers import credentials_of, events, pair

from hyperbloom.trust import MAX_CHAIN_LINKS
from hyperbloom.wire import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.events import RenewalReceived, UnknownIgnored
from hyperbloom.wire.extensions.renew_links import RENEW_LINKS, RenewedChain
from hyperbloom.wire.extensions.set_digest import SET_DIGEST
from hyperbloom.wire.states import State

ONE, TWO = b"\x01" * 137, b"\x02" * 137


def test_golden_bytes_both_ways() -> None:
    """As docs/extensions/renew-links.md shows them."""
    message = RenewedChain(links=(ONE, TWO))
    assert message.encode().hex() == "01" * 137 + "02" * 137
    assert RenewedChain.decode(ONE + TWO) == message
    assert RenewedChain.message_id == 4373
    assert RENEW_LINKS == "renew-links-1"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"", "1 to 5 links"),
        (ONE[:-1], "has 137 bytes"),
        (ONE + b"\x00", "has 137 bytes"),
        (ONE * (MAX_CHAIN_LINKS + 1), "at most 5 links"),
        (bytes(250_000), "at most 5 links"),
    ],
)
def test_bodies_that_break_a_rule_are_refused(body: bytes, rule: str) -> None:
    with pytest.raises(RemoteProtocolError, match=rule):
        RenewedChain.decode(body)


def test_a_chain_that_is_too_long_cannot_be_made() -> None:
    assert len(RenewedChain(links=(ONE,) * MAX_CHAIN_LINKS).encode()) == 685
    for links in ((), (ONE,) * (MAX_CHAIN_LINKS + 1), (ONE[:-1],), (ONE, b"")):
        with pytest.raises(LocalProtocolError):
            RenewedChain(links=links)


@given(st.binary(max_size=300))
def test_whatever_is_decoded_encodes_to_the_same(body: bytes) -> None:
    try:
        message = RenewedChain.decode(body)
    except RemoteProtocolError:
        return
    assert message.encode() == body


def test_a_session_takes_it_of_a_peer_that_announced_it() -> None:
    client, server = pair(credentials_of(), credentials_of(2), extensions=(SET_DIGEST, RENEW_LINKS))
    message = RenewedChain(links=(ONE,))
    client.receive_data(server.send_extension(message))
    assert events(client) == [RenewalReceived(renewal=message)]


def test_it_is_not_sent_to_a_peer_that_did_not_announce_it() -> None:
    client, _ = pair(credentials_of(), credentials_of(2), extensions=(SET_DIGEST,))
    with pytest.raises(LocalProtocolError, match="did not announce renew-links-1"):
        client.send_extension(RenewedChain(links=(ONE,)))
    assert client.state is State.SECURE


def test_to_who_did_not_announce_it_it_is_unknown() -> None:
    client, server = pair(credentials_of(), credentials_of(2), extensions=(SET_DIGEST, RENEW_LINKS))
    sent = client.send_extension(RenewedChain(links=(ONE,)))
    server._announced = frozenset((SET_DIGEST,))
    server.receive_data(sent)
    assert events(server) == [UnknownIgnored(message_id=4373, size=139)]
