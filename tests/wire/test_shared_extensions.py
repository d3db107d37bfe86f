"""What is kept of a peer that has proved who it is."""

from __future__ import annotations

from hyperbloom.wire.limits import MAX_SHARED_EXTENSIONS
from hyperbloom.wire.verification import shared_extensions


def announced(number: int) -> tuple[str, ...]:
    """Equal each time, and another object."""
    return ("split-replies", f"version-{number}")


def test_peers_that_announce_the_same_share_one_object() -> None:
    first = shared_extensions(announced(0))
    assert first == announced(0)
    assert first is not announced(0)
    assert shared_extensions(announced(0)) is first


def test_as_many_announcements_are_shared_as_may_be_and_one_more_drops_the_oldest() -> None:
    first = shared_extensions(announced(0))
    for number in range(1, MAX_SHARED_EXTENSIONS):
        shared_extensions(announced(number))
    assert shared_extensions(announced(0)) is first
    for number in range(1, MAX_SHARED_EXTENSIONS + 1):
        shared_extensions(announced(number))
    assert shared_extensions(announced(0)) is not first
    assert shared_extensions.cache_info().currsize == MAX_SHARED_EXTENSIONS
