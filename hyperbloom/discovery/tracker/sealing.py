"""Sealing bytes to an Ed25519 key by HPKE (RFC 9180), as deployed topic trackers do.

Base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and ChaCha20-Poly1305. Both parties know the
recipient's seed here, and its Ed25519 key is converted to X25519. What is sealed reads

    u64 LE: 32 ‖ encapsulated key (32) ‖ ciphertext with its tag (plaintext + 16)

The info and aad strings look like placeholders and are the protocol.
"""

from __future__ import annotations

from typing import Final

from nacl import bindings
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKeyPair, PyHPKEError

from hyperbloom.errors import HyperbloomError

__all__ = ["EPHEMERAL_BYTES", "SEALING_BYTES", "OpenFailed", "open_sealed", "seal"]

EPHEMERAL_BYTES: Final = 32
"""Random bytes that one sealing uses up: the ephemeral X25519 secret key."""
SEALING_BYTES: Final = 8 + 32 + 16
"""How much longer sealed bytes are than the plaintext."""

_INFO: Final = b"arbitrary_info_bytes"
_AAD: Final = b"arbitrary_seal_bytes"
_HEADER: Final = (32).to_bytes(8, "little")
_SUITE: Final = CipherSuite.new(
    KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.CHACHA20_POLY1305
)


class OpenFailed(HyperbloomError):
    """The bytes were not sealed to this key, or were changed on the way."""


def _key_pair(secret_key: bytes) -> KEMKeyPair:
    public_key = bindings.crypto_scalarmult_base(secret_key)
    return KEMKeyPair(
        _SUITE.kem.deserialize_private_key(secret_key),
        _SUITE.kem.deserialize_public_key(public_key),
    )


def _x25519_secret(seed: bytes) -> bytes:
    _, secret_key = bindings.crypto_sign_seed_keypair(seed)
    converted: bytes = bindings.crypto_sign_ed25519_sk_to_curve25519(secret_key)
    return converted


def seal(seed: bytes, plaintext: bytes, *, ephemeral: bytes) -> bytes:
    """Seal bytes to the Ed25519 key of a 32-byte seed.

    `ephemeral` are `EPHEMERAL_BYTES` from a cryptographic source, used once. Raises `ValueError`
    for another length of either.
    """
    if len(ephemeral) != EPHEMERAL_BYTES:
        raise ValueError(f"a sealing takes {EPHEMERAL_BYTES} random bytes")
    recipient = _key_pair(_x25519_secret(seed)).public_key
    encapsulated, context = _SUITE.create_sender_context(
        recipient, info=_INFO, eks=_key_pair(ephemeral)
    )
    return _HEADER + encapsulated + context.seal(plaintext, aad=_AAD)


def open_sealed(seed: bytes, sealed: bytes) -> bytes:
    """Open what was sealed to the Ed25519 key of a 32-byte seed. Raises `OpenFailed`."""
    if len(sealed) < SEALING_BYTES or not sealed.startswith(_HEADER):
        raise OpenFailed("these bytes are not sealed as records are")
    try:
        recipient = _SUITE.kem.deserialize_private_key(_x25519_secret(seed))
        context = _SUITE.create_recipient_context(sealed[8:40], recipient, info=_INFO)
        return context.open(sealed[40:], aad=_AAD)
    except (PyHPKEError, ValueError) as error:
        # The library passes on the ValueError of an encapsulated key of low order.
        raise OpenFailed("these bytes were not sealed to this key") from error
