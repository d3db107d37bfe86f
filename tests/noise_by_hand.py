"""Noise by hand: what docs/extensions/noise.md says of keys, hashes and the handshake.

Nothing here comes from the package that is tested, nor from the library of Noise that it uses: the
symmetric state, the patterns and the turn of a key are written down once more, on libsodium's
ChaCha20-Poly1305 and X25519 and on hashlib. tests/attacks/test_noise_peer.py holds it against the
published vectors.

`NoiseMachine` is one side of a handshake, `CipherState` one direction behind it. Keys, psk and
prologue may be any: an attacker's are wrong on purpose.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from nacl import bindings
from nacl.exceptions import CryptoError

NAME = "noise-1"
NOISE_MESSAGE = 4_372
NOISE_MESSAGE_BYTES = 48
PROTOCOL = "Noise_KKpsk0_25519_ChaChaPoly_BLAKE2b"

TAG_BYTES = 16
MAX_RECORD_CONTENT = 65_519
REKEY_RECORDS = 1 << 16
REKEY_BYTES = 1 << 30

#: Points whose order is small: X25519 with any of them gives 32 zero bytes.
LOW_ORDER = (
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
)


class Forged(Exception):
    """What came is not authentic."""


# Keys

_P = 2**255 - 19


def x25519_public(ed25519_public: bytes) -> bytes:
    """The X25519 form of an Ed25519 public key: u = (1 + y) / (1 - y) (RFC 7748, 4.1)."""
    y = int.from_bytes(ed25519_public, "little") & (1 << 255) - 1
    return ((1 + y) * pow(1 - y, -1, _P) % _P).to_bytes(32, "little")


def x25519_private(seed: bytes) -> bytes:
    """The X25519 form of an Ed25519 private key: what RFC 8032, 5.1.5 makes the scalar of."""
    return hashlib.sha512(seed).digest()[:32]


def diffie_hellman(private: bytes, public: bytes) -> bytes:
    """X25519; zero bytes for a point of small order, where libsodium refuses."""
    try:
        return bindings.crypto_scalarmult(private, public)
    except (CryptoError, RuntimeError):
        return bytes(32)


def public_of(private: bytes) -> bytes:
    """The X25519 public key."""
    return bindings.crypto_scalarmult_base(private)


# The page's hashes


def mark_of(feed: bytes, chance: bytes) -> bytes:
    """The mark of 8 bytes over the 16 random ones of a nonce."""
    return hashlib.blake2b(NAME.encode() + chance, digest_size=8, key=feed).digest()


def marked_nonce(feed: bytes, chance: bytes | None = None) -> bytes:
    """A nonce that says that its sender speaks the extension."""
    chance = os.urandom(16) if chance is None else chance
    return chance + mark_of(feed, chance)


def is_marked(feed: bytes, nonce: bytes) -> bool:
    """Whether a nonce of 24 bytes says so."""
    return nonce[16:] == mark_of(feed, nonce[:16])


def psk_of(feed: bytes) -> bytes:
    """The pre-shared key of a feed."""
    return hashlib.blake2b(b"noise-1 psk", digest_size=32, key=feed).digest()


def prologue_of(dialler: bytes, other: bytes) -> bytes:
    """The prologue, from all that each side sent up to its Handshake, as it was in the clear."""
    hashes = hashlib.blake2b(dialler).digest() + hashlib.blake2b(other).digest()
    return b"noise-1 prologue" + hashes


# Noise (revision 34)


@dataclass
class CipherState:
    """Section 5.1: a key and a nonce that counts; and what has gone since the key was taken."""

    key: bytes | None = None
    nonce: int = 0
    records: int = 0
    content: int = 0

    def _nonce_bytes(self) -> bytes:
        return bytes(4) + self.nonce.to_bytes(8, "little")

    def encrypt(self, data: bytes, ad: bytes = b"") -> bytes:
        """ENCRYPT, and count; in the clear while there is no key."""
        if self.key is None:
            return data
        out = bindings.crypto_aead_chacha20poly1305_ietf_encrypt(
            data, ad, self._nonce_bytes(), self.key
        )
        self.nonce += 1
        return out

    def decrypt(self, data: bytes, ad: bytes = b"") -> bytes:
        """DECRYPT, and count. `Forged` if it is not authentic."""
        if self.key is None:
            return data
        if len(data) < TAG_BYTES:
            raise Forged("shorter than its tag")
        try:
            out = bindings.crypto_aead_chacha20poly1305_ietf_decrypt(
                data, ad, self._nonce_bytes(), self.key
            )
        except CryptoError as error:
            raise Forged(str(error)) from error
        self.nonce += 1
        return out

    def rekey(self) -> None:
        """Section 11.3: the key is what 32 zero bytes give under the nonce 2^64 - 1."""
        assert self.key is not None
        self.key = bindings.crypto_aead_chacha20poly1305_ietf_encrypt(
            bytes(32), b"", bytes(4) + b"\xff" * 8, self.key
        )[:32]

    def before_record(self) -> None:
        """A new key when the page says so."""
        if self.records >= REKEY_RECORDS or self.content >= REKEY_BYTES:
            self.rekey()
            self.records = self.content = 0

    def count(self, size: int) -> None:
        """A record with so many bytes in it has gone."""
        self.records += 1
        self.content += size


def hkdf(chaining_key: bytes, material: bytes, count: int) -> list[bytes]:
    """Section 4.3, with BLAKE2b."""

    def mac(key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, "blake2b")

    key = mac(chaining_key, material)
    outputs: list[bytes] = []
    last = b""
    for number in range(1, count + 1):
        last = mac(key, last + bytes([number]))
        outputs.append(last)
    return outputs


#: The messages of the patterns, dialler first, and whether static keys are known before them.
PATTERNS: dict[str, tuple[bool, tuple[tuple[str, ...], ...]]] = {
    "NN": (False, (("e",), ("e", "ee"))),
    "KK": (True, (("e", "es", "ss"), ("e", "ee", "se"))),
}


@dataclass
class Keys:
    """What one side of a Noise handshake begins with; all keys are X25519."""

    initiator: bool
    ephemeral: bytes
    prologue: bytes = b""
    static: bytes | None = None
    remote_static: bytes | None = None
    psks: list[bytes] = field(default_factory=list)


class NoiseMachine:
    """One side of a handshake: `write` and `read` in turns, then `sending` and `receiving`."""

    def __init__(self, keys: Keys, protocol: str = PROTOCOL) -> None:
        pattern, psk_places = _parse(protocol)
        self.keys = keys
        self.known_statics, messages = PATTERNS[pattern]
        self._messages = _with_psks(messages, psk_places)
        self._has_psk = bool(psk_places)
        self._psks = list(keys.psks)
        self.remote_ephemeral = b""
        name = protocol.encode()
        self.hash = name.ljust(64, b"\0") if len(name) <= 64 else hashlib.blake2b(name).digest()
        self.chaining_key = self.hash
        self.cipher = CipherState()
        self._mix_hash(keys.prologue)
        if self.known_statics:
            assert keys.static is not None
            assert keys.remote_static is not None
            ours, theirs = public_of(keys.static), keys.remote_static
            for public in (ours, theirs) if keys.initiator else (theirs, ours):
                self._mix_hash(public)
        self.sending = CipherState()
        self.receiving = CipherState()

    @property
    def finished(self) -> bool:
        """Whether both messages have gone."""
        return not self._messages

    def _mix_hash(self, data: bytes) -> None:
        self.hash = hashlib.blake2b(self.hash + data).digest()

    def _mix_key(self, material: bytes) -> None:
        self.chaining_key, key = hkdf(self.chaining_key, material, 2)
        self.cipher = CipherState(key[:32])

    def _mix_key_and_hash(self, material: bytes) -> None:
        self.chaining_key, mixed, key = hkdf(self.chaining_key, material, 3)
        self._mix_hash(mixed)
        self.cipher = CipherState(key[:32])

    def _mix_ephemeral(self, public: bytes) -> None:
        self._mix_hash(public)
        if self._has_psk:
            self._mix_key(public)

    def _mix_token(self, token: str) -> None:
        keys = self.keys
        if token == "psk":
            self._mix_key_and_hash(self._psks.pop(0))
            return
        # The first letter is the initiator's key, the second the responder's.
        mine, other = (token[0], token[1]) if keys.initiator else (token[1], token[0])
        private = keys.ephemeral if mine == "e" else keys.static
        public = self.remote_ephemeral if other == "e" else keys.remote_static
        assert private is not None
        assert public is not None
        self._mix_key(diffie_hellman(private, public))

    def write(self, payload: bytes = b"", *, public: bytes | None = None) -> bytes:
        """Our message. `public` stands for our ephemeral key, if it shall be another."""
        out = b""
        for token in self._messages.pop(0):
            if token == "e":
                ours = public_of(self.keys.ephemeral) if public is None else public
                out += ours
                self._mix_ephemeral(ours)
            else:
                self._mix_token(token)
        sealed = self.cipher.encrypt(payload, self.hash)
        self._mix_hash(sealed)
        self._split()
        return out + sealed

    def read(self, message: bytes) -> bytes:
        """The payload of theirs; `Forged`."""
        for token in self._messages.pop(0):
            if token == "e":
                self.remote_ephemeral, message = message[:32], message[32:]
                self._mix_ephemeral(self.remote_ephemeral)
            else:
                self._mix_token(token)
        payload = self.cipher.decrypt(message, self.hash)
        self._mix_hash(message)
        self._split()
        return payload

    def _split(self) -> None:
        if self._messages:
            return
        first, second = (CipherState(key[:32]) for key in hkdf(self.chaining_key, b"", 2))
        ours = (first, second) if self.keys.initiator else (second, first)
        self.sending, self.receiving = ours


def _parse(protocol: str) -> tuple[str, list[int]]:
    noise, pattern, *functions = protocol.split("_")
    assert [noise, *functions] == ["Noise", "25519", "ChaChaPoly", "BLAKE2b"]
    name, *places = pattern.split("psk")
    return name, [int(place.strip("+")) for place in places]


def _with_psks(messages: Sequence[tuple[str, ...]], places: list[int]) -> list[tuple[str, ...]]:
    mixed = list(messages)
    for place in places:
        if place == 0:
            mixed[0] = ("psk", *mixed[0])
        else:
            mixed[place - 1] = (*mixed[place - 1], "psk")
    return mixed
