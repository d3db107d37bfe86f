"""What begins with a prefix: read, counted, watched and forgotten, by the API and its clients."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.api import limits
from hyperbloom.api.endpoints import values as endpoints
from hyperbloom.api.limits import MAX_TARGET_BYTES
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.client.requests import RangeCount
from hyperbloom.value_ranges import narrowed

VALUES = [b"a", b"b", b"b\0", b"b\xff", b"b\xff\xff", b"ba", b"c", b"\xff", b"\xff\xff"]


some = st.lists(st.sampled_from(b"\0a\xfe\xff"), max_size=3).map(bytes)


@given(st.lists(st.binary(max_size=4)), some, some, st.none() | some)
def test_a_prefix_narrows_a_range_to_what_begins_with_it(values, prefix, first, behind):
    start, end = narrowed(first, behind, prefix)
    for value in [*values, *(prefix + value for value in values)]:
        asked = value >= first and (behind is None or value < behind)
        inside = value >= start and (end is None or value < end)
        assert inside == (asked and value.startswith(prefix))


def test_a_prefix_in_every_request_about_a_range(served):
    client = served.client()
    client.put(VALUES)
    wanted = [b"b", b"b\0", b"ba", b"b\xff", b"b\xff\xff"]
    assert client.range_page(prefix=b"b") == (wanted, None)
    assert list(client.pages(prefix=b"b", page=2)) == [wanted[:2], wanted[2:4], wanted[4:]]
    assert list(client.range(prefix=b"\xff")) == [b"\xff", b"\xff\xff"]
    assert client.count_range(prefix=b"b") == RangeCount(5, 10)
    assert client.count_range(start=b"b", end=b"c") == RangeCount(5, 10)
    assert client.count_range(prefix=b"b", start=b"ba", end=b"b\xff\xff") == RangeCount(2, 4)
    assert client.count_range(prefix=b"x") == RangeCount(0, 0)
    arrivals = client.watch(prefix=b"b", after=0)
    assert next(arrivals) is None
    found = [one.value for one in itertools.islice(arrivals, 5)]
    assert sorted(found) == sorted(wanted)
    arrivals.close()
    client.fetch(prefix=b"b", timeout=1)
    assert ("fetch", b"b", b"c", None, 1.0) in served.node.calls


def test_a_request_names_a_prefix_by_itself(served):
    client = served.client()
    client.put(VALUES)
    path = "/v1/feeds/-/values"
    assert client.ask("GET", f"{path}?prefix=62")["values"][:2] == ["62", "6200"]
    counted = {"count": 5, "bytes": 10, "next": None}
    assert client.ask("GET", f"{path}/count?prefix=62") == counted
    assert client.ask("POST", f"{path}/count/range", {"prefix": "62"}) == counted
    assert client.ask("POST", f"{path}/range", {"prefix": "62"})["values"][:1] == ["62"]
    assert client.ask("POST", "/v1/feeds/-/forget", {"prefix": "62"})["count"] == 0
    (selection,) = served.node.own.forgetting.steps
    assert (selection.start, selection.end) == (b"b", b"c")


@pytest.mark.parametrize(
    ("method", "path", "body", "said"),
    [
        ("GET", "/values/count?prefix=6", None, "prefix must be a text of hex digits"),
        ("GET", "/values/count?limit=6", None, "there is no query parameter 'limit' here"),
        ("POST", "/values/range", {"prefix": "6", "limit": 1}, "prefix must be"),
        ("POST", "/forget", {"by": "61" * 32, "prefix": "61"}, "by goes without start, end and"),
        ("POST", "/forget", {"values": ["61"], "prefix": "61"}, "values go without"),
    ],
)
def test_what_does_not_go_together(served, method, path, body, said):
    with pytest.raises(Problem, match=said) as caught:
        served.client().ask(method, f"/v1/feeds/-{path}", body)
    assert caught.value.kind is ProblemKind.BAD_REQUEST


def test_a_prefix_too_long_for_a_path(served):
    client = served.client()
    long = b"p" * MAX_TARGET_BYTES
    client.put([long, long + b"1", b"q"])
    assert client.count_range(prefix=long).count == 2
    assert list(client.range(prefix=long)) == [long, long + b"1"]


def test_a_long_range_is_counted_in_slices_and_requests(served, monkeypatch):
    """A slice is what a thread counts in one turn; a request ends at so many values."""
    monkeypatch.setattr(endpoints, "COUNT_SLICE", 10)
    monkeypatch.setattr(endpoints, "MAX_COUNTED", 30)
    client = served.client()
    client.put([b"v%03d" % number for number in range(100)])
    served.node.calls.clear()
    form = client.ask("GET", "/v1/feeds/-/values/count?prefix=76")
    assert (form["count"], form["bytes"]) == (30, 120)
    assert form["next"] == b"v029\0".hex()
    assert [call[0] for call in served.node.calls] == ["count"] * 3
    assert client.count_range(prefix=b"v") == RangeCount(100, 400)
    assert limits.MAX_COUNTED >= limits.COUNT_SLICE
