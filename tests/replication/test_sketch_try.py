"""A try by symbols without a peer: blocks in, questions and an outcome out."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.replication.limits import MOST_QUESTIONS
from hyperbloom.replication.schedule.sketch_try import (
    OLDER_SYMBOLS,
    SYMBOL_BYTES,
    SketchOutcome,
    SketchTry,
    first_block,
    first_symbols,
)
from hyperbloom.sketches import (
    add,
    ids_from,
    ids_to_bytes,
    no_symbols,
    pack,
    salted,
    sketch_key,
    symbols_for,
)
from hyperbloom.store.records import SetFigures
from hyperbloom.wire import Range, Sketch
from hyperbloom.wire.limits import LEAST_SKETCH_SYMBOLS

KEY = sketch_key(b"k" * 32)
WHOLE = (Range(start=b""),)
LENGTH = 4_096


def figures(ids: set[bytes]) -> SetFigures:
    """Count and something that stands for the digest of a set."""
    digest = bytes(31) + b"\0" if not ids else random.Random(str(sorted(ids))).randbytes(32)
    return SetFigures(len(ids), digest)


def sequence(ids, salt=b"", length=LENGTH):
    symbols = no_symbols(length)
    words = ids_from(b"".join(sorted(ids)))
    add(symbols, salted(words, salt) if salt else words, KEY)
    return symbols


def answers(request, ids, symbols, *, block=8_192):
    """What a peer with this set sends, in blocks."""
    of, first, end = figures(ids), request.first, request.first + request.count
    while first < end:
        part = symbols[:, first : min(first + block, end)]
        if not part.shape[1]:
            yield Sketch.nothing(request.number, first)
            return
        yield Sketch(
            number=request.number,
            first=first,
            symbols=part.shape[1],
            values=of.count,
            digest=of.digest,
            packed=pack(part, first=first, count=of.count),
        )
        first += part.shape[1]


def ids_of(numbers) -> set[bytes]:
    return {random.Random(number).randbytes(16) for number in numbers}


def tried(here, there, *, first=128, most=LENGTH, salt=b"", block=8_192, length=LENGTH):
    """A try of a node that holds `here` with a peer that holds `there`; how many round trips."""
    one = SketchTry(number=7, salt=salt, ranges=WHOLE, key=KEY, first=first, most=most)
    mine, theirs = sequence(here, salt), sequence(there, salt, length)
    question, trips = one.first_question, 0
    while question is not None:
        assert (question.number, question.salt, question.ranges) == (7, salt, WHOLE)
        trips += 1
        sketches = list(answers(question, there, theirs, block=block))
        question = None
        for sketch in sketches:
            one.take(sketch)
        while one.is_answered and one.outcome is None:
            assert question is None
            question = one.step(mine, figures(here))
    return SimpleNamespace(one=one, trips=trips)


def split(words) -> set[bytes]:
    data = ids_to_bytes(words)
    return {data[at : at + 16] for at in range(0, len(data), 16)}


@pytest.mark.parametrize("salt", [b"", bytes(range(16))])
def test_what_differs_comes_out_whatever_is_shared(salt):
    shared = ids_of(range(1_000))
    here, there = shared | ids_of(range(2_000, 2_100)), shared | ids_of(range(3_000, 3_100))
    found = tried(here, there, salt=salt)
    assert found.one.outcome is SketchOutcome.TAKEN
    assert split(found.one.mine) == here - there
    assert split(found.one.theirs) == there - here
    assert found.one.differences == 200
    assert found.one.symbols * SYMBOL_BYTES < 12_000
    assert found.trips <= 3


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 60), st.integers(0, 60), st.integers(0, 40), st.integers(1, 1_500),
    st.integers(LEAST_SKETCH_SYMBOLS, 500),
)  # fmt: skip
def test_any_two_sets_in_any_blocks(mine, theirs, both, first, block):
    shared = ids_of(range(both))
    here = shared | ids_of(range(1_000, 1_000 + mine))
    there = shared | ids_of(range(2_000, 2_000 + theirs))
    found = tried(here, there, first=first, block=block)
    if here == there:
        assert found.one.outcome is SketchOutcome.EQUAL
        return
    assert found.one.outcome is SketchOutcome.TAKEN
    assert split(found.one.mine) == here - there
    assert split(found.one.theirs) == there - here


def test_more_symbols_than_the_limit_are_not_asked_for():
    here, there = ids_of(range(3_000)), ids_of(range(1_500, 4_500))
    found = tried(here, there, most=1_000)
    assert found.one.outcome is SketchOutcome.REFUSED, "3,000 differ: the first block shows it"
    assert found.one.symbols == 128
    near = tried(ids_of(range(700)), ids_of(range(100, 700)), first=60, most=100)
    assert near.one.symbols <= 100


def test_as_many_symbols_as_the_limit_are_asked_for_and_not_one_more():
    here, there = ids_of(range(300)), ids_of(range(100, 400))

    def begun(most):
        one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=128, most=most)
        for sketch in answers(one.first_question, there, sequence(there)):
            one.take(sketch)
        return one, one.step(sequence(here), figures(here))

    _, question = begun(LENGTH)
    enough = 128 + question.count
    one, again = begun(enough)
    assert (one.outcome, again) == (None, question)
    one, again = begun(enough - 1)
    assert (one.outcome, again) == (SketchOutcome.REFUSED, None)


@pytest.mark.parametrize("values", [300, 20_000])
def test_a_symbol_takes_about_as_many_bytes_as_it_is_reckoned_with(values):
    symbols = sequence(ids_of(range(values)), length=128)
    taken = len(pack(symbols, first=0, count=values)) / 128
    assert SYMBOL_BYTES - 1 <= taken <= SYMBOL_BYTES


def test_what_does_not_decode_within_the_limit_is_undecoded():
    """A few symbols that tell of few differences, and never peel."""
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=128, most=300)
    mine = no_symbols(LENGTH)
    theirs = no_symbols(LENGTH)
    theirs[0, :] = 1
    of = SetFigures(5, b"d" * 32)
    question = one.first_question
    asked = []
    while question is not None:
        asked.append(question.count)
        end = question.first + question.count
        packed = pack(theirs[:, question.first : end], first=question.first, count=5)
        one.take(
            Sketch(
                number=1,
                first=question.first,
                symbols=question.count,
                values=5,
                digest=of.digest,
                packed=packed,
            )
        )
        question = one.step(mine, SetFigures(5, b"e" * 32))
    assert one.outcome is SketchOutcome.UNDECODED
    assert sum(asked) == 300


def test_sums_that_cancel_are_seen_by_the_counts_and_the_digest():
    """Symbols say that nothing differs, and the figures beside them that something does."""
    ids = ids_of(range(50))
    symbols = sequence(ids)
    for there in (SetFigures(50, b"other digest".ljust(32)), SetFigures(51, b"x" * 32)):
        one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=10, most=100)
        packed = pack(symbols[:, :10], first=0, count=there.count)
        one.take(
            Sketch(
                number=1,
                first=0,
                symbols=10,
                values=there.count,
                digest=there.digest,
                packed=packed,
            )
        )
        assert one.step(symbols, figures(ids)) is None
        assert one.outcome is SketchOutcome.UNDECODED


def test_a_count_that_contradicts_what_was_decoded_is_not_believed():
    here, there = ids_of(range(50)), ids_of(range(52))
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=20, most=100)
    packed = pack(sequence(there)[:, :20], first=0, count=90)
    one.take(Sketch(number=1, first=0, symbols=20, values=90, digest=b"d" * 32, packed=packed))
    one.step(sequence(here), figures(here))
    assert one.outcome is SketchOutcome.UNDECODED


def test_a_peer_without_more_symbols_refuses():
    here, there = ids_of(range(900)), ids_of(range(500, 1_400))
    found = tried(here, there, length=256)
    assert found.one.outcome is SketchOutcome.REFUSED
    assert found.one.symbols == 256


def test_our_own_sequence_may_be_the_shorter_one():
    here, there = ids_of(range(900)), ids_of(range(500, 1_400))
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=512, most=LENGTH)
    for sketch in answers(one.first_question, there, sequence(there)):
        one.take(sketch)
    assert one.step(sequence(here, length=256), figures(here)) is None
    assert one.outcome is SketchOutcome.REFUSED


def of(first=0, symbols=4, values=3, digest=b"d" * 32, packed=None):
    if not symbols:
        return Sketch.nothing(1, first)
    packed = bytes(25 * symbols) if packed is None else packed
    return Sketch(
        number=1, first=first, symbols=symbols, values=values, digest=digest, packed=packed
    )


@pytest.mark.parametrize(
    ("before", "wrong", "why"),
    [
        ((), of(first=1), "not those that it was asked for"),
        ((), of(symbols=261), "not those that it was asked for"),
        ((of(symbols=256),), of(), "not those that it was asked for"),
        ((of(symbols=256),), of(first=256, symbols=5), "not those that it was asked for"),
        ((of(symbols=256),), of(first=256, values=4), "two different sets"),
        ((of(symbols=256),), of(first=256, digest=b"e" * 32), "two different sets"),
        ((of(symbols=255),), of(first=255), "fewer than 256 symbols at a time"),
        ((of(symbols=255), of(first=255, symbols=0)), of(first=255), "not those that it was asked"),
        ((of(symbols=260),), of(first=260, symbols=0), "not those that it was asked for"),
    ],
)
def test_symbols_that_were_not_asked_for_are_refused(before, wrong, why):
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=260, most=1_000)
    for sketch in before:
        one.take(sketch)
    with pytest.raises(ValueError, match=why):
        one.take(wrong)


def test_symbols_that_were_packed_wrongly_are_refused():
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=4, most=100)
    one.take(of(packed=b"too short"))
    with pytest.raises(ValueError, match="not the bytes of 4 symbols"):
        one.step(no_symbols(100), SetFigures(1, b"x" * 32))


@pytest.mark.parametrize(
    ("here", "there", "symbols"),
    [(0, 0, None), (0, 9, None), (9, 0, None), (49, 100, None), (100, 49, None),
     (50, 100, 128 + 75), (100, 100, 128), (1_000_000, 1_000_000, 128)],
)  # fmt: skip
def test_how_many_symbols_are_asked_for_at_first(here, there, symbols):
    assert first_symbols(here, there) == symbols


def test_more_than_our_own_sequence_has_is_not_asked_for():
    here, there = ids_of(range(3_000)), ids_of(range(1_500, 4_500))
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=128, most=32_768)
    for sketch in answers(one.first_question, there, sequence(there)):
        one.take(sketch)
    assert one.step(sequence(here, length=512), figures(here)) is None
    assert one.outcome is SketchOutcome.REFUSED
    assert one.symbols == 128


def block_of(request, first, count, theirs, of_whom):
    return Sketch(
        number=request.number,
        first=first,
        symbols=count,
        values=of_whom.count,
        digest=of_whom.digest,
        packed=pack(theirs[:, first : first + count], first=first, count=of_whom.count),
    )


def test_an_answer_is_decoded_when_it_is_whole():
    here, there = ids_of(range(900)), ids_of(range(100, 1_000))
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=600, most=LENGTH)
    theirs, of_whom = sequence(there), figures(there)
    for first, count in ((0, 256), (256, 300)):
        one.take(block_of(one.first_question, first, count, theirs, of_whom))
        assert not one.is_answered
    one.take(block_of(one.first_question, 556, 44, theirs, of_whom))
    assert one.is_answered
    assert one.step(sequence(here), figures(here)) is None
    assert one.outcome is SketchOutcome.TAKEN


def test_what_came_before_the_end_of_a_sequence_may_be_enough():
    here, there = ids_of(range(900)), ids_of(range(10, 910))
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=600, most=LENGTH)
    one.take(block_of(one.first_question, 0, 100, sequence(there), figures(there)))
    one.take(Sketch.nothing(1, 100))
    assert one.is_answered
    assert one.step(sequence(here), figures(here)) is None
    assert one.outcome is SketchOutcome.TAKEN


def random_ids(count, seed):
    data = random.Random(seed).randbytes(16 * count)
    return {data[at : at + 16] for at in range(0, len(data), 16)}


def many_differ(length, values=9_000, differ=4_000):
    """A try of a set that differs from the peer's by more than a short sequence tells."""
    shared = random_ids(values - differ // 2, 1)
    here, there = shared | random_ids(differ // 2, 2), shared | random_ids(differ // 2, 3)
    one = SketchTry(number=7, salt=b"", ranges=WHOLE, key=KEY, first=128, most=20_000)
    mine, theirs = sequence(here, length=20_000), sequence(there, length=length)
    question, asked = one.first_question, []
    while question is not None:
        asked.append((question.first, question.count))
        for sketch in answers(question, there, theirs):
            one.take(sketch)
        question = one.step(mine, figures(here))
    return one, asked


def test_a_sequence_of_an_older_node_costs_one_question_and_not_all_of_its_symbols():
    one, asked = many_differ(OLDER_SYMBOLS)
    assert one.outcome is SketchOutcome.REFUSED
    assert asked == [(0, 128), (OLDER_SYMBOLS, 1)]
    assert one.symbols == 128


def test_a_sequence_that_is_long_enough_is_asked_once_whether_it_is():
    one, asked = many_differ(8_192)
    assert one.outcome is SketchOutcome.TAKEN
    assert one.differences == 4_000
    assert asked.count((OLDER_SYMBOLS, 1)) == 1
    assert [first for first, count in asked if count > 1] == sorted(
        first for first, count in asked if count > 1
    )
    assert one.symbols <= 1.06 * symbols_for(4_000)


@pytest.mark.parametrize(
    ("first", "there", "symbols"),
    [(4_096, 65_536, 4_096), (4_097, 65_536, 128), (4_097, 65_537, 4_097), (128, 300, 128)],
)
def test_a_first_question_is_not_longer_than_an_older_sequence(first, there, symbols):
    assert first_block(first, there) == symbols


def test_a_try_has_so_many_questions():
    """Symbols that seem to need a few more each time."""
    one = SketchTry(number=1, salt=b"", ranges=WHOLE, key=KEY, first=128, most=32_768)
    mine, theirs = no_symbols(32_768), no_symbols(32_768)
    theirs[0, :] = 1
    question, asked = one.first_question, 0
    while question is not None:
        asked += 1
        one.take(
            block_of(question, question.first, question.count, theirs, SetFigures(5, b"d" * 32))
        )
        question = one.step(mine, SetFigures(5, b"e" * 32))
    assert one.outcome is SketchOutcome.UNDECODED
    assert asked == MOST_QUESTIONS
