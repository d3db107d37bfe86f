"""Declared types: their form, their hashes by the recorded ones, and what is refused."""

from __future__ import annotations

import pytest
from test_jvm_scenarios import DECLARED, SCENARIOS, value_of

from hyperbloom.objects.classes import declarations
from hyperbloom.objects.classes.declarations import Declaration
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.classes.types import (
    Float32,
    Int64,
    Types,
    declaration_of,
    persisted,
)
from hyperbloom.objects.limits import MAX_FITS, MAX_TYPES
from hyperbloom.objects.wire.errors import ObjectError
from hyperbloom.store import limits

PERSON = Declaration.parse("Person(String name, int age)")


def test_a_declaration_is_read_as_java_has_it():
    assert str(PERSON) == "Person(String name, int age)"
    assert Declaration.parse(" Person ( string name,int  age ) ") == PERSON
    assert Declaration.from_pairs("Person", PERSON.pairs()) == PERSON
    many = Declaration.parse("A(Long a, long b, List<Object> c, map d, Double e)")
    assert list(many.pairs().values()) == ["Long", "long", "list", "map", "double"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Person", "no declaration"),
        ("Person()", "no field"),
        ("Person(int)", "no field"),
        ("Person(int age, int age)", "twice"),
        ("Person(char age)", "there are int, long"),
        ("Per-son(int age)", "no name of a type"),
        ("Person(int a.ge)", "no name of a field"),
        ("P(" + ", ".join(f"int a{n}" for n in range(256)) + ")", "255 fields"),
        (f"{'P' * 256}(int a)", "no name of a type"),
    ],
)
def test_what_is_no_declaration_is_refused_and_named(text, why):
    with pytest.raises(ValueError, match=why):
        Declaration.parse(text)


def test_the_longest_that_is_taken():
    wide = Declaration.parse("P(" + ", ".join(f"int a{n}" for n in range(255)) + ")")
    assert len(wide.fields) == 255
    assert Declaration.parse(f"{'P' * 255}(int a)").name == "P" * 255
    assert Declaration.parse("Outer$Inner(int this$0)").pairs() == {"this$0": "int"}


@pytest.mark.parametrize("name", [7, None, "", "1st", "a b"])
def test_a_name_is_a_word(name):
    with pytest.raises(ValueError, match="is no name of a type"):
        Declaration(name, PERSON.fields)
    with pytest.raises(ValueError, match="is no name of a field"):
        Declaration("Person", ((name, PERSON.fields[0][1]),))


def test_the_bounds_are_those_of_the_store():
    assert declarations.MAX_FIELD_NAME_BYTES == limits.MAX_FIELD_NAME_BYTES
    assert declarations.MAX_OBJECT_FIELDS == limits.MAX_OBJECT_FIELDS


#: Classes whose hashCode is `Objects.hash` over their properties, in another order or the same.
HASHED = {one.name: one for one in DECLARED} | {
    "Riap": Declaration.parse("Riap(int upper, int lower)"),
    "TEnum": Declaration.parse("TEnum(String enumN, short enumV)"),
}


@pytest.mark.parametrize("name", [name for name in HASHED if name not in ("Q", "Ab", "Hidden")])
def test_hashes_are_those_that_the_jvm_has(name):
    types = Types(rule=HashRule.JVM, configured=[HASHED[name]])
    for instance in SCENARIOS[f"object-{name}"]["instances"]:
        fields = {
            field: float(value) if isinstance(value, float) else value
            for field, value in value_of(instance["values"]).items()
        }
        assert types.fit(fields).name == name
        assert types.hash_of(name, fields) == instance["signed"]
        # The order on the wire is any.
        assert types.hash_of(name, dict(reversed(fields.items()))) == instance["signed"]


def test_a_field_that_is_missing_counts_as_java_begins_with_it():
    kind = Declaration.parse("A(String a, int b, boolean c, double d)")
    assert kind.hash_code({}) == kind.hash_code({"a": None, "b": 0, "c": False, "d": 0.0})


def test_a_value_of_another_type_has_a_hash_as_well():
    assert PERSON.hash_code({"name": 3, "age": "x"}) != PERSON.hash_code({"name": "x", "age": 3})


def test_types_are_bounded_and_a_name_is_declared_once():
    types = Types(configured=[PERSON])
    for number in range(MAX_TYPES - 1):
        types.declare(Declaration.parse(f"T{number}(int f{number})"))
    with pytest.raises(ObjectError, match="as many as there may be"):
        types.declare(Declaration.parse("Last(int last)"))
    types.declare(Declaration.parse("T1(long f1)"))
    types.declare(PERSON)
    with pytest.raises(ObjectError, match=r"under .objects. types"):
        types.declare(Declaration.parse("Person(int age)"))
    with pytest.raises(ObjectError, match="leave it out there"):
        types.forget("Person")
    types.forget("T1")
    assert types.fit({"f1": 1}) is None
    assert types.fit({"f2": 1}).name == "T2"


def test_only_what_was_declared_is_forgotten():
    types = Types([Sample])
    types.forget("Sample")
    assert types.named("Sample").cls is Sample
    types.forget("NeverDeclared")
    assert types.declarations() == []


def test_names_of_fields_that_peers_choose_are_not_remembered_for_ever():
    types = Types(configured=[PERSON])
    for number in range(MAX_FITS + 1):
        assert types.fit({f"name{number}": 1}) is None
    assert len(types._fits) == 1
    assert types.fit({"name": "", "age": 1}).name == "Person"


@persisted
class Sample:
    word: str
    count: int
    large: Int64
    ratio: float
    narrow: Float32
    on: bool
    items: list[int]
    more: dict


def test_a_class_declares_itself_by_its_annotations():
    declared = declaration_of(Sample)
    assert str(declared) == (
        "Sample(String word, int count, long large, double ratio, float narrow, boolean on, "
        "list items, map more)"
    )
    fields = {"word": "x", "count": 1, "large": 2, "ratio": 0.5, "narrow": 0.1, "on": True}
    fields |= {"items": [1], "more": {}}
    here, there = Types([Sample]), Types(configured=[declared])
    assert here.hash_of("Sample", fields) == there.hash_of("Sample", fields)
    # A class takes the place of its declaration.
    there.register(Sample)
    assert there.fit(fields).cls is Sample


def test_a_class_that_java_has_no_declaration_for_is_refused():
    @persisted
    class Raw:
        data: bytes

    @persisted
    class Own:
        word: str

        def hash_code(self):
            return 1

    for cls, why in ((Raw, "no type in Java"), (Own, "hash_code of its own"), (int, "persisted")):
        with pytest.raises(TypeError, match=why):
            declaration_of(cls)
