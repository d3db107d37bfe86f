"""From a payload to a frame's bytes and back: MessagePack, then LZ4, then the flag's processing."""

from __future__ import annotations

from typing import Final

from hyperbloom.objects.limits import MAX_DEPTH, MAX_ENTRIES, MAX_PAYLOAD_BYTES, WHOLE_BYTES
from hyperbloom.objects.wire.aes import Processing
from hyperbloom.objects.wire.compression import compress, decompress
from hyperbloom.objects.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.objects.wire.framing import encode_frame
from hyperbloom.objects.wire.messagepack import (
    measure,
    pack,
    packed_items,
    unpack_map,
    unpack_value,
)
from hyperbloom.objects.wire.payloads import (
    Initialize,
    PackedInitialize,
    Payload,
    from_map,
    to_map,
)

__all__ = ["compressed", "decode", "encode", "read_compressed"]

_NIL: Final = b"\xc0"


def compressed(payload: Payload) -> bytes:
    """A payload before its processing: the same for all peers, so that it is made once.

    LocalProtocolError if no node of this kind would take it.
    """
    packed = pack(to_map(payload))
    if len(packed) > MAX_PAYLOAD_BYTES:
        raise LocalProtocolError(f"a message has at most {MAX_PAYLOAD_BYTES} bytes")
    try:
        measure(packed)
    except RemoteProtocolError:
        raise LocalProtocolError(
            f"a message is at most {MAX_DEPTH} deep and has {MAX_ENTRIES} entries"
        ) from None
    return compress(packed)


def encode(payload: Payload, processing: Processing) -> bytes:
    """The frame of a payload; LocalProtocolError if it cannot be sent."""
    return encode_frame(processing.flag, processing.outgoing(compressed(payload)))


def decode(processed: bytes, processing: Processing, *, limit: int = MAX_PAYLOAD_BYTES) -> Payload:
    """The payload in a frame, of at most `limit` bytes; RemoteProtocolError if there is none."""
    payload = read_compressed(processing.incoming(processed), limit=limit)[0]
    return payload.whole() if isinstance(payload, PackedInitialize) else payload


def read_compressed(data: bytes, *, limit: int) -> tuple[Payload | PackedInitialize, int]:
    """The payload in what the processing left, and how many bytes followed its map."""
    plain = decompress(data, limit=limit)
    end = measure(plain)
    if end <= WHOLE_BYTES:
        return from_map(unpack_map(plain[:end])), len(plain) - end
    items = packed_items(plain[:end])
    behind = len(plain) - end
    del plain
    if "d" in items and unpack_value(items.get("op", _NIL)) == Initialize.op:
        try:
            return PackedInitialize(unpack_value(items.get("t", _NIL)), items["d"]), behind
        except LocalProtocolError as error:
            raise RemoteProtocolError(f"Initialize: {error}") from None
    return from_map({key: unpack_value(packed) for key, packed in items.items()}), behind
