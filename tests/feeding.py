"""One way to feed every decoder: whole, byte by byte, at every split, and with bytes behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["check_feedings", "feedings"]

T = TypeVar("T")


def feedings(data: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Named ways to cut `data` into pieces that follow each other."""
    yield "whole", [data]
    yield "byte by byte", [data[i : i + 1] for i in range(len(data))]
    for at in range(1, len(data)):
        yield f"split at {at}", [data[:at], data[at:]]


def check_feedings(
    make: Callable[[], Callable[[bytes], list[T]]],
    data: bytes,
    expected: list[T],
    *,
    behind: bytes = b"",
) -> None:
    """Feed a fresh decoder each way; each must tell `expected`, all of it and nothing more.

    `make` gives a function that takes a piece and returns what it completes. `behind` are bytes
    that complete nothing (the start of something longer): they are fed once in the last piece and
    once after it.
    """
    for name, pieces in feedings(data):
        feed = make()
        told = [outcome for piece in pieces for outcome in feed(piece)]
        assert told == expected, name
    if behind:
        assert make()(data + behind) == expected, "with bytes behind it"
        feed = make()
        assert feed(data) + feed(behind) == expected, "with bytes after it"
