"""Two stores with any values, any ranges: sketches of the ranges tell what they differ by there."""

from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st
from sketch_players import FEED, ORIGIN, ids, run

from hyperbloom.replication.reading.ranges import common
from hyperbloom.sketches import Decoder, ids_to_bytes, sketch_key
from hyperbloom.store import AppendValues, ForgetValues, PutFeed, Store

SYMBOLS = 96

words = st.binary(min_size=1, max_size=2)
sets_ = st.lists(words, max_size=25, unique=True)
bounds = st.lists(words | st.just(b""), unique=True, max_size=6).map(sorted)


@st.composite
def ranges(draw):
    """Ranges that lie apart, in order; the last one may be open above."""
    cuts = draw(bounds)
    pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
    return [*pairs, (cuts[-1], None)] if len(cuts) % 2 else pairs


def is_in(value, within):
    return any(start <= value and (end is None or value < end) for start, end in within)


def filled(path, values, forgotten):
    store = Store.open(path, durable=False)
    run(store, PutFeed(FEED, {}))
    run(store, AppendValues(FEED, values, ORIGIN, 1))
    if forgotten:
        run(store, ForgetValues(FEED, forgotten))
    return store


def sketch_of(store, within):
    build = store.range_sketch(FEED, within, SYMBOLS)
    while (made := build.step()) is None:
        pass
    return made


@settings(max_examples=60, deadline=None)
@given(sets_, sets_, ranges(), ranges(), st.randoms(), st.data())
def test_what_differs_in_the_ranges_that_both_keep_comes_out_or_not_yet(
    tmp_path_factory, one, other, kept, asked, chance, data
):
    folder = tmp_path_factory.mktemp("ranges")
    forgotten = data.draw(st.lists(st.sampled_from(one), unique=True)) if one else []
    order = sorted(one)
    chance.shuffle(order)
    within = common(kept, asked)
    with (
        closing(filled(folder / "one", order, forgotten)) as here,
        closing(filled(folder / "other", other, [])) as there,
    ):
        mine, theirs = sketch_of(here, within), sketch_of(there, within)
    decoder = Decoder(sketch_key(FEED), most_ids=SYMBOLS)
    at = 0
    while at < SYMBOLS:
        step = data.draw(st.integers(1, SYMBOLS - at))
        block = slice(at, at + step)
        at += step
        if decoder.feed(mine.symbols[:, block] - theirs.symbols[:, block]):
            break
    only_here = {value for value in set(one) - set(other) if is_in(value, within)}
    only_there = {value for value in set(other) - set(one) if is_in(value, within)}
    assert mine.settled.count == sum(is_in(value, within) for value in one)
    if decoder.done:
        assert as_set(decoder.mine) == as_set(ids(sorted(only_here)))
        assert as_set(decoder.theirs) == as_set(ids(sorted(only_there)))
    else:
        assert at == SYMBOLS
        assert len(only_here | only_there) > SYMBOLS // 3


def as_set(found):
    data = ids_to_bytes(found)
    return {data[at : at + 16] for at in range(0, len(data), 16)}
