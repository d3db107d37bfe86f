"""What a format is: what it takes, and a function from entries in order to bytes in slices."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hyperbloom.outputs.allow import Allowed
from hyperbloom.outputs.entries import MAX_NAME, Kind
from hyperbloom.outputs.selection import Counts, entries_of, texts_of
from hyperbloom.outputs.set_names import DEFAULT_SET_NAME, check_set_name

__all__ = ["ADDRESSES", "NAMES", "EntryFormat", "Format", "Rendering", "TextFormat", "per_line"]

NAMES: frozenset[Kind] = frozenset({"domain"})
ADDRESSES: frozenset[Kind] = frozenset({"address", "network"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """What a file says beside the entries of its feed.

    ``serial`` is that of a zone's SOA (RFC 1982): greater than it was when anything changes.
    ``set_name`` goes into formats that name sets; raises ValueError where it is no such name.
    """

    allowed: Allowed
    serial: int
    set_name: str = DEFAULT_SET_NAME

    def __post_init__(self) -> None:
        check_set_name(self.set_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFormat:
    """A format of domains, addresses, networks, mail addresses, or several of them.

    ``longest`` and ``fits`` say which entries of these kinds it cannot hold.
    """

    name: str
    takes: str
    kinds: frozenset[Kind]
    render: Callable[[Iterable[list[bytes]], Rendering], Iterator[bytes]]
    longest: int = MAX_NAME
    fits: Callable[[bytes], object] | None = None

    def file(
        self, slices: Iterable[list[bytes]], rendering: Rendering, left_out: Counts
    ) -> Iterator[bytes]:
        """A file of values in slices, as slices; counts in `left_out` what is not in it."""
        entries = entries_of(
            slices,
            self.kinds,
            rendering.allowed,
            left_out,
            longest=self.longest,
            fits=self.fits,
        )
        return self.render(entries, rendering)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFormat:
    """A format of texts of any kind: values that are UTF-8 and match `pattern`."""

    name: str
    takes: str
    pattern: re.Pattern[str]
    render: Callable[[Iterable[list[str]]], Iterator[bytes]]

    def file(
        self, slices: Iterable[list[bytes]], rendering: Rendering, left_out: Counts
    ) -> Iterator[bytes]:
        """As that of `EntryFormat`."""
        return self.render(texts_of(slices, self.pattern, rendering.allowed, left_out))


Format = EntryFormat | TextFormat


def per_line(entries: list[bytes], before: bytes, behind: bytes) -> bytes:
    """Each entry between the same bytes, on a line of its own."""
    if not entries:
        return b""
    return before + (behind + b"\n" + before).join(entries) + behind + b"\n"
