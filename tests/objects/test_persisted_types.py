"""Persisted classes: what the decorator makes of them, their hashes, which objects fit them."""

from __future__ import annotations

import pytest
from pool_network import fired

from hyperbloom.objects.classes.hashes import HashRule, fields_hash_code, object_hash, record_hash
from hyperbloom.objects.classes.types import Float32, Int64, Types, persisted
from hyperbloom.objects.pool import Record
from hyperbloom.objects.wire.errors import ClashError, LocalProtocolError, ObjectError, ObjectGone


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


# The pool's methods, in a program with Twisted.


def two_nodes(net):
    one, two = net.add("one", classes=[Person, Coded]), net.add("two", classes=[Person])
    net.connect(one, two)
    net.run(1)
    return one.pool, two.pool


def test_setting_an_attribute_is_a_change_everywhere(net):
    one, two = two_nodes(net)
    events = []
    two.on_created(lambda p: events.append(("created", p.name, p.age)), Person)
    two.on_changed(lambda p: events.append(("changed", p.name, p.age)), Person)
    two.on_removed(lambda p: events.append(("removed", p.name, p.age)), Person)
    ada = fired(one.add(Person("Ada", 36)))
    net.run(1)
    (there,) = fired(two.find(Person, name="Ada"))
    ada.age = 37
    ada.age = 38
    fired(one.settled())
    net.run(1)
    assert (there.age, fired(two.find(Person))[0]) == (38, there)
    there.name = "Ada L."
    net.run(1)
    assert ada.name == "Ada L."
    fired(one.set(ada, name="Eve", age=1))
    net.run(1)
    assert (there.name, there.age) == ("Eve", 1)
    fired(two.remove(there))
    net.run(1)
    assert len(one) == 0
    assert [event[0] for event in events] == ["created"] + ["changed"] * 4 + ["removed"]
    ada.age = 99
    assert fired(one.find(Person)) == []
    with pytest.raises(ObjectError):
        one.set(ada, age=1)
    with pytest.raises(ObjectGone):
        one.remove(ada)


def test_an_attribute_that_is_set_to_the_same_is_no_change(net):
    one, _ = two_nodes(net)
    ada = fired(one.add(Person("Ada", 1)))
    before = one.figures().past
    ada.age = 1
    assert one.figures().past == before
    ada.age = True
    assert one.figures().past == before + 1


def test_an_instance_whose_change_does_not_hold_gets_what_does(net):
    one, two = two_nodes(net)
    ada = fired(one.add(Person("Ada", 1)))
    net.run(1)
    (there,) = fired(two.find(Person))
    net.nodes["one"].skew = 5.0
    ada.age = 2
    there.age = 3
    net.run(1)
    assert (ada.age, there.age) == (2, 2)


class Later:
    """A writer whose disk takes a turn."""

    def __init__(self, inner, clock):
        self.inner, self.clock = inner, clock

    def submit(self, operation, done):
        self.clock.callLater(0.1, self.inner.submit, operation, done)


def test_changes_in_a_row_are_done_in_their_order(net):
    one, two = two_nodes(net)
    one._writer = Later(one._writer, net.clock)
    ada = Person("Ada", 1)
    one.add(ada)
    for age in range(2, 9):
        ada.age = age
    assert ada.age == 8
    net.run(1)
    (there,) = fired(two.find(Person))
    assert (ada.age, there.age, len(two)) == (8, 8, 1)


def test_a_clash_is_an_error_and_the_instance_is_plain_again(net):
    one, _ = two_nodes(net)
    held = fired(one.add(Coded("abc")))
    with pytest.raises(ObjectError, match="already"):
        one.add(held)
    with pytest.raises(ClashError, match="hashCode"):
        one.add(Coded("xyz", 5))
    del held
    fired(one.add(Coded("long")))
    twin = Coded("xyz", 5)
    with pytest.raises(ClashError, match="hashCode"):
        fired(one.add(twin))
    twin.word = "plain"
    long = next(o for o in one if isinstance(o, Coded) and o.word == "long")
    failed = one.set(long, word="xyz")
    with pytest.raises(ClashError):
        fired(failed)
    assert long.word == "long"


def test_objects_of_no_known_class_are_records(net):
    one, two = two_nodes(net)
    fired(one.add(Coded("abc", 7)))
    fired(one.put_fields({"odd": [1, {"a": b"x"}]}))
    net.run(1)
    found = {tuple(record.fields): record for record in two}
    assert isinstance(found["word", "rest"], Record)
    assert found["odd",]["odd"] == [1, {"a": b"x"}]
    assert repr(found["odd",]).startswith("Record(")
    assert sorted(record.hash for record in two) == sorted(two.store.object_hashes())


def test_iteration_walks_more_than_a_slice(net):
    node = net.add("node")
    for number in range(1_100):
        node.put(n=number)
    assert len({record["n"] for record in node.pool}) == 1_100

    async def all_of_them():
        return [record async for record in node.pool]

    from twisted.internet.defer import Deferred

    assert len(fired(Deferred.fromCoroutine(all_of_them()))) == 1_100


def test_a_subscriber_that_fails_keeps_nothing_from_the_peers(net):
    one, two = two_nodes(net)

    def fails(person):
        raise ZeroDivisionError

    end = one.on_created(fails)
    fired(one.add(Person("Ada")))
    net.run(1)
    assert len(two) == 1
    end()
    end()


def test_an_attribute_that_is_refused_at_once_leaves_the_instance_as_it_was(net):
    node = net.add("node", classes=[Person])
    ada = Person("Ada", 36)
    fired(node.pool.add(ada))
    for refused in ("x" * 70_000, [[[[[[[[[[[[[1]]]]]]]]]]]]]):
        with pytest.raises((ValueError, LocalProtocolError)):
            ada.name = refused
        assert ada.name == "Ada"
    ada.age = 37
    net.run(1)
    assert list(node.contents().values()) == [{"name": "Ada", "age": 37}]
    assert ada.age == 37
