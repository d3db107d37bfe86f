"""From what came of an offer to the messages that nodes of this kind are told it by.

A change is one CHANGE however many fields it has. What others are told is in foreign.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hyperbloom.objects.wire.payloads import Change, Creation, Fields, Payload, Removal
from hyperbloom.store.objects.records import ObjectRecord, Outcome, Verdict, unpack_fields

__all__ = ["ANNOUNCED", "answers", "difference", "messages"]

ANNOUNCED: Final = frozenset(
    {Verdict.CREATED, Verdict.CHANGED, Verdict.REMOVED, Verdict.MERGED, Verdict.RESTAMPED}
)
"""Verdicts that others hear of; the rest changed nothing here."""


def messages(outcome: Outcome) -> list[Payload]:
    """What a peer is told of an outcome, in order; empty when it changed nothing here."""
    before, after, stamp = outcome.before, outcome.after, outcome.stamp
    match outcome.verdict:
        case Verdict.CREATED if after is not None:
            return [_creation(after)]
        case Verdict.CHANGED | Verdict.MERGED if before is not None and after is not None:
            return [_change(before.hash, before.fields, after, stamp)]
        case Verdict.REMOVED if before is not None:
            return [Removal(t=stamp, h=before.hash)]
        case Verdict.RESTAMPED:
            return [_creation(after)] if after is not None else [Removal(t=stamp, h=outcome.hash)]
    return []


def answers(outcome: Outcome) -> list[Payload]:
    """What a peer is told that offered an older state than the one here (STALE)."""
    after = outcome.after
    if after is None:
        return [Removal(t=outcome.stamp, h=outcome.hash)]
    if outcome.offered is not None:
        return [_change(outcome.hash, unpack_fields(outcome.offered), after, outcome.stamp)]
    return [Change(t=outcome.stamp, d=after.fields, h=after.hash, oh=outcome.hash)]


def _creation(record: ObjectRecord) -> Creation:
    return Creation(t=record.stamp, d=record.fields, h=record.hash)


def _change(old: int, fields: Fields, after: ObjectRecord, stamp: int) -> Change:
    part = difference(fields, after.fields)
    return Change(t=stamp, d=part or after.fields, h=after.hash, oh=old)


def difference(fields: Fields, later: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `later` that are not the same in `fields`."""
    absent = object()
    return {
        name: value
        for name, value in later.items()
        # 1, 1.0 and True are equal in Python and not elsewhere.
        if (old := fields.get(name, absent)) != value or type(old) is not type(value)
    }
