"""Bodies held against the types of forms: what passes, as what, and what is said of the rest."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints

import pytest

from hyperbloom.api.http.checking import check
from hyperbloom.api.problems import Problem
from hyperbloom.api.schemas.answers import FeedForm
from hyperbloom.api.schemas.bodies import FeedSettingsForm
from hyperbloom.api.schemas.scalars import DURATION, Hex, KeyRange, Value
from hyperbloom.errors import ErrorKind
from hyperbloom.replication.settings import FEED_SETTINGS


class Inner(TypedDict):
    name: str


class Outer(TypedDict):
    count: int
    share: NotRequired[Annotated[float, ("minimum", 0), ("maximum", 1)]]
    wait: NotRequired[Annotated[float, ("exclusiveMinimum", 0), ("maximum", 60), DURATION]]
    on: NotRequired[bool | None]
    word: NotRequired[Literal["full", "light"] | None]
    data: NotRequired[Hex]
    values: NotRequired[Annotated[list[Value], ("minItems", 1), ("maxItems", 2)]]
    range: NotRequired[KeyRange]
    position: NotRequired[Hex | int | None]
    inner: NotRequired[list[Inner]]
    fields: NotRequired[dict[str, Any]]


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({}, {}),
        ({"count": 2.0}, {"count": 2}),
        ({"share": 0}, {"share": 0.0}),
        ({"share": 1}, {"share": 1.0}),
        ({"wait": "1m"}, {"wait": 60.0}),
        ({"wait": 0.001}, {"wait": 0.001}),
        ({"on": None}, {"on": None}),
        ({"on": False}, {"on": False}),
        ({"word": "light"}, {"word": "light"}),
        ({"data": ""}, {"data": ""}),
        ({"data": "AbcD"}, {"data": "AbcD"}),
        ({"values": ["00", "ff"]}, {"values": ["00", "ff"]}),
        ({"range": ["", None]}, {"range": ["", None]}),
        ({"position": "ab"}, {"position": "ab"}),
        ({"position": 7}, {"position": 7}),
        ({"position": None}, {"position": None}),
        ({"inner": [{"name": "a"}]}, {"inner": [{"name": "a"}]}),
        ({"fields": {"x": [1]}}, {"fields": {"x": [1]}}),
    ],
)
def test_what_passes(given, taken):
    found = check({"count": 1, **given}, Outer)
    assert found == {"count": 1, **taken}
    assert [type(value) for value in found.values()] == [
        type(value) for value in ({"count": 1} | taken).values()
    ]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"count": "1"}, "count must be a whole number"),
        ({"count": 1.5}, "count must be a whole number"),
        ({"count": True}, "count must be a whole number"),
        ({"count": None}, "count must be a whole number"),
        ({"share": -0.1}, "share must be at least 0 and at most 1"),
        ({"share": 1.1}, "share must be at least 0 and at most 1"),
        ({"share": float("nan")}, "share must be at least 0 and at most 1"),
        ({"share": "1s"}, "share must be a number"),
        ({"wait": 0}, "wait must be above 0 and at most 60"),
        ({"wait": "2m"}, "wait must be above 0 and at most 60"),
        ({"wait": "soon"}, "wait: 'soon' is not a duration"),
        ({"on": 1}, "on must be true or false"),
        ({"word": "Full"}, "word must be one of full, light"),
        ({"word": []}, "word must be one of full, light"),
        ({"data": "abc"}, "data must be a text of hex digits"),
        ({"data": None}, "data must be a text of hex digits"),
        ({"values": []}, "values must hold at least one"),
        ({"values": ["00"] * 3}, "values may hold 2, these are 3; send fewer"),
        ({"values": [""]}, "each of values must be a text of hex digits, two for each byte, with"),
        ({"values": "00"}, "values must be a list"),
        ({"range": ["00"]}, "range must be a list of start and end"),
        ({"range": "00"}, "range must be a list of start and end"),
        ({"position": "x"}, "position must be a text of hex digits"),
        ({"inner": [{}]}, "name is missing: it must be a text"),
        ({"inner": [{"name": "a", "b": 1}]}, "'b' is not known here; known are name"),
        ({"inner": ["a"]}, "each of inner must be an object"),
        ({"fields": []}, "fields must be an object"),
        ({"other": 1}, "'other' is not known here; known are count, share,"),
    ],
)
def test_what_is_refused_is_named(given, sentence):
    with pytest.raises(Problem) as refused:
        check({"count": 1, **given}, Outer)
    assert refused.value.kind is ErrorKind.BAD_REQUEST
    assert refused.value.detail.startswith(sentence)


def test_what_is_missing_is_named_with_what_it_must_be():
    with pytest.raises(Problem, match=r"^count is missing: it must be a whole number$"):
        check({}, Outer)


def test_a_feed_is_joined_and_shown_with_every_setting():
    assert set(get_type_hints(FeedSettingsForm)) == set(FEED_SETTINGS)
    assert set(FEED_SETTINGS) <= set(get_type_hints(FeedForm))
