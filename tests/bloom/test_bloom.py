from __future__ import annotations

import hashlib
import math
import random
import tracemalloc
from typing import Any

import mmh3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.bloom import (
    MAX_HASH_FUNCTIONS,
    BloomFilter,
    capacity,
    estimate_count,
    optimal_parameters,
)

pytestmark = pytest.mark.filterwarnings("error")

SEEDS = st.integers(0, 2**32 - 1)
# Most batches are too small for the arrays; lengths are what matters, so contents are derived.
LENGTHS = st.one_of(
    st.lists(st.integers(0, 40), max_size=200),
    st.lists(st.sampled_from([1, 2, 3, 4, 5, 63, 64, 65, 66, 67]), min_size=60, max_size=300),
    st.lists(st.one_of(st.integers(0, 300), st.integers(1000, 1100)), max_size=200),
)


def derived(lengths: list[int], salt: bytes = b"") -> list[bytes]:
    """Distinct-looking values of given lengths."""
    return [
        hashlib.shake_128(salt + index.to_bytes(4, "big")).digest(length)
        for index, length in enumerate(lengths)
    ]


def positions(value: bytes, size: int, n: int, seed: int) -> list[int]:
    """A value's bits by the protocol text, one hash function after the other."""
    seeds = [(i * 0xFA68676F + seed) % 2**32 for i in range(n)]
    return [mmh3.hash(value, seed, signed=False) % size for seed in seeds]


