"""Records: a protected stream, behind the Noise handshake of the extension `noise`.

A record is two bytes of length and a Noise transport message: up to 65,519 bytes of the stream of
frames, encrypted and authenticated (ChaChaPoly) under a nonce that counts. So a record that was
altered, repeated, left out, moved or sent back is noticed, and ends the connection. A record of no
bytes is the end: a stream that stops without one was cut (docs/extensions/noise.md).

Both ends of a direction take a new key after as many records or bytes, by counting.
"""

from __future__ import annotations

import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from hyperbloom.wire.errors import LocalProtocolError, RemoteProtocolError, StreamAltered

__all__ = ["MAX_RECORD_CONTENT", "RecordReader", "RecordWriter"]

_LENGTH: Final = struct.Struct(">H")
_NONCE: Final = struct.Struct("<4xQ")
_TAG_BYTES: Final = 16

MAX_RECORD_CONTENT: Final = 65_535 - _TAG_BYTES
"""Bytes of the stream in a record, at most: a Noise message has no more than 65,535."""

REKEY_RECORDS: Final = 1 << 16
REKEY_BYTES: Final = 1 << 30
"""After so many records, or bytes of the stream, a direction takes a new key."""

LAST_NONCE: Final = (1 << 64) - 2
"""The greatest nonce of a record: Noise keeps 2^64 - 1 for `REKEY`."""


class _Direction:
    """One direction's key (32 bytes), its counter, and what has gone under the key.

    It is Noise's CipherState (section 5.1), of which a connection has two as long as it lives: so
    it keeps the cipher alone.
    """

    __slots__ = ("_bytes", "_cipher", "_nonce", "_records")

    def __init__(self, key: bytes, *, nonce: int = 0) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._nonce = nonce
        self._records = self._bytes = 0

    def _next_nonce(self, error: type[LocalProtocolError | RemoteProtocolError]) -> bytes:
        """That of the next record; `error` when they have come to their end."""
        if self._records >= REKEY_RECORDS or self._bytes >= REKEY_BYTES:
            key = self._cipher.encrypt(_NONCE.pack(LAST_NONCE + 1), bytes(32), None)
            self._cipher = ChaCha20Poly1305(key[:32])
            self._records = self._bytes = 0
        if self._nonce > LAST_NONCE:
            raise error("a direction of the protected stream has used all its nonces")
        return _NONCE.pack(self._nonce)

    def _count(self, size: int) -> None:
        """A record with so many bytes of the stream has gone."""
        self._nonce += 1
        self._records += 1
        self._bytes += size


class RecordWriter(_Direction):
    """What we send, as records."""

    __slots__ = ()

    def process(self, data: bytes) -> bytes:
        """The next bytes of the stream (1 or more) in as many records as they need.

        LocalProtocolError when the nonces have come to their end: the connection is to be closed.
        """
        if len(data) <= MAX_RECORD_CONTENT:
            return self._record(data)
        with memoryview(data) as view:
            starts = range(0, len(view), MAX_RECORD_CONTENT)
            return b"".join([self._record(view[at : at + MAX_RECORD_CONTENT]) for at in starts])

    def end(self) -> bytes:
        """The record that says that nothing more is sent."""
        return self._record(b"")

    def _record(self, content: bytes | memoryview) -> bytes:
        nonce = self._next_nonce(LocalProtocolError)
        message = self._cipher.encrypt(nonce, content, None)
        self._count(len(content))
        return _LENGTH.pack(len(message)) + message


class RecordReader(_Direction):
    """What comes, taken out of its records; of a record that is not complete nothing is known."""

    __slots__ = ("_buffer", "has_ended")

    def __init__(self, key: bytes, *, nonce: int = 0) -> None:
        super().__init__(key, nonce=nonce)
        self._buffer = bytearray()
        #: Whether the peer has said that it sends nothing more.
        self.has_ended = False

    @property
    def has_opened(self) -> bool:
        """Whether a record came that is authentic."""
        return self._nonce > 0

    def __len__(self) -> int:
        """Bytes held of a record that is not complete."""
        return len(self._buffer)

    def process(self, data: bytes | bytearray) -> bytes:
        """Take the next bytes; what the records that are complete now contain.

        StreamAltered for a record that is not authentic or too short, and for bytes behind the end:
        no tag says that the peer has sent them. RemoteProtocolError when the nonces have come to
        their end.
        """
        if self.has_ended and data:
            raise StreamAltered("there are bytes behind the end that the peer has said")
        self._buffer += data
        contents = []
        at = 0
        while (content := self._next_record(at)) is not None:
            at += _LENGTH.size + len(content) + _TAG_BYTES
            if content:
                contents.append(content)
            elif at < len(self._buffer):
                raise StreamAltered("there are bytes behind the end that the peer has said")
            else:
                self.has_ended = True
        del self._buffer[:at]
        return b"".join(contents)

    def _next_record(self, at: int) -> bytes | None:
        start = at + _LENGTH.size
        if len(self._buffer) < start:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, at)
        if length < _TAG_BYTES:
            raise StreamAltered(f"a record has {length} bytes, not {_TAG_BYTES} or more")
        if len(self._buffer) < start + length:
            return None
        nonce = self._next_nonce(RemoteProtocolError)
        with memoryview(self._buffer) as view:
            try:
                content = self._cipher.decrypt(nonce, view[start : start + length], None)
            except InvalidTag:
                raise StreamAltered("what came is not what the peer sent") from None
        self._count(len(content))
        return content
