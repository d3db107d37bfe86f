"""Decoding a difference: exact or not yet, and an end whatever symbols come."""

from __future__ import annotations

import random

import numpy as np
import plain_sketches as plain
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom import sketches
from hyperbloom.sketches import (
    MOST_WAVES,
    WALK_FACTOR,
    Decoder,
    Symbols,
    Undecodable,
    add,
    first_wanted,
    ids_from,
    ids_to_bytes,
    no_symbols,
    symbols_for,
)

pytestmark = pytest.mark.filterwarnings("error")

KEY = bytes(range(16))
ANY_IDS = st.sets(st.binary(min_size=16, max_size=16), max_size=60)
BLOCKS = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def sketch(ids, count: int, first: int = 0) -> Symbols:
    made = no_symbols(count)
    add(made, ids_from(b"".join(ids)), KEY, first=first)
    return made


def listed(ids) -> list[bytes]:
    data = ids_to_bytes(ids)
    return [data[at : at + 16] for at in range(0, len(data), 16)]


def drawn(chance: random.Random, count: int) -> list[bytes]:
    return [chance.randbytes(16) for _ in range(count)]


def difference(mine: int, theirs: int, seed: int, count: int) -> Symbols:
    chance = random.Random(seed)
    return sketch(drawn(chance, mine), count) - sketch(drawn(chance, theirs), count)


def one_symbol(identity: bytes, sign: int = 1) -> np.ndarray:
    return np.array(plain.words(identity, KEY), np.uint32) * np.uint32(sign % 2**32)


class TestDifference:
    @given(ANY_IDS, ANY_IDS, BLOCKS)
    def test_exact_or_not_yet(self, mine, theirs, blocks):
        """Any two sets, in any order, in any blocks."""
        decoder = Decoder(KEY, most_ids=200)
        first = 0
        for count in blocks:
            done = decoder.feed(sketch(mine, count, first) - sketch(theirs, count, first))
            first += count
            assert done == decoder.done
            assert set(listed(decoder.mine)) <= mine - theirs
            assert set(listed(decoder.theirs)) <= theirs - mine
            assert decoder.wanted() >= 1
            symbols = (sketch(mine, first) - sketch(theirs, first)).T.tolist()
            expected = plain.peeled(symbols, KEY)
            assert done == (expected is not None)
            if done:
                assert sorted(listed(decoder.mine)) == sorted(mine - theirs)
                assert sorted(listed(decoder.theirs)) == sorted(theirs - mine)

    @pytest.mark.parametrize(("mine", "theirs"), [(1, 1), (100, 100), (0, 50), (2_000, 30)])
    def test_among_many_shared(self, mine, theirs):
        chance = random.Random(mine)
        shared = drawn(chance, 20_000)
        ours, others = drawn(chance, mine), drawn(chance, theirs)
        count = symbols_for(mine + theirs) * 3 // 2 + 40
        decoder = Decoder(KEY, most_ids=mine + theirs)
        assert decoder.feed(sketch(shared + ours, count) - sketch(others + shared, count))
        assert set(listed(decoder.mine)) == set(ours)
        assert set(listed(decoder.theirs)) == set(others)

    def test_no_difference(self):
        decoder = Decoder(KEY, most_ids=0)
        assert not decoder.done
        assert decoder.feed(no_symbols(1))
        assert (len(decoder.mine), len(decoder.theirs)) == (0, 0)

    def test_nothing_fed(self):
        decoder = Decoder(KEY, most_ids=0)
        assert not decoder.feed(no_symbols(0))

    def test_the_block_is_left_as_it_was(self):
        block = difference(5, 5, 1, 40)
        before = block.copy()
        Decoder(KEY, most_ids=10).feed(block)
        assert (block == before).all()

    def test_more_symbols_after_the_end_agree(self):
        whole = difference(5, 5, 2, 400)
        decoder = Decoder(KEY, most_ids=10)
        assert decoder.feed(whole[:, :100])
        assert decoder.feed(whole[:, 100:])
        whole[-1, 399] += 1
        decoder = Decoder(KEY, most_ids=10)
        assert decoder.feed(whole[:, :399])
        assert not decoder.feed(whole[:, 399:])
        assert not decoder.done


