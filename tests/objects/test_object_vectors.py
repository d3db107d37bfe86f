"""Bytes of payloads, hashes and the AES flag, against what others make of the text."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import pytest
import umsgpack
from other_formats import read_frame, write_frame, xxh32

from hyperbloom.objects.classes.hashes import (
    HashRule,
    fields_hash_code,
    float32_hash_code,
    int_hash_code,
    long_hash_code,
    object_hash,
    record_hash,
    value_hash_code,
)
from hyperbloom.objects.wire.aes import AesProcessing, NoProcessing
from hyperbloom.objects.wire.codec import decode, encode
from hyperbloom.objects.wire.payloads import (
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
)

JAVA = json.loads((Path(__file__).parents[1] / "vectors" / "pppp-2-java.json").read_text())
T = 1_500_000_000_000
T_HEX = "a174 cf0000015d3ef79800"
LONG = 0x50736E0237E61F00
VECTORS = {
    "identify": (
        Identify(t=T, v=1, d={"from": "here"}),
        f"84 {T_HEX} a26f70 00 a176 01 a164 81 a466726f6d a468657265",
    ),
    "identify alone": (Identify(t=T), f"82 {T_HEX} a26f70 00"),
    "ok": (Ok(t=T, v=-3), f"83 {T_HEX} a26f70 01 a176 fd"),
    "rejection": (Rejection(t=T), f"82 {T_HEX} a26f70 02"),
    "ping": (Ping(t=0), "82 a174 00 a26f70 03"),
    "pong": (Pong(t=T), f"82 {T_HEX} a26f70 04"),
    "kick": (Kick(t=T), f"82 {T_HEX} a26f70 05"),
    "initialize": (
        Initialize(t=T, objects=({"a": None, "b": True}, {"c": 1.5}), respond=True),
        f"83 {T_HEX} a26f70 06 a164 82 a170 92 82 a161 c0 a162 c3 81 a163 cb3ff8000000000000"
        " a172 c3",
    ),
    "initialize of nothing": (
        Initialize(t=T, objects=(), respond=False),
        f"83 {T_HEX} a26f70 06 a164 82 a170 90 a172 c2",
    ),
    "initialize with versions": (
        Initialize(
            t=T,
            objects=({"a": 1},),
            respond=False,
            versions=(Version(hash=-1, stamp=7, ancestors=(5, LONG)),),
        ),
        f"83 {T_HEX} a26f70 06 a164 85 a170 91 81 a161 01 a172 c2"
        f" a168 91 ff a174 91 07 a161 91 92 05 cf{LONG:016x}",
    ),
    "creation": (
        Creation(t=T, d={"name": "Ada", "age": 36}, h=LONG),
        f"84 {T_HEX} a26f70 07 a164 82 a46e616d65 a3416461 a3616765 24 a168 cf{LONG:016x}",
    ),
    "change": (
        Change(t=T, d={"age": -70000}, h=-LONG, oh=LONG),
        f"85 {T_HEX} a26f70 08 a164 81 a3616765 d2fffeee90"
        f" a168 d3{(1 << 64) - LONG:016x} a26f68 cf{LONG:016x}",
    ),
    "removal": (Removal(t=T, h=-1), f"83 {T_HEX} a26f70 09 a168 ff"),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_payload_has_these_bytes(name):
    payload, text = VECTORS[name]
    packed = bytes.fromhex(text)
    frame = encode(payload, NoProcessing())
    flag, length = struct.unpack_from(">BI", frame)
    assert (flag, length) == (0, len(frame) - 5)
    assert read_frame(frame[5:]) == packed
    assert umsgpack.unpackb(read_frame(frame[5:])) == umsgpack.unpackb(packed)


@pytest.mark.parametrize("name", VECTORS)
def test_the_bytes_are_read_in_whatever_frame_and_order_they_come(name):
    payload, text = VECTORS[name]
    packed = bytes.fromhex(text)
    assert decode(write_frame(packed), NoProcessing()) == payload
    turned = dict(reversed(umsgpack.unpackb(packed).items()))
    assert decode(write_frame(umsgpack.packb(turned)), NoProcessing()) == payload


def test_what_the_jvm_is_known_to_send_is_taken():
    # It sends its buffer of 8192 bytes whole, 32-bit floats, and a time with REJECTION.
    packed = bytes.fromhex(VECTORS["creation"][1])
    padded = packed + bytes(8192 - len(packed))
    assert decode(write_frame(padded), NoProcessing()) == VECTORS["creation"][0]
    narrow = umsgpack.packb(
        {"t": T, "op": 7, "h": 1, "d": {"x": 0.5}}, force_float_precision="single"
    )
    assert b"\xca" in narrow
    assert decode(write_frame(narrow), NoProcessing()) == Creation(t=T, d={"x": 0.5}, h=1)
    bare = umsgpack.packb({"op": 2})
    assert decode(write_frame(bare), NoProcessing()) == Rejection()
    more = umsgpack.packb({"t": T, "op": 9, "h": 4, "d": {"unused": 1}, "oh": 3})
    assert decode(write_frame(more), NoProcessing()) == Removal(t=T, h=4)


VALUES = [
    None, True, False, 0, -1, 127, 128, -32, -33, 255, 256, -128, -129, 65535, 65536, -32769,
    2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63), 2**64 - 1,
    0.0, -0.0, 1.5, 1e300, math.inf, "", "a", "é" * 40, "x" * 300, "y" * 66_000,
    b"", b"\x00\xff", b"z" * 300, [], [1, [2, [None]]], list(range(20)), {}, {"k": [True]},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_every_type_of_value_goes_both_ways(value):
    payload = Creation(t=T, d={"field": value}, h=1)
    frame = encode(payload, NoProcessing())
    said = umsgpack.unpackb(read_frame(frame[5:]))
    assert said["d"]["field"] == value
    assert type(said["d"]["field"]) is type(value)
    again = decode(write_frame(umsgpack.packb(said)), NoProcessing())
    assert again == payload
    assert type(again.d["field"]) is type(value)


SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
CODES = {
    "int": int_hash_code,
    "long": long_hash_code,
    "float": lambda value: value_hash_code(float(value)),
    "float32": lambda value: float32_hash_code(float(value)),
    "bytes": lambda value: value_hash_code(bytes.fromhex(value)),
    "fields": lambda values: fields_hash_code(map(value_hash_code, values)),
}


@pytest.mark.parametrize(("kind", "value", "code"), JAVA["codes"], ids=str)
def test_hash_codes_are_those_of_java(kind, value, code):
    if kind.startswith("float") and isinstance(value, str):
        value = SPECIAL[value]
    assert CODES.get(kind, value_hash_code)(value) == code


def test_an_int_counts_as_a_long_only_where_it_must():
    table = {(kind, str(value)): code for kind, value, code in JAVA["codes"]}
    assert value_hash_code(-1) == table["int", "-1"] != table["long", "-1"]
    assert value_hash_code(2**31) == table["long", str(2**31)]


@pytest.mark.parametrize(("name", "count", "code", "text", "jvm"), JAVA["hashes"], ids=str)
def test_hashes_are_those_of_the_reference_code(name, count, code, text, jvm):
    assert object_hash(name, count, code) == text
    assert object_hash(name, count, code, HashRule.JVM) == jvm


def test_the_lowest_byte_of_the_hash_code_comes_first():
    number = object_hash("Counter", 3, 0x01020304)
    assert number.to_bytes(8, "big") == b"Cnr\x03\x04\x03\x02\x01"
    assert object_hash("Counter", 259, -2).to_bytes(8, "big") == b"Cnr\x03\xfe\xff\xff\xff"
    assert object_hash("é", 1, 0) == int.from_bytes(b"\xe9\xe9\xe9\x01\0\0\0\0", "big") - 2**64


def test_a_record_without_a_name_has_a_hash_that_hangs_on_its_fields_alone():
    one, other = {"b": 2, "a": "x"}, {"a": "x", "b": 2}
    assert record_hash(one) == record_hash(other)
    code = (31 * (31 * 1 + ord("x")) + 2) & 0xFFFFFFFF
    assert record_hash(one).to_bytes(8, "big") == b"\0\0\0\x02" + code.to_bytes(4, "little")


def test_xxh32_of_the_other_reader_is_the_published_one():
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"Nobody inspects the spammish repetition") == 0xE2293B2F


def client_and_server(passphrase=JAVA["aes"]["passphrase"]):
    salt = bytes.fromhex(JAVA["aes"]["salt"])
    return AesProcessing(passphrase, salt=None), AesProcessing(passphrase, salt=salt)


def test_the_aes_flag_does_what_java_does():
    client, server = client_and_server()
    salt = bytes.fromhex(JAVA["aes"]["salt"])
    assert server.incoming(client.outgoing(b"identify")) == b"identify"
    answer = server.outgoing(b"ok")
    assert answer == salt + b"ok"
    assert client.incoming(answer) == b"ok"
    for clear, encrypted in JAVA["aes"]["frames"]:
        for one, other in ((client, server), (server, client)):
            assert one.outgoing(bytes.fromhex(clear)).hex() == encrypted
            assert other.incoming(bytes.fromhex(encrypted)).hex() == clear


def test_the_aes_flag_frames_are_flagged():
    client, _ = client_and_server()
    frame = encode(Identify(t=T), client)
    assert frame[0] == 1
    assert read_frame(frame[5:]) == bytes.fromhex(VECTORS["identify alone"][1])
