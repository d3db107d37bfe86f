"""What the codec refuses, and that it refuses it before it costs anything."""

from __future__ import annotations

import struct
import tracemalloc

import lz4.frame
import msgpack
import pytest
import umsgpack
from feeding import check_feedings
from other_formats import write_frame

from hyperbloom.objects.limits import (
    MAX_DEPTH,
    MAX_EARLY_FRAME_BYTES,
    MAX_ENTRIES,
    MAX_FRAME_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_PLAIN_KEYS,
)
from hyperbloom.objects.wire.aes import AesProcessing, NoProcessing
from hyperbloom.objects.wire.codec import decode, encode
from hyperbloom.objects.wire.compression import compress, decompress
from hyperbloom.objects.wire.errors import (
    FrameTooLong,
    LocalProtocolError,
    RemoteProtocolError,
    WrongFlag,
    WrongPassphrase,
)
from hyperbloom.objects.wire.framing import FrameReader, encode_frame
from hyperbloom.objects.wire.messagepack import measure, pack, unpack_map
from hyperbloom.objects.wire.payloads import (
    MAX_ANCESTORS,
    Change,
    Creation,
    Identify,
    Initialize,
    Kick,
    Ok,
    Ping,
    Pong,
    Rejection,
    Removal,
    Version,
    from_map,
    to_map,
)


def refused(packed: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(write_frame(packed), NoProcessing())
    return str(caught.value)


def test_a_payload_is_as_long_as_the_limit_and_no_byte_longer():
    assert len(decompress(compress(bytes(MAX_PAYLOAD_BYTES)))) == MAX_PAYLOAD_BYTES
    with pytest.raises(RemoteProtocolError, match="longer than"):
        decompress(compress(bytes(MAX_PAYLOAD_BYTES + 1)))


def test_a_decompression_bomb_costs_no_more_than_the_limit():
    bomb = lz4.frame.compress(bytes(200_000_000))
    assert len(bomb) < MAX_FRAME_BYTES
    # Not the process's resident set: its peak may have been higher before.
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError, match="longer than"):
            decompress(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert MAX_PAYLOAD_BYTES < peak < 3 * MAX_PAYLOAD_BYTES


def test_a_frame_that_promises_a_giant_content_is_not_believed():
    honest = bytearray(lz4.frame.compress(b"abc", store_size=True))
    with pytest.raises(RemoteProtocolError):
        decompress(bytes(honest[:6]) + struct.pack("<Q", 1 << 60) + bytes(honest[14:]))


@pytest.mark.parametrize("cut", [0, 1, 6, 7, 10, 14, 20])
def test_a_frame_cut_short_is_refused(cut):
    frame = compress(b"some text, some more text")
    with pytest.raises(RemoteProtocolError):
        decompress(frame[:cut])


def test_bytes_behind_a_frame_and_wrong_checksums_are_refused():
    frame = compress(b"text")
    with pytest.raises(RemoteProtocolError, match="follow"):
        decompress(frame + b"x")
    with pytest.raises(RemoteProtocolError):
        decompress(frame[:-1] + bytes([frame[-1] ^ 1]))
    with pytest.raises(RemoteProtocolError):
        decompress(frame + frame)


def test_depth_is_counted_before_anything_is_built():
    deep = b"\x91" * (MAX_DEPTH - 1) + b"\x90"
    assert measure(deep) == MAX_DEPTH
    with pytest.raises(RemoteProtocolError, match="deeper"):
        measure(b"\x91" * MAX_DEPTH + b"\x90")
    refused(b"\x81\xa1d" + b"\x91" * 100_000)


def test_entries_are_counted_over_all_containers():
    one_too_many = b"\xdd" + struct.pack(">I", MAX_ENTRIES + 1) + b"\xc0" * (MAX_ENTRIES + 1)
    assert measure(b"\xdd" + struct.pack(">I", MAX_ENTRIES) + b"\xc0" * MAX_ENTRIES)
    with pytest.raises(RemoteProtocolError, match="entries"):
        measure(one_too_many)
    half = b"\xdd" + struct.pack(">I", MAX_ENTRIES // 2) + b"\xc0" * (MAX_ENTRIES // 2)
    with pytest.raises(RemoteProtocolError, match="entries"):
        measure(b"\x92" + half + half)


@pytest.mark.parametrize("header", [b"\xdd\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff"])
def test_a_giant_container_is_refused_at_its_header(header):
    tracemalloc.start()
    refused(b"\x82\xa2op\x00\xa1d" + header)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\x81",
        b"\x81\xa2o",
        b"\xdb\x00\x00",
        b"\xdb\x00\x00\x00\x05abcd",
        b"\xcf\x00",
        b"\xd9",
    ],
)
def test_wrong_lengths_are_refused(packed):
    assert "cut short" in refused(packed)


