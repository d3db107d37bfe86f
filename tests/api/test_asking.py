"""What both clients make of what comes: events cut anywhere, and what no node says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nodes import free_port

from hyperbloom.api.limits import MAX_EVENT_BYTES
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.client.client import Client
from hyperbloom.client.requests import (
    EventReader,
    NodeUnreachable,
    answer_of,
    problem_of,
    with_query,
)

STREAM = b': hello\n\nid: 1\ndata: {"a":1}\n\n:\n\nevent: problem\ndata: {"b":"\xc3\xa9"}\n\n'
EVENTS = [("", {"a": 1}), ("problem", {"b": "é"})]


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_events_come_out_whole_however_the_stream_is_cut(size):
    reader, found = EventReader(where="there"), []
    for at in range(0, len(STREAM), size):
        found += reader.take(STREAM[at : at + size])
    assert found == EVENTS


def test_an_event_has_an_end():
    reader = EventReader(where="there")
    assert reader.take(b"x" * MAX_EVENT_BYTES) == []
    with pytest.raises(NodeUnreachable, match="what listens there does not speak"):
        reader.take(b"x")


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: \xff\n\n", b"event: \xff\ndata: 1\n\n"])
def test_what_no_node_sends(data):
    with pytest.raises(NodeUnreachable):
        EventReader(where="there").take(data)


@pytest.mark.parametrize("form", [None, [], 7, {}, {"type": ["x"]}, {"detail": None}])
def test_a_refusal_of_any_form_is_a_problem(form):
    assert problem_of(form).kind is ProblemKind.UNEXPECTED
    with pytest.raises(Problem):
        answer_of(400, json.dumps(form).encode(), where="there")


def test_answers():
    assert answer_of(204, b"", where="there") is None
    assert answer_of(200, b"{}", where="there") == {}
    with pytest.raises(NodeUnreachable, match="on x does not"):
        answer_of(200, b"<html>", where="on x")


def test_a_query_has_what_is_given():
    assert with_query("/v1/x", a=None) == "/v1/x"
    assert with_query("/v1/x", a="é&", b=None, c=0) == "/v1/x?a=%C3%A9%26&c=0"


def test_a_client_can_ask_again_after_a_watch_it_has_left(served):
    client = served.client()
    client.put([b"a", b"b"])
    for arrival in client.watch(after=0):
        if arrival is not None:
            break
    assert client.count()["count"] == 2


def test_who_listens_on_no_port_is_named(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("x\n")
    token.chmod(0o600)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(NodeUnreachable, match=rf"^no node answers at {address}; start it with"):
        Client.over_tcp(address, token).ping()
