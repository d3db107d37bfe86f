"""Sketches: golden vectors, the same by another implementation, sums, bytes, salts."""

from __future__ import annotations

import hashlib
import random
from itertools import islice
from pathlib import Path

import numpy as np
import plain_sketches as plain
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom import sketches
from hyperbloom.sketches import (
    WORDS,
    add,
    checks,
    ids_from,
    ids_to_bytes,
    no_symbols,
    pack,
    salted,
    sketch_key,
    unpack,
    unsalted,
)

pytestmark = pytest.mark.filterwarnings("error")

FEED_KEY = bytes(range(32))
KEY = bytes.fromhex("5ae8c7ea2752d4ce4d73fb7a9434d21b")
SALT = bytes(range(16, 32))

#: As docs/extensions/reconcile.md shows them; made by plain_sketches.py, which shares nothing with
#: the product: an id, the beginning of its walk, its check, and the id salted.
GOLDEN = [
    (
        "000102030405060708090a0b0c0d0e0f",
        [0, 1, 2, 5, 6, 8, 17, 18, 19, 31, 44, 48, 55, 65],
        "56b98cda4c051f3e",
        "ee75b2523a334bb1d899c03b6212c320",
    ),
    (
        "ffffffffffffffffffffffffffffffff",
        [0, 1, 2, 4, 58, 96, 112, 115, 348, 2637, 6850, 13128, 21843, 30904],
        "1d0ff16017b8fcb2",
        "a14387d5981855e2bb50824849c03066",
    ),
    (
        "00000000000000000000000000000000",
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13],
        "ffba8f7abbb3d05e",
        "fc9fca1fe258a85e16bacc88d2ccf6c4",
    ),
]
PACKED_IDS = [bytes(range(16)), b"\xff" * 16, bytes(range(1, 17))]
PACKED = (
    "00030507080b0d0f10131517181b1d1f48fb5f95dad79acf"
    "00030507080b0d0f10131517181b1d1f48fb5f95dad79acf"
    "ff0002030305060707090a0b0b0d0e0f73c87d3b63bd1bf1"
    "000000000000000000000000000000000000000000000000"
    "00020201"
)
THOUSAND = "ee1ef59bb04b076d27fded12983cb9b1097ac47bdfa2ed169e827ce2c970a151"

ANY_IDS = st.lists(st.binary(min_size=16, max_size=16), max_size=30, unique=True)
SIXTEEN = st.binary(min_size=16, max_size=16)


def hashed(count: int, salt: str = "") -> list[bytes]:
    """Ids that look like chance."""
    return [hashlib.sha256(f"{salt}{n}".encode()).digest()[:16] for n in range(count)]


def sketch(ids: list[bytes], count: int, first: int = 0, key: bytes = KEY) -> sketches.Symbols:
    made = no_symbols(count)
    add(made, ids_from(b"".join(ids)), key, first=first)
    return made


def walk(identity: str, end: int) -> list[int]:
    """The indexes below `end` of symbols that this id takes part in."""
    return np.flatnonzero(sketch([bytes.fromhex(identity)], end)[-1]).tolist()


class TestVectors:
    def test_the_key(self):
        assert sketch_key(FEED_KEY) == KEY

    @pytest.mark.parametrize(("identity", "indexes", "check", "other"), GOLDEN)
    def test_an_id(self, identity, indexes, check, other):
        ids = ids_from(bytes.fromhex(identity))
        assert walk(identity, indexes[-1] + 1) == indexes
        assert checks(ids, KEY).tobytes().hex() == check
        assert ids_to_bytes(salted(ids, SALT)).hex() == other
        assert ids_to_bytes(unsalted(salted(ids, SALT), SALT)).hex() == identity

    @pytest.mark.parametrize(("identity", "indexes", "check", "other"), GOLDEN)
    def test_an_id_by_the_description_alone(self, identity, indexes, check, other):
        data = bytes.fromhex(identity)
        assert list(islice(plain.walk(data), len(indexes))) == indexes
        assert plain.check(data, KEY).to_bytes(8, "little").hex() == check
        assert plain.salted(data, SALT).hex() == other

    def test_packed_symbols(self):
        assert pack(sketch(PACKED_IDS, 4), first=0, count=3).hex() == PACKED
        assert plain.packed(plain.sketch(PACKED_IDS, KEY, 4), 0, 3).hex() == PACKED

    def test_packed_symbols_of_a_thousand(self):
        data = pack(sketch(hashed(1_000), 256), first=0, count=1_000)
        assert (len(data), hashlib.sha256(data).hexdigest()) == (6_400, THOUSAND)
        assert plain.packed(plain.sketch(hashed(1_000), KEY, 256), 0, 1_000) == data

    def test_the_page_shows_the_vectors(self):
        page = Path(__file__).parents[2] / "docs" / "extensions" / "reconcile.md"
        shown = "".join(page.read_text().split())
        for identity, indexes, check, other in GOLDEN:
            walked = ",".join(map(str, indexes))
            assert all(each in shown for each in (identity, walked, check, other))
        assert KEY.hex() in shown
        assert PACKED in shown
        assert THOUSAND in shown