class TestWanted:
    @pytest.mark.parametrize(
        ("differing", "seeds", "factor", "trips"),
        [(2, 20, 1.25, 3), (20, 20, 1.25, 3), (200, 60, 1.25, 3), (2_000, 8, 1.25, 3),
         (5_000, 12, 1.06, 4)],
    )  # fmt: skip
    def test_few_more_than_are_needed_in_few_rounds(self, differing, seeds, factor, trips):
        asked, rounds = [], []
        for seed in range(seeds):
            half = differing // 2
            symbols = difference(half, differing - half, seed, differing * 3 + 600)
            decoder = Decoder(KEY, most_ids=differing)
            at, wanted, number = 0, 128, 1
            while not decoder.feed(symbols[:, at : at + wanted]):
                at, wanted, number = at + wanted, decoder.wanted(), number + 1
            asked.append(at + wanted)
            rounds.append(number)
        assert np.mean(asked) <= factor * max(symbols_for(differing), 128 / factor)
        assert np.mean(rounds) <= trips
        assert max(rounds) <= 6

    @pytest.mark.parametrize(
        ("surplus", "differing"), [(0, 60), (40, 60), (200, 200), (3_000, 3_000)]
    )
    def test_the_first_block_is_mostly_enough_for_what_the_counts_tell(self, surplus, differing):
        wanted, done = first_wanted(surplus), 0
        for seed in range(10):
            mine = (differing + surplus) // 2
            block = difference(mine, differing - mine, seed, wanted)
            done += Decoder(KEY, most_ids=differing).feed(block)
        assert done >= 9
        assert wanted <= max(128, 1.5 * symbols_for(surplus))

    def test_without_an_estimate_as_many_as_came(self):
        decoder = Decoder(KEY, most_ids=100)
        assert decoder.wanted() == 16
        decoder.feed(difference(30, 30, 1, 1))
        assert decoder.wanted() == 16

    def test_all_in_one_set(self):
        decoder = Decoder(KEY, most_ids=2_000)
        decoder.feed(difference(1_000, 0, 1, 64))
        assert decoder.wanted() + 64 >= symbols_for(1_000)

    def test_numbers_that_lie_make_no_error(self):
        lies = no_symbols(64)
        lies[-1, ::2] = 2**31
        lies[-1, 1::2] = 2**31 - 1
        decoder = Decoder(KEY, most_ids=10)
        assert not decoder.feed(lies)
        assert decoder.wanted() > 2**31


def inverse(step: int) -> int:
    return pow(step, -1, 2**64)


def id_that_walks(places: tuple[int, int]) -> bytes:
    """An id whose walk goes from 0 to the first place and then to the second."""
    x, at = [], 0
    for place in places:
        p = ((at + 1.5) / (place + 1)) ** 2
        x.append(2**64 - round(p * 2**52) * 2**12)
        at = place
    b = (x[1] - x[0] * WALK_FACTOR) % 2**64
    a = (x[0] - b) * inverse(WALK_FACTOR) % 2**64
    return a.to_bytes(8, "little") + b.to_bytes(8, "little")


def id_that_stands_still() -> bytes:
    """An id whose walk takes every symbol, for ever if it were let."""
    x = 2**12
    b = (x - x * WALK_FACTOR) % 2**64
    return x.to_bytes(8, "little") + b.to_bytes(8, "little")