@pytest.mark.parametrize(
    "packed", [b"\xc1", b"\xd4\x01\x00", b"\xc7\x01\x05\x00", b"\x81\xa1d\xd6\xff\0\0\0\0"]
)
def test_types_that_the_protocol_does_not_know_are_refused(packed):
    assert "not known" in refused(packed)


def test_texts_must_be_utf8_keys_hashable_and_the_whole_a_map():
    refused(b"\x81\xa1\xff\x00")
    refused(b"\x81\x90\x00")
    assert "a message is a map" in refused(b"\x90")


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"op": 10, "t": 1},
        {"op": -1, "t": 1},
        {"op": True, "t": 1},
        {"op": 3.0, "t": 1},
        {"op": 3},
        {"op": 3, "t": -1},
        {"op": 3, "t": "now"},
        {"op": 3, "t": 2**63},
        {"op": 0, "t": 1, "v": 2**31},
        {"op": 0, "t": 1, "v": "1"},
        {"op": 0, "t": 1, "d": [1]},
        {"op": 0, "t": 1, "d": {1: 2}},
        {"op": 6, "t": 1},
        {"op": 6, "t": 1, "d": {"p": [], "r": 1}},
        {"op": 6, "t": 1, "d": {"p": {}, "r": True}},
        {"op": 6, "t": 1, "d": {"p": [1], "r": True}},
        {"op": 6, "t": 1, "d": {"p": [{}], "r": True, "h": [1], "t": [1], "a": [[]]}},
        {"op": 6, "t": 1, "d": {"r": True}},
        {"op": 6, "t": 1, "d": {"p": [], "r": True, "h": [1], "t": [], "a": []}},
        {"op": 6, "t": 1, "d": {"p": [{"a": 1}], "r": True, "h": [1]}},
        {"op": 6, "t": 1, "d": {"p": [{"a": 1}], "r": True, "h": [1], "t": [1], "a": [1]}},
        {"op": 6, "t": 1, "d": {"p": [{"a": 1}], "r": False, "h": [1], "t": [1], "a": [[1] * 17]}},
        {"op": 7, "t": 1, "d": {"a": 1}},
        {"op": 7, "t": 1, "d": {"a": 1}, "h": 2**63},
        {"op": 7, "t": 1, "d": {1: 1}, "h": 1},
        {"op": 7, "t": 1, "d": {}, "h": 1},
        {"op": 8, "t": 1, "d": {"a": 1}, "h": 1},
        {"op": 8, "t": 1, "h": 1, "oh": 1},
        {"op": 9, "t": 1},
    ],
    ids=str,
)
def test_maps_that_are_no_payload_are_refused(found):
    refused(umsgpack.packb(found))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ping(t=-1),
        lambda: Ping(t=1.5),
        lambda: Identify(t=1, v=2**40),
        lambda: Creation(t=1, d={}, h=1),
        lambda: Creation(t=1, d={1: 2}, h=1),
        lambda: Creation(t=1, d={"a": 1}, h=2**63),
        lambda: Change(t=1, d={"a": 1}, h=1, oh=None),
        lambda: Initialize(t=1, objects=({"a": 1},), respond=True, versions=()),
        lambda: Version(hash=1, stamp=1, ancestors=tuple(range(17))),
        lambda: pack({"a": object()}),
        lambda: pack(2**64),
        lambda: encode(Creation(t=1, d={"a": 2**64}, h=1), NoProcessing()),
        lambda: encode(Creation(t=1, d={"a": [0] * MAX_ENTRIES}, h=1), NoProcessing()),
        lambda: encode(Creation(t=1, d={"a": bytes(MAX_PAYLOAD_BYTES)}, h=1), NoProcessing()),
        lambda: encode_frame(0, bytes(MAX_FRAME_BYTES + 1)),
        lambda: AesProcessing("", salt=None),
        lambda: AesProcessing("x", salt=bytes(31)),
    ],
)
def test_our_own_mistakes_are_ours(make):
    with pytest.raises(LocalProtocolError):
        make()