class TestAdd:
    @given(ANY_IDS, SIXTEEN, st.integers(0, 300), st.integers(0, 300))
    def test_as_the_description_says(self, ids, key, first, count):
        expected = plain.sketch(ids, key, count, first)
        assert sketch(ids, count, first, key).T.tolist() == expected

    def test_as_the_description_says_for_many_and_far(self):
        ids = hashed(500)
        expected = plain.sketch(ids, KEY, 40_000)
        assert sketch(ids, 40_000).T.tolist() == expected
        assert sketch(ids, 100, 30_000).T.tolist() == expected[30_000:30_100]

    @given(ANY_IDS, st.randoms())
    def test_what_is_added_can_be_taken_out_in_any_order(self, ids, chance):
        symbols = sketch(ids, 200)
        shuffled = chance.sample(ids, len(ids))
        cut = chance.randint(0, len(ids))
        for part in (shuffled[:cut], shuffled[cut:]):
            add(symbols, ids_from(b"".join(part)), KEY, sign=-1)
        assert not symbols.any()

    @given(ANY_IDS, st.integers(0, 30))
    def test_sums_of_sets_apart_add_up(self, ids, cut):
        both = sketch(ids[:cut], 100) + sketch(ids[cut:], 100)
        assert (both == sketch(ids, 100)).all()

    @given(ANY_IDS, st.integers(0, 200))
    def test_the_first_symbols_do_not_depend_on_how_many_follow(self, ids, cut):
        whole = sketch(ids, 200)
        assert (sketch(ids, cut) == whole[:, :cut]).all()
        assert (sketch(ids, 200 - cut, cut) == whole[:, cut:]).all()

    def test_batches_join(self, monkeypatch):
        whole = sketch(hashed(1_000), 300)
        monkeypatch.setattr(sketches, "_BATCH", 64)
        assert (sketch(hashed(1_000), 300) == whole).all()

    def test_an_id_is_in_no_more_symbols_than_its_walk_has_steps(self):
        slow = "00" * 16
        assert walk(slow, 1_000) == list(range(sketches.WALK_STEPS))

    @pytest.mark.parametrize(("p", "leap"), [(1, 100_663_295), (2, 71_179_698)])
    def test_walks_that_leap_as_far_as_they_can(self, p, leap):
        """p in 2^52nds, the same in each step: beyond 2^63 after three of them."""
        x = 2**64 - p * 2**12
        b = (x - x * sketches.WALK_FACTOR) % 2**64
        leaping = x.to_bytes(8, "little") + b.to_bytes(8, "little")
        assert list(islice(plain.walk(leaping), 2)) == [0, leap]
        ids = [leaping, *hashed(9)]
        assert sketch(ids, 50).T.tolist() == plain.sketch(ids, KEY, 50)
        assert sketch(ids, 50, leap - 5).T.tolist() == plain.sketch(ids, KEY, 50, leap - 5)

    @pytest.mark.parametrize("first", [-1, sketches.MOST_SYMBOLS - 4])
    def test_symbols_that_no_sequence_has(self, first):
        assert not sketch(hashed(1), 5, sketches.MOST_SYMBOLS - 5).any()
        with pytest.raises(ValueError, match="symbols 0 to"):
            sketch(hashed(1), 5, first)

    def test_symbols_are_met_as_often_as_the_theory_says(self):
        numbers = sketch(hashed(20_000), 1_000)[-1].astype(float)
        index = np.arange(1_000)
        p = 2 / (index + 2)
        deviations = (numbers - 20_000 * p)[1:] / np.sqrt(20_000 * p * (1 - p))[1:]
        assert numbers[0] == 20_000
        assert abs(deviations.mean()) < 0.2
        assert 0.9 < deviations.std() < 1.1

    def test_two_ids_with_one_half_in_common_part(self):
        one, other = hashed(2)
        walks = {
            tuple(islice(plain.walk(identity), 20))
            for identity in (one, one[:8] + other[8:], other[:8] + one[8:], other)
        }
        assert len(walks) == 4

    @pytest.mark.parametrize("length", [0, 15, 17])
    def test_a_key_of_another_length(self, length):
        with pytest.raises(ValueError, match="16 bytes"):
            sketch(hashed(1), 5, key=bytes(length))

    def test_a_part_of_an_id(self):
        with pytest.raises(ValueError, match="reshape"):
            ids_from(bytes(17 * 4))


