"""From a payload to a frame's bytes and back: MessagePack, then LZ4, then the flag's processing."""

from __future__ import annotations

from hyperbloom.objects.limits import MAX_DEPTH, MAX_ENTRIES, MAX_PAYLOAD_BYTES
from hyperbloom.objects.wire.aes import Processing
from hyperbloom.objects.wire.compression import compress, decompress
from hyperbloom.objects.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.objects.wire.framing import encode_frame
from hyperbloom.objects.wire.messagepack import measure, pack, unpack_first
from hyperbloom.objects.wire.payloads import Payload, from_map, to_map

__all__ = ["compressed", "decode", "encode", "read_compressed"]


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
    return read_compressed(processing.incoming(processed), limit=limit)[0]


def read_compressed(data: bytes, *, limit: int = MAX_PAYLOAD_BYTES) -> tuple[Payload, int]:
    """The payload in what the processing left, and how many bytes followed its map."""
    found, behind = unpack_first(decompress(data, limit=limit))
    return from_map(found), behind