def reference(values: list[bytes], size: int, n: int, seed: int) -> bytes:
    made = bytearray((size + 7) // 8)
    for value in values:
        for bit in positions(value, size, n, seed):
            made[bit >> 3] |= 1 << (bit & 7)
    return bytes(made)


def built(values: list[bytes], size: int, n: int, seed: int) -> BloomFilter:
    made = BloomFilter(size, n, seed)
    made.add(values)
    return made


class TestVectors:
    def test_positions_and_filters(self, hyperbloom_vectors: dict[str, Any]) -> None:
        for case in hyperbloom_vectors["bloom"]:
            size, n, seed = case["size"], case["n"], case["seed"]
            values = [bytes.fromhex(value) for value in case["values"]]
            recorded = bytes.fromhex(case["filter"])
            for value, expected in zip(values, case["positions"], strict=True):
                assert positions(value, size, n, seed) == expected
                # Once alone, once so often that the arrays do it.
                for times in (1, 300):
                    alone = built([value] * times, size, n, seed)
                    bits = int.from_bytes(alone.to_bytes(), "little")
                    assert {b for b in range(size) if bits >> b & 1} == set(expected)
            made = built(values * 50, size, n, seed)
            assert made.to_bytes() == recorded[: (size + 7) // 8]
            read = BloomFilter.from_bytes(recorded, size=size, n=n, seed=seed)
            assert read.to_bytes() == made.to_bytes()
            assert read.missing(values) == []

    def test_sizing(self, hyperbloom_vectors: dict[str, Any]) -> None:
        for case in hyperbloom_vectors["sizing"]:
            assert optimal_parameters(case["count"], 1e-9) == (case["size"], case["n"])


class TestAgainstMmh3:
    @settings(deadline=None, max_examples=60)
    @given(LENGTHS, st.integers(1, 5000), st.integers(1, 40), SEEDS)
    def test_build(self, lengths: list[int], size: int, n: int, seed: int) -> None:
        values = derived(lengths)
        made = built(values, size, n, seed)
        assert made.to_bytes() == reference(values, size, n, seed)
        assert made.missing(values) == []

    @settings(deadline=None, max_examples=60)
    @given(LENGTHS, LENGTHS, st.integers(1, 2000), st.integers(1, 40), SEEDS)
    def test_missing(
        self, inside: list[int], asked: list[int], size: int, n: int, seed: int
    ) -> None:
        made = built(derived(inside), size, n, seed)
        bits = int.from_bytes(made.to_bytes(), "little")
        values = derived(asked, b"other") + derived(inside[::3])
        expected = [
            index
            for index, value in enumerate(values)
            if not all(bits >> bit & 1 for bit in positions(value, size, n, seed))
        ]
        assert made.missing(values) == expected
        for index in range(0, len(values), 7):
            assert (values[index] in made) == (index not in expected)

    @pytest.mark.parametrize("size", [1, 2, 31, 2**18 * 8])
    @pytest.mark.parametrize("seed", [0, 1, 0xFA68676F, 2**32 - 1])
    def test_extreme_sizes_and_seeds(self, size: int, seed: int) -> None:
        values = derived(list(range(100)))
        assert built(values, size, 30, seed).to_bytes() == reference(values, size, 30, seed)

    @pytest.mark.parametrize("n", [1, 4, 5, 31, 32, 33, 64, 65, MAX_HASH_FUNCTIONS])
    def test_numbers_of_hash_functions(self, n: int) -> None:
        values = derived([length % 30 for length in range(600)])
        made = built(values, 40_000, n, 9)
        assert made.to_bytes() == reference(values, 40_000, n, 9)
        others = derived([20] * 600, b"other")
        bits = int.from_bytes(made.to_bytes(), "little")
        assert made.missing(values + others) == [
            600 + index
            for index, value in enumerate(others)
            if not all(bits >> bit & 1 for bit in positions(value, 40_000, n, 9))
        ]

    def test_batch_above_all_chunks(self) -> None:
        source = random.Random(5)
        values = [source.randbytes(source.choice([8, 33, 64, 70])) for _ in range(36_000)]
        values += derived([0, 1500, 30])
        made = built(values, 300_007, 3, 123)
        assert made.to_bytes() == reference(values, 300_007, 3, 123)
        assert made.missing(values) == []
        half = built(values[::2], 300_007, 3, 123)
        missing = half.missing(values)
        assert missing == [index for index, value in enumerate(values) if value not in half]
        assert len(missing) > 15_000

    def test_outliers_among_short_values(self) -> None:
        values = derived([64] * 500 + [100_000, 1023, 1024, 1025, 1028, 0, 5])
        assert built(values, 50_000, 30, 4).to_bytes() == reference(values, 50_000, 30, 4)


class TestNoFalseNegatives:
    @settings(deadline=None, max_examples=30)
    @given(st.lists(LENGTHS, max_size=4), st.integers(1, 3000), SEEDS)
    def test_values_of_every_batch_stay(
        self, batches: list[list[int]], size: int, seed: int
    ) -> None:
        made = BloomFilter(size, 7, seed)
        everything = []
        for index, lengths in enumerate(batches):
            values = derived(lengths, bytes([index]))
            made.add(values)
            everything += values
        assert made.missing(everything) == []
        assert all(value in made for value in everything[:50])

    def test_rate_of_false_positives(self) -> None:
        size, n = optimal_parameters(2000, 0.01)
        made = built(derived([40] * 2000), size, n, 7)
        others = derived([40] * 20_000, b"other")
        found = len(others) - len(made.missing(others))
        assert 120 < found < 300


class TestBytes:
    @pytest.mark.parametrize("size", [1, 7, 8, 9, 97, 2048])
    def test_exact_and_padded(self, size: int) -> None:
        made = built(derived([5, 6, 7]), size, 3, 1)
        exact = made.to_bytes()
        assert len(exact) == math.ceil(size / 8)
        for padding in (b"", b"\0", b"\0\0", b"\0\0\0"):
            read = BloomFilter.from_bytes(exact + padding, size=size, n=3, seed=1)
            assert read.to_bytes() == exact
        for wrong in (exact[:-1], exact + bytes(size // 8 + 5 - len(exact))):
            with pytest.raises(ValueError, match="bytes, not"):
                BloomFilter.from_bytes(wrong, size=size, n=3, seed=1)

    def test_bits_beyond_the_size_are_dropped(self) -> None:
        read = BloomFilter.from_bytes(b"\x00\xfe\xff", size=9, n=1, seed=0)
        assert read.is_empty
        assert read.to_bytes() == b"\0\0"
        assert estimated(read) == 0

    def test_reading_copies(self) -> None:
        data = bytes(4)
        read = BloomFilter.from_bytes(data, size=32, n=1, seed=0)
        read.add([b"a"])
        assert data == bytes(4)

    @pytest.mark.parametrize(
        ("size", "n", "seed"),
        [(0, 1, 0), (-1, 1, 0), (2**32, 1, 0), (8, 0, 0), (8, -1, 0), (8, 1, -1), (8, 1, 2**32),
         (8, MAX_HASH_FUNCTIONS + 1, 0)],
    )  # fmt: skip
    def test_refuses_parameters(self, size: int, n: int, seed: int) -> None:
        with pytest.raises(ValueError, match="filter"):
            BloomFilter(size, n, seed)
        with pytest.raises(ValueError, match="filter"):
            BloomFilter.from_bytes(b"\0", size=size, n=n, seed=seed)

    def test_a_great_size_with_few_bytes_is_refused(self) -> None:
        with pytest.raises(ValueError, match="bytes, not 4"):
            BloomFilter.from_bytes(bytes(4), size=2**32 - 1, n=1, seed=0)


def estimated(made: BloomFilter) -> float:
    bits = sum(byte.bit_count() for byte in made.to_bytes())
    return estimate_count(bits, made.size, made.n)


class TestEmptyAndFull:
    def test_empty(self) -> None:
        made = BloomFilter(1000, 30, 1)
        assert made.is_empty
        assert made.missing([b"a", b"", b"b" * 5000]) == [0, 1, 2]
        assert made.missing([]) == []
        assert b"a" not in made
        assert estimated(made) == 0
        made.add([])
        assert made.is_empty
        made.add([b"a"])
        assert not made.is_empty

    def test_full(self) -> None:
        made = BloomFilter.from_bytes(b"\xff", size=8, n=30, seed=1)
        assert made.missing(derived([64] * 300)) == []
        assert estimated(made) == math.inf

    def test_only_bytes_can_be_inside(self) -> None:
        made = BloomFilter.from_bytes(b"\xff", size=8, n=30, seed=1)
        assert "a" not in made
        assert b"a" in made

    @pytest.mark.parametrize("count", [1, 100, 5000])
    def test_estimate(self, count: int) -> None:
        size, n = optimal_parameters(count, 1e-9)
        made = built(derived([30] * count), size, n, 3)
        assert estimated(made) == pytest.approx(count, rel=0.3 if count == 1 else 0.05)


class TestSizing:
    @given(st.integers(0, 40_000), st.sampled_from([1e-9, 1e-3, 0.01, 0.5, 0.9, 1e-15]))
    def test_capacity_is_the_last_that_fits(self, filter_bytes: int, rate: float) -> None:
        count = capacity(filter_bytes, rate)
        if count:
            assert optimal_parameters(count, rate)[0] <= filter_bytes * 8
        if filter_bytes:
            assert optimal_parameters(count + 1, rate)[0] > filter_bytes * 8

    def test_capacity_of_one_frame(self) -> None:
        assert 48_000 < capacity(262_144, 1e-9) < 49_000

    def test_never_less_than_one(self) -> None:
        assert optimal_parameters(0, 1e-9) == (1, 30)
        assert optimal_parameters(10, 0.9)[1] == 1
        assert capacity(0, 1e-9) == 0

    @pytest.mark.parametrize("rate", [0, 1, -0.1, 2, math.nan, math.inf])
    def test_refuses_rates(self, rate: float) -> None:
        with pytest.raises(ValueError, match="between 0 and 1"):
            optimal_parameters(1, rate)
        with pytest.raises(ValueError, match="between 0 and 1"):
            capacity(1, rate)

    def test_refuses_negative_numbers(self) -> None:
        with pytest.raises(ValueError, match="negative"):
            optimal_parameters(-1, 0.1)
        with pytest.raises(ValueError, match="negative"):
            capacity(-1, 0.1)


@pytest.mark.parametrize(
    ("length", "count", "n"), [(64, 40_000, 40), (1024, 8_000, 40), (20_000, 3_000, 4)]
)
def test_temporaries_are_bounded(length: int, count: int, n: int) -> None:
    values = [bytes(length)] * count
    made = BloomFilter(100_000, n, 1)
    tracemalloc.start()
    try:
        made.add(values)
        found = made.missing(values)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == []
    assert peak < 12 * 2**20