class TestSalt:
    @given(ANY_IDS, SIXTEEN)
    def test_one_to_one(self, ids, salt):
        both = salted(ids_from(b"".join(ids)), salt)
        assert ids_to_bytes(both) == b"".join(plain.salted(each, salt) for each in ids)
        assert ids_to_bytes(unsalted(both, salt)) == b"".join(ids)

    def test_each_bit_of_id_and_salt_changes_about_half_of_the_bits(self):
        chance = random.Random(3)
        for _ in range(20):
            identity, salt = chance.randbytes(16), chance.randbytes(16)
            before = int.from_bytes(plain.salted(identity, salt), "big")
            bit = (1 << chance.randrange(128)).to_bytes(16, "big")
            flipped = bytes(x ^ y for x, y in zip(identity, bit, strict=True))
            other = bytes(x ^ y for x, y in zip(salt, bit, strict=True))
            for pair in ((flipped, salt), (identity, other)):
                changed = before ^ int.from_bytes(plain.salted(*pair), "big")
                assert 30 < changed.bit_count() < 98


class TestBytes:
    @given(
        st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=WORDS, max_size=WORDS), max_size=9),
        st.integers(0, 2**32),
        st.integers(0, 2**62),
    )
    def test_there_and_back(self, rows, first, count):
        symbols = np.array(rows, np.uint32).reshape(-1, WORDS).T
        data = pack(symbols, first=first, count=count)
        assert data == plain.packed(rows, first, count)
        back = unpack(data, first=first, symbols=len(rows), count=count)
        assert back.tolist() == symbols.tolist()

    def test_every_length_of_a_number(self):
        edges = [0, 1, 63, 64, 2**13 - 1, 2**13, 2**20, 2**27 - 1, 2**27, 2**31 - 1]
        numbers = [sign * edge % 2**32 for edge in edges for sign in (1, -1)] + [2**31]
        symbols = no_symbols(len(numbers))
        symbols[-1] = numbers
        data = pack(symbols, first=0, count=0)
        assert len(data) == 24 * len(numbers) + sum(
            [1, 1, 1, 1, 1, 1, 2, 1, 2, 2, 3, 2, 4, 3, 4, 4, 5, 4, 5, 5, 5]
        )
        assert unpack(data, first=0, symbols=len(numbers), count=0)[-1].tolist() == numbers

    @pytest.mark.parametrize(
        "tail",
        [
            "80",  # cut short
            "8000",  # longer than it needs to be
            "808080808000",
            "80808080808001",
            "8080808010",  # 2^32
            "ffffffff1f",
            "0000",  # one more
            "",
        ],
    )
    def test_bytes_that_no_symbols_have(self, tail):
        with pytest.raises(ValueError, match="symbol"):
            unpack(bytes(24) + bytes.fromhex(tail), first=0, symbols=1, count=0)

    def test_the_largest_number(self):
        data = bytes(24) + bytes.fromhex("ffffffff0f")
        assert unpack(data, first=0, symbols=1, count=0)[-1].tolist() == [2**31]

    @given(st.binary(max_size=120), st.integers(0, 5), st.integers(0, 99))
    def test_there_is_one_encoding(self, data, symbols, count):
        data = data + bytes(24 * symbols)
        try:
            read = unpack(data, first=1, symbols=symbols, count=count)
        except ValueError:
            return
        assert pack(read, first=1, count=count) == data

    def test_every_cut_and_every_byte_behind(self):
        data = pack(sketch(hashed(5), 3), first=0, count=900)
        for cut in range(len(data)):
            with pytest.raises(ValueError, match="symbol"):
                unpack(data[:cut], first=0, symbols=3, count=900)
        with pytest.raises(ValueError, match="symbol"):
            unpack(data + b"\0", first=0, symbols=3, count=900)

    @pytest.mark.parametrize("count", [-1, 2**62 + 1])
    def test_a_count_that_no_set_has(self, count):
        with pytest.raises(ValueError, match="values"):
            pack(no_symbols(1), first=0, count=count)
        with pytest.raises(ValueError, match="values"):
            unpack(bytes(25), first=0, symbols=1, count=count)
