"""The clients as a program uses them that is checked by mypy: this module is, by pyproject.toml."""

from __future__ import annotations

from typing import Any, assert_type

import pytest

from hyperbloom.api.schemas.answers import CountForm, PingForm, PutForm
from hyperbloom.api.schemas.status import FeedStatusForm, NodeStatusForm, PeerStatusForm
from hyperbloom.client import Client
from hyperbloom.objects.classes.types import persisted


@persisted
class Person:
    name: str
    age: int = 0


@persisted(name="Place")
class Town:
    name: str


def test_a_persisted_class_is_made_and_read_as_a_dataclass() -> None:
    ada = Person("Ada", age=36)
    assert_type(ada, Person)
    assert_type(ada.age, int)
    assert (ada.name, ada.age, Town(name="Ulm").name) == ("Ada", 36, "Ulm")


def test_what_is_answered_has_a_type(served: Any) -> None:
    client: Client = served.client()
    status = client.status()
    assert_type(status, NodeStatusForm)
    assert_type(status["feeds"][0]["count"], int)
    assert status.keys() == NodeStatusForm.__annotations__.keys()
    assert status["feeds"][0].keys() == FeedStatusForm.__annotations__.keys()
    (peer,) = client.peers()
    assert_type(peer, PeerStatusForm)
    assert peer.keys() == PeerStatusForm.__annotations__.keys()
    count, ping, put = client.count(), client.ping(), client.put([b"a"])
    assert_type(count, CountForm)
    assert_type(put, PutForm)
    assert count.keys() == CountForm.__annotations__.keys()
    assert ping.keys() == PingForm.__annotations__.keys()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (["text"], r'a value is bytes, and one of these is a text; .*\.encode\("utf-8"\)'),
        ([b"a", 3], "a value is bytes, and one of these is of type int"),
        ("text", "values come in a list, .*; this is a text"),
        (b"bytes", "values come in a list, .*; this is bytes"),
    ],
)
def test_what_is_no_value_is_a_type_error(served: Any, values: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        served.client().put(values)
    assert served.client().put([bytearray(b"b"), memoryview(b"c")])["new"] == 2
