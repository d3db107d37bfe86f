"""The extension `noise` by hand: what docs/extensions/noise.md says, for attackers.

Nothing here comes from the package that is attacked, nor from the library of Noise that it uses:
the symmetric state, the patterns, the records and the turn of a key are written down once more, on
libsodium's ChaCha20-Poly1305 and X25519 and on hashlib. tests/attacks/test_noise_peer.py holds it
against the published vectors.

    with NoiseConnection.dial(("127.0.0.1", 4365)) as wire:
        wire.shake_hands(feed, key, chain=[owner.link(key.public)])
        wire.protect()
        wire.send_request()
        message_id, body = wire.receive()
        wire.send_end()

`NoiseConnection` is an `attacker.Connection` whose nonce is marked and whose Handshake announces
the extension; from `protect` on its frames go in records. What is wrong on purpose is done by
steps: `noise_handshake` gives the machine, whose keys and hashes may be changed before
`send_noise` and `receive_noise`; `send_record`, `write_record` and `write` send any record and
any bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from attacker import (
    HANDSHAKE,
    Connection,
    Ended,
    Handshake,
    KeyPair,
    Listener,
    varint,
)
from nacl import bindings
from nacl.exceptions import CryptoError

NAME = "noise-1"
NOISE_MESSAGE = 4_372
NOISE_MESSAGE_BYTES = 48
PROTOCOL = "Noise_KKpsk0_25519_ChaChaPoly_BLAKE2b"

TAG_BYTES = 16
MAX_RECORD_BYTES = 65_535
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


# A connection


class NoiseConnection(Connection):
    """A connection that speaks the extension; see the module's text.

    `dialled`: whether this side dialled, and so begins. `said_end`: whether the node's end came.
    """

    def __init__(self, sock: socket.socket, *, dialled: bool = True) -> None:
        super().__init__(sock)
        self.dialled = dialled
        self.machine: NoiseMachine | None = None
        self.is_protected = False
        self.said_end = False
        self.remote_key = b""
        #: All that we sent and received so far, in the clear, while it may belong to the prologue.
        self._sent, self._seen = b"", b""
        self._sent_all = self._seen_all = False
        self._sealed = b""

    @classmethod
    def accept(cls, listener: Listener) -> NoiseConnection:
        """The next node that dials."""
        return cls(listener.accept().socket, dialled=False)

    def __enter__(self) -> Self:
        return self

    # Up to the Handshakes

    def send_open(self, nonce: bytes | None = None, *, discovery_key: bytes | None = None) -> None:
        """Ours, with a marked nonce if it is not given."""
        nonce = marked_nonce(self.feed) if nonce is None else nonce
        before = len(self._sent)
        super().send_open(nonce, discovery_key=discovery_key)
        assert len(self._sent) > before

    def write(self, data: bytes) -> None:
        """Send bytes as they are. An Open is remembered for the prologue."""
        if self._out is None and not self._sent_all:
            self._sent += data
        super().write(data)

    def send_frame(self, frame: bytes) -> None:
        """Any bytes where a frame should stand: in records, once the stream is protected."""
        if self.is_protected:
            self.send_content(frame)
            return
        if not self._sent_all:
            self._sent += frame
        super().send_frame(frame)

    def _read(self, count: int) -> bytes:
        data = super()._read(count)
        if not self._seen_all:
            self._seen += data
        return data

    def send_handshake(
        self,
        key: KeyPair,
        chain: Iterable[bytes] = (),
        *,
        peer_id: bytes | None = None,
        extensions: Iterable[bytes] = (NAME.encode(),),
    ) -> None:
        """Prove a key, and announce the extension if nothing else is said."""
        super().send_handshake(key, chain, peer_id=peer_id, extensions=extensions)
        self._sent_all = True

    def receive_handshake(self) -> Handshake:
        """The other side's; what comes before it is passed over."""
        message_id, body = self.receive()
        while message_id != HANDSHAKE:
            message_id, body = self.receive()
        self._seen_all = True
        seen = Handshake.parse(body)
        self.remote_key = seen.key or self.feed
        return seen

    def shake_hands(
        self,
        feed: bytes,
        key: KeyPair,
        chain: Iterable[bytes] = (),
        *,
        dialect: str = "2",
        extensions: Iterable[bytes] = (NAME.encode(),),
        nonce: bytes | None = None,
    ) -> Handshake:
        """Both Opens and both Handshakes, in either role; what the node said."""
        self.use(feed, dialect)
        self.send_open(nonce)
        self.receive_open()
        self.send_handshake(key, chain, extensions=extensions)
        return self.receive_handshake()

    # The Noise handshake

    def prologue(self) -> bytes:
        """As both sides have to have it, once both Handshakes are there."""
        mine, other = self._sent, self._seen
        return prologue_of(mine, other) if self.dialled else prologue_of(other, mine)

    def noise_handshake(
        self,
        *,
        psk: bytes | None = None,
        prologue: bytes | None = None,
        static: bytes | None = None,
        remote_static: bytes | None = None,
    ) -> NoiseMachine:
        """The machine, begun from what is known of both sides if nothing else is given."""
        assert self.key is not None
        self.machine = NoiseMachine(
            Keys(
                initiator=self.dialled,
                ephemeral=os.urandom(32),
                prologue=self.prologue() if prologue is None else prologue,
                static=static or x25519_private(self.key.seed),
                remote_static=remote_static or x25519_public(self.remote_key),
                psks=[psk_of(self.feed) if psk is None else psk],
            )
        )
        return self.machine

    def send_noise(self, message: bytes) -> None:
        """A NoiseMessage, of any bytes."""
        self.send(NOISE_MESSAGE, message)

    def receive_noise(self) -> bytes:
        """The body of the NoiseMessage that has to come now."""
        message_id, body = self.receive()
        assert message_id == NOISE_MESSAGE, message_id
        assert len(body) == NOISE_MESSAGE_BYTES
        return body

    def protect(self, machine: NoiseMachine | None = None) -> None:
        """The Noise handshake in our role; afterwards frames go in records. `Forged`."""
        machine = machine or self.noise_handshake()
        if self.dialled:
            self.send_noise(machine.write())
            assert machine.read(self.receive_noise()) == b""
        else:
            assert machine.read(self.receive_noise()) == b""
            self.send_noise(machine.write())
        self.begin_records()

    def begin_records(self) -> None:
        """From now on both directions are records."""
        assert self.machine is not None
        assert self.machine.finished
        # What came behind the last frame is not the keystream's.
        if self._in is not None and self._buffer:
            self._in.position -= len(self._buffer)
            self._sealed, self._buffer = self._in.apply(self._buffer), b""
        self.is_protected = True

    # Records

    def write_record(self, sealed: bytes) -> None:
        """A record of any bytes behind its length."""
        self.write(len(sealed).to_bytes(2, "big") + sealed)

    def seal(self, content: bytes) -> bytes:
        """A record's Noise message; the key is turned before it when it is time."""
        assert self.machine is not None
        sending = self.machine.sending
        sending.before_record()
        sealed = sending.encrypt(content)
        sending.count(len(content))
        return sealed

    def send_record(self, content: bytes) -> None:
        """One record of up to 65,519 bytes."""
        self.write_record(self.seal(content))

    def send_content(self, content: bytes, *, at_once: int = MAX_RECORD_BYTES - TAG_BYTES) -> None:
        """Any bytes in as many records as it takes, each of so many."""
        for at in range(0, len(content), at_once):
            self.send_record(content[at : at + at_once])

    def send_end(self) -> None:
        """Say that nothing more follows."""
        self.send_record(b"")

    def _more(self) -> None:
        if not self.is_protected:
            super()._more()
            return
        sealed = self.receive_record()
        content = self.open_record(sealed)
        if not content:
            self.said_end = True
            raise Ended("the node has said its end")
        self._buffer += content

    def open_record(self, sealed: bytes) -> bytes:
        """What a record contains. `Forged`."""
        assert self.machine is not None
        receiving = self.machine.receiving
        receiving.before_record()
        content = receiving.decrypt(sealed)
        receiving.count(len(content))
        return content

    def receive_record(self) -> bytes:
        """The next record as it came, without its length. `Ended`: cut, or after the end."""
        if self.said_end:
            raise Ended("the node has said its end")
        length = int.from_bytes(self._read_sealed(2), "big")
        return self._read_sealed(length)

    def _read_sealed(self, count: int) -> bytes:
        while len(self._sealed) < count:
            try:
                data = self.socket.recv(1 << 18)
            except ConnectionError as error:
                raise Ended(str(error)) from error
            if not data:
                raise Ended("the node has closed the connection")
            self._sealed += data
        data, self._sealed = self._sealed[:count], self._sealed[count:]
        return data


def frame_of(message_id: int, body: bytes) -> bytes:
    """A frame in the clear."""
    content = varint(message_id) + body
    return varint(len(content)) + content
