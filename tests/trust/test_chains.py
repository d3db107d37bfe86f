from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import pytest

from hyperbloom.keys import Identity, keyed_hash
from hyperbloom.trust import (
    LINK_FORMAT_DRAFT,
    MAX_CHAIN_LINKS,
    Chain,
    ChainError,
    ChainExpired,
    ChainForged,
    ChainMalformed,
    ChainTooLong,
    TrustLink,
    issue_link,
    owner_chain,
    verify_chain,
)

NOW = 1_000_000.0
PEOPLE = [Identity(bytes([number]) * 32) for number in range(1, 9)]
FEED = PEOPLE[0].public_key


def issued(issuer: int, trustee: int, expires: float = NOW + 100) -> TrustLink:
    nonce = bytes([issuer, trustee]) * 16
    return issue_link(PEOPLE[issuer], PEOPLE[trustee].public_key, expires=expires, nonce=nonce)


def line(count: int) -> list[bytes]:
    """A chain along PEOPLE."""
    return [issued(i, i + 1, NOW + 100 - i).to_bytes() for i in range(count)]


class TestRecordedChain:
    def test_all_lengths(self, hyperbloom_vectors: dict[str, Any]) -> None:
        root = bytes.fromhex(hyperbloom_vectors["chain"]["root"])
        links = hyperbloom_vectors["chain"]["links"]
        raw = [bytes.fromhex(link["raw"]) for link in links]
        for length in range(len(raw) + 1):
            chain = verify_chain(root, raw[:length], now=3.9e9)
            assert len(chain) == length
            assert chain.to_wire() == tuple(raw[:length])
            assert chain.holder == Identity(bytes([length + 1]) * 32).public_key
            expected = min((link["expires"] for link in links[:length]), default=math.inf)
            assert chain.expires == expected

    def test_expires_with_its_first(self, hyperbloom_vectors: dict[str, Any]) -> None:
        root = bytes.fromhex(hyperbloom_vectors["chain"]["root"])
        raw = [bytes.fromhex(link["raw"]) for link in hyperbloom_vectors["chain"]["links"]]
        verify_chain(root, raw, now=3999999999.125)
        with pytest.raises(ChainExpired, match="trust link 5: ") as caught:
            verify_chain(root, raw, now=3999999999.25)
        assert caught.value.index == 4
        with pytest.raises(ChainExpired, match="trust link 3: "):
            verify_chain(root, raw, now=4e9 + 1)

    def test_people_read_dates_and_count_from_one(self) -> None:
        for expires, when in (
            (NOW - 86_400.5, "1970-01-11 13:46:39 UTC"),
            (-1e20, "-1e+20 s since 1970"),
        ):
            old = issue_link(PEOPLE[0], PEOPLE[1].public_key, expires=expires, nonce=bytes(32))
            with pytest.raises(ChainExpired) as caught:
                verify_chain(FEED, [old.to_bytes()], now=NOW)
            assert str(caught.value) == (
                f"trust link 1: it expired on {when}; the time here is 1970-01-12 13:46:40 UTC"
            )


class TestChain:
    def test_owner(self) -> None:
        chain = verify_chain(FEED, [], now=NOW)
        assert chain == Chain(FEED)
        assert chain.holder == FEED
        assert chain.expires == math.inf
        assert len(chain) == 0
        assert chain, "an empty chain is still a chain"
        assert list(chain.issuers()) == []

    def test_issuers(self) -> None:
        chain = verify_chain(FEED, line(3), now=NOW)
        keys = [person.public_key for person in PEOPLE]
        assert [issuer for issuer, _ in chain.issuers()] == keys[:3]
        assert [link.public_key for _, link in chain.issuers()] == keys[1:4]
        assert all(link.is_signed_by(issuer) for issuer, link in chain.issuers())

    def test_refuses_lengths(self) -> None:
        with pytest.raises(ValueError, match="feed key"):
            Chain(FEED[:-1])
        with pytest.raises(ValueError, match="at most 5"):
            Chain(FEED, tuple(issued(i, i + 1) for i in range(6)))


class TestOwner:
    def test_an_owner_proves_itself_by_an_empty_chain(self) -> None:
        chain = owner_chain(PEOPLE[0])
        assert chain == Chain(FEED)
        assert chain.is_owners
        assert not verify_chain(FEED, line(1), now=NOW).is_owners
        assert not verify_chain(FEED, line(3), now=NOW).is_owners

    def test_in_the_draft_by_a_link_to_itself_that_is_always_the_same(self) -> None:
        chain = owner_chain(PEOPLE[0], format=LINK_FORMAT_DRAFT)
        assert chain == owner_chain(PEOPLE[0], format=LINK_FORMAT_DRAFT)
        assert (len(chain), chain.holder, chain.expires) == (1, FEED, math.inf)
        assert chain.is_owners
        (link,) = chain.links
        assert link.is_signed_by(FEED)
        again = verify_chain(FEED, chain.to_wire(), now=NOW, format=LINK_FORMAT_DRAFT)
        assert again == chain

    def test_a_members_chain_begins_with_the_link_to_the_first_of_them(self) -> None:
        first, second = issued(0, 1), issued(1, 2)
        for own in (Chain(FEED), Chain(FEED, (issued(0, 0),))):
            assert own.extended(first).links == (first,)
        assert Chain(FEED).extended(first).extended(second).links == (first, second)
        longest = Chain(FEED, tuple(issued(i, i + 1) for i in range(5)))
        with pytest.raises(ValueError, match="at most 5"):
            longest.extended(issued(5, 6))

    def test_the_keys_of_a_chain_begin_with_the_feeds(self) -> None:
        keys = tuple(person.public_key for person in PEOPLE)
        assert Chain(FEED).keys == (FEED,)
        assert verify_chain(FEED, line(3), now=NOW).keys == keys[:4]


