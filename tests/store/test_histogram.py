"""Counts of durations by size."""

from hyperbloom.store.histogram import DURATIONS, Histogram


def test_each_is_counted_under_the_bounds_that_it_does_not_exceed():
    counts = Histogram((1.0, 2.0))
    assert (counts.cumulative(), counts.total) == ([0, 0, 0], 0.0)
    for amount in (0.5, 1.0, 1.5, 2.5):
        counts.observe(amount)
    assert counts.cumulative() == [2, 3, 4]
    assert counts.total == 5.5


def test_the_bounds_of_durations_rise():
    """Else what is counted under a bound would depend on where a search happens to look."""
    assert list(DURATIONS) == sorted(set(DURATIONS))
    assert DURATIONS[0] > 0
