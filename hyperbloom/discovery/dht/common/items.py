"""Items of the DHT (BEP-44): a mutable one is signed and numbered by who holds a key pair.

An item is stored under SHA-1(public key + salt), its target. What is signed is the bencoding of
salt, seq and v without the enclosing dictionary, so that `v` has to be kept exactly as it came.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hyperbloom.keys import PUBLIC_KEY_BYTES, SIGNATURE_BYTES, Identity, verify_signature

__all__ = [
    "MAX_SALT_BYTES",
    "MAX_SEQ",
    "MutableItem",
    "immutable_target",
    "mutable_target",
    "sign_item",
]

MAX_SALT_BYTES = 64
"""The longest salt (BEP-44)."""

MAX_SEQ = 2**63 - 1
"""The greatest sequence number: integers of the DHT are signed, of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutableItem:
    """One version of a mutable item.

    `value` is the bencoded `v`, byte for byte as signed; `seq` lies in 0 … `MAX_SEQ`; `salt` has at
    most `MAX_SALT_BYTES` bytes and may be empty. Raises `ValueError` for anything else. That the
    signature holds is not a condition of the type: ask `is_authentic`.
    """

    public_key: bytes
    salt: bytes
    seq: int
    value: bytes
    signature: bytes

    def __post_init__(self) -> None:
        if len(self.public_key) != PUBLIC_KEY_BYTES:
            raise ValueError(f"a public key has {PUBLIC_KEY_BYTES} bytes")
        if len(self.signature) != SIGNATURE_BYTES:
            raise ValueError(f"a signature has {SIGNATURE_BYTES} bytes")
        if len(self.salt) > MAX_SALT_BYTES:
            raise ValueError(f"a salt has at most {MAX_SALT_BYTES} bytes")
        if not 0 <= self.seq <= MAX_SEQ:
            raise ValueError("a sequence number lies in 0 … 2^63 − 1")

    @property
    def target(self) -> bytes:
        """The 20 bytes under which the item is stored."""
        return mutable_target(self.public_key, self.salt)

    def is_authentic(self) -> bool:
        """Tell whether the signature is the key's over salt, seq and value."""
        signed = _signed_bytes(self.salt, self.seq, self.value)
        return verify_signature(self.public_key, signed, self.signature)


def mutable_target(public_key: bytes, salt: bytes) -> bytes:
    """Return SHA-1(public key + salt), 20 bytes (BEP-44)."""
    return hashlib.sha1(public_key + salt, usedforsecurity=False).digest()


def immutable_target(value: bytes) -> bytes:
    """Return SHA-1 of a bencoded value, 20 bytes: where an immutable item is stored (BEP-44)."""
    return hashlib.sha1(value, usedforsecurity=False).digest()


def sign_item(identity: Identity, *, salt: bytes, seq: int, value: bytes) -> MutableItem:
    """Return the item with this bencoded `value`, signed. Raises `ValueError` as the type does."""
    return MutableItem(
        public_key=identity.public_key,
        salt=salt,
        seq=seq,
        value=value,
        signature=identity.sign(_signed_bytes(salt, seq, value)),
    )


def _signed_bytes(salt: bytes, seq: int, value: bytes) -> bytes:
    named_salt = b"4:salt%d:%b" % (len(salt), salt) if salt else b""
    return named_salt + b"3:seqi%de1:v" % seq + value
