"""The object pool over a real control socket: forms, problems, watches."""

from __future__ import annotations

import json
import threading
import time

import pytest

from hyperbloom.api.limits import MAX_WAITING_BYTES, OBJECTS_PAGE_BYTES
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.client.client import NodeTimeout


def kind(call):
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.kind


def test_the_pool_is_in_the_metrics(pooled):
    connection = pooled.connection()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert "\nhyperbloom_objects_bytes 7.0\n" in text
    assert "\nhyperbloom_objects_clashes_total 2.0\n" in text


def test_an_object_from_its_adding_to_its_end(pooled):
    client = pooled.client()
    form = client.add_object({"name": "Ada", "age": 36}, type_name="Person")
    assert (form["type"], form["fields"]) == ("Person", {"name": "Ada", "age": 36})
    assert abs(form["created"] - time.time()) < 60
    assert client.object(form["hash"]) == form
    changed = client.change_object(form["hash"], {"age": 37})
    assert (changed["fields"]["age"], changed["created"]) == (37, form["created"])
    assert kind(lambda: client.object(form["hash"])) is ProblemKind.UNKNOWN_OBJECT
    assert [o["hash"] for o in client.objects()] == [changed["hash"]]
    assert client.status()["objects"]["count"] == 1
    client.remove_object(changed["hash"])
    assert list(client.objects()) == []
    for call in (
        lambda: client.remove_object(changed["hash"]),
        lambda: client.change_object(changed["hash"], {"age": 1}),
    ):
        assert kind(call) is ProblemKind.UNKNOWN_OBJECT


def test_values_that_json_has_not_come_back_as_they_were(pooled):
    client = pooled.client()
    fields = {
        "raw": {"$bytes": "00ff"},
        "odd": {"$float": "nan"},
        "far": {"$float": "-inf"},
        "map": {"$map": [[7, "x"], [True, [None]]]},
        "one": {"$map": [["$x", 1]]},
        "plain": {"a": [1, 2.5, {"b": "é"}]},
        "long": 2**64 - 1,
    }
    form = client.add_object(fields)
    assert form["fields"] == fields
    stored = pooled.pool.store.objects(pooled.pool.store.object_hashes())[0].fields
    assert (stored["raw"], stored["far"], stored["one"]) == (b"\x00\xff", float("-inf"), {"$x": 1})


def test_pages(pooled):
    client = pooled.client()
    hashes = {client.add_object({"n": n})["hash"] for n in range(25)}
    page, after = client.objects_page(limit=10)
    assert (len(page), after) == (10, page[-1]["hash"])
    page, after = client.objects_page(after=after, limit=15)
    assert (len(page), after) == (15, page[-1]["hash"])
    assert client.objects_page(after=after) == ([], None)
    assert {form["hash"] for form in client.objects()} == hashes


def test_a_page_of_long_objects_is_cut_so_that_none_holds_the_reactor(pooled):
    client = pooled.client()
    text = "x" * 60_000
    hashes = {client.add_object({"n": n, "text": text})["hash"] for n in range(25)}
    page, after = client.objects_page()
    assert (after, len(page) <= OBJECTS_PAGE_BYTES // len(text) + 4) == (page[-1]["hash"], True)
    assert {form["hash"] for form in client.objects()} == hashes


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/objects", {}, 400),
        ("POST", "/v1/objects", {"fields": {}}, 400),
        ("POST", "/v1/objects", {"fields": {"": 1}}, 400),
        ("POST", "/v1/objects", {"fields": {"a": 2**64}}, 400),
        ("POST", "/v1/objects", {"fields": {"a": {"$bytes": "x"}}}, 400),
        ("POST", "/v1/objects", {"fields": {"a": {"$else": 1}}}, 400),
        ("POST", "/v1/objects", {"fields": {"a": 1}, "type": 5}, 400),
        ("POST", "/v1/objects", {"fields": {"a": 1}, "hash": "xyz"}, 400),
        ("POST", "/v1/objects", {"fields": {"a": 1}, "more": 1}, 400),
        ("POST", "/v1/objects", {"fields": {"a": "x" * 70_000}}, 400),
        ("GET", "/v1/objects/xyz", None, 400),
        ("GET", "/v1/objects/" + "0" * 16, None, 404),
        ("GET", "/v1/objects?after=1", None, 400),
        ("GET", "/v1/objects?limit=1001", None, 400),
        ("GET", "/v1/objects?more=1", None, 400),
        ("PUT", "/v1/objects", None, 405),
    ],
)
def test_what_is_wrong_is_a_problem(pooled, method, path, body, status):
    found, _, form = pooled.ask(method, path, body)
    assert (found, form["status"]) == (status, status)


