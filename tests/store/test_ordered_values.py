"""The ordered index against a sorted list."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.store import (
    AppendValues,
    ForgetValues,
    PutFeed,
    Store,
    WriterInline,
)
from hyperbloom.store.limits import MAX_VALUE_BYTES
from hyperbloom.store.lmdb.transaction import ReadTransaction
from hyperbloom.store.records import Appended
from hyperbloom.store.values.ordered_index import PART_BYTES as P

FEED = b"f" * 32
OTHER_FEED = b"g" * 32
ORIGIN = b"o" * 32
EVERYTHING = 1 << 40


class Values:
    """A store with two feeds, and a writer to it."""

    def __init__(self, path: Path) -> None:
        self.store = Store.open(path, durable=False, map_bytes=1 << 22)
        self.writer = WriterInline(self.store)
        for feed in (FEED, OTHER_FEED):
            self.run(PutFeed(feed, {}))

    def run(self, operation):
        results = []
        self.writer.submit(operation, results.append)
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    def append(self, values, feed=FEED) -> Appended:
        return self.run(AppendValues(feed, values, ORIGIN, 1))

    def range(self, start=b"", end=None, *, limit=7, max_bytes=EVERYTHING) -> list[bytes]:
        """The whole range, slice by slice."""
        found: list[bytes] = []
        while True:
            piece = self.store.range_slice(FEED, start, end, limit=limit, max_bytes=max_bytes)
            assert len(piece.values) <= limit
            assert len(piece.values) <= 1 or sum(map(len, piece.values)) <= max_bytes
            found += piece.values
            if piece.next_start is None:
                return found
            assert piece.values
            start = piece.next_start

    def counted(self, start=b"", end=None, *, limit=7) -> tuple[int, int]:
        """The values of the whole range and their bytes, counted slice by slice."""
        count = size = 0
        following: bytes | None = start
        while following is not None:
            piece = self.store.count_slice(FEED, following, end, limit=limit)
            count, size, following = count + piece.count, size + piece.bytes, piece.next_start
            assert following is None or piece.count >= limit
        return count, size


@contextmanager
def fresh() -> Iterator[Values]:
    with TemporaryDirectory() as folder:
        values = Values(Path(folder) / "store")
        try:
            yield values
        finally:
            values.store.close()


# Values that share their first bytes up to and around the places where a key is cut.
shared = st.sampled_from([0, 1, P - 1, P, P + 1, 2 * P - 1, 2 * P, 2 * P + 1, 3 * P, 3 * P + 1])
fill = st.sampled_from([b"\x00", b"\xff", b"a"])
tails = st.one_of(
    st.binary(max_size=3),
    st.lists(fill, max_size=3).map(b"".join),
    st.sampled_from([b"\x00" * P, b"\xff" * (P + 1), b"a" * P, b"a" * (2 * P)]),
)
edgy = st.builds(lambda byte, length, tail: byte * length + tail, fill, shared, tails)
any_value = st.one_of(edgy, edgy, st.binary(max_size=40))


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.lists(any_value, max_size=12), max_size=5),
    bounds=st.lists(st.tuples(any_value, st.none() | any_value), min_size=1, max_size=6),
    limit=st.integers(1, 9),
    max_bytes=st.sampled_from([1, 600, EVERYTHING]),
    strangers=st.lists(any_value, max_size=8),
)
def test_values_come_back_in_order_from_any_start_to_any_end(
    batches, bounds, limit, max_bytes, strangers
):
    with fresh() as values:
        expected: set[bytes] = set()
        for batch in batches:
            new = list(dict.fromkeys(v for v in batch if v not in expected))
            assert values.append(batch).values == new
            expected.update(batch)
        values.append(strangers, feed=OTHER_FEED)
        ordered = sorted(expected)
        assert values.range(limit=limit, max_bytes=max_bytes) == ordered
        inside = [(start, end) for start in ordered[:3] for end in [None, *ordered[-2:]]]
        for start, end in bounds + inside:
            wanted = [v for v in ordered if v >= start and (end is None or v < end)]
            assert values.range(start, end, limit=limit, max_bytes=max_bytes) == wanted
            assert values.counted(start, end, limit=limit) == (len(wanted), sum(map(len, wanted)))
        assert values.counted() == (len(ordered), sum(map(len, ordered)))
        asked = ordered + strangers + [v + b"\x00" for v in ordered] + [v[:-1] for v in ordered]
        assert values.store.has(FEED, asked) == [v in expected for v in asked]


def test_longest_values_that_differ_in_the_last_byte_nest_without_recursion():
    stem = b"x" * (MAX_VALUE_BYTES - 1)
    longest = [stem + b"\x02", stem + b"\x00", stem + b"\xff", stem]
    with fresh() as values:
        assert values.append(longest).values == longest
        assert values.append(longest).values == []
        assert values.range(limit=1) == sorted(longest)
        assert values.range(stem + b"\x01", stem + b"\x03") == [stem + b"\x02"]
        assert values.store.has(FEED, [stem, stem + b"\x01"]) == [True, False]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_values_whose_rest_just_fits_a_key_are_found(depth):
    stem = b"s" * (depth * P)
    there = [stem + rest * P for rest in (b"a", b"b")] + [stem + b"c" * (P + 1), stem]
    absent = [stem + b"c" * P, stem + b"b" * (P - 1), stem + b"a" * (P + 1)]
    with fresh() as values:
        values.append(there)
        assert values.store.has(FEED, [*there, *absent]) == [True] * 4 + [False] * 3
        values.run(ForgetValues(FEED, there[:2], erase=True))
        assert values.range() == sorted(there[2:])
        assert values.store.verify().problems == []


@pytest.mark.parametrize("count", [1, 15, 16, 17, 100])
def test_of_many_values_those_that_were_there_are_not_new(count):
    there = [b"%03d" % number for number in range(0, 2 * count, 2)]
    batch = [b"%03d" % number for number in range(count)]
    with fresh() as values:
        values.append(there)
        assert values.append(batch).values == [one for one in batch if one not in there]
        assert values.append(batch).values == []
        assert values.range() == sorted({*there, *batch})
        assert values.store.verify().problems == []


def test_a_slice_holds_one_value_even_beyond_its_bytes():
    with fresh() as values:
        values.append([b"a" * 100, b"b"])
        piece = values.store.range_slice(FEED, limit=5, max_bytes=10)
        assert piece.values == [b"a" * 100]
        assert piece.next_start == b"a" * 100 + b"\x00"


def test_an_empty_range_is_empty():
    with fresh() as values:
        values.append([b"a", b"b"])
        assert values.range(b"b", b"b") == []
        assert values.range(b"b", b"a") == []
        assert values.range(b"c") == []


def test_a_slice_that_ends_with_the_last_value_says_so():
    with fresh() as values:
        values.append([b"a", b"b", b"c"])
        assert values.store.range_slice(FEED, limit=3, max_bytes=9).next_start is None
        assert values.store.range_slice(FEED, b"a", b"c", limit=2, max_bytes=9).next_start is None
        assert values.store.range_slice(FEED, limit=2, max_bytes=9).next_start == b"b\x00"


def test_a_range_below_a_long_shared_prefix_reads_little(monkeypatch):
    stem = b"p" * 2048
    with fresh() as values:
        values.append([stem + b"%08d" % n for n in range(20_000)])
        start = stem + b"%08d" % 15_000
        assert values.range(start, limit=10)[:10] == [
            stem + b"%08d" % n for n in range(15_000, 15_010)
        ]
        reads = []
        value_at = ReadTransaction.value_at
        monkeypatch.setattr(ReadTransaction, "value_at", lambda *a: reads.append(a) or value_at(*a))
        piece = values.store.range_slice(FEED, start, limit=10, max_bytes=EVERYTHING)
        assert len(piece.values) == 10
        assert len(reads) <= 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_slice_of_nothing_is_refused(limit):
    with fresh() as values:
        with pytest.raises(ValueError, match="limit"):
            values.store.range_slice(FEED, limit=limit, max_bytes=1)
        with pytest.raises(ValueError, match="limit"):
            values.store.log_slice(FEED, 0, limit=limit, max_bytes=1)
