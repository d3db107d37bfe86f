"""The processing that a flag stands for: none (flag 0), or AES (flag 1).

The AES flag as PPPP 2 and the JVM have it: AES-128 in ECB mode with PKCS#5 padding, the key is the
first 16 bytes of SHA-1 of the passphrase. The server's first message goes in the clear behind 32
random bytes, the salt; what came before it was clear, too, and every later message of either side
is AES(salt ‖ message).

The JVM departs from that twice. What its program does before the handshake is done it sends in the
clear: `EarlyMessage`, never taken, for whoever has no passphrase could send the same. And it files
what it knows of a connection under the port alone: when it dials a port again it begins with an
IDENTIFY that is encrypted with the salt of last time, and wants all encrypted with that one. A
server takes this: the peer shows that it has the passphrase. Old messages can be replayed to it,
and to a server with a new salt as well, which anybody may ask for a block that begins with it.

This is weak: equal blocks stay equal, nothing proves that bytes were not changed, one salt serves a
whole connection, and a short passphrase is tried out offline at the speed of SHA-1. It keeps a
casual reader out. docs/objects.md says so to users, and the node warns at its start.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from hyperbloom.objects.wire.compression import LZ4_MAGIC, is_one_frame
from hyperbloom.objects.wire.errors import (
    EarlyMessage,
    LocalProtocolError,
    RemoteProtocolError,
    WrongPassphrase,
)

__all__ = ["FLAG_AES", "FLAG_NIL", "SALT_BYTES", "AesProcessing", "NoProcessing", "Processing"]

FLAG_NIL: Final = 0
FLAG_AES: Final = 1
SALT_BYTES: Final = 32
_KEY_BYTES: Final = 16
_BLOCK_BITS: Final = 128


class Processing(Protocol):
    """What is done to the compressed bytes of one connection, in the order of its messages."""

    @property
    def flag(self) -> int: ...

    def outgoing(self, data: bytes) -> bytes: ...

    def incoming(self, data: bytes) -> bytes: ...

    def outgoing_bytes(self, size: int) -> int: ...

    def begins(self) -> tuple[bytes, ...]:
        """What the bytes of each message that comes may begin with, once both have shaken hands."""
        ...

    def is_whole(self, data: bytes) -> bool:
        """Whether these bytes are exactly one message."""
        ...


class NoProcessing:
    """Flag 0: bytes stay as they are."""

    flag = FLAG_NIL

    def outgoing(self, data: bytes) -> bytes:
        return data

    def incoming(self, data: bytes) -> bytes:
        return data

    def outgoing_bytes(self, size: int) -> int:
        return size

    def begins(self) -> tuple[bytes, ...]:
        return (LZ4_MAGIC,)

    def is_whole(self, data: bytes) -> bool:
        return is_one_frame(data)


class AesProcessing:
    """Flag 1 for one connection.

    `salt` is the server's 32 random bytes; the client has None and learns it.
    """

    flag = FLAG_AES

    def __init__(self, passphrase: str, *, salt: bytes | None) -> None:
        if not passphrase:
            raise LocalProtocolError("the AES flag needs a passphrase")
        if salt is not None and len(salt) != SALT_BYTES:
            raise LocalProtocolError(f"a salt has {SALT_BYTES} bytes")
        # SHA-1 and ECB are the protocol's; see the module's text.
        key = hashlib.sha1(passphrase.encode(), usedforsecurity=False).digest()[:_KEY_BYTES]
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305
        self._is_server = salt is not None
        self._salt = salt
        self._agreed = False
        #: Whether a message that only somebody with the passphrase can make has come.
        self._shown = False

    def outgoing(self, data: bytes) -> bytes:
        """The bytes to send; in the clear until the server has sent its salt."""
        if self._agreed:
            return self._encrypt(self._salt_now() + data)
        if not self._is_server:
            return data
        self._agreed = True
        return self._salt_now() + data

    def outgoing_bytes(self, size: int) -> int:
        """What so many bytes come to, once the server has sent its salt."""
        block = _BLOCK_BITS // 8
        return ((SALT_BYTES + size) // block + 1) * block

    def begins(self) -> tuple[bytes, ...]:
        """The salt encrypted; or a frame in the clear that was sent before the salt was known."""
        return (self._cipher.encryptor().update(self._salt_now()), LZ4_MAGIC)

    def is_whole(self, data: bytes) -> bool:
        """Whether it decrypts to the salt and a frame, or is a frame in the clear."""
        if is_one_frame(data):
            return True
        try:
            clear = self._decrypt(data)
        except WrongPassphrase:
            return False
        return clear[:SALT_BYTES] == self._salt_now() and is_one_frame(clear[SALT_BYTES:])

    def incoming(self, data: bytes) -> bytes:
        """The bytes that came, without salt; RemoteProtocolError if they are not what they must be.

        WrongPassphrase when it looks like another key. EarlyMessage for one that is to be passed
        over.
        """
        if self._agreed:
            return self._decrypted(data)
        return self._first_of_client(data) if self._is_server else self._first_of_server(data)

    def _first_of_client(self, data: bytes) -> bytes:
        if data.startswith(LZ4_MAGIC):
            return data
        try:
            clear = self._decrypt(data)
        except WrongPassphrase:
            return data
        if not clear.startswith(LZ4_MAGIC, SALT_BYTES):
            return data
        self._salt, self._agreed, self._shown = clear[:SALT_BYTES], True, True
        return clear[SALT_BYTES:]

    def _first_of_server(self, data: bytes) -> bytes:
        if data.startswith(LZ4_MAGIC) and not data.startswith(LZ4_MAGIC, SALT_BYTES):
            raise EarlyMessage("it came before the salt")
        if len(data) < SALT_BYTES:
            raise RemoteProtocolError("the server's first message lacks its salt")
        self._salt, self._agreed = data[:SALT_BYTES], True
        return data[SALT_BYTES:]

    def _decrypted(self, data: bytes) -> bytes:
        early = data.startswith(LZ4_MAGIC) and not self._shown
        try:
            clear = self._decrypt(data)
        except WrongPassphrase:
            if early:
                raise EarlyMessage("it was sent before the salt was known") from None
            raise
        if clear[:SALT_BYTES] != self._salt_now():
            if early:
                raise EarlyMessage("it was sent before the salt was known")
            raise WrongPassphrase("a message begins with another salt; is the passphrase the same?")
        self._shown = True
        return clear[SALT_BYTES:]

    def _salt_now(self) -> bytes:
        if self._salt is None:
            raise LocalProtocolError("there is no salt before the server's first message")
        return self._salt

    def _encrypt(self, clear: bytes) -> bytes:
        padder, encryptor = PKCS7(_BLOCK_BITS).padder(), self._cipher.encryptor()
        return encryptor.update(padder.update(clear) + padder.finalize()) + encryptor.finalize()

    def _decrypt(self, data: bytes) -> bytes:
        unpadder, decryptor = PKCS7(_BLOCK_BITS).unpadder(), self._cipher.decryptor()
        try:
            padded = decryptor.update(data) + decryptor.finalize()
            return unpadder.update(padded) + unpadder.finalize()
        except ValueError:
            raise WrongPassphrase(
                "a message cannot be decrypted; is the passphrase the same?"
            ) from None
