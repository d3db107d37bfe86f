"""The extension `noise`: a stream that nobody on the path reads or alters, with keys of its own.

The protocol's stream is keyed with the feed's public key, which all members know. Two nodes that
speak this extension run a handshake of the Noise Protocol Framework (revision 34) behind their
Handshakes, and go on in records (records.py). docs/extensions/noise.md has it byte by byte.

A node says in its nonce, too, that it speaks the extension (`mark`), so that nobody can strike the
announcement out unnoticed: the Handshake's signature covers the nonce.

The handshake itself is that of the package `noiseprotocol`, of which the layer without a connection
is used: that one takes the ephemeral key as an argument.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Final

from cryptography.exceptions import InvalidTag
from noise.backends.default import DefaultNoiseBackend
from noise.noise_protocol import NoiseProtocol
from noise.state import HandshakeState

from hyperbloom.keys import Identity, exchange_key
from hyperbloom.wire.errors import LocalProtocolError, RemoteProtocolError, StreamAltered
from hyperbloom.wire.records import RecordReader, RecordWriter

__all__ = [
    "EPHEMERAL_BYTES",
    "NOISE",
    "NoiseHandshake",
    "NoiseMessage",
    "is_marked",
    "marked",
    "prologue",
    "shared_secret",
]

NOISE: Final = "noise-1"
"""What a Handshake announces."""

EPHEMERAL_BYTES: Final = 32

_NAME: Final = b"Noise_KKpsk0_25519_ChaChaPoly_BLAKE2b"
_MESSAGE_BYTES: Final = 48
_RANDOM_BYTES: Final = 16
_MARK_BYTES: Final = 8
_KEY_BYTES: Final = 32


def marked(nonce: bytes, feed_key: bytes) -> bytes:
    """A nonce (24 random bytes) that says that its sender speaks the extension: its end changes."""
    return nonce[:_RANDOM_BYTES] + _mark(nonce[:_RANDOM_BYTES], feed_key)


def is_marked(nonce: bytes, feed_key: bytes) -> bool:
    """Whether a nonce says so."""
    return nonce[_RANDOM_BYTES:] == _mark(nonce[:_RANDOM_BYTES], feed_key)


def _mark(random: bytes, feed_key: bytes) -> bytes:
    return hashlib.blake2b(NOISE.encode() + random, digest_size=_MARK_BYTES, key=feed_key).digest()


def shared_secret(feed_key: bytes) -> bytes:
    """The handshake's psk (32 bytes): who does not know the feed cannot even begin."""
    return hashlib.blake2b(b"noise-1 psk", digest_size=_KEY_BYTES, key=feed_key).digest()


def prologue(dialler: bytes, other: bytes) -> bytes:
    """What both sides must have seen alike: for each the hash (64 bytes) of all it has sent."""
    return b"noise-1 prologue" + dialler + other


@dataclass(frozen=True, slots=True)
class NoiseMessage:
    """One of the handshake's two messages, 48 bytes: an ephemeral key and a tag."""

    message_id: ClassVar[int] = 4372

    body: bytes

    def encode(self) -> bytes:
        """The body."""
        return self.body

    @classmethod
    def decode(cls, body: bytes) -> NoiseMessage:
        """Read a body; RemoteProtocolError for one of another length."""
        if len(body) != _MESSAGE_BYTES:
            raise RemoteProtocolError(f"a NoiseMessage has {_MESSAGE_BYTES} bytes, not {len(body)}")
        return cls(body)


class _State(HandshakeState):  # type: ignore[misc]
    """The package's, but for how it finds the peer's key.

    There each handshake makes the name `rs` anew and looks the key up by it, and Python's cache of
    methods keeps up to 4,096 such names. They lie scattered among what the connections are made of:
    so few bytes kept megabytes from the system after a crowd had gone.
    """

    def _get_remote_keypair(self, token: str) -> object:
        return self.rs


class NoiseHandshake:
    """One side of the handshake: a message is written, a message is read, in the dialler's order.

    `psk` 32 bytes. `peer_key`: the Ed25519 key that the peer's Handshake has proved;
    RemoteProtocolError where it has no X25519 form.
    """

    __slots__ = ("_is_done", "_protocol")

    def __init__(
        self, *, dialled: bool, identity: Identity, peer_key: bytes, psk: bytes, prologue: bytes
    ) -> None:
        self._is_done = False
        self._protocol = protocol = NoiseProtocol(_NAME, DefaultNoiseBackend())
        protocol.initiator, protocol.prologue, protocol.psks = dialled, prologue, [psk]
        keypair = protocol.keypair_class
        try:
            peer = keypair.from_public_bytes(exchange_key(peer_key))
        except ValueError as error:
            raise RemoteProtocolError(f"the peer's key cannot be used for Noise: {error}") from None
        protocol.handshake_state = _State.initialize(
            protocol,
            initiator=dialled,
            prologue=prologue,
            s=keypair.from_private_bytes(identity.exchange_seed()),
            rs=peer,
        )
        protocol.symmetric_state = protocol.handshake_state.symmetric_state

    def write(self, *, ephemeral: bytes) -> NoiseMessage:
        """Our message. `ephemeral` is 32 fresh random bytes, a private key.

        LocalProtocolError for one of another length.
        """
        if len(ephemeral) != EPHEMERAL_BYTES:
            raise LocalProtocolError(f"an ephemeral key has {EPHEMERAL_BYTES} bytes")
        state = self._protocol.handshake_state
        state.e = self._protocol.keypair_class.from_private_bytes(ephemeral)
        body = bytearray()
        self._is_done = state.write_message(b"", body) is not None
        return NoiseMessage(bytes(body))

    def read(self, message: NoiseMessage) -> None:
        """The peer's message.

        StreamAltered when it is not authentic: the peer is another one than its Handshake says, or
        what came before was altered for one of the two sides. RemoteProtocolError when its
        ephemeral key is of low order.
        """
        try:
            done = self._protocol.handshake_state.read_message(message.body, bytearray())
        except InvalidTag:
            raise StreamAltered("the peer's NoiseMessage is not authentic") from None
        except ValueError:
            # X25519 gave zeros.
            raise RemoteProtocolError("the key in the peer's NoiseMessage is none") from None
        self._is_done = done is not None

    def ciphers(self) -> tuple[RecordWriter, RecordReader]:
        """What encrypts what we send, and decrypts what comes, once both messages have gone."""
        if not self._is_done:
            raise LocalProtocolError("the Noise handshake is not done")
        protocol = self._protocol
        return (
            RecordWriter(protocol.cipher_state_encrypt.k),
            RecordReader(protocol.cipher_state_decrypt.k),
        )
