"""The processing that a flag stands for: none (flag 0), or AES (flag 1).

The AES flag as PPPP 2 and the JVM have it: AES-128 in ECB mode with PKCS#5 padding, the key is the
first 16 bytes of SHA-1 of the passphrase. The server's first message goes in the clear behind 32
random bytes, the salt; what came before it was clear, too, and every later message of either side
is AES(salt ‖ message).

This is weak: equal blocks stay equal, nothing proves that bytes were not changed, one salt serves a
whole connection, and a short passphrase is tried out offline at the speed of SHA-1. It keeps a
casual reader out. docs/objects.md says so to users, and the node warns at its start.
"""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from hyperbloom.objects.errors import LocalProtocolError, RemoteProtocolError, WrongPassphrase

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


class NoProcessing:
    """Flag 0: bytes stay as they are."""

    flag = FLAG_NIL

    def outgoing(self, data: bytes) -> bytes:
        return data

    def incoming(self, data: bytes) -> bytes:
        return data


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

    def outgoing(self, data: bytes) -> bytes:
        """The bytes to send; in the clear until the server has sent its salt."""
        if self._agreed:
            return self._encrypt(self._salt_now() + data)
        if not self._is_server:
            return data
        self._agreed = True
        return self._salt_now() + data

    def incoming(self, data: bytes) -> bytes:
        """The bytes that came, without salt; RemoteProtocolError if they are not what they must be.

        WrongPassphrase when it looks like another key.
        """
        if not self._agreed:
            if self._is_server:
                return data
            if len(data) < SALT_BYTES:
                raise RemoteProtocolError("the server's first message lacks its salt")
            self._salt, self._agreed = data[:SALT_BYTES], True
            return data[SALT_BYTES:]
        clear = self._decrypt(data)
        if clear[:SALT_BYTES] != self._salt_now():
            raise WrongPassphrase("a message begins with another salt; is the passphrase the same?")
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
