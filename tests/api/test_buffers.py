"""What comes in small parts costs its bytes, not their square, whoever cuts it."""

from __future__ import annotations

import time

import pytest

from hyperbloom.client.requests import EventReader
from hyperbloom.objects.wire.framing import FrameReader as ObjectFrameReader
from hyperbloom.wire.framing import FrameReader

#: The longest of `wire` is the shortest of the three: 262,000 bytes and a length of three.
LARGE = 262_003
SMALL = LARGE // 8
#: Eight times the bytes cost eight times as much, or sixty-four times where each part costs a copy
#: of what is there: 8 GB in all.
MOST = 24.0
PART = 4


def of_wire(length: int):
    reader = FrameReader()
    return (b"\xf0\xfe\x0f" + bytes(length))[:length], lambda part: (
        reader.feed(part), reader.next_frame()
    )  # fmt: skip


def of_objects(length: int):
    reader = ObjectFrameReader(0)
    reader.limit = 1 << 30
    return b"\x00" + (1 << 24).to_bytes(4, "big") + bytes(length), lambda part: (
        reader.feed(part), reader.next_frame()
    )  # fmt: skip


def of_events(length: int):
    reader = EventReader(where="here")
    return b"data: " + b"x" * (length - 100), reader.take


@pytest.mark.parametrize("made", [of_wire, of_objects, of_events])
def test_small_parts_cost_what_they_hold(made):
    def cost(length: int) -> float:
        data, take = made(length)
        parts = [data[at : at + PART] for at in range(0, len(data), PART)]
        began = time.thread_time()
        for part in parts:
            take(part)
        return time.thread_time() - began

    # Of processor time, and the best of three: what else the machine does is not counted.
    small, large = (min(cost(length) for _ in range(3)) for length in (SMALL, LARGE))
    assert large < MOST * small
