from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_peers import credentials_of

from hyperbloom.wire import Data, LocalProtocolError
from hyperbloom.wire.credentials import sign_data
from hyperbloom.wire.limits import SEND_FRAME_BYTES
from hyperbloom.wire.packing import MAX_VALUE_BYTES, max_value_bytes, pack_values

SIGNATURE = bytes(64)


def frame_length(values: tuple[bytes, ...]) -> int:
    """Message id and body."""
    return 1 + len(Data(values=values, signature=SIGNATURE).encode())


def distinct(lengths: list[int]) -> list[bytes]:
    return [i.to_bytes(4, "big") + bytes(length) for i, length in enumerate(lengths)]


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(480, 1_200))
def test_every_run_fits_and_could_not_take_the_next(lengths: list[int], frame_bytes: int) -> None:
    values = distinct(lengths)
    runs = list(pack_values(values, frame_bytes=frame_bytes))
    assert [value for run in runs for value in run] == values
    assert all(frame_length(run) <= frame_bytes for run in runs)
    for run, following in pairwise(runs):
        assert frame_length((*run, following[0])) > frame_bytes


@given(st.integers(100, 3_000))
def test_the_longest_value_of_a_frame_fits_and_one_byte_more_does_not(frame_bytes: int) -> None:
    longest = max_value_bytes(frame_bytes)
    assert frame_length((bytes(longest),)) <= frame_bytes < frame_length((bytes(longest + 1),))


def test_the_longest_value_of_all() -> None:
    assert frame_length((bytes(MAX_VALUE_BYTES),)) == SEND_FRAME_BYTES
    assert list(pack_values([bytes(MAX_VALUE_BYTES)])) == [(bytes(MAX_VALUE_BYTES),)]
    with pytest.raises(LocalProtocolError, match=f"1 to {MAX_VALUE_BYTES} bytes"):
        list(pack_values([b"v", bytes(MAX_VALUE_BYTES + 1)]))


@pytest.mark.parametrize("length", [1, 126, 127, 128, 16_383, 16_384])
def test_lengths_around_a_longer_varint(length: int) -> None:
    exact = frame_length((bytes(length),))
    assert list(pack_values([bytes(length)], frame_bytes=exact)) == [(bytes(length),)]
    assert max_value_bytes(exact) == length
    with pytest.raises(LocalProtocolError):
        list(pack_values([bytes(length)], frame_bytes=exact - 1))


def test_full_frames_are_filled_to_the_last_value() -> None:
    runs = list(pack_values(distinct([60] * 10_000)))
    assert [len(run) for run in runs[:2]] == [3_955, 3_955]
    assert frame_length(runs[0]) <= SEND_FRAME_BYTES < frame_length((*runs[0], runs[1][0]))


def test_no_values_are_no_frame() -> None:
    assert list(pack_values([])) == []


def test_an_empty_value_is_refused_when_its_turn_comes() -> None:
    with pytest.raises(LocalProtocolError):
        list(pack_values([b"v", b""]))


def test_a_frame_too_short_for_any_value() -> None:
    assert max_value_bytes(0) == max_value_bytes(69) == 0
    assert max_value_bytes(70) == 1
    with pytest.raises(LocalProtocolError):
        list(pack_values([b"v"], frame_bytes=69))


def test_what_is_packed_can_be_signed_and_is_as_long_as_reckoned() -> None:
    values = next(pack_values(distinct([60] * 4_000)))
    assert len(sign_data(credentials_of(), values).encode()) + 1 == frame_length(values)
