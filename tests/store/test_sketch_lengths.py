"""How many symbols a feed's sketch has: as many as weigh what Bloom filters of its values would."""

from contextlib import closing

import pytest
from sketch_players import FEED, ORIGIN, check, keep, run, set_limits, sketch

from hyperbloom.store import AppendValues, ForgetValues, PutFeed, Store
from hyperbloom.store.limits import SKETCH_SYMBOLS
from hyperbloom.store.sketches.reading import sketch_length

VALUES = [b"value %03d" % number for number in range(50)]


@pytest.mark.parametrize(
    ("values", "symbols"),
    [(0, 4_096), (8_192, 4_096), (8_193, 8_192), (32_768, 16_384), (32_769, 32_768),
     (65_536, 32_768), (65_537, 32_768), (10**9, 32_768)],
)  # fmt: skip
def test_a_set_has_half_as_many_symbols_as_values(values, symbols):
    assert sketch_length(values) == symbols


def test_sizes_follow_the_number_of_values(tmp_path, monkeypatch):
    set_limits(monkeypatch.setattr, FEW_SYMBOLS=4, RUN_VALUES=10)
    with closing(Store.open(tmp_path / "store", durable=False)) as store:
        run(store, PutFeed(FEED, {}))
        grow_and_shrink(store)


def grow_and_shrink(store):
    for values, symbols in ((8, 4), (9, 8), (17, 16)):
        run(store, AppendValues(FEED, VALUES[:values], ORIGIN, 7))
        assert sketch(store).symbols.shape[1] == symbols
        check(store)
    run(store, ForgetValues(FEED, VALUES[:1], erase=True))
    assert sketch(store).symbols.shape[1] == 8
    check(store)
    keep(store)
    assert sketch(store).symbols.shape[1] == SKETCH_SYMBOLS
