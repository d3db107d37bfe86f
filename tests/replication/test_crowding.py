"""Keys that take their own places again and again are turned away for a while."""

from __future__ import annotations

from hyperbloom.connections.crowding import Crowding
from hyperbloom.connections.limits import CROWDED_AT_ONCE, CROWDED_SECONDS, MAX_STRUCK


def test_a_key_takes_its_places_a_few_times_and_then_now_and_then():
    crowding = Crowding()
    for _ in range(CROWDED_AT_ONCE):
        assert not crowding.is_too_much(b"key", now=0.0)
        crowding.took(b"key", now=0.0)
    assert crowding.is_too_much(b"key", now=0.0)
    assert crowding.wait(b"key", now=0.0) == CROWDED_SECONDS
    assert not crowding.is_too_much(b"key", now=CROWDED_SECONDS)
    crowding.took(b"key", now=CROWDED_SECONDS)
    assert crowding.is_too_much(b"key", now=CROWDED_SECONDS)


def test_one_network_does_not_use_it_up_for_another():
    crowding = Crowding()
    for _ in range(100):
        crowding.took(b"key" + b"here", now=0.0)
    assert crowding.is_too_much(b"key" + b"here", now=0.0)
    assert not crowding.is_too_much(b"key" + b"there", now=0.0)


def test_of_too_many_the_oldest_are_forgotten():
    crowding = Crowding()
    for _ in range(CROWDED_AT_ONCE):
        crowding.took(b"first", now=0.0)
    for number in range(MAX_STRUCK):
        crowding.took(str(number).encode(), now=0.0)
    assert not crowding.is_too_much(b"first", now=0.0)
