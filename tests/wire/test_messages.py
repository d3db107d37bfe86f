from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.wire import (
    Data,
    FilterOptions,
    Handshake,
    Link,
    LocalProtocolError,
    Open,
    Range,
    RemoteProtocolError,
    Request,
    Sync,
)
from hyperbloom.wire.framing import encode_varint
from hyperbloom.wire.limits import MAX_EXTENSION_BYTES, MAX_EXTENSIONS

ID = b"\xaa" * 32
SIGNATURE = b"\x55" * 64


def field(tag: int, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return encode_varint(tag << 3 | 2) + encode_varint(len(content)) + content


def number(tag: int, value: int) -> bytes:
    """A varint protobuf field."""
    return encode_varint(tag << 3) + encode_varint(value)


@pytest.fixture(scope="session")
def golden(hyperbloom_vectors: dict[str, Any]) -> dict[str, bytes]:
    return {name: bytes.fromhex(raw) for name, raw in hyperbloom_vectors["messages"].items()}


@pytest.fixture(scope="session")
def recorded(hyperbloom_vectors: dict[str, Any]) -> dict[str, Any]:
    """What each recorded message says."""
    vectors = hyperbloom_vectors
    return {
        "open": Open(feed=bytes.fromhex(vectors["keys"][0]["discovery"]), nonce=b"\x09" * 24),
        "sync_limit0_norange": Sync(filter=b"\xff", size=8, n=1, seed=0xFFFF_FFFF),
        "sync_range": Sync(
            filter=b"\x01\x02", size=16, n=2, seed=7, limit=5, range=Range(start=b"a", end=b"b")
        ),
        "request": Request(start=b"a"),
        "request_full": Request(start=b"a", end=b"b", limit=3),
        "filter_options": FilterOptions(size=1_000, n=7),
        "data": Data(
            values=tuple(bytes.fromhex(value) for value in vectors["data"]["values"]),
            signature=bytes.fromhex(vectors["data"]["signature"]),
        ),
        "link": Link(link=bytes.fromhex(vectors["chain"]["links"][0]["raw"])),
    }


@pytest.mark.parametrize(
    "name",
    [
        "open",
        "sync_limit0_norange",
        "sync_range",
        "request",
        "request_full",
        "filter_options",
        "data",
        "link",
    ],
)
def test_recorded_bytes_both_ways(
    name: str, golden: dict[str, bytes], recorded: dict[str, Any]
) -> None:
    message = recorded[name]
    assert type(message).decode(golden[name]) == message
    # The peer says "no limit" with a zero; we leave the field out.
    assert message.encode() == golden[name].removesuffix(b"\x28\x00")


def test_every_recorded_message_is_tested(
    golden: dict[str, bytes], recorded: dict[str, Any]
) -> None:
    assert set(golden) == set(recorded)


def test_a_handshake_both_ways() -> None:
    message = Handshake(
        id=ID, extensions=("one", "zwölf"), signature=SIGNATURE, chain=(b"c1", b"c22")
    )
    body = b"".join(
        [
            field(1, ID),
            field(2, b"one"),
            field(2, b"zw\xc3\xb6lf"),
            field(3, SIGNATURE),
            field(4, b"c1"),
            field(4, b"c22"),
        ]
    )
    assert message.encode() == body
    assert Handshake.decode(body) == message


def test_ids_are_those_of_the_text() -> None:
    messages = (Handshake, Sync, FilterOptions, Data, Request, Link)
    assert [message.message_id for message in messages] == [0, 1, 2, 3, 4, 5]


counts = st.integers(1, 2**32 - 1)
limits = st.none() | counts
values = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8, unique=True)
ends = st.none() | st.binary(max_size=8)
ranges = st.builds(lambda start, end: Range(start=start, end=end), st.binary(max_size=8), ends)
names = st.text(max_size=20)


