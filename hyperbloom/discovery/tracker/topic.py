"""Topics, and the keys under which a topic's records lie in a given minute.

Who looks for the others of a topic knows its hash and its secret, nothing else, so that everything
is derived from these two and the time (docs/protocol.md#encryption-decryption; minutes are u64):

    signing seed     SHA-512(topic hash ‖ minute LE)[:32]            owns the DHT item
    salt             SHA-512("salt" ‖ topic hash ‖ minute LE)[:32]   of the DHT item
    encryption seed  rotation(topic hash, minute, secret hash)       opens the records

Who knows only the topic hash can find, count and overwrite the items but not read them. A feed's
topic hash is its discovery key, which peers name in the clear; its secret is its public key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final, Protocol

from hyperbloom.keys import HASH_BYTES, PUBLIC_KEY_BYTES, Identity, discovery_key

__all__ = ["DefaultSecretRotation", "SecretRotation", "Topic", "TopicKeys", "unix_minute"]

_HASH_BYTES: Final = 32
_HIGHEST_MINUTE: Final = 2**64 - 1


def unix_minute(now: float) -> int:
    """The minute of a time in seconds since 1970."""
    return max(0, int(now // 60))


def _sha512_half(*parts: bytes) -> bytes:
    return hashlib.sha512(b"".join(parts)).digest()[:_HASH_BYTES]


class SecretRotation(Protocol):
    """How the secret of a topic becomes the encryption seed of a minute.

    All nodes of a topic must use the same. The three arguments determine the result.
    """

    def encryption_seed(self, topic_hash: bytes, minute: int, secret_hash: bytes) -> bytes:
        """The 32-byte seed of the minute's encryption key."""
        ...


@dataclass(frozen=True, slots=True)
class DefaultSecretRotation:
    """SHA-512(topic hash ‖ minute **big**-endian ‖ secret hash)[:32], as deployed peers do."""

    def encryption_seed(self, topic_hash: bytes, minute: int, secret_hash: bytes) -> bytes:
        """The 32-byte seed of the minute's encryption key."""
        return _sha512_half(topic_hash, minute.to_bytes(8, "big"), secret_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKeys:
    """The keys of a topic in one minute: the DHT item's signer and salt, and the records' seed."""

    topic_hash: bytes
    minute: int
    signer: Identity
    salt: bytes
    encryption_seed: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic: the 32-byte hash that names it and the 32-byte hash of its initial secret.

    The secret hash never shows in `repr`. Raises `ValueError` for other lengths.
    """

    hash: bytes
    secret_hash: bytes = field(repr=False)
    rotation: SecretRotation = DefaultSecretRotation()

    def __post_init__(self) -> None:
        if len(self.hash) != HASH_BYTES or len(self.secret_hash) != _HASH_BYTES:
            raise ValueError("the hashes of a topic have 32 bytes")

    @classmethod
    def named(cls, name: bytes, secret: bytes) -> Topic:
        """The topic that others know by a name and an initial secret of any length."""
        return cls(hash=_sha512_half(name), secret_hash=_sha512_half(secret))

    @classmethod
    def of_feed(cls, feed_key: bytes, *, named: bytes | None = None) -> Topic:
        """The topic of a feed. Only who knows the feed's key can read the records of it.

        `named` is the feed's discovery key where its dialect has another one than the usual.
        """
        if len(feed_key) != PUBLIC_KEY_BYTES:
            raise ValueError(f"a feed key has {PUBLIC_KEY_BYTES} bytes")
        return cls(hash=named or discovery_key(feed_key), secret_hash=_sha512_half(feed_key))

    def keys(self, minute: int) -> TopicKeys:
        """Derive the keys of a minute since 1970. Raises `ValueError` outside of u64."""
        if not 0 <= minute <= _HIGHEST_MINUTE:
            raise ValueError("a minute is an unsigned integer of 64 bits")
        little = minute.to_bytes(8, "little")
        return TopicKeys(
            topic_hash=self.hash,
            minute=minute,
            signer=Identity(_sha512_half(self.hash, little)),
            salt=_sha512_half(b"salt", self.hash, little),
            encryption_seed=self.rotation.encryption_seed(self.hash, minute, self.secret_hash),
        )