class TestVerify:
    def test_five_links_and_six(self) -> None:
        assert len(verify_chain(FEED, line(5), now=NOW)) == MAX_CHAIN_LINKS == 5
        with pytest.raises(ChainTooLong, match="at most 5 links, not 6") as caught:
            verify_chain(FEED, line(6), now=NOW)
        assert caught.value.index == 5

    def test_every_changed_byte_of_every_link(self) -> None:
        raw = line(3)
        for place, index in itertools.product(range(3), range(137)):
            changed = bytearray(raw[place])
            changed[index] ^= 0x01
            with pytest.raises(ChainError) as caught:
                verify_chain(FEED, [*raw[:place], bytes(changed), *raw[place + 1 :]], now=NOW)
            assert caught.value.index == place
            assert f"trust link {place + 1}: " in str(caught.value)

    def test_permutations(self) -> None:
        raw = line(4)
        for order in itertools.permutations(range(4)):
            links = [raw[place] for place in order]
            if order == (0, 1, 2, 3):
                verify_chain(FEED, links, now=NOW)
                continue
            first_wrong = next(i for i in range(4) if order[i] != i)
            with pytest.raises(ChainForged) as caught:
                verify_chain(FEED, links, now=NOW)
            assert caught.value.index == first_wrong

    def test_every_gap(self) -> None:
        raw = line(5)
        for gap in range(4):
            with pytest.raises(ChainForged, match=f"trust link {gap + 1}: "):
                verify_chain(FEED, raw[:gap] + raw[gap + 1 :], now=NOW)

    def test_another_feed(self) -> None:
        for person in PEOPLE[1:]:
            with pytest.raises(ChainForged, match="trust link 1: "):
                verify_chain(person.public_key, line(2), now=NOW)

    def test_wrong_issuer(self) -> None:
        raw = [issued(0, 1).to_bytes(), issued(3, 2).to_bytes()]
        with pytest.raises(ChainForged, match="trust link 2: ") as caught:
            verify_chain(FEED, raw, now=NOW)
        key = PEOPLE[1].public_key.hex()
        assert key[:12] in str(caught.value)
        assert key not in str(caught.value), "it may be a feed's key, and this is logged"

    def test_a_trustee_without_a_real_key_hands_on_nothing(self) -> None:
        # With the point zero as a key, anybody could sign.
        first = issue_link(PEOPLE[0], bytes(32), expires=NOW, nonce=bytes(32)).to_bytes()
        forged = issued(1, 2).to_bytes()[:73] + b"\x01" + bytes(63)
        assert verify_chain(FEED, [first], now=NOW).holder == bytes(32)
        with pytest.raises(ChainForged, match="trust link 2: "):
            verify_chain(FEED, [first, forged], now=NOW)

    @pytest.mark.parametrize("length", [0, 1, 136, 138])
    def test_malformed(self, length: int) -> None:
        with pytest.raises(ChainMalformed, match=f"trust link 2: .*not {length}"):
            verify_chain(FEED, [*line(1), bytes(length)], now=NOW)

    @pytest.mark.parametrize("expires", [math.nan, math.inf])
    def test_signed_but_never_expiring(self, expires: float) -> None:
        """The issuer itself may have signed such a link: a deployed peer takes it."""
        signed = b"\x01" + PEOPLE[1].public_key + struct.pack(">d", expires) + bytes(32)
        raw = signed + PEOPLE[0].sign(keyed_hash(signed))
        with pytest.raises(ChainMalformed, match="finite"):
            verify_chain(FEED, [raw], now=NOW)

    def test_wrong_length_of_the_feed_key(self) -> None:
        with pytest.raises(ValueError, match="feed key"):
            verify_chain(FEED + b"\0", [], now=NOW)


class TestExpiry:
    @pytest.mark.parametrize("place", range(5))
    def test_boundary_at_every_place(self, place: int) -> None:
        raw = [issued(i, i + 1, NOW if i == place else NOW + 9).to_bytes() for i in range(5)]
        assert verify_chain(FEED, raw, now=NOW).expires == NOW
        later = math.nextafter(NOW, math.inf)
        with pytest.raises(ChainExpired, match=f"trust link {place + 1}: "):
            verify_chain(FEED, raw, now=later)

    def test_leeway(self) -> None:
        raw = [issued(0, 1, NOW).to_bytes()]
        assert verify_chain(FEED, raw, now=NOW + 60, leeway=60).expires == NOW
        with pytest.raises(ChainExpired):
            verify_chain(FEED, raw, now=NOW + 60.001, leeway=60)

    def test_no_clock_lets_nobody_in(self) -> None:
        with pytest.raises(ChainExpired):
            verify_chain(FEED, line(1), now=math.nan)