LEAST, MOST = -(2**63), 2**63 - 1
AN_OBJECT = {"a": 1}
WHOLE = {
    Identify: {"t": 1, "v": 1, "d": {"k": 1}},
    Ok: {"t": 1, "v": 1, "d": {"k": 1}},
    Rejection: {"t": 1},
    Ping: {"t": 1},
    Pong: {"t": 1},
    Kick: {"t": 1},
    Initialize: {"t": 1, "objects": (AN_OBJECT,), "respond": True},
    Creation: {"t": 1, "d": AN_OBJECT, "h": 1},
    Change: {"t": 1, "d": AN_OBJECT, "h": 1, "oh": 2},
    Removal: {"t": 1, "h": 1},
    Version: {"hash": 1, "stamp": 1, "ancestors": (2,)},
}
#: Of each field, the utmost that it may be, and what is just beyond.
TIMES = ([0, MOST], [-1, MOST + 1, 1.0, True])
HASHES = ([LEAST, MOST], [LEAST - 1, MOST + 1, 1.0, True])
FORMS = {
    "t": TIMES,
    "stamp": TIMES,
    "v": ([None, -(2**31), 2**31 - 1], [-(2**31) - 1, 2**31, True]),
    "h": HASHES,
    "oh": HASHES,
    "hash": HASHES,
    "ancestors": (
        [(), (LEAST, MOST), (1,) * MAX_ANCESTORS],
        [(1,) * (MAX_ANCESTORS + 1), (1, MOST + 1)],
    ),
    "objects": ([(), (AN_OBJECT,) * 3], [({},), ({1: 2},), (AN_OBJECT, [1])]),
    "respond": ([True, False], [1, None]),
}
METADATA = ([None, {}, {"k": 1}], [{1: 2}, [1]])
OBJECTS = ([{"a": None}], [{}, {1: 2}, [1]])


@pytest.mark.parametrize(
    ("kind", "field"), [(kind, name) for kind in WHOLE for name in WHOLE[kind]]
)
def test_each_field_is_as_its_protocol_has_it(kind, field):
    is_metadata = kind in (Identify, Ok)
    right, wrong = FORMS.get(field) or (METADATA if is_metadata else OBJECTS)
    for value in right:
        made = kind(**WHOLE[kind] | {field: value})
        if kind is not Version:
            assert from_map(unpack_map(pack(to_map(made)))) == made
    for value in wrong:
        with pytest.raises(LocalProtocolError):
            kind(**WHOLE[kind] | {field: value})


def test_objects_go_with_a_version_each_or_with_none():
    versions = tuple(Version(hash=n, stamp=n, ancestors=(9,) * n) for n in range(3))
    made = Initialize(t=1, objects=(AN_OBJECT,) * 3, respond=False, versions=versions)
    assert from_map(unpack_map(pack(to_map(made)))) == made
    with pytest.raises(LocalProtocolError, match="a version for each"):
        Initialize(t=1, objects=(AN_OBJECT,) * 3, respond=False, versions=versions[1:])
    assert made.unnamed == 0


