"""Bytes of records: recorded from the deployed crate, and worked out here by other means."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import rfc9180
from nacl.signing import SigningKey

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.items import MAX_SEQ
from hyperbloom.discovery.tracker.content import Neighbour, RecordContent
from hyperbloom.discovery.tracker.record import (
    open_record,
    open_value,
    record_item,
    seal_record,
    sign_record,
)
from hyperbloom.discovery.tracker.sealing import open_sealed, seal
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.keys import Identity, discovery_key

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "topic-tracker.json").read_text())
RECORDS = VECTORS["records"]
INFO, AAD = b"arbitrary_info_bytes", b"arbitrary_seal_bytes"


def sha512_half(data: bytes) -> bytes:
    return hashlib.sha512(data).digest()[:32]


def unhex(vector: dict, key: str) -> bytes:
    return bytes.fromhex(vector[key])


def topic_of(vector: dict) -> Topic:
    return Topic(
        hash=unhex(vector, "topic"), secret_hash=sha512_half(bytes.fromhex(vector["secret"]))
    )


def filled(slots: list[str]) -> tuple[bytes, ...]:
    return tuple(bytes.fromhex(slot) for slot in slots if slot != "00" * 32)


def test_the_composition_yields_the_vector_of_rfc_9180_a_2_1() -> None:
    ephemeral = bytes.fromhex("f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600")
    recipient = bytes.fromhex("4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a")
    enc, ciphertext = rfc9180.seal(
        recipient,
        b"Beauty is truth, truth beauty",
        info=b"Ode on a Grecian Urn",
        aad=b"Count-0",
        ephemeral=ephemeral,
    )
    assert enc.hex() == "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a"
    assert ciphertext.hex() == (
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28"
    )


def test_sealing_agrees_with_the_composition_both_ways() -> None:
    seed, ephemeral = bytes(range(32)), bytes(range(32, 64))
    secret = rfc9180.x25519_secret(seed)
    enc, ciphertext = rfc9180.seal(
        rfc9180.public(secret), b"plaintext", info=INFO, aad=AAD, ephemeral=ephemeral
    )
    expected = (32).to_bytes(8, "little") + enc + ciphertext
    assert seal(seed, b"plaintext", ephemeral=ephemeral) == expected
    assert len(expected) == len(b"plaintext") + 56
    assert open_sealed(seed, expected) == b"plaintext"


def test_a_whole_item_is_what_other_code_makes_of_the_text() -> None:
    """Everything from the feed key to the DHT item, written out with hashlib, hmac and PyNaCl."""
    feed_key, minute = SigningKey(b"f" * 32).verify_key.encode(), 29_333_333
    publisher, peer = SigningKey(b"p" * 32), bytes([1]) * 32
    entropy = bytes(range(96))
    topic_hash = hashlib.blake2b(feed_key, digest_size=32, key=b"---hyperbloom---").digest()
    content = (
        peer
        + bytes(128)
        + b"\xaa" * 32
        + bytes(128)
        + b"\x01"  # version
        + b"\x00\x0a\x00\x00\x01\x11\x0d"  # the publisher at 10.0.0.1:4365
        + b"\x81" + bytes.fromhex("20010db8" + "00" * 11 + "02") + b"\x00\x50"  # peer 1
    )  # fmt: skip
    signed = topic_hash + minute.to_bytes(8, "little") + publisher.verify_key.encode() + content
    record = signed + publisher.sign(signed).signature

    def sealed(secret: bytes, plaintext: bytes, ephemeral: bytes) -> bytes:
        enc, ciphertext = rfc9180.seal(
            rfc9180.public(secret), plaintext, info=INFO, aad=AAD, ephemeral=ephemeral
        )
        return (32).to_bytes(8, "little") + enc + ciphertext

    once = rfc9180.x25519_secret(entropy[:32])
    shared = rfc9180.x25519_secret(
        sha512_half(topic_hash + minute.to_bytes(8, "big") + sha512_half(feed_key))
    )
    body = sealed(once, record, entropy[32:64])
    encrypted = len(body).to_bytes(4, "little") + body + sealed(shared, entropy[:32], entropy[64:])
    little = minute.to_bytes(8, "little")
    signer = SigningKey(sha512_half(topic_hash + little))
    salt = sha512_half(b"salt" + topic_hash + little)
    value = str(len(encrypted)).encode() + b":" + encrypted
    to_sign = b"4:salt32:" + salt + b"3:seqi9223372036854775807e1:v" + value

    keys = Topic.of_feed(feed_key).keys(minute)
    ours = RecordContent(
        addresses=(Address("10.0.0.1", 4365),),
        active_peers=(Neighbour(node_id=peer, addresses=(Address("2001:db8::2", 80),)),),
        last_message_hashes=(b"\xaa" * 32,),
    )
    made = sign_record(Identity(b"p" * 32), keys, ours)
    assert made.to_bytes() == record
    assert seal_record(made, keys, entropy=entropy) == encrypted
    item = record_item(encrypted, keys)
    assert (item.public_key, item.salt) == (signer.verify_key.encode(), salt)
    assert (item.seq, item.value) == (MAX_SEQ, value)
    assert item.signature == signer.sign(to_sign).signature
    assert open_value(value, keys) == made
    assert made.decoded == ours


def test_a_feeds_topic_is_its_discovery_key() -> None:
    feed_key = Identity(b"f" * 32).public_key
    assert Topic.of_feed(feed_key).hash == discovery_key(feed_key)


def test_recorded_topics_are_hashed_the_same() -> None:
    for topic in VECTORS["topics"]:
        assert Topic.named(topic["name"].encode(), b"").hash.hex() == topic["hash"]


@pytest.mark.parametrize("vector", RECORDS, ids=lambda vector: str(vector["minute"]))
def test_recorded_keys_are_derived_the_same(vector: dict) -> None:
    keys = topic_of(vector).keys(vector["minute"])
    assert keys.signer.seed == unhex(vector, "signing_seed")
    assert keys.signer.public_key == unhex(vector, "signing_key")
    assert keys.salt == unhex(vector, "salt")
    assert keys.encryption_seed == unhex(vector, "encryption_seed")


@pytest.mark.parametrize("vector", RECORDS, ids=lambda vector: str(vector["minute"]))
def test_recorded_records_are_read(vector: dict) -> None:
    record = open_record(unhex(vector, "encrypted"), topic_of(vector).keys(vector["minute"]))
    assert record.to_bytes() == unhex(vector, "record")
    assert record.publisher == unhex(vector, "publisher")
    peers = tuple(peer.node_id for peer in record.decoded.active_peers)
    assert peers == filled(vector["active_peers"])
    assert record.decoded.last_message_hashes == filled(vector["last_message_hashes"])
    assert record.decoded.addresses == ()


@pytest.mark.parametrize("vector", RECORDS, ids=lambda vector: str(vector["minute"]))
def test_recorded_records_are_signed_the_same(vector: dict) -> None:
    """Ed25519 signatures are deterministic: our record of this content is the crate's, to the
    byte."""
    content = RecordContent(
        active_peers=tuple(Neighbour(node_id=peer) for peer in filled(vector["active_peers"])),
        last_message_hashes=filled(vector["last_message_hashes"]),
    )
    identity = Identity(unhex(vector, "publisher_seed"))
    keys = topic_of(vector).keys(vector["minute"])
    assert sign_record(identity, keys, content).to_bytes() == unhex(vector, "record")


@pytest.mark.parametrize("vector", RECORDS, ids=lambda vector: str(vector["minute"]))
def test_recorded_items_are_signed_the_same(vector: dict) -> None:
    keys = topic_of(vector).keys(vector["minute"])
    item = record_item(unhex(vector, "encrypted"), keys)
    assert item.signature == unhex(vector, "item_signature")
    assert item.target == unhex(vector, "item_target")
