"""Persisted classes of programs, over a real control socket: what becomes of their instances."""

from __future__ import annotations

import threading

import pytest

from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.client.remote_pool import RemotePool, RemoteRecord
from hyperbloom.objects.classes.types import persisted
from hyperbloom.objects.wire.errors import ObjectError, ObjectGone


@persisted
class Person:
    name: str
    age: int = 0


@persisted
class Coded:
    word: str
    rest: int = 0

    def hash_code(self):
        return len(self.word) - 2**40


@pytest.fixture
def programs(pooled):
    """Two programs at one node; the second does not know Coded."""
    with RemotePool(pooled.path, [Person, Coded]) as one, RemotePool(pooled.path, [Person]) as two:
        yield one, two


class Enough(Exception):
    """What a callback raises to end `follow`."""


def kind(call):
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.kind


def test_setting_an_attribute_is_a_change_for_every_program(pooled, programs):
    one, two = programs
    ada = one.add(Person("Ada", 36))
    (there,) = two.find(Person, name="Ada")
    events, watching = [], threading.Event()

    def removed(person):
        events.append(("removed", person, person.name, person.age))
        raise Enough

    def follow():
        with pytest.raises(Enough):
            two.follow(seconds=240)

    two.on_created(lambda found: watching.set())
    two.on_changed(lambda p: events.append(("changed", p, p.name, p.age)), Person)
    two.on_removed(removed, Person)
    thread = threading.Thread(target=follow)
    thread.start()
    number = 0
    # The node is watched once the second program is told of an object that was added since.
    while not watching.wait(0.1):
        number += 1
        one.add(Coded("m" * number))
    ada.age = 37
    ada.age = 38
    one.set(ada, name="Eve", age=1)
    assert (ada.name, ada.age) == ("Eve", 1)
    one.remove(ada)
    thread.join(240)
    assert [(what, name, age) for what, _, name, age in events] == [
        ("changed", "Ada", 37),
        ("changed", "Ada", 38),
        ("changed", "Eve", 1),
        ("removed", "Eve", 1),
    ]
    assert all(found is there for what, found, *_ in events if what == "changed")
    assert one.find(Person) == []
    for late in (lambda: one.set(ada, age=1), lambda: one.remove(ada)):
        with pytest.raises(ObjectError):
            late()
    with pytest.raises(ObjectGone, match="add the instance again"):
        ada.age = 99
    assert ada.age == 1, "what is not kept is not shown"
    one.add(ada).age = 99
    assert [person.age for person in two.find(Person)] == [99]


def test_an_attribute_that_is_set_to_the_same_is_no_change(pooled, programs):
    one, _ = programs
    ada = one.add(Person("Ada", 1))
    ada.age = 1
    assert pooled.pool.figures().past == 0
    ada.age = True
    assert pooled.pool.figures().past == 1


def test_an_instance_that_another_program_has_changed_is_not_changed_by_its_old_version(programs):
    one, two = programs
    ada = one.add(Person("Ada", 1))
    (there,) = two.find(Person)
    there.age = 3

    def set_age():
        ada.age = 2

    assert kind(set_age) is ProblemKind.UNKNOWN_OBJECT
    assert ada.age == 1
    assert [person.age for person in one.find(Person)] == [3]


def test_changes_in_a_row_are_done_in_their_order(programs):
    one, two = programs
    ada = one.add(Person("Ada", 1))
    for age in range(2, 9):
        ada.age = age
    assert [(person.name, person.age) for person in two] == [("Ada", 8)]


def test_a_clash_is_a_problem_and_leaves_the_instance_as_it_was(programs):
    one, _ = programs
    held = one.add(Coded("abc"))
    with pytest.raises(ObjectError, match="already"):
        one.add(held)
    twin = Coded("xyz", 5)
    assert kind(lambda: one.add(twin)) is ProblemKind.CONFLICT
    twin.word = "plain"
    long = one.add(Coded("long"))
    assert kind(lambda: one.set(long, word="xyz")) is ProblemKind.CONFLICT
    assert long.word == "long"
    assert {found.word for found in one} == {"abc", "long"}


def test_objects_of_no_known_class_are_records(pooled, programs):
    one, two = programs
    one.add(Coded("abc", 7))
    pooled.call(pooled.pool.put_fields, {"odd": [1, {"a": b"x"}]})
    found = {tuple(record.fields): record for record in two}
    assert all(isinstance(record, RemoteRecord) for record in found.values())
    assert found["odd",]["odd"] == [1, {"a": b"x"}]
    assert found["word", "rest"].type_name == "Coded"
    assert isinstance(one.find(Coded)[0], Coded)


def test_iteration_walks_more_than_a_page(pooled, programs):
    for number in range(1_100):
        pooled.call(pooled.pool.put_fields, {"n": number})
    assert len({record["n"] for record in programs[0]}) == 1_100


def test_an_attribute_that_no_object_may_have_leaves_the_instance_as_it_was(pooled, programs):
    one, _ = programs
    ada = one.add(Person("Ada", 36))
    for refused in ("x" * 70_000, [[[[[[[[[[[[[1]]]]]]]]]]]]]):
        with pytest.raises((Problem, ValueError)):
            ada.name = refused
        assert ada.name == "Ada"
    ada.age = 37
    records = pooled.pool.store.objects(pooled.pool.store.object_hashes())
    assert [dict(record.fields) for record in records] == [{"name": "Ada", "age": 37}]


def test_a_class_that_is_declared_is_known_to_the_node(pooled):
    @persisted
    class Robot:
        name: str
        weight: float

    with RemotePool(pooled.path, [Robot]) as remote:
        remote.declare(Robot)
        robot = remote.add(Robot("R2", 32.5))
        robot.weight = 33.0
    assert [form["name"] for form in pooled.client().object_types()] == ["Robot"]
