from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.keys import (
    HASH_BYTES,
    PUBLIC_KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    discovery_key,
    keyed_hash,
    parse_public_key,
    verify_signature,
)

SEED = bytes(range(32))

# Points of small order and their other encodings, after libsodium's own list, and keys that are
# no point at all: with the first kind, a signature of a neutral point and zero would verify.
WEAK_KEYS = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    b"\xed" + b"\xff" * 30 + b"\x7f",
    b"\xee" + b"\xff" * 30 + b"\x7f",
    b"\x02" + bytes(31),
    b"\xff" * 32,
]
GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493


class TestVectors:
    def test_public_and_discovery_keys(self, hyperbloom_vectors: dict[str, Any]) -> None:
        for pair in hyperbloom_vectors["keys"]:
            identity = Identity(bytes.fromhex(pair["seed"]))
            assert identity.public_key.hex() == pair["public"]
            assert discovery_key(identity.public_key).hex() == pair["discovery"]

    def test_hash(self, hyperbloom_vectors: dict[str, Any]) -> None:
        for pair in hyperbloom_vectors["hash"]:
            assert keyed_hash(bytes.fromhex(pair["input"])).hex() == pair["output"]

    def test_data_hash_and_signature(self, hyperbloom_vectors: dict[str, Any]) -> None:
        data = hyperbloom_vectors["data"]
        values = [bytes.fromhex(value) for value in data["values"]]
        count = len(values).to_bytes(8, "big")
        digest = keyed_hash(bytes.fromhex(data["feed"]), count, *values)
        assert digest.hex() == data["hash"]
        signer = Identity(bytes([data["signer"]]) * 32)
        assert signer.sign(digest).hex() == data["signature"]
        assert verify_signature(signer.public_key, digest, bytes.fromhex(data["signature"]))


class TestHash:
    @given(st.lists(st.binary(max_size=40), max_size=5))
    def test_parts_are_joined(self, parts: list[bytes]) -> None:
        assert keyed_hash(*parts) == keyed_hash(b"".join(parts))

    def test_key_matters(self) -> None:
        draft = keyed_hash(b"a", key=b"hyperbloom")
        assert draft != keyed_hash(b"a")
        assert draft == hashlib.blake2b(b"a", digest_size=HASH_BYTES, key=b"hyperbloom").digest()
        assert discovery_key(SEED, hash_key=b"hyperbloom") == keyed_hash(SEED, key=b"hyperbloom")


class TestIdentity:
    def test_lengths(self) -> None:
        identity = Identity(SEED)
        assert len(identity.public_key) == PUBLIC_KEY_BYTES
        assert len(identity.sign(b"")) == SIGNATURE_BYTES

    @pytest.mark.parametrize("length", [0, 31, 33, 64])
    def test_refuses_other_seeds(self, length: int) -> None:
        with pytest.raises(ValueError, match="32 bytes"):
            Identity(bytes(length))

    def test_seed_does_not_show(self) -> None:
        identity = Identity(b"\xab" * 32)
        for text in (repr(identity), str(identity), f"{identity}"):
            assert "ab" * 8 not in text
            assert "\\xab" not in text
            assert identity.public_key.hex() in text

    def test_is_immutable(self) -> None:
        identity = Identity(SEED)
        for name in ("seed", "public_key", "_secret_key"):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(identity, name, bytes(32))

    def test_equality_is_of_keys(self) -> None:
        assert Identity(SEED) == Identity(SEED)
        assert hash(Identity(SEED)) == hash(Identity(SEED))
        assert Identity(SEED) != Identity(bytes(32))


class TestSignatures:
    @given(st.binary(max_size=100))
    def test_round_trip(self, message: bytes) -> None:
        identity = Identity(SEED)
        signature = identity.sign(message)
        assert verify_signature(identity.public_key, message, signature)
        assert not verify_signature(identity.public_key, message + b"\0", signature)
        assert not verify_signature(Identity(bytes(32)).public_key, message, signature)

    def test_every_changed_byte_is_refused(self) -> None:
        identity = Identity(SEED)
        signature = identity.sign(b"message")
        for index in range(SIGNATURE_BYTES):
            changed = bytearray(signature)
            changed[index] ^= 0x01
            assert not verify_signature(identity.public_key, b"message", bytes(changed))

    @pytest.mark.parametrize("weak", WEAK_KEYS, ids=bytes.hex)
    def test_weak_keys_verify_nothing(self, weak: bytes) -> None:
        neutral = b"\x01" + bytes(63)
        for signature in (neutral, bytes(64), weak + bytes(32), Identity(SEED).sign(b"m")):
            assert verify_signature(weak, b"m", signature) is False

    def test_second_form_of_a_signature_is_refused(self) -> None:
        identity = Identity(SEED)
        signature = identity.sign(b"m")
        scalar = int.from_bytes(signature[32:], "little") + GROUP_ORDER
        malleated = signature[:32] + scalar.to_bytes(32, "little")
        assert not verify_signature(identity.public_key, b"m", malleated)

    @given(st.binary(max_size=70), st.binary(max_size=70))
    def test_other_lengths_are_false(self, key: bytes, signature: bytes) -> None:
        assert verify_signature(key, b"m", signature) is False

    def test_right_lengths_but_one(self) -> None:
        identity = Identity(SEED)
        signature = identity.sign(b"m")
        assert not verify_signature(identity.public_key[:-1], b"m", signature)
        assert not verify_signature(identity.public_key + b"\0", b"m", signature)
        assert not verify_signature(identity.public_key, b"m", signature[:-1])
        # One byte longer, and the message one shorter: the joined bytes would be the same.
        assert not verify_signature(identity.public_key, b"", signature + b"m")


class TestParsePublicKey:
    @given(st.binary(min_size=32, max_size=32))
    def test_reads_either_case(self, key: bytes) -> None:
        assert parse_public_key(key.hex()) == key
        assert parse_public_key(key.hex().upper()) == key

    @pytest.mark.parametrize(
        "text",
        ["", "00" * 31, "00" * 33, "0" * 63, "g" * 64, "0x" + "0" * 62, "00 " * 21 + "0",
         " " + "0" * 63, "0" * 64 + "\n", "٠" * 64],
    )  # fmt: skip
    def test_refuses_the_rest(self, text: str) -> None:
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            parse_public_key(text)

    def test_does_not_repeat_what_may_be_a_secret(self) -> None:
        with pytest.raises(ValueError, match="not") as caught:
            parse_public_key("abcdef" * 12)
        assert "abcdef" not in str(caught.value)
