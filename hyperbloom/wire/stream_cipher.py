"""XSalsa20 as one continuous keystream a direction.

XSalsa20 (Bernstein, "Extending the Salsa20 nonce", 2011) makes an endless keystream of 64-byte
blocks from a 32-byte key and a 24-byte nonce; data is xored with it, so that encrypting and
decrypting are the same. HyperBloom runs one keystream over all that a side sends after its Open,
across frames and however the network splits them. There is no MAC: whoever can alter bytes on the
path can alter messages, and only what is signed is safe from that.

Block n of the keystream can be made by itself, so the position in the stream is the whole state.
A piece that starts inside a block is preceded by as many spare bytes as the block already gave,
and only that one block goes the long way; the rest is xored in place.

Why ctypes on PyNaCl's libsodium: PyNaCl wraps libsodium's one-shot XSalsa20 only as part of a
SecretBox, but its shared object carries `crypto_stream_xsalsa20_xor_ic`, which starts at a given
block. It is there with the signatures anyway. PyCryptodome's Salsa20 would be one more dependency,
and slower: 0.9 GB/s against 1.27 GB/s where we measured both.
ctypes lets go of the interpreter lock while libsodium works.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from typing import Final

import nacl.bindings  # noqa: F401  its import initialises libsodium (picks the fastest code)

__all__ = ["CIPHER_KEY_BYTES", "CIPHER_NONCE_BYTES", "XSalsa20Stream"]

CIPHER_KEY_BYTES: Final = 32
CIPHER_NONCE_BYTES: Final = 24
_BLOCK_BYTES: Final = 64

_SLICE_BYTES: Final = 65_536
"""What is worked on at once, so that it and its copy stay in a core's cache: a full frame takes
0.13 ms in slices and 0.2 ms in one piece."""

#: (output, input, length, nonce, first block, key) → 0; output may be the input.
_Xor = Callable[[int, int, int, bytes, int, bytes], int]


def _load_xor(path: str | None) -> _Xor:
    """libsodium's crypto_stream_xsalsa20_xor_ic from a shared object; ImportError without it."""
    try:
        if path is None:
            raise OSError("nacl._sodium is not a file")
        function = ctypes.CDLL(path).crypto_stream_xsalsa20_xor_ic
    except (OSError, AttributeError) as error:
        raise ImportError(
            "hyperbloom needs libsodium's crypto_stream_xsalsa20_xor_ic, which PyNaCl's shared "
            f"object {path} does not offer ({error}): install PyNaCl from its wheel on PyPI, or "
            "build it with SODIUM_INSTALL=bundled",
            name="nacl._sodium",
            path=path,
        ) from error
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_ulonglong,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_char_p,
    ]
    function.restype = ctypes.c_int
    return function


def _sodium_path() -> str | None:
    spec = importlib.util.find_spec("nacl._sodium")
    return None if spec is None else spec.origin


_xor: Final = _load_xor(_sodium_path())


class XSalsa20Stream:
    """One direction's keystream, from its first byte.

    `key` is 32 bytes, `nonce` 24; ValueError for other lengths. The repr shows neither.
    """

    __slots__ = ("_key", "_nonce", "_position")

    def __init__(self, key: bytes, nonce: bytes) -> None:
        if len(key) != CIPHER_KEY_BYTES:
            raise ValueError(f"an XSalsa20 key has {CIPHER_KEY_BYTES} bytes, not {len(key)}")
        if len(nonce) != CIPHER_NONCE_BYTES:
            raise ValueError(f"an XSalsa20 nonce has {CIPHER_NONCE_BYTES} bytes, not {len(nonce)}")
        # Copies: what is handed to C must be bytes, whatever buffer came in.
        self._key = bytes(key)
        self._nonce = bytes(nonce)
        self._position = 0

    def process(self, data: bytes | bytearray | memoryview) -> bytes:
        """Encrypt or decrypt the next bytes of the stream; as many come out as go in."""
        if len(data) <= _SLICE_BYTES:
            return self._process(data)
        view = memoryview(data)
        starts = range(0, len(view), _SLICE_BYTES)
        return b"".join([self._process(view[at : at + _SLICE_BYTES]) for at in starts])

    def go_back(self, count: int) -> None:
        """The last bytes were not of this stream: process them again to have them as they were."""
        self._position -= count

    def _process(self, data: bytes | bytearray | memoryview) -> bytes:
        output = bytearray(data)
        length = len(output)
        block, used = divmod(self._position, _BLOCK_BYTES)
        done = 0
        if used:
            head = bytearray(used) + output[: _BLOCK_BYTES - used]
            self._xor_in_place(head, 0, block)
            done = len(head) - used
            output[:done] = head[used:]
            block += 1
        if done < length:
            self._xor_in_place(output, done, block)
        self._position += length
        return bytes(output)

    def _xor_in_place(self, buffer: bytearray, start: int, block: int) -> None:
        first = ctypes.c_char.from_buffer(buffer, start)
        address = ctypes.addressof(first)
        _xor(address, address, len(buffer) - start, self._nonce, block, self._key)
