from __future__ import annotations

from collections.abc import Callable

import pytest
from feeding import check_feedings
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.wire import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.framing import (
    MAGIC,
    FrameReader,
    encode_frame,
    encode_open,
    encode_varint,
    read_varint,
    split_frame,
    varint_length,
)
from hyperbloom.wire.limits import (
    MAX_FRAME_BYTES,
    MAX_MESSAGE_ID_BYTES,
    MAX_OPEN_BYTES,
    SEND_FRAME_BYTES,
)
from hyperbloom.wire.stream_cipher import XSalsa20Stream


def read_all(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


def frame_feeder() -> Callable[[bytes], list[bytes]]:
    reader = FrameReader()

    def feed(piece: bytes) -> list[bytes]:
        reader.feed(piece)
        return read_all(reader)

    return feed


def open_feeder() -> Callable[[bytes], list[bytes]]:
    reader = FrameReader()
    opened = False

    def feed(piece: bytes) -> list[bytes]:
        nonlocal opened
        reader.feed(piece)
        body = None if opened else reader.next_open()
        opened = opened or body is not None
        return [] if body is None else [body]

    return feed


@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16_384, "808001")],
)
def test_varints_are_golden(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0, most=3, what="it") == (number, len(encoded) // 2)


@given(st.integers(0, 2**64 - 1))
def test_varints_come_back(number: int) -> None:
    encoded = encode_varint(number)
    assert varint_length(number) == len(encoded)
    assert read_varint(encoded + b"\x05", 0, most=10, what="it") == (number, len(encoded))


def test_frames_come_out_however_they_came_in() -> None:
    frames = [b"\x00", b"\x03" + b"v" * 5, b"\x03" + b"w" * 200, b"\x7f\x01"]
    data = b"".join(encode_varint(len(frame)) + frame for frame in frames)
    check_feedings(frame_feeder, data, frames, behind=b"\x85\x01abc")


def test_an_open_comes_out_however_it_came_in() -> None:
    check_feedings(open_feeder, encode_open(b"body"), [b"body"], behind=b"\x05\x00")


@pytest.mark.parametrize("encoded", ["8100", "818000"])
def test_a_length_need_not_be_minimal(encoded: str) -> None:
    assert frame_feeder()(bytes.fromhex(encoded) + b"x") == [b"x"]


def test_the_longest_frame_is_taken() -> None:
    frame = bytes(MAX_FRAME_BYTES)
    assert frame_feeder()(encode_varint(MAX_FRAME_BYTES) + frame) == [frame]


@pytest.mark.parametrize("length", [0, MAX_FRAME_BYTES + 1, 2**21 - 1])
def test_a_length_out_of_bounds_is_refused_before_its_body(length: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"length of a frame is {length}"):
        frame_feeder()(encode_varint(length))


def test_a_length_of_more_than_three_bytes_is_refused_at_the_third() -> None:
    feed = frame_feeder()
    assert feed(b"\x80") == feed(b"\x80") == []
    with pytest.raises(RemoteProtocolError, match="more than 3 bytes"):
        feed(b"\x80")


@pytest.mark.parametrize("good", range(4))
def test_a_wrong_magic_byte_is_refused_when_it_comes(good: int) -> None:
    feed = open_feeder()
    for byte in MAGIC[:good]:
        assert feed(bytes([byte])) == []
    with pytest.raises(RemoteProtocolError, match="magic"):
        feed(bytes([MAGIC[good] ^ 1]))


def test_the_longest_open_is_taken_and_one_byte_more_refused() -> None:
    assert open_feeder()(encode_open(bytes(MAX_OPEN_BYTES))) == [bytes(MAX_OPEN_BYTES)]
    for length in (0, MAX_OPEN_BYTES + 1):
        with pytest.raises(RemoteProtocolError, match="length of Open"):
            open_feeder()(MAGIC + encode_varint(length))


def test_what_follows_an_open_waits_for_its_cipher() -> None:
    key, nonce = bytes(32), bytes(24)
    secret = XSalsa20Stream(key, nonce).process(encode_frame(1, b"early") + encode_frame(2, b""))
    reader = FrameReader()
    reader.feed(encode_open(b"body") + secret[:4])
    assert reader.next_open() == b"body"
    assert len(reader) == 4
    reader.decrypt_with(XSalsa20Stream(key, nonce))
    reader.feed(secret[4:])
    assert read_all(reader) == [b"\x01early", b"\x02"]
    assert len(reader) == 0


@pytest.mark.parametrize("piece", [1_000, 65_536])
def test_many_frames_in_pieces_that_do_not_fit_them(piece: int) -> None:
    frames = [bytes([i % 251]) * (i * 37 % 3_000 + 1) for i in range(400)]
    data = b"".join(encode_varint(len(frame)) + frame for frame in frames)
    feed = frame_feeder()
    told = [frame for at in range(0, len(data), piece) for frame in feed(data[at : at + piece])]
    assert told == frames


def test_clear_forgets_everything() -> None:
    reader = FrameReader()
    reader.decrypt_with(XSalsa20Stream(bytes(32), bytes(24)))
    reader.feed(b"\x05abc")
    reader.clear()
    assert len(reader) == 0
    reader.feed(encode_frame(4, b"fresh"))
    assert read_all(reader) == [b"\x04fresh"]


def test_a_frame_that_is_sent_is_golden() -> None:
    assert encode_frame(3, b"abc").hex() == "0403616263"
    assert encode_frame(300, b"").hex() == "02ac02"


def test_the_longest_frame_that_is_sent_and_one_byte_more() -> None:
    assert len(encode_frame(3, bytes(SEND_FRAME_BYTES - 1))) == SEND_FRAME_BYTES + 3
    with pytest.raises(LocalProtocolError, match="does not fit"):
        encode_frame(3, bytes(SEND_FRAME_BYTES))


def test_a_message_id_is_read_from_its_frame() -> None:
    assert split_frame(b"\xac\x02rest") == (300, b"rest")
    longest = b"\xff" * (MAX_MESSAGE_ID_BYTES - 1) + b"\x01"
    assert split_frame(longest) == (2**64 - 1, b"")


@pytest.mark.parametrize("frame", [b"\x80", b"\x80\x80", b"\xff" * MAX_MESSAGE_ID_BYTES])
def test_a_message_id_without_an_end_is_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="message id"):
        split_frame(frame)
