"""The content of a record: slots, and the trailer that says where to dial."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.addresses import Address
from hyperbloom.discovery.tracker.content import (
    ARRAYS_BYTES,
    SLOTS,
    Neighbour,
    RecordContent,
    decode_content,
    encode_content,
)
from hyperbloom.discovery.tracker.limits import (
    MAX_ADDRESSES_PER_NODE,
    MAX_CONTENT_BYTES,
    MAX_TRAILER_BYTES,
    MAX_VALUE_BYTES,
)
from hyperbloom.discovery.tracker.record import (
    SEAL_ENTROPY_BYTES,
    seal_record,
    sign_record,
)
from hyperbloom.discovery.tracker.topic import Topic, unix_minute
from hyperbloom.keys import Identity

KEYS = Topic.named(b"a topic", b"a secret").keys(5)
ARRAYS = b"\x11" * 32 + b"\x22" * 32 + bytes(96) + bytes(160)
ENTRY = b"\x00\x0a\x00\x00\x01\x11\x0d"


def v4(number: int, port: int = 4365) -> Address:
    return Address(f"10.0.0.{number}", port)


def v6(number: int, port: int = 4365) -> Address:
    return Address(f"2001:db8::{number:x}", port)


def peer(number: int, *addresses: Address) -> Neighbour:
    return Neighbour(node_id=bytes([number]) * 32, addresses=addresses)


def decoded(data: bytes) -> RecordContent:
    content = decode_content(data)
    assert content is not None
    return content


def test_the_trailer_is_as_documented() -> None:
    content = RecordContent(
        addresses=(v4(1), v6(2, 80)), active_peers=(peer(1, v4(3)), peer(2), peer(3, v4(4, 65535)))
    )
    trailer = encode_content(content)[ARRAYS_BYTES:]
    assert trailer == (
        b"\x01"
        b"\x00\x0a\x00\x00\x01\x11\x0d"
        b"\x01\x0a\x00\x00\x03\x11\x0d"
        b"\x03\x0a\x00\x00\x04\xff\xff"
        b"\x80\x20\x01\x0d\xb8" + bytes(11) + b"\x02\x00\x50"
    )


def test_without_addresses_there_is_no_trailer() -> None:
    data = encode_content(RecordContent(active_peers=(peer(1),)))
    assert len(data) == ARRAYS_BYTES == 320


addresses = st.builds(
    Address,
    st.one_of(
        st.ip_addresses(v=4, network="10.0.0.0/8"), st.ip_addresses(v=6, network="2001:db8::/32")
    ).map(str),
    st.integers(1, 65_535),
)
several = st.lists(addresses, max_size=2, unique=True).map(tuple)
node_ids = st.binary(min_size=32, max_size=32).filter(any)
contents = st.builds(
    RecordContent,
    addresses=several,
    active_peers=st.lists(
        st.builds(Neighbour, node_id=node_ids, addresses=several),
        max_size=SLOTS,
        unique_by=lambda each: each.node_id,
    ).map(tuple),
    last_message_hashes=st.lists(node_ids, max_size=SLOTS, unique=True).map(tuple),
)


@given(contents)
def test_a_content_comes_back(content: RecordContent) -> None:
    assert decoded(encode_content(content)) == content


def test_the_fullest_record_fits_a_dht_value_exactly_bounded() -> None:
    """Every node's first addresses are in, and nothing a DHT node would refuse is made."""
    many = [tuple(v6(10 * node + n) for n in range(1, 9)) for node in range(1 + SLOTS)]
    content = RecordContent(
        addresses=many[0],
        active_peers=tuple(peer(n, *many[n]) for n in range(1, 1 + SLOTS)),
        last_message_hashes=tuple(bytes([n]) * 32 for n in range(1, 6)),
    )
    record = sign_record(Identity(bytes(32)), KEYS, content)
    assert len(record.content) <= MAX_CONTENT_BYTES
    room = MAX_TRAILER_BYTES - 1
    read = decoded(record.content)
    kept = [read.addresses, *(each.addresses for each in read.active_peers)]
    assert sum(map(len, kept)) == room // 19 == 20
    assert [len(each) for each in kept] == [4, 4, 3, 3, 3, 3]
    assert all(each == many[node][: len(each)] for node, each in enumerate(kept))
    encrypted = seal_record(record, KEYS, entropy=bytes(SEAL_ENTROPY_BYTES))
    assert len(encrypted) <= MAX_VALUE_BYTES


