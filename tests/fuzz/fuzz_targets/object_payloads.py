"""PPPP payloads: LZ4, then MessagePack, then the map that a payload is, then its objects."""

from __future__ import annotations

import lz4.frame
from choices import Choices

from hyperbloom.objects.classes.types import Types
from hyperbloom.objects.limits import MAX_EARLY_FRAME_BYTES, MAX_PAYLOAD_BYTES
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.compression import decompress
from hyperbloom.objects.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.objects.wire.messagepack import check_fields, measure, pack, unpack_map
from hyperbloom.objects.wire.payloads import (
    Change,
    Creation,
    Identify,
    Initialize,
    Payload,
    Ping,
    Removal,
    Version,
    from_map,
    to_map,
)

MAX_BYTES = 4_096
RUNS = 105

_TYPES = Types()


def fuzz(data: bytes) -> bool:
    """An LZ4 frame, a MessagePack value, or a payload whose objects are taken as a pool does."""
    choices = Choices(data)
    read = choices.one_of((_payload, _frame, _early_frame, _squeezed))
    try:
        return read(choices.rest())
    except RemoteProtocolError:
        return False


def _payload(packed: bytes) -> bool:
    assert 0 <= measure(packed) <= len(packed)
    payload = from_map(unpack_map(packed))
    _take(payload)
    try:
        written = compressed(payload)
    except LocalProtocolError:
        # A message is taken in shorter forms than ours, so that ours may be beyond a limit.
        return True
    assert to_map(from_map(unpack_map(decompress(written)))).keys() == to_map(payload).keys()
    return True


def _take(payload: Payload) -> None:
    """What incoming_objects.py does with the objects of a message, and the errors it expects."""
    objects = ()
    if isinstance(payload, Initialize):
        objects = payload.objects
    elif isinstance(payload, Creation | Change):
        objects = (payload.d,)
    for fields in objects:
        try:
            pack(dict(fields))
            check_fields(fields)
            _TYPES.hash_of(None, fields)
        except (ValueError, TypeError, LocalProtocolError):
            continue


def _frame(data: bytes) -> bool:
    assert len(decompress(data)) <= MAX_PAYLOAD_BYTES
    return True


def _early_frame(data: bytes) -> bool:
    assert len(decompress(data, limit=MAX_EARLY_FRAME_BYTES)) <= MAX_EARLY_FRAME_BYTES
    return True


def _squeezed(data: bytes) -> bool:
    """A payload that a peer of another make has compressed its own way."""
    frame = lz4.frame.compress(data, block_linked=True, store_size=True)
    assert decompress(frame) == data
    return _payload(data)


def seeds() -> dict[str, bytes]:
    """A payload of each kind, in and out of its frame."""
    fields = {"a": 1, "b": [1.5, None, True, {"c": b"raw"}], "d": "text", "e": -(2**40)}
    payloads = {
        "identify": Identify(t=1, v=1, d={"hyperbloom": 1}),
        "ping": Ping(t=4),
        "initialize": Initialize(
            t=7, objects=(fields, {"a": 1}), respond=True,
            versions=(Version(hash=1, stamp=2, ancestors=(3,)), Version(hash=4, stamp=5)),
        ),
        "creation": Creation(t=8, d=fields, h=1),
        "change": Change(t=9, d={"a": 2}, h=2, oh=1),
        "removal": Removal(t=10, h=2),
    }  # fmt: skip
    found = {}
    for name, payload in payloads.items():
        found[name] = b"\x00" + pack(to_map(payload))
    found["padded"] = found["ping"] + bytes(40)
    found["frame"] = b"\x01" + compressed(payloads["creation"])
    found["early-frame"] = b"\x02" + compressed(payloads["identify"])
    found["squeezed"] = b"\x03" + pack(to_map(payloads["change"]))
    return found
