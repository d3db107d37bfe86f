"""From what came of an offer to the messages that others are told it by.

To nodes of this kind a change is one CHANGE however many fields it has. Another implementation
(the JVM) reads one field of a CHANGE; what changes more is told to it as REMOVAL and CREATION.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hyperbloom.objects.payloads import Change, Creation, Fields, Payload, Removal
from hyperbloom.store import ObjectRecord, Outcome, Verdict

__all__ = ["NEWS", "answers", "difference", "messages"]

NEWS: Final = frozenset(
    {Verdict.CREATED, Verdict.CHANGED, Verdict.REMOVED, Verdict.MERGED, Verdict.RESTAMPED}
)
"""Verdicts that others hear of; the rest changed nothing here."""


def messages(outcome: Outcome, *, kin: bool) -> list[Payload]:
    """What a peer is told of news, in order; empty when it is none of its business."""
    before, after, stamp = outcome.before, outcome.after, outcome.stamp
    match outcome.verdict:
        case Verdict.CREATED if after is not None:
            return [_creation(after)]
        case Verdict.CHANGED if before is not None and after is not None:
            return _change(before.hash, before.fields, after, stamp, kin=kin)
        case Verdict.REMOVED if before is not None:
            return [Removal(t=stamp, h=before.hash)]
        case Verdict.MERGED if before is not None and after is not None:
            if kin:
                return _change(before.hash, before.fields, after, stamp, kin=True)
            return [Removal(t=stamp, h=before.hash)]
        case Verdict.RESTAMPED if kin:
            return [_creation(after)] if after is not None else [Removal(t=stamp, h=outcome.hash)]
    return []


def answers(outcome: Outcome, *, kin: bool) -> list[Payload]:
    """What a peer is told that offered an older state than the one here (STALE)."""
    after = outcome.after
    if after is None:
        return [Removal(t=outcome.stamp, h=outcome.hash)]
    if outcome.offered is not None:
        return _change(outcome.hash, outcome.offered, after, outcome.stamp, kin=kin)
    if kin:
        return [
            Change(t=outcome.stamp, d=after.fields, h=after.hash, oh=outcome.hash),
        ]
    return [_creation(after)]


def _creation(record: ObjectRecord) -> Creation:
    return Creation(t=record.stamp, d=record.fields, h=record.hash)


def _change(
    old: int, fields: Fields, after: ObjectRecord, stamp: int, *, kin: bool
) -> list[Payload]:
    part = difference(fields, after.fields)
    if kin or len(part) == 1:
        return [Change(t=stamp, d=part or after.fields, h=after.hash, oh=old)]
    return [Removal(t=stamp, h=old), _creation(after)]


def difference(fields: Fields, later: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `later` that are not the same in `fields`."""
    absent = object()
    return {
        name: value
        for name, value in later.items()
        # 1, 1.0 and True are equal in Python and not elsewhere.
        if (old := fields.get(name, absent)) != value or type(old) is not type(value)
    }
