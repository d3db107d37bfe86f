"""HPKE in base mode as RFC 9180 writes it down, put together from HMAC, X25519 and the AEAD alone.

X25519, HKDF-SHA256 and ChaCha20-Poly1305 only, one message: an opinion on what our sealing has to
yield that shares no code with it.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

KEM_SUITE = b"KEM" + (0x0020).to_bytes(2, "big")
HPKE_SUITE = b"HPKE" + bytes.fromhex("002000010003")


def hmac_sha256(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()


def labeled_extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    return hmac_sha256(salt or bytes(32), b"HPKE-v1" + suite + label + ikm)


def labeled_expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    # No output here is longer than one block of the hash, so T(1) is all there is.
    data = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac_sha256(prk, data + b"\x01")[:length]


def schedule(shared_point: bytes, enc: bytes, recipient: bytes, info: bytes) -> tuple[bytes, bytes]:
    """Key and base nonce (sections 4.1 and 5.1)."""
    prk = labeled_extract(KEM_SUITE, b"", b"eae_prk", shared_point)
    shared = labeled_expand(KEM_SUITE, prk, b"shared_secret", enc + recipient, 32)
    context = (
        b"\x00"
        + labeled_extract(HPKE_SUITE, b"", b"psk_id_hash", b"")
        + labeled_extract(HPKE_SUITE, b"", b"info_hash", info)
    )
    secret = labeled_extract(HPKE_SUITE, shared, b"secret", b"")
    return (
        labeled_expand(HPKE_SUITE, secret, b"key", context, 32),
        labeled_expand(HPKE_SUITE, secret, b"base_nonce", context, 12),
    )


def public(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def exchange(secret: bytes, other: bytes) -> bytes:
    key = X25519PrivateKey.from_private_bytes(secret)
    return key.exchange(X25519PublicKey.from_public_bytes(other))


def seal(recipient: bytes, plaintext: bytes, *, info: bytes, aad: bytes, ephemeral: bytes):
    """Encapsulated key and ciphertext."""
    enc = public(ephemeral)
    key, nonce = schedule(exchange(ephemeral, recipient), enc, recipient, info)
    return enc, ChaCha20Poly1305(key).encrypt(nonce, plaintext, aad)


def unseal(secret: bytes, enc: bytes, ciphertext: bytes, *, info: bytes, aad: bytes) -> bytes:
    key, nonce = schedule(exchange(secret, enc), enc, public(secret), info)
    return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, aad)


def x25519_secret(seed: bytes) -> bytes:
    """The X25519 secret key of an Ed25519 seed (RFC 8032, 5.1.5: the scalar before clamping)."""
    scalar = bytearray(hashlib.sha512(seed).digest()[:32])
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    return bytes(scalar)
