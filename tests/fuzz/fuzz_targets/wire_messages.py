"""HyperBloom's messages: the bodies of frames, and the ids in front of them."""

from __future__ import annotations

from choices import Choices
from vectors import vectors

from hyperbloom.wire import (
    Data,
    Digest,
    DigestRequest,
    FilterOptions,
    Handshake,
    Link,
    LocalProtocolError,
    Open,
    Range,
    RemoteProtocolError,
    Request,
    Sketch,
    SketchRequest,
    Sync,
    ValuesWanted,
)
from hyperbloom.wire.extensions.broadcast_tree import LinkKind, ValuesPull, ValuesTold
from hyperbloom.wire.extensions.renew_links import RenewedChain

MAX_BYTES = 4_096
RUNS = 117

KINDS = (
    Open, Handshake, Sync, FilterOptions, Data, Request, Link, DigestRequest, Digest,
    SketchRequest, Sketch, ValuesWanted, ValuesTold, ValuesPull,
    RenewedChain,
)  # fmt: skip


def fuzz(data: bytes) -> bool:
    """A body read as one of the messages; what is read is written and read again the same."""
    choices = Choices(data)
    kind = choices.one_of(KINDS)
    try:
        message = kind.decode(choices.rest())
    except RemoteProtocolError:
        return False
    try:
        body = message.encode()
    except LocalProtocolError as error:
        raise AssertionError(f"{kind.__name__} is taken and cannot be sent") from error
    assert kind.decode(body) == message
    return True


def seeds() -> dict[str, bytes]:
    """A message of each kind, from the npm peer where it has the kind."""
    recorded = {
        name: bytes.fromhex(body) for name, body in vectors("hyperbloom-2")["messages"].items()
    }
    of_kind = {"sync": Sync, "request": Request, "filter": FilterOptions, "data": Data}
    found = {}
    for name, body in recorded.items():
        kind = {"open": Open, "link": Link}.get(name) or of_kind[name.partition("_")[0]]
        found[name] = bytes([KINDS.index(kind)]) + body
    ours = {
        "handshake": Handshake(
            id=bytes(32), extensions=("set-digest", "x"), signature=bytes(64), chain=(b"l" * 137,)
        ),
        "digest-request": DigestRequest(
            number=7, ranges=(Range(start=b"a", end=b"c"), Range(start=b"x"))
        ),
        "digest": Digest(
            number=7,
            count=2,
            digest=b"d" * 32,
            settled_count=3,
            settled_digest=b"e" * 32,
            ranges=(Range(start=b""),),
        ),
        "sketch-request": SketchRequest(
            number=7, salt=b"s" * 16, first=128, count=256, ranges=(Range(start=b"a", end=b"c"),)
        ),
        "sketch": Sketch(
            number=7, first=128, symbols=1, values=3, digest=b"d" * 32, packed=b"p" * 25
        ),
        "values-wanted": ValuesWanted(number=7, ids=b"a" * 16 + b"b" * 16),
        "values-told": ValuesTold(ids=b"a" * 16 + b"b" * 16),
        "renewed-chain": RenewedChain(links=(b"l" * 137, b"m" * 137)),
        "values-pull": ValuesPull(link=LinkKind.PUSH, ids=b"a" * 16),
        "sync-range": Sync(
            filter=b"\xff\x00", size=16, n=3, seed=1, limit=5, range=Range(start=b"a", end=b"b")
        ),
    }
    for name, message in ours.items():
        found[name] = bytes([KINDS.index(type(message))]) + message.encode()
    return found
