"""A peer that speaks the extension `noise` with code of its own (noise_by_hand.py): an attacker.

    with NoiseConnection.dial(("127.0.0.1", 4365)) as wire:
        wire.shake_hands(feed, key, chain=[owner.link(key.public)])
        wire.protect()
        wire.send_request()
        message_id, body = wire.receive()
        wire.send_end()

`NoiseConnection` is an `attacker.Connection` whose nonce is marked and whose Handshake announces
the extension; from `protect` on its frames go in records. What is wrong on purpose is done by
steps: `noise_handshake` gives the machine, which may be begun from other keys and hashes than the
right ones; `send_noise` sends any bytes as a NoiseMessage; `send_record`, `write_record` and
`write` send any record and any bytes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import Self

from attacker import HANDSHAKE, Connection, Ended, Handshake, KeyPair, Listener
from noise_by_hand import (
    MAX_RECORD_CONTENT,
    NAME,
    NOISE_MESSAGE,
    NOISE_MESSAGE_BYTES,
    Keys,
    NoiseMachine,
    marked_nonce,
    prologue_of,
    psk_of,
    x25519_private,
    x25519_public,
)


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

    def send_content(self, content: bytes, *, at_once: int = MAX_RECORD_CONTENT) -> None:
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
