"""The format for what takes mail: `postfix`, a table of access(5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hyperbloom.outputs.entries import Kind
from hyperbloom.outputs.formats.format import EntryFormat, Rendering, per_line

__all__ = ["FORMATS"]

_KINDS: frozenset[Kind] = frozenset({"address", "domain", "mail"})


def _postfix(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    # DUNNO ends the search, so that a blocked domain above does not count.
    exceptions = [*filter(_is_key, rendering.allowed.mails), *rendering.allowed.names]
    yield per_line(exceptions, b"", b" DUNNO")
    for entries in slices:
        yield per_line(entries, b"", b" REJECT")


def _is_key(entry: bytes) -> bool:
    """A line that begins with # is a comment."""
    return not entry.startswith(b"#")


FORMATS = (
    EntryFormat(
        name="postfix",
        takes="mail addresses, domains and addresses",
        kinds=_KINDS,
        render=_postfix,
        fits=_is_key,
    ),
)
