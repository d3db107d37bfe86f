"""Messages that a peer wrote among each other, part by part."""

from __future__ import annotations

import os
import random

import lz4.frame
import pytest
from jvm_peer import mixed

from hyperbloom.objects.limits import MAX_FRAME_BYTES, MAX_MIXED_MESSAGES
from hyperbloom.objects.wire.aes import AesProcessing, NoProcessing
from hyperbloom.objects.wire.compression import compress, is_one_frame
from hyperbloom.objects.wire.errors import FrameTooLong, RemoteProtocolError, WrongFlag
from hyperbloom.objects.wire.framing import FrameReader
from hyperbloom.objects.wire.mixed import MixedFrameReader

SALT = bytes(range(32))


def processings(passphrase):
    """What writes, and what reads, after the handshake."""
    if passphrase is None:
        return NoProcessing(), NoProcessing()
    server, client = AesProcessing(passphrase, salt=SALT), AesProcessing(passphrase, salt=None)
    client.incoming(server.outgoing(compress(b"ok")))
    return server, client


def reader_of(processing, *, limit=MAX_FRAME_BYTES):
    before = FrameReader(processing.flag)
    before.limit = limit
    return MixedFrameReader(
        before,
        flag=processing.flag,
        begins=processing.begins(),
        is_whole=processing.is_whole,
    )


def parts_of(processed, flag):
    return [bytes([flag]), len(processed).to_bytes(4, "big"), processed]


def read(reader, pieces):
    found = []
    for piece in pieces:
        reader.feed(piece)
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    return found


@pytest.mark.parametrize("passphrase", [None, "correct horse"], ids=["plain", "aes"])
@pytest.mark.parametrize("threads", [1, 2, 3, MAX_MIXED_MESSAGES])
@pytest.mark.parametrize("seed", range(8))
def test_every_message_is_found_wherever_the_bytes_are_cut(passphrase, threads, seed):
    chance = random.Random(seed)
    writing, reading = processings(passphrase)
    contents = [chance.randbytes(chance.choice((0, 16, 40, 41, 250, 8_200))) for _ in range(60)]
    said = [writing.outgoing(compress(content)) for content in contents]
    parts = mixed([parts_of(one, writing.flag) for one in said], chance, most=threads)
    stream = b"".join(parts)
    cuts = sorted(chance.sample(range(len(stream)), 200))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    reader = reader_of(reading)
    found = read(reader, pieces)
    assert sorted(found) == sorted(said)
    assert found == said or threads > 1
    assert len(reader) == 0


def test_the_bytes_of_a_message_may_look_like_parts_of_others():
    """A length whose bytes are those of another message, and bytes with headers in them."""
    inner = compress(b"inner")
    outer = lz4.frame.compress(b"\0\0\0\0\x20" + inner + os.urandom(40), block_linked=False)
    small, large = parts_of(inner, 0), parts_of(outer, 0)
    stream = [small[0], large[0], large[1], small[1], large[2], small[2]]
    assert read(reader_of(NoProcessing()), stream) == [outer, inner]
    stream = [small[0], large[0], small[1], large[1], small[2], large[2]]
    assert read(reader_of(NoProcessing()), stream) == [inner, outer]


def test_as_many_messages_at_once_as_the_limit_and_no_more():
    said = [compress(bytes([n]) * n) for n in range(MAX_MIXED_MESSAGES)]
    flags, lengths = b"\0" * len(said), b"".join(len(one).to_bytes(4, "big") for one in said)
    reader = reader_of(NoProcessing())
    assert read(reader, [flags + lengths + b"".join(reversed(said))]) == said[::-1]
    with pytest.raises(RemoteProtocolError, match="at once"):
        read(reader_of(NoProcessing()), [b"\0" * (MAX_MIXED_MESSAGES + 4)])


def test_under_the_aes_flag_what_was_sent_in_the_clear_is_a_message_too():
    writing, reading = processings("correct horse")
    clear, secret = compress(b"early"), writing.outgoing(compress(b"x" * 40))
    one, two = parts_of(clear, 1), parts_of(secret, 1)
    assert read(reader_of(reading), [one[0], two[0], one[1], two[1], clear, secret]) == [
        clear,
        secret,
    ]
    assert reading.is_whole(clear)
    assert reading.is_whole(secret)
    for broken in (clear[:-1], clear + b"\0", secret[:-1], secret + bytes(16), b""):
        assert not reading.is_whole(broken)
    _, other = processings("another one")
    assert not other.is_whole(secret)


def test_bytes_that_are_no_part_are_refused():
    good = compress(b"good")
    head = b"\0" + len(good).to_bytes(4, "big")
    for broken, error in [
        (b"\x07", WrongFlag),
        (b"\0\x7f\0\0\0", FrameTooLong),
        (b"\0" + head[:1] + head[1:] + b"\x09" * 8, FrameTooLong),
        (b"\0\0\0\0\0\x20\0\0\0\x28" + good + bytes(60), RemoteProtocolError),
    ]:
        with pytest.raises(error):
            read(reader_of(NoProcessing()), [head, good, broken])
    reader = reader_of(NoProcessing(), limit=20)
    with pytest.raises(FrameTooLong):
        read(reader, [b"\0\0\0\0\x40\x15" + b"\x09" * 8])


def test_another_passphrase_shows_as_one_message():
    """What decrypts to nothing is given whole to who says so."""
    _, reading = processings("one")
    other = AesProcessing("other", salt=SALT)
    other.outgoing(b"")
    data = other.outgoing(compress(b"x"))
    assert read(reader_of(reading), parts_of(data, 1)) == [data]


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("sized", [True, False])
def test_the_end_of_a_frame_is_found_in_every_form(checked, sized):
    for size in (0, 1, 16, 300, 200_000):
        frame = lz4.frame.compress(
            os.urandom(size), content_checksum=checked, block_checksum=sized, store_size=sized
        )
        assert is_one_frame(frame)
        assert not is_one_frame(frame[:-1])
        assert not is_one_frame(frame + b"\0")
