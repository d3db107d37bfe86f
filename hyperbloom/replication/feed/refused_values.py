"""The values that local policy keeps out, as long as they are remembered.

A value that is refused comes again with every Sync unless our filters say that it is here, and a
filter needs the value itself. So refused values are kept, in the store and here, within the bounds
of `hyperbloom.store.limits`; the oldest are let go first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hyperbloom.store.limits import MAX_REFUSED_BYTES, MAX_REFUSED_VALUES

__all__ = ["RefusedValues"]


class RefusedValues:
    """A bounded set of values, oldest first."""

    def __init__(self, values: Iterable[bytes] = ()) -> None:
        self._values: dict[bytes, None] = {}
        self._bytes = 0
        self.add(values)

    def __contains__(self, value: bytes) -> bool:
        return value in self._values

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def add(self, values: Iterable[bytes]) -> None:
        """Remember values; those beyond the bounds push out the oldest."""
        for value in values:
            if value not in self._values:
                self._values[value] = None
                self._bytes += len(value)
        while len(self._values) > MAX_REFUSED_VALUES or self._bytes > MAX_REFUSED_BYTES:
            oldest = next(iter(self._values))
            del self._values[oldest]
            self._bytes -= len(oldest)
