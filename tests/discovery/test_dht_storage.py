"""Tokens, what is stored, in which order a put is checked, and what is forgotten."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.errors import QueryRefused
from hyperbloom.discovery.dht.common.items import (
    MAX_SEQ,
    immutable_target,
    mutable_target,
    sign_item,
)
from hyperbloom.discovery.dht.common.messages import PutImmutable, PutMutable
from hyperbloom.discovery.dht.limits import (
    MAX_INFO_HASHES,
    MAX_PEERS_PER_HASH,
    MAX_PEERS_TOLD,
    MAX_VALUE_BYTES,
)
from hyperbloom.discovery.dht.server.storage import (
    ITEM_SECONDS,
    PEER_SECONDS,
    Storage,
)
from hyperbloom.discovery.dht.server.tokens import ROTATION_SECONDS, TOKEN_BYTES, Tokens
from hyperbloom.discovery.dht.settings import DhtSettings, EqualSeq
from hyperbloom.keys import Identity

SENDER = Address("9.9.9.9", 1)
OWNER = Identity(b"o" * 32)
TARGET = mutable_target(OWNER.public_key, b"s")


def put(seq: int = 5, value: bytes = b"1:a", *, salt: bytes = b"s", **more) -> PutMutable:
    one = sign_item(OWNER, salt=salt, seq=seq, value=value)
    query = PutMutable(
        token=b"t",
        public_key=one.public_key,
        salt=salt,
        seq=seq,
        value=value,
        signature=one.signature,
    )
    return replace(query, **more)


def storage(policy: EqualSeq = EqualSeq.OVERWRITE, max_items: int = 1_000) -> Storage:
    return Storage(equal_seq=policy, max_items=max_items)


def refused(kept: Storage, query: PutMutable) -> int:
    with pytest.raises(QueryRefused) as caught:
        kept.put_mutable(query, SENDER, now=0.0)
    return int(caught.value.code)


def value_of(kept: Storage) -> bytes:
    item = kept.mutable(TARGET, now=0.0)
    assert item is not None
    return item.value


class TestTokens:
    def test_one_is_good_for_its_address_only(self) -> None:
        tokens = Tokens(random.Random(1).randbytes, now=0.0)
        address = Address("9.9.9.9", 5)
        token = tokens.token_for(address, now=1.0)
        assert len(token) == TOKEN_BYTES
        assert tokens.is_good(token, address, now=1.0)
        for other in (Address("9.9.9.8", 5), Address("9.9.9.9", 6)):
            assert not tokens.is_good(token, other, now=1.0)
        for wrong in (b"", token[:-1], token + b"x", bytes(TOKEN_BYTES)):
            assert not tokens.is_good(wrong, address, now=1.0)

    def test_one_is_good_for_one_rotation_more(self) -> None:
        tokens = Tokens(random.Random(1).randbytes, now=0.0)
        address = Address("9.9.9.9", 5)
        token = tokens.token_for(address, now=ROTATION_SECONDS - 1)
        assert tokens.is_good(token, address, now=2 * ROTATION_SECONDS - 1)
        assert tokens.token_for(address, now=2 * ROTATION_SECONDS - 1) != token
        assert not tokens.is_good(token, address, now=2 * ROTATION_SECONDS)

    def test_after_a_long_silence_none_is_good(self) -> None:
        tokens = Tokens(random.Random(1).randbytes, now=0.0)
        address = Address("9.9.9.9", 5)
        token = tokens.token_for(address, now=0.0)
        assert not tokens.is_good(token, address, now=50 * ROTATION_SECONDS)

    def test_the_first_after_a_long_silence_is_good(self) -> None:
        tokens = Tokens(random.Random(1).randbytes, now=0.0)
        address, now = Address("9.9.9.9", 5), 50 * ROTATION_SECONDS
        assert tokens.is_good(tokens.token_for(address, now=now), address, now=now)

    def test_another_node_gives_others(self) -> None:
        address = Address("9.9.9.9", 5)
        one, other = (Tokens(random.Random(n).randbytes, now=0.0) for n in (1, 2))
        assert not other.is_good(one.token_for(address, now=0.0), address, now=0.0)


class TestChecks:
    def test_a_put_is_stored(self) -> None:
        kept = storage()
        kept.put_mutable(put(MAX_SEQ), SENDER, now=0.0)
        assert kept.mutable(TARGET, now=0.0) == sign_item(
            OWNER, salt=b"s", seq=MAX_SEQ, value=b"1:a"
        )
        assert kept.mutable(b"x" * 20, now=0.0) is None

    def test_the_order_of_the_checks(self) -> None:
        """A put with every fault is refused for the first, then for the next."""
        kept = storage()
        kept.put_mutable(put(5), SENDER, now=0.0)
        big = b"1001:" + b"x" * 1_001
        assert len(big) == MAX_VALUE_BYTES + 1
        faults = replace(put(4, big, cas=9, signature=bytes(64)), salt=b"s" * 65)
        assert refused(kept, faults) == 205
        assert refused(kept, replace(faults, value=b"1:b")) == 207
        assert refused(kept, replace(faults, value=b"1:b", salt=b"s")) == 206
        assert refused(kept, put(4, b"1:b", cas=9)) == 301
        assert refused(kept, put(4, b"1:b")) == 302
        assert value_of(kept) == b"1:a"

    def test_the_largest_value_and_salt(self) -> None:
        kept = storage()
        largest = b"1000:" + b"x" * 1_000
        assert len(largest) == MAX_VALUE_BYTES
        kept.put_mutable(put(1, largest, salt=b"s" * 64), SENDER, now=0.0)
        kept.put_immutable(PutImmutable(token=b"t", value=largest), SENDER, now=0.0)
        assert kept.items == 2
        with pytest.raises(QueryRefused):
            kept.put_immutable(
                PutImmutable(token=b"t", value=b"1001:" + b"x" * 1_001), SENDER, now=0.0
            )

    def test_a_target_is_that_of_the_item_or_absent(self) -> None:
        kept = storage()
        assert refused(kept, put(target=b"x" * 20)) == 203
        kept.put_mutable(put(target=TARGET), SENDER, now=0.0)
        with pytest.raises(QueryRefused):
            kept.put_immutable(
                PutImmutable(token=b"t", value=b"1:a", target=TARGET), SENDER, now=0.0
            )

    def test_cas(self) -> None:
        kept = storage()
        kept.put_mutable(put(5, cas=77), SENDER, now=0.0)  # nothing is there to be compared
        assert refused(kept, put(6, b"1:b", cas=4)) == 301
        kept.put_mutable(put(6, b"1:b", cas=5), SENDER, now=0.0)
        assert value_of(kept) == b"1:b"

    @pytest.mark.parametrize("policy", EqualSeq)
    def test_a_greater_seq_replaces_and_a_lower_does_not(self, policy: EqualSeq) -> None:
        kept = storage(policy)
        kept.put_mutable(put(5), SENDER, now=0.0)
        kept.put_mutable(put(6, b"1:b"), SENDER, now=0.0)
        assert refused(kept, put(5, b"1:c")) == 302
        assert value_of(kept) == b"1:b"

    @pytest.mark.parametrize("seq", [5, MAX_SEQ])
    def test_an_equal_seq(self, seq: int) -> None:
        second = put(seq, b"1:b", cas=seq)
        outcomes = {}
        for policy in EqualSeq:
            kept = storage(policy)
            kept.put_mutable(put(seq), SENDER, now=0.0)
            if policy is EqualSeq.REJECT:
                assert refused(kept, second) == 302
            else:
                kept.put_mutable(second, SENDER, now=0.0)
            outcomes[policy] = value_of(kept)
        assert outcomes == {
            EqualSeq.OVERWRITE: b"1:b",
            EqualSeq.KEEP: b"1:a",
            EqualSeq.REJECT: b"1:a",
        }

    @pytest.mark.parametrize("policy", EqualSeq)
    def test_the_same_again_renews_it(self, policy: EqualSeq) -> None:
        kept = storage(policy)
        kept.put_mutable(put(5), SENDER, now=0.0)
        kept.put_mutable(put(5), SENDER, now=ITEM_SECONDS)
        assert kept.mutable(TARGET, now=2 * ITEM_SECONDS) is not None

    @pytest.mark.parametrize("policy", [EqualSeq.KEEP])
    def test_a_value_that_was_not_kept_renews_nothing(self, policy: EqualSeq) -> None:
        kept = storage(policy)
        kept.put_mutable(put(5), SENDER, now=0.0)
        kept.put_mutable(put(5, b"1:b"), SENDER, now=ITEM_SECONDS)
        assert kept.mutable(TARGET, now=ITEM_SECONDS + 1) is None


class TestForgetting:
    def test_items_are_bounded_and_the_longest_unused_goes(self) -> None:
        kept = storage(max_items=3)
        salts = [b"a", b"b", b"c"]
        for salt in salts:
            kept.put_mutable(put(salt=salt), SENDER, now=0.0)
        targets = [mutable_target(OWNER.public_key, salt) for salt in salts]
        assert kept.mutable(targets[0], now=1.0)
        kept.put_mutable(put(salt=b"d"), SENDER, now=2.0)
        assert kept.items == 3
        assert [kept.mutable(target, now=3.0) is not None for target in targets] == [
            True,
            False,
            True,
        ]

    def test_immutable_items_are_bounded_by_themselves(self) -> None:
        kept = storage(max_items=3)
        kept.put_mutable(put(), SENDER, now=0.0)
        for number in range(9):
            kept.put_immutable(PutImmutable(token=b"t", value=b"i%de" % number), SENDER, now=0.0)
        assert kept.items == 4
        assert kept.mutable(TARGET, now=0.0)
        assert kept.immutable(immutable_target(b"i8e"), now=0.0) == b"i8e"
        assert kept.immutable(immutable_target(b"i5e"), now=0.0) is None

    def test_what_is_put_again_is_the_newest(self) -> None:
        kept = storage(max_items=3)
        values = [b"i1e", b"i2e", b"i3e", b"i1e", b"i4e"]
        for value in values:
            kept.put_immutable(PutImmutable(token=b"t", value=value), SENDER, now=0.0)
        assert kept.immutable(immutable_target(b"i1e"), now=0.0) == b"i1e"
        assert kept.immutable(immutable_target(b"i2e"), now=0.0) is None

    def test_a_thousand_items_is_what_is_left_out(self) -> None:
        assert DhtSettings().max_items == 1_000

    def test_items_not_renewed_are_gone(self) -> None:
        kept = storage()
        kept.put_mutable(put(), SENDER, now=0.0)
        assert kept.mutable(TARGET, now=ITEM_SECONDS)
        assert kept.mutable(TARGET, now=ITEM_SECONDS + 1) is None
        assert kept.items == 0

    def test_peers(self) -> None:
        kept = storage()
        peers = [Address(f"9.9.9.{number}", 1) for number in range(MAX_PEERS_PER_HASH + 1)]
        for number, peer in enumerate(peers):
            kept.announce(b"i" * 20, peer, now=float(number))
        told = kept.peers(b"i" * 20, now=100.0)
        assert told == tuple(peers[::-1][:MAX_PEERS_TOLD])
        # The first had to go for the last; the others end one after the other.
        assert len(kept._peers.get(b"i" * 20, now=100.0)) == MAX_PEERS_PER_HASH
        end = MAX_PEERS_PER_HASH + PEER_SECONDS
        assert kept.peers(b"i" * 20, now=end - 4.0) == tuple(peers[::-1][:5])
        assert kept.peers(b"i" * 20, now=end + 1.0) == ()
        assert kept.peers(b"j" * 20, now=0.0) == ()

    def test_a_peer_that_is_announced_again_comes_first(self) -> None:
        kept = storage()
        one, other = Address("9.9.9.1", 1), Address("9.9.9.2", 1)
        for peer in (one, other, one):
            kept.announce(b"i" * 20, peer, now=0.0)
        assert kept.peers(b"i" * 20, now=0.0) == (one, other)

    def test_info_hashes_are_bounded(self) -> None:
        kept = storage()
        for number in range(MAX_INFO_HASHES + 1):
            kept.announce(number.to_bytes(20, "big"), Address("9.9.9.9", 1), now=0.0)
        assert kept.info_hashes == MAX_INFO_HASHES
        assert kept.peers(bytes(20), now=0.0) == ()
        assert kept.peers((1).to_bytes(20, "big"), now=0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bootstrap": ("nowhere",)},
        {"max_items": 0},
        {"query_seconds": 0},
        {"lookup_seconds": -1},
        {"packets_per_second": 0},
        {"packet_burst": 0.5},
        {"reply_burst": 2_047},
        {"reply_bytes_per_second": 0},
    ],
)
def test_settings_that_cannot_be(wrong) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|above 0|burst"):
        DhtSettings(**wrong)


def test_the_least_settings_that_can_be() -> None:
    least = DhtSettings(packet_burst=1, reply_burst=2_048)
    assert (least.packet_burst, least.reply_burst) == (1, 2_048)


class TestItems:
    def test_the_first_sequence_number_is_zero(self) -> None:
        kept = storage()
        kept.put_mutable(put(0), SENDER, now=0.0)
        assert kept.mutable(TARGET, now=0.0) == sign_item(OWNER, salt=b"s", seq=0, value=b"1:a")

    @pytest.mark.parametrize(
        "wrong",
        [
            {"public_key": bytes(31)},
            {"signature": bytes(63)},
            {"salt": bytes(65)},
            {"seq": -1},
            {"seq": MAX_SEQ + 1},
        ],
    )
    def test_what_is_no_item(self, wrong) -> None:
        one = sign_item(OWNER, salt=b"s", seq=5, value=b"1:a")
        with pytest.raises(ValueError, match=r"bytes|sequence number"):
            replace(one, **wrong)