def test_a_field_that_is_not_there_and_a_clash_and_a_full_pool(pooled):
    client = pooled.client()
    form = client.add_object({"n": 1}, number="0" * 15 + "1")
    assert kind(lambda: client.change_object(form["hash"], {"x": 1})) is ProblemKind.BAD_REQUEST
    clash = lambda: client.add_object({"n": 2}, number=form["hash"])  # noqa: E731
    assert kind(clash) is ProblemKind.CONFLICT
    assert client.add_object({"n": 1}, number=form["hash"]) == form
    pooled.pool._most = 1
    assert kind(lambda: client.add_object({"n": 3})) is ProblemKind.TOO_MANY


def test_a_node_without_a_pool_says_how_to_have_one(served):
    client = served.client()
    assert client.status()["objects"] is None
    with pytest.raises(Problem, match="enabled = true"):
        list(client.objects())
    with pytest.raises(Problem, match="enabled = true"):
        next(client.watch_objects())


def test_watching(pooled):
    events = []
    watching = pooled.client()
    started = threading.Event()

    def watch():
        try:
            for event in watching.watch_objects(seconds=20):
                started.set()
                if event is not None:
                    events.append(event)
                if len(events) == 3:
                    return
        except NodeTimeout:
            pass

    thread = threading.Thread(target=watch)
    thread.start()
    assert started.wait(240)
    client = pooled.client()
    form = client.add_object({"n": 1})
    changed = client.change_object(form["hash"], {"n": 2})
    client.remove_object(changed["hash"])
    thread.join(240)
    assert [(e.kind, e.before, e.after) for e in events] == [
        ("created", None, form),
        ("changed", form, changed),
        ("removed", changed, None),
    ]


def test_a_watch_ends_after_its_time(pooled):
    with pytest.raises(NodeTimeout, match="nothing happened within"):
        list(pooled.client().watch_objects(seconds=0.2))


def test_a_watch_whose_reader_falls_behind_is_told_and_costs_no_more(pooled):
    connection = pooled.connection()
    connection.request("GET", "/v1/objects/watch")
    response = connection.getresponse()
    text = "x" * 60_000
    held = []

    def put(number):
        pooled.pool.put_fields({"n": number, "text": text})
        held.extend(
            sum(map(len, subscriber.__self__._waiting)) for subscriber in pooled.pool._subscribers
        )
        return pooled.pool._subscribers

    # What the system's buffers take comes on top of what waits in the node.
    most = MAX_WAITING_BYTES // len(text) + 100
    assert any(pooled.call(put, number) == [] for number in range(most))
    assert MAX_WAITING_BYTES - 2 * len(text) < max(held) <= MAX_WAITING_BYTES
    lines = response.read().decode().splitlines()
    assert "event: problem" in lines
    last = json.loads(lines[-2].removeprefix("data: "))
    assert "fell behind" in last["detail"]
    connection.close()


def test_types_are_declared_listed_used_and_dropped(pooled):
    client = pooled.client()
    assert client.object_types() == []
    form = client.declare_type("Person", {"name": "String", "age": "int"})
    assert form == {
        "name": "Person",
        "fields": [{"name": "name", "type": "String"}, {"name": "age", "type": "int"}],
        "configured": False,
    }
    assert client.object_types() == [form]
    # The order in which fields are given does not matter any more, nor that no type is.
    added = client.add_object({"age": 36, "name": "Ada"})
    assert (added["type"], added["hash"][:8]) == ("Person", "50736e02")
    for name, fields in (
        ("Person", {"name": "Strang"}),
        ("No name", {"a": "int"}),
        ("None", {}),
    ):
        assert kind(lambda: client.declare_type(name, fields)) is ProblemKind.BAD_REQUEST  # noqa: B023
    client.undeclare_type("Person")
    assert client.object_types() == []
    assert kind(lambda: client.undeclare_type("Person")) is ProblemKind.UNKNOWN_OBJECT
