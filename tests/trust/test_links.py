from __future__ import annotations

import dataclasses
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.keys import HASH_KEY, Identity
from hyperbloom.trust import LINK_FORMAT_2, LinkFormat, TrustLink, issue_link, parse_link

ISSUER = Identity(b"\x01" * 32)
TRUSTEE = Identity(b"\x02" * 32).public_key
NONCE = bytes(range(32))
# A form without expiry under another hash key, as no peer uses it now.
BARE = LinkFormat(name="bare", hash_key=b"bare", has_expiry=False, owner_links_itself=True)

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def test_recorded_links(hyperbloom_vectors: dict[str, Any]) -> None:
    for recorded in hyperbloom_vectors["chain"]["links"]:
        raw = bytes.fromhex(recorded["raw"])
        issuer = Identity(bytes([recorded["issuer"]]) * 32)
        trustee = Identity(bytes([recorded["trustee"]]) * 32)
        link = parse_link(raw)
        assert link.version == 1
        assert link.public_key == trustee.public_key
        assert link.expires == recorded["expires"]
        assert link.is_signed_by(issuer.public_key)
        assert not link.is_signed_by(trustee.public_key)
        assert link.to_bytes() == raw
        again = issue_link(
            issuer, trustee.public_key, expires=recorded["expires"], nonce=link.nonce
        )
        assert again == link


@given(FINITE, st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_round_trip(expires: float, trustee: bytes, nonce: bytes) -> None:
    link = issue_link(ISSUER, trustee, expires=expires, nonce=nonce)
    raw = link.to_bytes()
    assert raw[:73] == b"\x01" + trustee + struct.pack(">d", expires) + nonce
    assert len(raw) == 137
    assert parse_link(raw) == link
    assert parse_link(raw).to_bytes() == raw
    assert link.is_signed_by(ISSUER.public_key)


@given(st.binary(max_size=300).filter(lambda data: len(data) != 137))
def test_refuses_other_lengths(data: bytes) -> None:
    with pytest.raises(ValueError, match="137 bytes"):
        parse_link(data)


@given(st.binary(min_size=136, max_size=136), st.integers(0, 255).filter(lambda v: v != 1))
def test_refuses_other_versions(rest: bytes, version: int) -> None:
    with pytest.raises(ValueError, match="version"):
        parse_link(bytes([version]) + rest)


@pytest.mark.parametrize(
    "expiry",
    ["7ff0000000000000", "fff0000000000000", "7ff8000000000000", "fff8000000000000",
     "7ff0000000000001", "7fffffffffffffff"],
)  # fmt: skip
def test_refuses_expiries_that_never_come(expiry: str) -> None:
    raw = bytearray(issue_link(ISSUER, TRUSTEE, expires=1.0, nonce=NONCE).to_bytes())
    raw[33:41] = bytes.fromhex(expiry)
    with pytest.raises(ValueError, match="finite"):
        parse_link(bytes(raw))


@pytest.mark.parametrize("expires", [math.nan, math.inf, -math.inf])
def test_issues_none_that_never_expires(expires: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        issue_link(ISSUER, TRUSTEE, expires=expires, nonce=NONCE)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_refuses_lengths_of_fields(length: int) -> None:
    with pytest.raises(ValueError, match="public key"):
        issue_link(ISSUER, bytes(length), expires=1.0, nonce=NONCE)
    with pytest.raises(ValueError, match="nonce"):
        issue_link(ISSUER, TRUSTEE, expires=1.0, nonce=bytes(length))
    with pytest.raises(ValueError, match="signature"):
        TrustLink(public_key=TRUSTEE, expires=1.0, nonce=NONCE, signature=bytes(length))


def test_is_immutable() -> None:
    link = issue_link(ISSUER, TRUSTEE, expires=1.0, nonce=NONCE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        link.expires = 2.0  # type: ignore[misc]


def test_every_changed_byte_breaks_a_link() -> None:
    raw = issue_link(ISSUER, TRUSTEE, expires=1e9, nonce=NONCE).to_bytes()
    for index in range(len(raw)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(raw)
            changed[index] ^= flip
            try:
                link = parse_link(bytes(changed))
            except ValueError:
                continue
            assert not link.is_signed_by(ISSUER.public_key), (index, flip)


class TestExpiry:
    LINK = issue_link(ISSUER, TRUSTEE, expires=1000.5, nonce=NONCE)

    def test_counts_until_its_moment(self) -> None:
        assert not self.LINK.is_expired(now=1000.5)
        assert self.LINK.is_expired(now=math.nextafter(1000.5, math.inf))

    def test_leeway(self) -> None:
        assert not self.LINK.is_expired(now=1002.5, leeway=2.0)
        assert self.LINK.is_expired(now=math.nextafter(1002.5, math.inf), leeway=2.0)

    def test_a_clock_that_is_no_number_expires_all(self) -> None:
        assert self.LINK.is_expired(now=math.nan)
        assert self.LINK.is_expired(now=0.0, leeway=math.nan)


class TestFormats:
    def test_lengths(self) -> None:
        assert (LINK_FORMAT_2.signed_bytes, LINK_FORMAT_2.link_bytes) == (73, 137)
        assert (BARE.signed_bytes, BARE.link_bytes) == (65, 129)
        assert LINK_FORMAT_2.hash_key == HASH_KEY

    def test_without_expiry(self) -> None:
        link = issue_link(ISSUER, TRUSTEE, expires=math.inf, nonce=NONCE, format=BARE)
        raw = link.to_bytes()
        assert raw[:65] == b"\x01" + TRUSTEE + NONCE
        assert parse_link(raw, BARE) == link
        assert link.is_signed_by(ISSUER.public_key)
        assert not link.is_expired(now=1e300)
        with pytest.raises(ValueError, match="137 bytes, not 129"):
            parse_link(raw)

    @pytest.mark.parametrize("expires", [1e9, math.nan, -math.inf])
    def test_without_expiry_none_is_to_be_given(self, expires: float) -> None:
        with pytest.raises(ValueError, match="never expires"):
            issue_link(ISSUER, TRUSTEE, expires=expires, nonce=NONCE, format=BARE)

    def test_hash_key_is_part_of_the_signature(self) -> None:
        link = issue_link(ISSUER, TRUSTEE, expires=1.0, nonce=NONCE)
        other = dataclasses.replace(LINK_FORMAT_2, hash_key=b"other")
        assert not dataclasses.replace(link, format=other).is_signed_by(ISSUER.public_key)
