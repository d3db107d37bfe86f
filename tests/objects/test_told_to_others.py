"""What peers of another kind are told: what they cannot read is left out, and why is said."""

from __future__ import annotations

import math

import pytest

from hyperbloom.json_fields import hash_text
from hyperbloom.objects.classes.declarations import Declaration, JavaType, unreadable_field
from hyperbloom.objects.classes.hashes import HashRule, record_hash
from hyperbloom.objects.classes.types import Types, persisted
from hyperbloom.objects.peers import foreign
from hyperbloom.objects.peers.foreign import Told
from hyperbloom.objects.wire.codec import compressed
from hyperbloom.objects.wire.payloads import Change, Creation, Removal
from hyperbloom.store.objects.records import ObjectRecord, Outcome, Verdict, pack_fields

BOTTOM, TOP = -(2**31), 2**31 - 1


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (None, TOP, None),
        (None, TOP + 1, "2147483648 is beyond 32 bits"),
        (None, BOTTOM, None),
        (None, BOTTOM - 1, "-2147483649 is beyond 32 bits"),
        (None, True, None),
        (None, None, None),
        (None, "text", None),
        (None, 0.5, None),
        (None, math.inf, None),
        (None, math.nan, None),
        (None, 0.1, "32 bits do not hold the number 0.1"),
        (None, 1e300, "32 bits do not hold the number 1e+300"),
        (None, b"bytes", "it holds a byte string"),
        (None, [1, "a", None, {"k": [2]}], None),
        (None, [1, TOP + 1], "2147483648 is beyond 32 bits"),
        (None, ({"k": [0.5]},), "a float in a list or map has another hash there"),
        (None, {TOP + 1: 1}, "2147483648 is beyond 32 bits"),
        (None, {"k": b""}, "it holds a byte string"),
        (JavaType.INT, 7, None),
        (JavaType.INT, True, "it is no int"),
        (JavaType.INT, None, "it is no int"),
        (JavaType.INT, TOP + 1, "2147483648 is beyond 32 bits"),
        (JavaType.LONG, TOP + 1, "2147483648 is beyond 32 bits"),
        (JavaType.BOXED_LONG, None, None),
        (JavaType.BOXED_LONG, 1, "Java cannot be told a Long other than null"),
        (JavaType.BYTE, 1, "Java cannot be told a byte"),
        (JavaType.SHORT, 1, "Java cannot be told a short"),
        (JavaType.FLOAT, 0.1, None),
        (JavaType.FLOAT, TOP + 1, "2147483648 is beyond 32 bits"),
        (JavaType.DOUBLE, 0.1, "32 bits do not hold the number 0.1"),
        (JavaType.STRING, None, None),
        (JavaType.STRING, 1, "it is no String"),
        (JavaType.LIST, [0.5], "a float in a list or map has another hash there"),
    ],
)
def test_what_the_jvm_can_be_told_of_a_field(kind, value, why):
    assert unreadable_field(kind, value) == why


POINT = Declaration.parse("Point(int x, int y)")
TYPES = Types(configured=[POINT], rule=HashRule.JVM)


def test_a_declared_field_is_judged_by_its_type_and_another_by_its_value():
    assert POINT.unreadable({"x": 1, "y": 2, "z": 0.5}) is None
    assert POINT.unreadable({"x": 1}) is None
    assert POINT.unreadable({"x": 1, "y": "2"}) == "the field y: it is no int"
    assert POINT.unreadable({"x": 1, "z": b""}) == "the field z: it holds a byte string"


def test_fields_of_a_class_are_judged_by_its_annotations():
    @persisted
    class Named:
        title: str
        weight: float
        parts: list[int]

    kind = Types([Named]).named("Named")
    assert kind.unreadable({"title": "t", "weight": 0.5}) is None
    assert kind.unreadable({"title": 1}) == "the field title: it is no String"
    assert kind.unreadable({"parts": {}}) == "the field parts: it is no list"
    assert kind.unreadable({"parts": [1]}) is None


def point(x, y, *, stamp=9, number=None, types=TYPES):
    fields = {"x": x, "y": y}
    return ObjectRecord(
        hash=types.hash_of("Point", fields) if number is None else number,
        packed=pack_fields(fields),
        type_name="Point",
        created=1,
        changed=1,
        stamp=stamp,
        ancestors=(),
    )


def untyped(fields, *, number=None, stamp=9):
    return ObjectRecord(
        hash=record_hash(fields) if number is None else number,
        packed=pack_fields(fields),
        type_name=None,
        created=1,
        changed=1,
        stamp=stamp,
        ancestors=(),
    )


def outcome(verdict, before=None, after=None, **more):
    number = before.hash if before is not None else after.hash
    return Outcome(
        **{"verdict": verdict, "hash": number, "stamp": 9, "before": before, "after": after} | more
    )


def created(record):
    return Creation(t=9, d=record.fields, h=record.hash)


def changed(before, after, **part):
    return Change(t=9, d=part, h=after.hash, oh=before.hash)


def removed(record):
    return Removal(t=9, h=record.hash)