def test_a_record_longer_than_a_dht_value_is_not_sealed() -> None:
    record = sign_record(Identity(bytes(32)), KEYS, RecordContent())
    fits = _with_content(record, bytes(MAX_CONTENT_BYTES))
    assert len(seal_record(fits, KEYS, entropy=bytes(SEAL_ENTROPY_BYTES))) == MAX_VALUE_BYTES
    with pytest.raises(ValueError, match="holds 996 bytes, this record 997"):
        seal_record(
            _with_content(record, bytes(MAX_CONTENT_BYTES + 1)),
            KEYS,
            entropy=bytes(SEAL_ENTROPY_BYTES),
        )


def _with_content(record, content: bytes):
    from dataclasses import replace

    return replace(record, content=content)


@pytest.mark.parametrize(
    "trailer",
    [
        b"\x00" + ENTRY,
        b"\x02" + ENTRY,
        b"\xff",
        b"\x01" + ENTRY[:-1],
        b"\x01" + ENTRY + b"\x00",
        b"\x01" + ENTRY + b"\x06" + ENTRY[1:],
        b"\x01" + ENTRY + b"\x08" + ENTRY[1:],
        b"\x01" + ENTRY + b"\x80" + ENTRY[1:],
    ],
    ids=["v0", "v2", "v255", "cut", "cut head", "slot 6", "unknown bit", "short ipv6"],
)
def test_an_unknown_or_broken_trailer_is_ignored_as_a_whole(trailer: bytes) -> None:
    content = decoded(ARRAYS + trailer)
    assert content.addresses == ()
    assert [(each.node_id[0], each.addresses) for each in content.active_peers] == [
        (0x11, ()),
        (0x22, ()),
    ]


@pytest.mark.parametrize(
    "entry",
    [
        "00 00000000 110d",
        "00 e0000001 110d",
        "00 ffffffff 110d",
        "00 0a000001 0000",
        "80 00000000000000000000000000000000 110d",
        "80 ff020000000000000000000000000001 110d",
        "80 fe800000000000000000000000000001 110d",
        "80 00000000000000000000ffff0a000001 110d",
    ],
)
def test_an_address_that_nobody_can_dial_is_left_out_alone(entry: str) -> None:
    content = decoded(ARRAYS + b"\x01" + bytes.fromhex(entry) + ENTRY)
    assert content.addresses == (v4(1),)


def test_addresses_of_empty_slots_and_repeated_ones_are_left_out() -> None:
    content = decoded(ARRAYS + b"\x01" + ENTRY + ENTRY + b"\x05" + ENTRY[1:])
    assert content.addresses == (v4(1),)
    assert [each.addresses for each in content.active_peers] == [(), ()]


@pytest.mark.parametrize("count", [MAX_ADDRESSES_PER_NODE, MAX_ADDRESSES_PER_NODE + 1])
def test_addresses_of_one_node_are_limited(count: int) -> None:
    trailer = b"\x01" + b"".join(ENTRY[:-1] + bytes([n]) for n in range(count))
    assert len(decoded(ARRAYS + trailer).addresses) == MAX_ADDRESSES_PER_NODE


def test_a_peer_that_is_named_twice_counts_once() -> None:
    content = decoded(b"\x11" * 64 + bytes(96) + b"\x33" * 64 + bytes(96))
    assert content.active_peers == (peer(0x11),)
    assert content.last_message_hashes == (b"\x33" * 32,)


def test_contents_that_do_not_fit_the_slots_are_our_own_fault() -> None:
    for wrong in (
        RecordContent(active_peers=tuple(peer(n) for n in range(1, 7))),
        RecordContent(active_peers=(peer(0),)),
        RecordContent(last_message_hashes=(b"short",)),
    ):
        with pytest.raises(ValueError, match="slots of 32 bytes"):
            encode_content(wrong)


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_arbitrary_contents_are_decoded_or_refused(start: bytes, rest: bytes) -> None:
    assert (decode_content(start) is None) == (len(start) < ARRAYS_BYTES)
    content = decoded(ARRAYS + b"\x01" + rest)
    assert decoded(encode_content(content)) == content


def test_minutes() -> None:
    assert [unix_minute(at) for at in (-1.0, 0.0, 59.99, 60.0, 1_740_000_000.5)] == [
        0, 0, 0, 1, 29_000_000,
    ]  # fmt: skip
    assert "secret" not in repr(Topic.named(b"n", b"s"))
    with pytest.raises(ValueError, match="64 bits"):
        Topic.named(b"n", b"s").keys(2**64)
