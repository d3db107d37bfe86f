from __future__ import annotations

import _ctypes
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.secret import SecretBox

from hyperbloom.wire import stream_cipher
from hyperbloom.wire.stream_cipher import XSalsa20Stream

KEY = bytes(range(32))
NONCE = bytes(range(100, 124))


def in_pieces(data: bytes, cuts: list[int]) -> bytes:
    stream = XSalsa20Stream(KEY, NONCE)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return b"".join(stream.process(data[start:end]) for start, end in pairwise(places))


@pytest.mark.parametrize("length", [1, 31, 32, 33, 63, 64, 65, 1_000, 65_536, 65_537, 300_001])
def test_it_is_the_stream_of_secret_box(length: int) -> None:
    # SecretBox is XSalsa20-Poly1305: the first 32 bytes of the stream become the tag's key.
    message = bytes(i * 31 & 0xFF for i in range(length))
    boxed = SecretBox(KEY).encrypt(message, NONCE).ciphertext
    assert XSalsa20Stream(KEY, NONCE).process(bytes(32) + message)[32:] == boxed[16:]


@given(st.binary(max_size=700), st.lists(st.integers(0, 700), max_size=12))
def test_it_goes_on_where_it_stopped_at_any_split(data: bytes, cuts: list[int]) -> None:
    assert in_pieces(data, cuts) == XSalsa20Stream(KEY, NONCE).process(data)


@pytest.mark.parametrize("first", [0, 1, 63, 64, 65, 65_535])
def test_it_goes_on_over_the_slices_of_a_long_piece(first: int) -> None:
    data = bytes(200_000)
    assert in_pieces(data, [first]) == in_pieces(data, [0])


def test_byte_by_byte() -> None:
    data = bytes(range(256))
    assert in_pieces(data, list(range(256))) == XSalsa20Stream(KEY, NONCE).process(data)


def test_a_second_pass_undoes_the_first() -> None:
    secret = XSalsa20Stream(KEY, NONCE).process(b"values")
    assert secret != b"values"
    assert XSalsa20Stream(KEY, NONCE).process(secret) == b"values"


def test_nothing_takes_nothing_from_the_stream() -> None:
    stream = XSalsa20Stream(KEY, NONCE)
    assert stream.process(b"") == b""
    assert stream.process(b"abc") == XSalsa20Stream(KEY, NONCE).process(b"abc")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken_and_none_is_changed(kind: type) -> None:
    data = kind(bytes(100))
    made = XSalsa20Stream(KEY, NONCE).process(data)
    assert type(made) is bytes
    assert made == XSalsa20Stream(KEY, NONCE).process(bytes(100))
    assert bytes(data) == bytes(100)


def test_other_nonces_and_keys_make_other_streams() -> None:
    made = {
        XSalsa20Stream(key, nonce).process(bytes(32))
        for key in (KEY, bytes(32))
        for nonce in (NONCE, bytes(24))
    }
    assert len(made) == 4


@pytest.mark.parametrize(("key", "nonce"), [(KEY[1:], NONCE), (KEY, NONCE + b"x"), (b"", b"")])
def test_wrong_lengths_are_refused(key: bytes, nonce: bytes) -> None:
    with pytest.raises(ValueError, match="bytes, not"):
        XSalsa20Stream(key, nonce)


def test_its_repr_shows_no_secret() -> None:
    assert KEY.hex() not in repr(XSalsa20Stream(KEY, NONCE))
    assert repr(KEY) not in repr(XSalsa20Stream(KEY, NONCE))


@pytest.mark.parametrize("path", [_ctypes.__file__, "/nowhere/_sodium.so", None])
def test_a_library_without_the_function_says_what_to_do(path: str | None) -> None:
    with pytest.raises(ImportError, match=r"crypto_stream_xsalsa20_xor_ic.*install PyNaCl"):
        stream_cipher._load_xor(path)
