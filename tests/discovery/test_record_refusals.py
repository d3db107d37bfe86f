"""What is refused of what a DHT gives: everything a publisher did not sign for this minute."""

from __future__ import annotations

import hashlib
import random
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from hyperbloom.discovery.dht.common.items import MutableItem
from hyperbloom.discovery.tracker.content import RecordContent
from hyperbloom.discovery.tracker.limits import MAX_ENCRYPTED_RECORD_BYTES, MAX_ITEMS_READ
from hyperbloom.discovery.tracker.reading import read_records
from hyperbloom.discovery.tracker.record import (
    SEAL_ENTROPY_BYTES,
    Record,
    RecordRefused,
    RefusalReason,
    open_record,
    open_value,
    record_item,
    seal_record,
    sign_record,
)
from hyperbloom.discovery.tracker.topic import Topic, TopicKeys
from hyperbloom.keys import Identity, discovery_key, verify_signature

FEED_KEY = Identity(b"f" * 32).public_key
TOPIC = Topic.of_feed(FEED_KEY)
KEYS = TOPIC.keys(29_000_000)
PUBLISHER = Identity(b"p" * 32)
READER = Identity(b"r" * 32)
CONTENT = RecordContent(last_message_hashes=(b"\x05" * 32,))
ORDER = 2**252 + 27742317777372353535851937790883648493
"""The order of Ed25519's base point."""
IDENTITY_POINT = b"\x01" + bytes(31)


def entropy(number: int = 0) -> bytes:
    return random.Random(number).randbytes(SEAL_ENTROPY_BYTES)


def sealed(record: Record, keys: TopicKeys = KEYS, number: int = 0) -> bytes:
    return seal_record(record, keys, entropy=entropy(number))


def item(record: Record, keys: TopicKeys = KEYS, number: int = 0) -> MutableItem:
    return record_item(sealed(record, keys, number), keys)


def reason(value: bytes, keys: TopicKeys = KEYS) -> RefusalReason:
    with pytest.raises(RecordRefused) as caught:
        open_record(value, keys)
    return caught.value.reason


RECORD = sign_record(PUBLISHER, KEYS, CONTENT)
ENCRYPTED = sealed(RECORD)


def test_a_good_record_passes() -> None:
    assert open_record(ENCRYPTED, KEYS) == RECORD


def test_who_knows_only_the_discovery_key_cannot_open_it() -> None:
    """Another secret, even the discovery key itself, gives other encryption keys."""
    for secret in (b"", discovery_key(FEED_KEY), Identity(b"g" * 32).public_key):
        outsider = Topic(hash=TOPIC.hash, secret_hash=hashlib.sha512(secret).digest()[:32])
        keys = outsider.keys(KEYS.minute)
        assert (keys.salt, keys.signer) == (KEYS.salt, KEYS.signer)
        assert reason(ENCRYPTED, keys) is RefusalReason.UNDECRYPTABLE


def test_nothing_of_a_record_shows_in_its_encrypted_form() -> None:
    plain = RECORD.to_bytes()
    pieces = (plain[start : start + 8] for start in range(len(plain) - 8))
    assert not any(piece in ENCRYPTED for piece in pieces if piece != bytes(8))


def test_sealing_twice_gives_other_bytes() -> None:
    first, second = sealed(RECORD, number=1), sealed(RECORD, number=2)
    assert not any(first[i : i + 16] == second[i : i + 16] for i in range(12, len(first) - 96))


def test_a_record_put_again_under_another_minute_is_refused() -> None:
    later = TOPIC.keys(KEYS.minute + 1)
    assert reason(ENCRYPTED, later) is RefusalReason.UNDECRYPTABLE
    # Whoever knows the secret can open it and seal it again.
    assert reason(sealed(RECORD, later), later) is RefusalReason.WRONG_MINUTE
    assert (
        reason(sealed(replace(RECORD, minute=later.minute), later), later) is RefusalReason.FORGED
    )


def test_a_record_of_another_topic_is_refused() -> None:
    other = Topic.of_feed(Identity(b"o" * 32).public_key).keys(KEYS.minute)
    assert reason(sealed(RECORD, other), other) is RefusalReason.WRONG_TOPIC
    moved = replace(RECORD, topic_hash=other.topic_hash)
    assert reason(sealed(moved, other), other) is RefusalReason.FORGED


@pytest.mark.parametrize(
    "forged",
    [
        replace(RECORD, publisher=READER.public_key),
        replace(RECORD, content=bytes(len(RECORD.content))),
        replace(RECORD, signature=bytes(64)),
        replace(RECORD, signature=READER.sign(RECORD.signed_bytes())),
    ],
    ids=["publisher", "content", "no signature", "another's signature"],
)
def test_a_forged_record_is_refused(forged: Record) -> None:
    assert reason(sealed(forged)) is RefusalReason.FORGED


def challenge(point: bytes, key: bytes, message: bytes) -> int:
    return int.from_bytes(hashlib.sha512(point + key + message).digest(), "little") % ORDER


def is_laxly_valid(record: Record) -> bool:
    """By an implementation that does not look at the order of points."""
    key = Ed25519PublicKey.from_public_bytes(record.publisher)
    key.verify(record.signature, record.signed_bytes())
    return True


def test_a_signature_with_a_point_of_small_order_is_refused() -> None:
    """R = the identity and S = k·a satisfy the equation that lax verifiers check."""
    scalar = int.from_bytes(hashlib.sha512(PUBLISHER.seed).digest()[:32], "little")
    scalar = (scalar & ~7 & ((1 << 254) - 1)) | (1 << 254)
    k = challenge(IDENTITY_POINT, PUBLISHER.public_key, RECORD.signed_bytes())
    signature = IDENTITY_POINT + (k * scalar % ORDER).to_bytes(32, "little")
    weak = replace(RECORD, signature=signature)
    assert is_laxly_valid(weak)
    assert reason(sealed(weak)) is RefusalReason.FORGED


