"""One input as choices and pieces: how the bytes of a fuzzer become calls.

Written so that most changes of the input change little of what it means: a choice is one byte, a
piece begins with its length in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["Choices", "piece"]

T = TypeVar("T")


class Choices:
    """Reads an input from its start. At its end, choices are the first option and pieces empty."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        """One byte; 0 at the end."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1]

    def one_of(self, options: Sequence[T]) -> T:
        """One of some options."""
        return options[self.number() % len(options)]

    def take(self, count: int) -> bytes:
        """The next bytes, as many as there are."""
        taken = self._data[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def piece(self) -> bytes:
        """A piece: its length in two bytes, and as much of it as there is."""
        return self.take(int.from_bytes(self.take(2), "big"))

    def pieces(self, most: int) -> Iterator[bytes]:
        """The pieces up to the end of the input."""
        while self._at < len(self._data) and most > 0:
            most -= 1
            yield self.piece()

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self._data))


def piece(data: bytes) -> bytes:
    """A piece as `Choices.piece` reads it."""
    return len(data).to_bytes(2, "big") + data
