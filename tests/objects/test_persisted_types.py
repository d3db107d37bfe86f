"""Persisted classes: what the decorator makes of them, their hashes, which objects fit them."""

from __future__ import annotations

import pytest

from hyperbloom.objects.classes.hashes import HashRule, fields_hash_code, object_hash, record_hash
from hyperbloom.objects.classes.types import Float32, Int64, Types, persisted
from hyperbloom.objects.wire.errors import LocalProtocolError, ObjectError


@persisted
class Person:
    name: str
    age: int = 0

    def older(self):
        return self.age + 1


@persisted(name="PersonV2")
class Other:
    name: str
    age: int
    city: str = ""


@persisted
class Sample:
    small: int
    large: Int64
    wide: float
    narrow: Float32
    on: bool = False
    many: list | None = None


@persisted
class Coded:
    word: str
    rest: int = 0

    def hash_code(self):
        return len(self.word) - 2**40


def test_a_class_becomes_a_dataclass_and_stays_itself():
    ada = Person("Ada", age=36)
    assert (ada.name, ada.age, ada.older()) == ("Ada", 36, 37)
    assert repr(ada) == "Person(name='Ada', age=36)"
    ada.age = 40
    ada.note = "not a field"
    assert ada.age == 40
    assert ada != Person("Ada", age=40)
    assert len({ada, ada}) == 1


def test_an_init_of_its_own_stays():
    @persisted
    class Made:
        word: str

        def __init__(self, first, second):
            self.word = first + second

    assert Made("a", "b").word == "ab"


def test_classes_that_cannot_be_persisted_say_so():
    with pytest.raises(TypeError, match="annotated"):
        persisted(type("Empty", (), {}))
    with pytest.raises(TypeError, match="not persisted"):
        Types([dict])
    types = Types([Person])
    with pytest.raises(ObjectError, match="known as"):
        types.register(persisted(type("Person", (), {"__annotations__": {"x": int}})))


def test_hashes_of_types():
    types = Types([Person, Sample, Coded])
    code = fields_hash_code([65 * 31 * 31 + 100 * 31 + 97, 36])
    assert types.hash_of("Person", {"name": "Ada", "age": 36}) == object_hash("Person", 2, code)
    # The order is the declared one, whatever order the fields came in.
    assert types.hash_of(None, {"age": 36, "name": "Ada"}) == object_hash("Person", 2, code)
    fields = {"small": -1, "large": -1, "wide": 1, "narrow": 1.5, "on": True, "many": [1, None]}
    many = 31 * (31 * 1 + 1) + 0
    codes = [-1, 0, 0x3FF00000, 0x3FC00000, 1231, many]
    assert types.hash_of("Sample", fields) == object_hash("Sample", 6, fields_hash_code(codes))
    assert types.hash_of("Coded", {"word": "xyz", "rest": 5}) == object_hash("Coded", 2, 3)
    with pytest.raises(LocalProtocolError, match="no hashCode"):
        types.hash_of("Person", {"name": object(), "age": 1})


def test_hashes_of_what_has_no_class_here():
    types = Types()
    fields = {"b": 1, "a": "x"}
    assert types.hash_of(None, fields) == record_hash(fields)
    named = types.hash_of("Thing", fields)
    assert named == object_hash("Thing", 2, fields_hash_code([1, 120]))
    changed = types.changed_hash(named, None, {"b": 2, "a": "x"})
    assert changed >> 32 == named >> 32
    assert changed == object_hash("Thing", 2, fields_hash_code([120, 2]))
    assert types.changed_hash(record_hash(fields), None, {"b": 2, "a": "x"}) == record_hash(
        {"b": 2, "a": "x"}
    )
    like_jvm = Types(rule=HashRule.JVM)
    assert like_jvm.changed_hash(record_hash(fields), None, {"a": "y"}) == record_hash({"a": "y"})
    with pytest.raises(ObjectError, match="declare the type"):
        like_jvm.changed_hash(named, None, {"a": "y"})
    jvm = like_jvm.hash_of("Thing", {"b": -1})
    assert jvm == object_hash("Thing", 1, fields_hash_code([-1]), HashRule.JVM)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"name": "Ada", "age": 36}, "Person"),
        ({"name": "Ada", "age": 36, "city": "x"}, "PersonV2"),
        ({"name": "Ada"}, "Person"),
        ({"name": "Ada", "age": 1, "more": 1}, "Person"),
        ({"name": "Ada", "city": 1}, "PersonV2"),
        ({"age": 1, "x": 1, "y": 1}, None),
        ({"nothing": 1}, None),
    ],
)
def test_an_object_is_of_the_type_that_fits_best(fields, name):
    kind = Types([Person, Other, Sample]).fit(fields)
    assert (kind and kind.name) == name


def test_a_tie_is_no_fit():
    twin = persisted(type("Twin", (), {"__annotations__": {"name": str, "age": int}}))
    assert Types([Person, twin]).fit({"name": "Ada", "age": 1}) is None
    assert Types([twin, Person, Other]).fit({"name": "", "age": 1, "city": ""}).name == "PersonV2"


# What the node does with a subscriber


def test_a_subscriber_that_fails_keeps_nothing_from_the_peers(net):
    one, two = net.add("one"), net.add("two")
    net.connect(one, two)
    net.run(1)
    told = []

    def fails(outcome, source):
        told.append(outcome)
        raise ZeroDivisionError

    end = one.pool.subscribe(fails)
    one.put(n=1)
    net.run(1)
    assert len(two.contents()) == 1
    end()
    end()
    one.put(n=2)
    assert len(told) == 1


def test_of_two_changes_of_a_version_the_later_one_holds_on_both_nodes(net):
    one, two = net.add("one"), net.add("two")
    net.connect(one, two)
    net.run(1)
    number = one.put(n=1)
    net.run(1)
    one.skew = 5.0
    one.change(number, n=2)
    two.change(number, n=3)
    net.run(1)
    assert [list(node.contents().values()) for node in (one, two)] == [[{"n": 2}]] * 2