def test_objects_whose_fields_nobody_said_are_counted():
    told = from_map({"op": 6, "t": 1, "d": {"p": [{}, AN_OBJECT, {}], "r": True}})
    assert (told.objects, told.unnamed) == ((AN_OBJECT,), 2)


def test_frames_are_cut_wherever_the_bytes_are():
    data = encode_frame(1, b"one") + encode_frame(1, b"") + encode_frame(1, b"three")

    def make():
        reader = FrameReader(1)

        def feed(piece):
            reader.feed(piece)
            found = []
            while (frame := reader.next_frame()) is not None:
                found.append(frame)
            return found

        return feed

    check_feedings(make, data, [b"one", b"", b"three"], behind=b"\x01\x00\x00")


def test_flag_and_length_are_refused_before_the_rest_comes():
    reader = FrameReader(0)
    reader.feed(b"\x01")
    with pytest.raises(WrongFlag):
        reader.next_frame()
    for limit in (MAX_EARLY_FRAME_BYTES, MAX_FRAME_BYTES):
        reader = FrameReader(0)
        reader.limit = limit
        reader.feed(struct.pack(">BI", 0, limit))
        assert reader.next_frame() is None
        reader = FrameReader(0)
        reader.limit = limit
        reader.feed(struct.pack(">BI", 0, limit + 1))
        with pytest.raises(FrameTooLong):
            reader.next_frame()


def test_many_frames_in_one_buffer_take_no_more_than_their_time():
    reader = FrameReader(0)
    reader.feed(encode_frame(0, b"x" * 10) * 50_000)
    count = 0
    while reader.next_frame() is not None:
        count += 1
    assert (count, len(reader)) == (50_000, 0)


def agreed(passphrase):
    client = AesProcessing(passphrase, salt=None)
    client.incoming(bytes(32))
    return client


def test_a_wrong_passphrase_is_named():
    frame = agreed("one").outgoing(compress(pack({"op": 3, "t": 1})))
    with pytest.raises(WrongPassphrase):
        agreed("two").incoming(frame)


@pytest.mark.parametrize("length", [0, 1, 15, 17, 48, 64])
def test_encrypted_bytes_of_any_length_are_refused_when_they_are_none(length):
    with pytest.raises(WrongPassphrase):
        agreed("one").incoming(bytes(length))


def test_a_server_that_sends_no_salt_is_refused():
    with pytest.raises(RemoteProtocolError, match="salt"):
        AesProcessing("one", salt=None).incoming(bytes(31))


def test_what_follows_a_map_is_not_looked_at():
    packed = umsgpack.packb({"op": 2})
    assert unpack_map(packed + bytes(100)) == {"op": 2}
    assert unpack_map(packed + bytes(100) + b"\x01\xc1") == {"op": 2}


def test_a_message_under_the_same_passphrase_and_another_salt_is_refused():
    other = AesProcessing("one", salt=None)
    other.incoming(bytes(range(32)))
    with pytest.raises(WrongPassphrase, match="another salt"):
        agreed("one").incoming(other.outgoing(b"x" * 40))


@pytest.mark.parametrize("make", [int, float, lambda n: -1 - n], ids=["int", "float", "negative"])
def test_a_map_has_few_keys_whose_hashes_a_peer_can_choose(make):
    few = {make(n): n for n in range(MAX_PLAIN_KEYS)}
    texts = {str(n): n for n in range(4 * MAX_PLAIN_KEYS)}
    for found in (few, few | texts, {str(n).encode(): n for n in range(4 * MAX_PLAIN_KEYS)}):
        assert unpack_map(msgpack.packb({"d": found})) == {"d": found}
    for many in (few | {make(MAX_PLAIN_KEYS): 0}, few | texts | {make(MAX_PLAIN_KEYS): 0}):
        with pytest.raises(RemoteProtocolError, match="neither texts nor byte strings"):
            unpack_map(msgpack.packb({"d": [many]}))