class TestHostile:
    @given(st.integers(0, 2**32 - 1), st.integers(1, 60))
    def test_noise_is_never_done(self, seed, count):
        noise = np.random.default_rng(seed).integers(0, 2**32, (7, count), np.uint32)
        noise[-1] %= 3
        noise[-1] -= 1
        decoder = Decoder(KEY, most_ids=10)
        assert not decoder.feed(noise)
        assert len(decoder.mine) == len(decoder.theirs) == 0

    def test_values_that_meet_in_symbol_0_alone_do_not_peel(self):
        far = [id_that_walks((5_000 + number, 6_000)) for number in range(3)]
        decoder = Decoder(KEY, most_ids=10)
        assert not decoder.feed(sketch(far, 4_096))
        assert not decoder.feed(sketch(far, 4_096, 4_096)[:, :900])
        assert len(decoder.mine) == 0

    def test_sums_that_cancel_are_done_with_nothing_found(self):
        """What peels proves nothing: only the digest tells whether two sets are equal."""
        decoder = Decoder(KEY, most_ids=10)
        ids = drawn(random.Random(1), 10)
        assert decoder.feed(sketch(ids, 50) - sketch(ids, 50))
        assert len(decoder.mine) == 0

    def test_a_number_that_lies_is_never_done(self):
        for lie in (1, -1, 2, 2**31):
            block = difference(5, 5, 1, 100)
            block[-1, 0] += np.uint32(lie % 2**32)
            decoder = Decoder(KEY, most_ids=100)
            assert not decoder.feed(block)

    @given(st.integers(0, 99), st.sampled_from([1, -1]))
    def test_an_id_alone_in_one_symbol(self, place, sign):
        """Off its walk, or on it and then missing in the walk's other symbols."""
        identity = drawn(random.Random(5), 1)[0]
        on_walk = plain.sketch([identity], KEY, 100)[place][6]
        block = no_symbols(100)
        block[:, place] = one_symbol(identity, sign)
        with pytest.raises(Undecodable, match="more ids" if on_walk else "walk"):
            Decoder(KEY, most_ids=10).feed(block)

    def test_an_id_in_both_signs(self):
        block = no_symbols(2)
        identity = id_that_walks((1, 7))
        block[:, 0], block[:, 1] = one_symbol(identity), one_symbol(identity, -1)
        with pytest.raises(Undecodable, match="walk"):
            Decoder(KEY, most_ids=10).feed(block)

    @pytest.mark.parametrize("times", [2, 0])
    def test_an_id_found_again_in_a_later_block(self, times):
        """The symbol behind the first block holds it twice, or not at all."""
        identity = id_that_walks((1, 7))
        decoder = Decoder(KEY, most_ids=10)
        assert decoder.feed(sketch([identity], 7))
        with pytest.raises(Undecodable):
            decoder.feed(sketch([identity], 1, 7) * np.uint32(times))

    def test_no_more_ids_than_are_looked_for(self):
        assert Decoder(KEY, most_ids=20).feed(difference(10, 10, 1, 100))
        decoder = Decoder(KEY, most_ids=19)
        with pytest.raises(Undecodable, match="more ids"):
            decoder.feed(difference(10, 10, 1, 100))
        assert len(decoder.mine) + len(decoder.theirs) <= 19

    def test_a_chain_that_peels_one_by_one(self, monkeypatch):
        """Ids that each hide the next one: as many waves as ids."""
        chain = [id_that_walks((place, place + 1)) for place in range(1, MOST_WAVES + 50)]
        symbols = sketch(chain, len(chain) + 1)
        with pytest.raises(Undecodable, match="slowly"):
            Decoder(KEY, most_ids=5_000).feed(symbols)
        monkeypatch.setattr(sketches, "MOST_WAVES", 3 * MOST_WAVES)
        assert Decoder(KEY, most_ids=5_000).feed(symbols)

    def test_ids_whose_walks_never_move_on(self):
        slow = id_that_stands_still()
        assert list(plain.walk(slow)) == list(range(sketches.WALK_STEPS))
        decoder = Decoder(KEY, most_ids=10)
        assert decoder.feed(sketch([slow], 10_000))
        assert listed(decoder.mine) == [slow]

    def test_crafted_walks_are_where_the_test_wants_them(self):
        for places in ((1, 2), (40, 41), (1_000, 1_001), (5_000, 6_000)):
            walk = plain.walk(id_that_walks(places))
            assert (next(walk), next(walk), next(walk)) == (0, *places)