def test_a_publisher_of_small_order_is_refused() -> None:
    """Under the identity as key, S·B = R holds for every message."""
    scalar = (12345).to_bytes(32, "little")
    point = bindings.crypto_scalarmult_ed25519_base_noclamp(scalar)
    weak = replace(RECORD, publisher=IDENTITY_POINT, signature=point + scalar)
    assert is_laxly_valid(weak)
    assert reason(sealed(weak)) is RefusalReason.FORGED


def test_a_signature_with_an_unreduced_scalar_is_refused() -> None:
    """S + the order is the same scalar: accepting it would give each record a second form."""
    scalar = int.from_bytes(RECORD.signature[32:], "little") + ORDER
    assert scalar < 2**253 + ORDER
    second = RECORD.signature[:32] + scalar.to_bytes(32, "little")
    assert verify_signature(RECORD.publisher, RECORD.signed_bytes(), RECORD.signature)
    assert reason(sealed(replace(RECORD, signature=second))) is RefusalReason.FORGED


def test_an_encapsulated_key_of_small_order_is_refused() -> None:
    """Its shared secret is zero, which the cipher suite refuses with an error of its own."""
    key_at = len(ENCRYPTED) - 88 + 8
    weak = ENCRYPTED[:key_at] + bytes(32) + ENCRYPTED[key_at + 32 :]
    assert reason(weak) is RefusalReason.UNDECRYPTABLE


def test_a_record_too_short_for_its_arrays_is_malformed() -> None:
    short = replace(RECORD, content=RECORD.content[:319])
    assert reason(sealed(short)) is RefusalReason.MALFORMED


def test_lengths_are_refused_before_anything_is_decrypted() -> None:
    for wrong in (b"", b"\0" * 3, ENCRYPTED[:-1], ENCRYPTED + b"\0", b"\xff" * 4 + ENCRYPTED[4:]):
        assert reason(wrong) is RefusalReason.UNDECODABLE
    body = MAX_ENCRYPTED_RECORD_BYTES - 4 - 88
    assert reason(body.to_bytes(4, "little") + bytes(body + 88)) is RefusalReason.UNDECRYPTABLE
    body += 1
    assert reason(body.to_bytes(4, "little") + bytes(body + 88)) is RefusalReason.UNDECODABLE


@pytest.mark.parametrize("before", [b"", b"i5e", b"-1:", b"0516:", b"515:", b"517:", b"99999:"])
def test_a_value_that_is_no_byte_string_is_undecodable(before: bytes) -> None:
    assert len(ENCRYPTED) == 516 + 88
    with pytest.raises(RecordRefused) as caught:
        open_value(before + ENCRYPTED, KEYS)
    assert caught.value.reason is RefusalReason.UNDECODABLE


def test_the_error_says_why_without_showing_what() -> None:
    assert str(RecordRefused(RefusalReason.FORGED)) == "a record was refused: forged"


def test_reading_keeps_one_record_a_publisher_and_counts_the_rest() -> None:
    other = Identity(b"q" * 32)
    old = sign_record(other, TOPIC.keys(KEYS.minute - 1), CONTENT)
    good, second = item(RECORD), item(RECORD, number=1)
    garbage = record_item(b"garbage", KEYS)
    items = [
        good,
        good,
        second,
        item(sign_record(other, KEYS, CONTENT)),
        item(sign_record(READER, KEYS, CONTENT)),
        item(old),
        item(replace(RECORD, publisher=READER.public_key)),
        garbage,
    ]
    reading = read_records(items, KEYS, own=READER.public_key)
    assert [record.publisher for record in reading.records] == [
        PUBLISHER.public_key,
        other.public_key,
    ]
    assert reading.refused == {
        RefusalReason.REPEATED: 1,
        RefusalReason.OWN: 1,
        RefusalReason.WRONG_MINUTE: 1,
        RefusalReason.FORGED: 1,
        RefusalReason.UNDECODABLE: 1,
    }


def test_reading_stops_at_its_limit() -> None:
    garbage = [record_item(b"%d" % number, KEYS) for number in range(MAX_ITEMS_READ)]
    for before, taken in ((garbage[1:], 1), (garbage, 0)):
        reading = read_records([*before, item(RECORD)], KEYS, own=READER.public_key)
        assert len(reading.records) == taken
        assert reading.refused == {RefusalReason.UNDECODABLE: len(before)}


@given(st.binary(max_size=2_200))
def test_arbitrary_values_raise_nothing_but_a_refusal(data: bytes) -> None:
    for raw in (data, b"%d:%b" % (len(data), data)):
        with pytest.raises(RecordRefused):
            open_value(raw, KEYS)


def test_mutated_records_raise_nothing_but_a_refusal() -> None:
    """Mutated as sealed, and mutated before sealing, where the decoder sees every broken form."""
    source = random.Random(20260)
    plain = RECORD.to_bytes()
    for number in range(600):
        mutated = bytearray(plain if number % 2 else ENCRYPTED)
        for _ in range(source.randrange(1, 4)):
            mutated[source.randrange(len(mutated))] ^= source.randrange(1, 256)
        if source.random() < 0.3:
            del mutated[source.randrange(len(mutated)) :]
        if number % 2:
            mutated = bytearray(_sealed_bytes(bytes(mutated)))
        with pytest.raises(RecordRefused):
            open_record(bytes(mutated), KEYS)


def _sealed_bytes(plain: bytes) -> bytes:
    class Bytes:
        @staticmethod
        def to_bytes() -> bytes:
            return plain

    return seal_record(Bytes(), KEYS, entropy=entropy())
