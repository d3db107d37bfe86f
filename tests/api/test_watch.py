"""Watching: nothing is missed, nothing is queued, and nothing is left behind."""

from __future__ import annotations

import itertools
import time

import pytest

from hyperbloom.api.endpoints.watch import Watcher
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.client import transport
from hyperbloom.client.client import NodeTimeout, NodeUnreachable
from hyperbloom.replication.settings import FeedSettings


def until(condition, seconds=240.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def insert(served, *values):
    served.call(served.node.own.insert, list(values))


def test_what_arrives_from_now_on(served):
    insert(served, b"old")
    watch = served.client().watch()
    assert next(watch) is None
    insert(served, b"one", b"two")
    insert(served, b"three")
    arrivals = list(itertools.islice(watch, 3))
    assert [a.value for a in arrivals] == [b"one", b"two", b"three"]
    assert [a.seq for a in arrivals] == [2, 3, 4]
    assert arrivals[0].origin == served.node.identity.public_key
    assert arrivals[0].received_at == 1.0


def test_what_is_there_first_in_the_order_of_arrival(served):
    insert(served, b"b", b"a")
    watch = served.client().watch(after=0)
    assert [a.value for a in itertools.islice(watch, 1, 3)] == [b"b", b"a"]
    insert(served, b"c")
    assert next(watch).value == b"c"


def test_a_range_only(served):
    watch = served.client().watch(start=b"b", end=b"d", after=0)
    next(watch)
    insert(served, b"a", b"b", b"c\xff", b"d", b"cc")
    assert [next(watch).value for _ in range(3)] == [b"b", b"c\xff", b"cc"]


def test_a_long_log_comes_in_slices(served):
    values = [b"%06d" % number for number in range(25_000)]
    served.call(served.node.own.insert, values)
    watch = served.client().watch(after=0)
    assert [a.value for a in itertools.islice(watch, 1, 25_001)] == values
    slices = [call for call in served.node.calls if call[0] == "log_after"]
    assert len(slices) >= 25


def test_a_client_that_comes_back_goes_on_behind_the_last_event(served):
    insert(served, b"a", b"b", b"c")
    connection = served.connection()
    connection.request("GET", "/v1/feeds/-/watch?after=0", headers={"Last-Event-ID": "2"})
    response = connection.getresponse()
    assert response.headers["content-type"] == "text/event-stream"
    assert response.readline() == b": watching after 2\n"
    assert response.readline() == b"\n"
    assert response.readline() == b"id: 3\n"
    assert response.readline().startswith(b'data: {"seq":3,"value":"63",')
    assert response.readline() == b"\n"
    connection.close()


def test_a_slow_reader_costs_no_memory(served):
    """The node is not read ahead of what the socket takes, whatever arrives meanwhile."""
    watch = served.client().watch()
    next(watch)
    values = [number.to_bytes(3, "big") + bytes(9_997) for number in range(3_000)]
    for start in range(0, len(values), 100):
        insert(served, *values[start : start + 100])

    def read_to():
        return max(call[1] for call in served.node.calls if call[0] == "log_after")

    def let_the_node_work():
        # More turns of its reactor than all of the values would take.
        for _ in range(500):
            served.call(lambda: None)

    let_the_node_work()
    stopped_at = read_to()
    # 30 MB were stored; the socket and one slice hold some hundred KB of hex.
    assert stopped_at < 300
    let_the_node_work()
    assert read_to() == stopped_at
    assert [a.value for a in itertools.islice(watch, 3_000)] == values


def test_a_watcher_that_goes_leaves_nothing_behind(served):
    client = served.client()
    watch = client.watch(start=b"b")
    next(watch)
    assert len(served.node.own.subscribers) == 1
    assert served.node.own.interests == [(b"b", None)]
    client.close()
    watch.close()
    until(lambda: not served.node.own.subscribers)
    assert not served.node.own.interests
    insert(served, b"a")
    assert served.client().ping()


def test_a_watch_ends_with_its_feed(served, monkeypatch):
    monkeypatch.setattr(Watcher, "BEAT_SECONDS", 0.1)
    key = bytes(range(32))
    served.call(served.node.add, FeedSettings(key=key))
    watch = served.client().watch(feed=key.hex())
    next(watch)
    served.client().leave_feed(key.hex())
    with pytest.raises(Problem, match="the feed was left") as caught:
        next(watch)
    assert caught.value.kind is ProblemKind.UNKNOWN_FEED


def test_a_failing_log_ends_the_watch(served):
    watch = served.client().watch()
    next(watch)
    served.node.own.failure = RuntimeError("the log is gone")
    served.call(lambda: served.node.own.subscribers[0](None, b""))
    with pytest.raises(Problem, match="log has the details") as caught:
        next(watch)
    assert caught.value.kind is ProblemKind.UNEXPECTED
    until(lambda: not served.node.own.subscribers)


def test_a_watch_ends_when_its_time_is_over(served):
    watch = served.client().watch(seconds=0.2)
    assert next(watch) is None
    with pytest.raises(NodeTimeout, match=r"^no value came within 0\.2 s$"):
        next(watch)


def test_a_node_that_hangs_is_noticed(served, monkeypatch):
    monkeypatch.setattr(transport, "SILENT_SECONDS", 0.2)
    watch = served.client().watch()
    assert next(watch) is None
    with pytest.raises(NodeTimeout, match="silent"):
        next(watch)


def test_a_watch_ends_when_the_node_stops(served):
    watch = served.client().watch()
    next(watch)
    served.call(served.service.stopService)
    with pytest.raises(NodeUnreachable, match="stopped"):
        next(watch)
    assert not served.node.own.subscribers


def test_a_watch_of_no_feed_is_refused(served):
    with pytest.raises(Problem) as caught:
        next(served.client().watch(feed="nobody"))
    assert caught.value.kind is ProblemKind.UNKNOWN_FEED


def test_pages_in_the_order_of_arrival(served):
    insert(served, b"c", b"a")
    insert(served, b"a", b"b")
    client = served.client()
    page = client.arrivals_page(limit=2)
    assert [(one.seq, one.value) for one in page.arrivals] == [(1, b"c"), (2, b"a")]
    assert page.arrivals[0].origin == served.node.identity.public_key
    assert page.arrivals[0].received_at == 1.0
    assert (page.following, page.top_seq, page.life, page.forgotten) == (2, 3, 1, 0)
    page = client.arrivals_page(after=page.following)
    assert [(one.seq, one.value) for one in page.arrivals] == [(3, b"b")]
    assert page.following is None
    assert client.arrivals_page(after=3).arrivals == []


def test_a_page_of_arrivals_is_bounded_in_bytes(served):
    insert(served, *(bytes([number]) * 200_000 for number in range(8)))
    page = served.client().arrivals_page()
    assert [one.seq for one in page.arrivals] == [1, 2, 3, 4, 5]
    assert page.following == 5
    for query in ("after=-1", "limit=0", "limit=10001", "start=00"):
        status, _, _ = served.ask("GET", f"/v1/feeds/-/arrivals?{query}")
        assert status == 400
