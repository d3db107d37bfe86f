"""Keys that take their own places again and again are turned away for a while."""

from __future__ import annotations

from hyperbloom.connections.crowding import Crowding
from hyperbloom.connections.limits import (
    CROWDED_AT_ONCE,
    CROWDED_OF_KEY,
    CROWDED_SECONDS,
    MAX_STRUCK,
)

HERE = "127.0.0.1"


def test_a_key_takes_its_places_a_few_times_and_then_now_and_then():
    crowding = Crowding()
    for _ in range(CROWDED_AT_ONCE):
        assert not crowding.is_too_much(b"key", HERE, now=0.0)
        crowding.took((b"key",), HERE, now=0.0)
    assert crowding.is_too_much(b"key", HERE, now=0.0)
    assert crowding.wait(b"key", HERE, now=0.0) == CROWDED_SECONDS
    assert not crowding.is_too_much(b"key", HERE, now=CROWDED_SECONDS)
    crowding.took((b"key",), HERE, now=CROWDED_SECONDS)
    assert crowding.is_too_much(b"key", HERE, now=CROWDED_SECONDS)


def test_one_network_does_not_use_it_up_for_another():
    crowding = Crowding()
    for _ in range(100):
        crowding.took((b"key",), HERE, now=0.0)
    assert crowding.is_too_much(b"key", HERE, now=0.0)
    assert not crowding.is_too_much(b"key", "there", now=0.0)


def test_a_key_that_comes_from_many_networks_has_one_place_at_a_time_from_each():
    crowding = Crowding()
    networks = [str(number) for number in range(CROWDED_OF_KEY + 1)]
    for network in networks:
        assert not crowding.is_too_much(b"key", network, now=0.0)
        crowding.took((b"key",), network, now=0.0)
    assert all(crowding.is_too_much(b"key", network, now=0.0) for network in networks)
    assert not crowding.is_too_much(b"key", HERE, now=0.0)
    assert not crowding.is_too_much(b"other", networks[0], now=0.0)
    assert crowding.wait(b"key", networks[0], now=0.0) == CROWDED_SECONDS
    assert not crowding.is_too_much(b"key", networks[0], now=CROWDED_SECONDS)


def test_however_often_a_key_came_from_many_networks_it_is_over_soon():
    crowding = Crowding()
    for number in range(1_000):
        crowding.took((b"key",), str(number), now=0.0)
    later = 2 * CROWDED_OF_KEY * CROWDED_SECONDS
    crowding.took((b"key",), HERE, now=later)
    assert not crowding.is_too_much(b"key", HERE, now=later)


def test_of_too_many_the_oldest_are_forgotten():
    crowding = Crowding()
    for _ in range(CROWDED_AT_ONCE):
        crowding.took((b"first",), HERE, now=0.0)
    for number in range(MAX_STRUCK):
        crowding.took((str(number).encode(),), HERE, now=0.0)
    assert not crowding.is_too_much(b"first", HERE, now=0.0)


def test_keys_that_a_member_makes_push_out_their_own_places_alone():
    crowding = Crowding()
    for _ in range(CROWDED_AT_ONCE):
        crowding.took((b"honest",), HERE, now=0.0)
    for number in range(2 * MAX_STRUCK):
        crowding.took((b"member", str(number).encode()), HERE, now=0.0)
    assert crowding.is_too_much(b"honest", HERE, now=0.0)
    assert len(crowding._taken) <= MAX_STRUCK
