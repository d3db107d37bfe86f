"""How a session comes by a protected stream: its part of the extension `noise`, step by step.

Marks our nonce, announces the extension, judges what the peer's Handshake says of it, hashes what
both sides have sent until then, and runs the Noise handshake (extensions/noise.py).
"""

from __future__ import annotations

import hashlib

from hyperbloom.wire.credentials import Credentials
from hyperbloom.wire.errors import AnnouncementStripped, LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.extensions.noise import (
    NOISE,
    NoiseHandshake,
    NoiseMessage,
    is_marked,
    marked,
    prologue,
    shared_secret,
)
from hyperbloom.wire.messages import Handshake, Open
from hyperbloom.wire.records import RecordReader, RecordWriter

__all__ = ["Protection"]


class Protection:
    """One side's way to a protected stream. `dialled`: whether we did."""

    __slots__ = ("_handshake", "_transcript", "announced", "dialled")

    def __init__(self, *, dialled: bool) -> None:
        self.dialled = dialled
        #: What our Handshake announces: the extension, or nothing.
        self.announced: tuple[str, ...] = ()
        self._transcript = hashlib.blake2b()
        self._handshake: NoiseHandshake | None = None

    def nonce(self, nonce: bytes, credentials: Credentials) -> bytes:
        """We speak it: the nonce for our Open. Nothing is changed where the dialect has none."""
        if not credentials.dialect.carries_noise:
            return nonce
        self.announced = (NOISE,)
        return marked(nonce, credentials.feed_key)

    def sent(self, clear: bytes) -> None:
        """This is sent, before the keystream: Open and Handshake."""
        self._transcript.update(clear)

    def both_speak(self, handshake: Handshake, opened: Open, credentials: Credentials) -> bool:
        """Whether both sides do; RemoteProtocolError where the peer's mark and announcement differ.

        AnnouncementStripped where only the announcement lacks.
        """
        if not credentials.dialect.carries_noise:
            return False
        announces = NOISE in handshake.extensions
        if announces != is_marked(opened.nonce, credentials.feed_key):
            if announces:
                raise RemoteProtocolError(f"{NOISE} is announced, and the nonce does not say so")
            raise AnnouncementStripped(
                f"the peer's nonce says that it speaks {NOISE}, and its Handshake does not: "
                "somebody on the path has struck it out"
            )
        return announces and bool(self.announced)

    def begin(self, credentials: Credentials, peer_key: bytes, seen: bytes) -> None:
        """Both sides speak it. `seen`: the hash (64 bytes) of what the peer has sent."""
        sent = self._transcript.digest()
        self._handshake = NoiseHandshake(
            dialled=self.dialled,
            identity=credentials.identity,
            peer_key=peer_key,
            psk=shared_secret(credentials.feed_key),
            prologue=prologue(sent, seen) if self.dialled else prologue(seen, sent),
        )

    @property
    def is_on(self) -> bool:
        """Whether NoiseMessages are exchanged."""
        return self._handshake is not None

    def write(self, *, ephemeral: bytes) -> NoiseMessage:
        """Our NoiseMessage. `ephemeral` is 32 fresh random bytes."""
        return self._begun().write(ephemeral=ephemeral)

    def read(self, body: bytes) -> None:
        """The peer's NoiseMessage; RemoteProtocolError where it does not hold."""
        self._begun().read(NoiseMessage.decode(body))

    def ciphers(self) -> tuple[RecordWriter, RecordReader]:
        """Both messages have gone: for what we send, and for what comes."""
        return self._begun().ciphers()

    def _begun(self) -> NoiseHandshake:
        if self._handshake is None:
            raise LocalProtocolError("both sides' Handshakes come before NoiseMessages")
        return self._handshake
