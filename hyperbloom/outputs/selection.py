"""From values, slice by slice, to the entries or texts that a format takes; counts the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import filterfalse
from operator import methodcaller
from typing import TypeVar

from hyperbloom.feed_words import TOMBSTONE
from hyperbloom.outputs.allow import Allowed
from hyperbloom.outputs.entries import (
    ADDRESS,
    DOMAIN,
    MAIL,
    MAX_NAME,
    Kind,
    LeftOut,
    entry_of,
)

__all__ = ["Counts", "entries_of", "texts_of"]

T = TypeVar("T")

#: How many values were left out, by reason.
Counts = Counter[str]

#: The reason for which a value is left out that is one.
_TOMBSTONE = "tombstone"

#: What of each kind is spelled as it comes out; other spellings are looked at one by one.
_AS_IT_IS: dict[Kind, bytes] = {"domain": DOMAIN, "address": ADDRESS, "mail": MAIL}


def entries_of(
    slices: Iterable[list[bytes]],
    kinds: frozenset[Kind],
    allowed: Allowed,
    left_out: Counts,
    *,
    longest: int = MAX_NAME,
    fits: Callable[[bytes], object] | None = None,
) -> Iterator[list[bytes]]:
    """The entries of `kinds` among values, in the order of these; a slice of each slice.

    A value of another kind, longer than `longest`, or for which `fits` is false, is left out. A
    slice of ordinary spellings is one pass of a regular expression without a call of Python's.
    """
    ordinary = _any_of([pattern for kind, pattern in _AS_IT_IS.items() if kind in kinds])
    another = _any_of([pattern for kind, pattern in _AS_IT_IS.items() if kind not in kinds])

    def entry(value: bytes) -> list[bytes]:
        if ordinary(value):
            return [value]
        if another(value):
            left_out["of another kind"] += 1
            return []
        if value.startswith(TOMBSTONE):
            left_out[_TOMBSTONE] += 1
            return []
        try:
            kind, spelled = entry_of(value)
        except LeftOut as reason:
            left_out[str(reason)] += 1
            return []
        if kind not in kinds:
            left_out["of another kind"] += 1
            return []
        return [spelled]

    for values in slices:
        entries = list(filter(ordinary, values))
        if len(entries) != len(values):
            entries = [found for value in values for found in entry(value)]
        if max(map(len, entries), default=0) > longest:
            entries = _kept(entries, lambda entry: len(entry) <= longest, "too long", left_out)
        if fits is not None:
            entries = _kept(entries, fits, "what this format cannot hold", left_out)
        if allowed:
            entries = _without(entries, allowed, left_out)
        yield entries


def _any_of(patterns: list[bytes]) -> Callable[[bytes], object]:
    """What a whole value may match; nothing where there is no pattern."""
    return re.compile(b"|".join(b"(?:%s)" % pattern for pattern in patterns) or rb"(?!)").fullmatch


def texts_of(
    slices: Iterable[list[bytes]],
    pattern: re.Pattern[str],
    allowed: Allowed,
    left_out: Counts,
) -> Iterator[list[str]]:
    """The values that are UTF-8 and match `pattern` as a whole, in their order.

    Tombstones are left out: they are for nodes, and no other reader knows them.
    """
    for values in slices:
        offered = list(filterfalse(methodcaller("startswith", TOMBSTONE), values))
        if len(offered) != len(values):
            left_out[_TOMBSTONE] += len(values) - len(offered)
        if allowed:
            offered = _kept(offered, lambda value: not allowed.covers(value), "allowed", left_out)
        try:
            texts = [value.decode("utf-8") for value in offered]
        except UnicodeDecodeError:
            texts = [text for text in map(_text, offered) if text is not None]
            left_out["no UTF-8"] += len(offered) - len(texts)
        yield _kept(texts, pattern.fullmatch, "what this format cannot hold", left_out)


def _text(value: bytes) -> str | None:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _kept(things: list[T], keep: Callable[[T], object], reason: str, left_out: Counts) -> list[T]:
    kept = list(filter(keep, things))
    if len(kept) != len(things):
        left_out[reason] += len(things) - len(kept)
    return kept


def _without(entries: list[bytes], allowed: Allowed, left_out: Counts) -> list[bytes]:
    kept: list[bytes] = []
    for entry in entries:
        parts = allowed.without(entry)
        if not parts:
            left_out["allowed"] += 1
        kept += parts
    return kept
