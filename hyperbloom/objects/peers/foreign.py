"""What a peer of another kind is told: which objects, in which words, and why some are not.

The deployed one is the JVM implementation. One value that it cannot set, or one object of no class
of its own, ends its connection, and would again whenever it comes back; so what it cannot read is
left out, counted and said, and the rest goes on (declarations.py). An object that no class has made
a hash for is left out as well: there it would be known by another hash, and every later word about
it would be lost.

It reads one field of a CHANGE. What changes more is told as REMOVAL and CREATION; where the whole
cannot be told and the fields that changed can, as one CHANGE after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from hyperbloom.json_fields import hash_text
from hyperbloom.objects.announcements import difference
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.classes.types import ObjectType, Types, unreadable_fields
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.payloads import Change, Creation, Fields, Payload, Removal
from hyperbloom.store.objects.records import ObjectRecord, Outcome, Verdict

__all__ = ["Made", "Told", "answers", "creation", "messages", "too_large", "unreadable"]

#: The letters of a type's name in a hash; a record's hash has zeros there.
_LETTERS: Final = ((1 << 24) - 1) << 40
_NO_TYPE: Final = "no declared type fits it (hyperbloom object declare)"
_TEXT_RULE: Final = 'its hash was made with hash_rule = "text"'


@dataclass(slots=True)
class Told:
    """What a peer is told, in order; and of objects it is not told, which one and why."""

    payloads: list[Payload] = field(default_factory=list)
    untold: str | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """Messages about one outcome, each compressed once for all peers of a kind."""

    messages: list[tuple[Payload, bytes]]
    untold: str | None

    @classmethod
    def of(cls, told: Told) -> Made:
        """The messages in what is told."""
        return cls([(payload, compressed(payload)) for payload in told.payloads], told.untold)


def unreadable(types: Types, record: ObjectRecord) -> str | None:
    """Why a peer of another kind cannot be told an object; None: it can."""
    fields = record.fields
    kind = types.type_of(record.type_name, fields)
    if kind is None:
        return unreadable_fields(fields) if record.hash & _LETTERS else _NO_TYPE
    why = kind.unreadable(fields)
    if why is None and types.rule is HashRule.JVM and _is_by_text(kind, record):
        return _TEXT_RULE
    return why


def _is_by_text(kind: ObjectType, record: ObjectRecord) -> bool:
    by_text = kind.hash_of(record.fields, HashRule.TEXT)
    return record.hash == by_text != kind.hash_of(record.fields, HashRule.JVM)


def creation(types: Types, record: ObjectRecord) -> Told:
    """CREATION of an object, if it can be read."""
    why = unreadable(types, record)
    return Told([_created(record)]) if why is None else Told(untold=_sentence(record, why))


def messages(types: Types, outcome: Outcome) -> Told:
    """What the peer is told of an outcome; nothing when it changed nothing here."""
    before, after = outcome.before, outcome.after
    match outcome.verdict:
        case Verdict.CREATED if after is not None:
            return creation(types, after)
        case Verdict.CHANGED if before is not None and after is not None:
            return _change(types, before, after, outcome.stamp)
        case Verdict.REMOVED | Verdict.MERGED if before is not None:
            return Told([Removal(t=outcome.stamp, h=before.hash)])
    return Told()


def answers(types: Types, outcome: Outcome) -> Told:
    """What the peer is told that offered an older state than the one here (STALE)."""
    after = outcome.after
    if after is None:
        return Told([Removal(t=outcome.stamp, h=outcome.hash)])
    if outcome.offered is None:
        return creation(types, after)
    offered = replace(after, hash=outcome.hash, packed=outcome.offered)
    return _change(types, offered, after, outcome.stamp)


def _change(types: Types, before: ObjectRecord, after: ObjectRecord, stamp: int) -> Told:
    """That an object which was `before` is `after` now."""
    part = difference(before.fields, after.fields)
    why = unreadable(types, after)
    if not (before.hash | after.hash) & _LETTERS:
        return Told(untold=_sentence(after, why or _NO_TYPE))
    kind = types.type_of(after.type_name, after.fields)
    part_unread = unreadable_fields(part) if kind is None else kind.unreadable(part)
    if part_unread is None and len(part) == 1:
        told = Told([Change(t=stamp, d=part, h=after.hash, oh=before.hash)])
        if why is None and unreadable(types, before) is not None:
            # It may not have had the object until now.
            told.payloads.append(_created(after))
        return told
    if why is None:
        return Told([Removal(t=stamp, h=before.hash), _created(after)])
    if part_unread is None and kind is not None and part:
        return Told(_one_by_one(types, kind, before, after, part, stamp))
    return Told([Removal(t=stamp, h=before.hash)], _sentence(after, why))


def _one_by_one(
    types: Types,
    kind: ObjectType,
    before: ObjectRecord,
    after: ObjectRecord,
    part: Fields,
    stamp: int,
) -> list[Payload]:
    fields, number = dict(before.fields), before.hash
    changes: list[Payload] = []
    for left, (name, value) in zip(reversed(range(len(part))), part.items(), strict=True):
        fields[name] = value
        following = kind.hash_of(fields, types.rule) if left else after.hash
        changes.append(Change(t=stamp, d={name: value}, h=following, oh=number))
        number = following
    return changes


def _created(record: ObjectRecord) -> Creation:
    return Creation(t=record.stamp, d=record.fields, h=record.hash)


def _sentence(record: ObjectRecord, why: str) -> str:
    return f"{hash_text(record.hash)}: {why}"


def too_large(number: int, size: int, most: int) -> str:
    """Why a message about an object is not sent: no packet takes it."""
    return f"{hash_text(number)}: its message has {size} bytes, and a packet takes {most}"
