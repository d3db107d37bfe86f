"""Ranges of values against a walk over all values of few letters, and what is kept out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.replication.feed.refused_values import RefusedValues
from hyperbloom.replication.reading.ranges import common, contains, overlap, union, within
from hyperbloom.replication.settings import KeyRange

#: All values of up to two letters, in byte order.
VALUES = sorted(
    bytes(letters) for length in range(3) for letters in itertools.product(range(3), repeat=length)
)
#: A range may end behind all of them, and may be empty.
RANGES = st.lists(
    st.tuples(st.sampled_from(VALUES), st.sampled_from([*VALUES, b"\xff", None])), max_size=4
)


def in_one(ranges: list[KeyRange]) -> list[bytes]:
    return [
        value
        for value in VALUES
        if any(start <= value and (end is None or value < end) for start, end in ranges)
    ]


def full(ranges: list[KeyRange]) -> list[KeyRange]:
    """Those that may hold a value."""
    return [(start, end) for start, end in ranges if end is None or start < end]


@given(RANGES)
def test_a_union_has_the_same_values_in_the_fewest_ranges(ranges: list[KeyRange]) -> None:
    one = union(full(ranges))
    assert in_one(one) == in_one(ranges)
    for (_, end), (start, _) in itertools.pairwise(one):
        assert end is not None
        assert end < start, "they would be one range"
    assert within(one, VALUES) == in_one(ranges)


@given(RANGES, RANGES)
def test_what_two_have_in_common_are_the_values_of_both(
    ours: list[KeyRange], theirs: list[KeyRange]
) -> None:
    both = common(ours, theirs)
    assert in_one(both) == [value for value in in_one(ours) if value in in_one(theirs)]
    assert full(both) == both
    assert union(both) == both


@pytest.mark.parametrize(
    ("a", "b", "met"),
    [
        ((b"a", b"c"), (b"b", b"d"), (b"b", b"c")),
        ((b"a", b"b"), (b"b", b"c"), None),
        ((b"a", None), (b"b", None), (b"b", None)),
        ((b"a", None), (b"", b"b"), (b"a", b"b")),
        ((b"b", None), (b"a", b"b"), None),
    ],
)
def test_where_two_ranges_meet(a: KeyRange, b: KeyRange, met: KeyRange | None) -> None:
    assert overlap(a, b) == met
    assert overlap(b, a) == met


def test_a_range_begins_with_its_start_and_ends_before_its_end() -> None:
    assert [contains((b"b", b"d"), value) for value in (b"a", b"b", b"c", b"d")] == [
        False, True, True, False,
    ]  # fmt: skip
    assert contains((b"", None), b"")


class TestRefused:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = "hyperbloom.replication.feed.refused_values"
        monkeypatch.setattr(f"{module}.MAX_REFUSED_VALUES", 4)
        monkeypatch.setattr(f"{module}.MAX_REFUSED_BYTES", 10)

    def test_so_many_are_kept_and_the_oldest_go(self) -> None:
        refused = RefusedValues([b"a", b"b", b"c"])
        refused.add([b"b", b"d"])
        assert list(refused) == [b"a", b"b", b"c", b"d"]
        refused.add([b"e"])
        assert list(refused) == [b"b", b"c", b"d", b"e"]
        assert len(refused) == 4
        assert b"a" not in refused
        assert b"e" in refused

    def test_so_many_bytes_are_kept(self) -> None:
        refused = RefusedValues([b"12345", b"12345", b"6789a"])
        assert list(refused) == [b"12345", b"6789a"]
        refused.add([b"b"])
        assert list(refused) == [b"6789a", b"b"]
        refused.add([b"1234"])
        assert list(refused) == [b"6789a", b"b", b"1234"]