@st.composite
def syncs(draw: st.DrawFn) -> Sync:
    size = draw(st.integers(1, 400))
    length = draw(st.integers((size + 7) // 8, size // 8 + 4))
    return Sync(
        filter=draw(st.binary(min_size=length, max_size=length)),
        size=size,
        n=draw(counts),
        seed=draw(st.integers(0, 2**32 - 1)),
        limit=draw(limits),
        range=draw(st.none() | ranges),
    )


messages = st.one_of(
    syncs(),
    st.builds(lambda size, n: FilterOptions(size=size, n=n), counts, counts),
    st.builds(lambda it: Data(values=tuple(it), signature=SIGNATURE), values),
    st.builds(lambda it: Data(values=tuple(it)), values),
    st.builds(lambda s, e, m: Request(start=s, end=e, limit=m), st.binary(), ends, limits),
    st.builds(lambda link: Link(link=link), st.binary()),
    st.builds(
        lambda exts, chain: Handshake(
            id=ID, extensions=tuple(exts), signature=SIGNATURE, chain=tuple(chain)
        ),
        st.lists(names, max_size=4),
        st.lists(st.binary(max_size=140), max_size=6),
    ),
)


@given(messages)
def test_every_message_comes_back(message: Any) -> None:
    assert type(message).decode(message.encode()) == message


@given(messages)
def test_unknown_fields_are_skipped(message: Any) -> None:
    unknown = number(31, 7) + field(30, b"later") + b"\xed\x01abcd" + b"\xe1\x01abcdefgh"
    assert type(message).decode(message.encode() + unknown) == message
    assert type(message).decode(unknown + message.encode()) == message


@given(
    st.sampled_from([Open, Handshake, Sync, FilterOptions, Data, Request, Link]),
    st.binary(max_size=300),
)
def test_any_body_decodes_or_is_the_peers_fault(message: Any, body: bytes) -> None:
    try:
        decoded = message.decode(body)
    except RemoteProtocolError:
        return
    assert message.decode(decoded.encode()) == decoded


@pytest.mark.parametrize("message", [Open, Handshake, Sync, FilterOptions, Request, Link])
def test_a_body_without_its_required_fields_is_refused(message: Any) -> None:
    with pytest.raises(RemoteProtocolError):
        message.decode(b"")


@pytest.mark.parametrize("lacking", [1, 2, 3, 4])
def test_a_sync_without_one_of_its_fields_is_refused(lacking: int) -> None:
    fields = {1: field(1, b"\xff"), 2: number(2, 8), 3: number(3, 1), 4: number(4, 1)}
    assert Sync.decode(b"".join(fields.values()))
    del fields[lacking]
    with pytest.raises(RemoteProtocolError, match="lacks a required field"):
        Sync.decode(b"".join(fields.values()))


def test_a_range_without_a_start_is_refused() -> None:
    body = field(1, b"\xff") + number(2, 8) + number(3, 1) + number(4, 1)
    with pytest.raises(RemoteProtocolError, match="lacks a required field"):
        Sync.decode(body + field(6, field(2, b"end")))


@pytest.mark.parametrize(
    ("body", "end"),
    [(field(1, b""), None), (field(1, b"") + field(2, b""), b"")],
)
def test_an_empty_end_is_not_an_absent_one(body: bytes, end: bytes | None) -> None:
    assert Request.decode(body) == Request(start=b"", end=end)
    assert Request(start=b"", end=end).encode() == body


def test_zero_means_no_limit_when_read_and_is_not_written() -> None:
    assert Request.decode(field(1, b"a") + number(3, 0)) == Request(start=b"a")
    sync: dict[str, Any] = {"filter": b"\xff", "size": 8, "n": 1, "seed": 0}
    for make in (lambda: Request(start=b"a", limit=0), lambda: Sync(**sync, limit=0)):
        with pytest.raises(LocalProtocolError, match="limit is 1 to"):
            make()


# The text: filter.length * 8 >= size >= (filter.length - 1) * 8; peers pad by up to 3 bytes.
@pytest.mark.parametrize(
    ("size", "shortest", "longest"),
    [(1, 1, 4), (7, 1, 4), (8, 1, 5), (9, 2, 5), (2_047, 256, 259), (2_048, 256, 260)],
)
def test_the_length_of_a_filter(size: int, shortest: int, longest: int) -> None:
    for length in (shortest, longest):
        assert Sync(filter=bytes(length), size=size, n=1, seed=0).size == size
    for length in (shortest - 1, longest + 1):
        body = field(1, bytes(length)) + number(2, size) + number(3, 1) + number(4, 0)
        with pytest.raises(RemoteProtocolError, match=f"Sync.filter of {size} bits"):
            Sync.decode(body)


@pytest.mark.parametrize(("size", "n"), [(0, 1), (8, 0)])
def test_a_filter_without_bits_or_hashes_is_refused(size: int, n: int) -> None:
    with pytest.raises(RemoteProtocolError):
        Sync.decode(field(1, b"\xff") + number(2, size) + number(3, n) + number(4, 0))


GOOD: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "open": (Open, {"feed": bytes(32), "nonce": bytes(24)}),
    "handshake": (Handshake, {"id": ID, "signature": SIGNATURE}),
    "sync": (Sync, {"filter": b"\xff", "size": 8, "n": 1, "seed": 0}),
    "filter_options": (FilterOptions, {"size": 1, "n": 1}),
    "data": (Data, {"values": (b"v",), "signature": SIGNATURE}),
    "request": (Request, {"start": b""}),
}
OVER = 2**32


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("open", {"feed": bytes(31)}),
        ("open", {"feed": bytes(33)}),
        ("open", {"nonce": bytes(23)}),
        ("open", {"nonce": bytes(25)}),
        ("handshake", {"id": ID[1:]}),
        ("handshake", {"id": ID + b"x"}),
        ("handshake", {"signature": SIGNATURE[1:]}),
        ("handshake", {"extensions": ("x",) * (MAX_EXTENSIONS + 1)}),
        ("handshake", {"extensions": ("x" * (MAX_EXTENSION_BYTES + 1),)}),
        ("handshake", {"extensions": ("\ud800",)}),
        ("sync", {"size": OVER}),
        ("sync", {"n": OVER}),
        ("sync", {"seed": OVER}),
        ("sync", {"seed": -1}),
        ("sync", {"limit": OVER}),
        ("filter_options", {"size": 0}),
        ("filter_options", {"n": 0}),
        ("filter_options", {"n": OVER}),
        ("data", {"values": ()}),
        ("data", {"values": (b"v", b"")}),
        ("data", {"values": (b"v", b"w", b"v")}),
        ("data", {"signature": SIGNATURE[1:]}),
        ("request", {"limit": OVER}),
    ],
)
def test_what_the_protocol_refuses_cannot_be_made(name: str, wrong: dict[str, Any]) -> None:
    make, good = GOOD[name]
    make(**good)
    with pytest.raises(LocalProtocolError):
        make(**(good | wrong))


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (Open, field(1, bytes(31)) + field(2, bytes(24))),
        (Handshake, field(1, ID) + field(3, SIGNATURE[1:])),
        (Handshake, field(1, ID) + field(3, SIGNATURE) + field(2, b"x") * (MAX_EXTENSIONS + 1)),
        (Handshake, field(1, ID) + field(3, SIGNATURE) + field(2, b"x" * 256)),
        (Handshake, field(1, ID) + field(3, SIGNATURE) + field(2, b"\xff\xfe")),
        (Data, field(2, SIGNATURE)),
        (Data, field(1, b"v") + field(1, b"") + field(2, SIGNATURE)),
        (Data, field(1, b"v") + field(1, b"v") + field(2, SIGNATURE)),
        (Data, field(1, b"v") + field(2, SIGNATURE[1:])),
        (Data, field(1, b"v")[:-1]),
        (Link, b"\x0a\x05ab"),
        (FilterOptions, number(1, 0) + number(1, 7)),
        (FilterOptions, number(1, 8) + number(1, 0)),
        (FilterOptions, number(1, OVER) + number(1, 7)),
    ],
)
def test_the_same_from_a_peer_is_its_fault(message: Any, body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        message.decode(body)


def test_limits_of_extensions_themselves_are_taken() -> None:
    names = ("x" * MAX_EXTENSION_BYTES,) * MAX_EXTENSIONS
    message = Handshake(id=ID, signature=SIGNATURE, extensions=names)
    assert Handshake.decode(message.encode()).extensions == names


def test_data_without_a_signature_is_for_the_session_to_judge() -> None:
    assert Data.decode(field(1, b"v")) == Data(values=(b"v",), signature=None)


@pytest.mark.parametrize(
    "body",
    [
        number(1, 1_000) + number(1, 7),
        number(1, 1_000) + number(2, 7),
        number(2, 7) + number(1, 1_000),
        number(9, 1) + number(1, 1_000) + field(3, b"later") + number(1, 7),
        number(1, 1_000) + b"\x21" + bytes(8) + number(1, 7) + b"\x25" + bytes(4),
    ],
)
def test_filter_options_are_read_in_every_form(body: bytes) -> None:
    assert FilterOptions.decode(body) == FilterOptions(size=1_000, n=7)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (number(1, 8), "exactly a size and an n"),
        (number(2, 8), "exactly a size and an n"),
        (number(2, 8) * 2, "exactly a size and an n"),
        (number(1, 8) * 3, "exactly a size and an n"),
        (number(1, 8) * 2 + number(2, 8), "exactly a size and an n"),
        (b"\x08", "ends inside a number"),
        (b"\x08\x80", "ends inside a number"),
        (b"\x08" + b"\xff" * 10, "more than 10 bytes"),
        (b"\x1a\x05abcd", "ends inside a field"),
        (b"\x19abcdefg", "ends inside a field"),
        (b"\x1dabc", "ends inside a field"),
        (b"\x1b\x1c", "unknown kind"),
        (b"\x1f", "unknown kind"),
        (b"\x00\x01", "without a number"),
    ],
)
def test_filter_options_that_are_not_well_formed(body: bytes, why: str) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        FilterOptions.decode(body)


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Request(start=b"a").start = b"b"  # type: ignore[misc]
