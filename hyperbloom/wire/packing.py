"""Packing values into Data messages that fit a frame, by exact sizes.

A Data frame is a message id (one byte), for each value a tag (one byte), its length (a varint) and
its bytes, and the signature (tag, length, 64 bytes). A dialect without signatures has that much to
spare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hyperbloom.keys import SIGNATURE_BYTES
from hyperbloom.wire.errors import LocalProtocolError
from hyperbloom.wire.framing import varint_length
from hyperbloom.wire.limits import SEND_FRAME_BYTES
from hyperbloom.wire.messages import Data

__all__ = ["MAX_VALUE_BYTES", "max_value_bytes", "pack_values"]

_TAG_BYTES: Final = 1
_FIXED_BYTES: Final = (
    varint_length(Data.message_id) + _TAG_BYTES + varint_length(SIGNATURE_BYTES) + SIGNATURE_BYTES
)


def _packed_length(value_bytes: int) -> int:
    """What a value of this length takes in a frame."""
    return _TAG_BYTES + varint_length(value_bytes) + value_bytes


def max_value_bytes(frame_bytes: int) -> int:
    """The longest value that fits a frame of `frame_bytes` (message id and body); 0: none."""
    room = frame_bytes - _FIXED_BYTES
    # The length's varint is at most 3 bytes here; it may turn out shorter.
    longest = max(0, room - _TAG_BYTES - varint_length(max(0, room)))
    while _packed_length(longest + 1) <= room:
        longest += 1
    return longest


MAX_VALUE_BYTES: Final = max_value_bytes(SEND_FRAME_BYTES)
"""The longest value that can be sent: it fills one frame."""


def pack_values(
    values: Iterable[bytes], *, frame_bytes: int = SEND_FRAME_BYTES
) -> Iterator[tuple[bytes, ...]]:
    """Cut values, in their order, into runs that each fit one Data frame of `frame_bytes`.

    A run takes as many values as fit. LocalProtocolError for an empty value, and for one that fits
    no frame, when its turn comes.
    """
    room = frame_bytes - _FIXED_BYTES
    run: list[bytes] = []
    used = 0
    for value in values:
        length = len(value)
        # The common case is spared two calls: a length of one byte.
        length = length + _TAG_BYTES + 1 if length < 0x80 else _packed_length(length)
        if not value or length > room:
            raise LocalProtocolError(
                f"a value has 1 to {max_value_bytes(frame_bytes)} bytes, not {len(value)}"
            )
        if used + length > room:
            yield tuple(run)
            run = []
            used = 0
        run.append(value)
        used += length
    if run:
        yield tuple(run)