OLD, NEW, BOTH, BAD = point(1, 2), point(1, 3), point(4, 5), point(1, TOP + 1)
WHY_BAD = f"{hash_text(BAD.hash)}: the field y: 2147483648 is beyond 32 bits"


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (outcome(Verdict.CREATED, after=NEW), Told([created(NEW)])),
        (outcome(Verdict.CREATED, after=BAD), Told(untold=WHY_BAD)),
        (outcome(Verdict.CHANGED, OLD, NEW), Told([changed(OLD, NEW, y=3)])),
        # It reads one field of a change.
        (outcome(Verdict.CHANGED, OLD, BOTH), Told([removed(OLD), created(BOTH)])),
        # It had never got the object; whether it has it now, nobody knows.
        (outcome(Verdict.CHANGED, BAD, NEW), Told([changed(BAD, NEW, y=3), created(NEW)])),
        (outcome(Verdict.CHANGED, OLD, BAD), Told([removed(OLD)], WHY_BAD)),
        (outcome(Verdict.CHANGED, OLD, OLD), Told([removed(OLD), created(OLD)])),
        (outcome(Verdict.REMOVED, OLD), Told([removed(OLD)])),
        (outcome(Verdict.MERGED, OLD, NEW), Told([removed(OLD)])),
        (outcome(Verdict.RESTAMPED, OLD, OLD), Told()),
        (outcome(Verdict.STALE, OLD, OLD), Told()),
    ],
)
def test_what_it_is_told_of_news(came, told):
    assert foreign.messages(TYPES, came) == told


def test_what_can_be_read_of_an_object_is_told_field_by_field():
    """Its other field stays as the JVM wrote it, which alone can."""
    types = Types(configured=[Declaration.parse("Box(short kind, int width, int height)")])

    def box(width, height):
        fields = {"kind": 1, "width": width, "height": height}
        return untyped(fields, number=types.hash_of("Box", fields))

    before, between, after = box(1, 2), box(3, 2), box(3, 4)
    told = foreign.messages(types, outcome(Verdict.CHANGED, before, after))
    assert told == Told([changed(before, between, width=3), changed(between, after, height=4)])
    one = foreign.messages(types, outcome(Verdict.CHANGED, before, between))
    assert one == Told([changed(before, between, width=3)])


class TestAnswers:
    """To who offers an older state than the one here."""

    def test_what_is_gone(self):
        came = outcome(Verdict.STALE, OLD)
        assert foreign.answers(TYPES, came) == Told([removed(OLD)])

    def test_what_is_another_now(self):
        assert foreign.answers(TYPES, outcome(Verdict.STALE, OLD, NEW)) == Told([created(NEW)])
        came = outcome(Verdict.STALE, OLD, NEW, offered=OLD.packed)
        assert foreign.answers(TYPES, came) == Told([changed(OLD, NEW, y=3)])


class TestWithoutAType:
    def test_an_object_that_no_class_made_a_hash_for_is_left_out(self):
        one = untyped({"q": 1})
        sentence = f"{hash_text(one.hash)}: no declared type fits it (hyperbloom object declare)"
        assert foreign.creation(TYPES, one) == Told(untold=sentence)
        other = untyped({"q": 2})
        changed_one = outcome(Verdict.CHANGED, one, other)
        assert foreign.messages(TYPES, changed_one).payloads == []
        assert "no declared type" in foreign.messages(TYPES, changed_one).untold

    def test_one_of_a_class_elsewhere_is_told(self):
        number = 0x41_42_43_01_00000001
        one, other = untyped({"q": 1}, number=number), untyped({"q": 2}, number=number + 1)
        assert foreign.creation(TYPES, one) == Told([created(one)])
        came = outcome(Verdict.CHANGED, one, other)
        assert foreign.messages(TYPES, came) == Told([changed(one, other, q=2)])
        bad = untyped({"q": b""}, number=number)
        assert foreign.creation(TYPES, bad).untold.endswith("the field q: it holds a byte string")
        wide = untyped({"q": 3, "r": 4, "s": b""}, number=number)
        told = foreign.messages(TYPES, outcome(Verdict.CHANGED, one, wide))
        assert told.payloads == [removed(one)]
        assert told.untold.endswith("the field s: it holds a byte string")


def test_an_object_whose_hash_was_made_by_the_other_rule_is_left_out():
    by_text = point(-1, -1, types=Types(configured=[POINT]))
    by_jvm = point(-1, -1)
    assert by_text.hash != by_jvm.hash
    assert foreign.creation(TYPES, by_jvm) == Told([created(by_jvm)])
    assert foreign.creation(TYPES, by_text).untold.endswith('hash_rule = "text"')
    assert foreign.unreadable(Types(configured=[POINT]), by_text) is None
    # Where both rules give the same, it may be either.
    same = point(0, 1)
    assert foreign.unreadable(TYPES, same) is None
    assert foreign.unreadable(TYPES, point(-1, -1, number=by_jvm.hash + 1)) is None


def test_a_message_is_made_once_for_all():
    made = foreign.Made.of(Told([removed(OLD)], "why"))
    assert made.messages == [(removed(OLD), compressed(removed(OLD)))]
    assert made.untold == "why"
    assert foreign.too_large(7, 100, 99) == (
        f"{hash_text(7)}: its message has 100 bytes, and a packet takes 99"
    )
