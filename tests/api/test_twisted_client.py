"""The client for Twisted programs, over both transports, before the same fake node."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from serving import Served

from hyperbloom.api.endpoints.watch import Watcher
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.client.client import NodeUnreachable
from hyperbloom.client.requests import RangeCount
from hyperbloom.client.twisted_client import TwistedClient
from hyperbloom.passphrase import PassphraseError
from hyperbloom.replication.settings import FeedSettings


@pytest.fixture(params=["unix", "tcp"])
def client(request, over_tcp):
    reactor = over_tcp.thread.reactor
    if request.param == "unix":
        made = TwistedClient.over_unix(reactor, over_tcp.path)
    else:
        made = TwistedClient.over_tcp(reactor, f"127.0.0.1:{over_tcp.port}", over_tcp.token_path)
    yield made
    over_tcp.call(made.close)


def test_it_asks_what_the_other_client_asks(client, over_tcp):
    call = over_tcp.call
    own = over_tcp.node.own.key.hex()
    assert call(client.ping)["identity"] == own
    where = {"feed": own, "name": "own"}
    assert call(client.put, [b"b", b"a"]) == {"new": 2, "known": 0, "top_seq": 2, **where}
    assert call(lambda: client.range_page(limit=1)) == ([b"a"], b"a\0")
    assert call(lambda: client.range_page(start=b"b", end=b"c")) == ([b"b"], None)
    assert call(client.has, [b"a", b"c"]) == [True, False]
    assert call(lambda: client.range_page(prefix=b"b")) == ([b"b"], None)
    assert call(lambda: client.count_range(prefix=b"b")) == RangeCount(1, 1)
    assert call(client.count) == over_tcp.client().count()
    assert call(client.feeds) == over_tcp.client().feeds()
    assert call(client.status)["public_key"] == own
    assert len(call(client.peers, "own")) == 1
    assert call(client.links) == []
    assert [member["key"] for member in call(client.members)] == [own]
    assert call(client.ask, "GET", "/v1/discovery") == {"enabled": False}


def test_problems_are_those_of_the_node(client, over_tcp):
    with pytest.raises(Problem, match="no feed 'x'") as caught:
        over_tcp.call(lambda: client.count(feed="x"))
    assert caught.value.kind is ProblemKind.UNKNOWN_FEED
    with pytest.raises(Problem, match="no feed 'x'"):
        over_tcp.call(lambda: client.watch(lambda arrival: None, feed="x"))


def test_a_watch(client, over_tcp):
    over_tcp.call(client.put, [b"before"])
    arrived, enough = [], threading.Event()

    def take(arrival):
        arrived.append((arrival.seq, arrival.value))
        if len(arrived) == 3:
            enough.set()

    watch = over_tcp.call(lambda: client.watch(take, after=0))
    over_tcp.call(client.put, [b"x" * 200_000])
    over_tcp.call(client.put, [b"last"])
    assert enough.wait(240)
    assert arrived == [(1, b"before"), (2, b"x" * 200_000), (3, b"last")]
    assert over_tcp.call(watch.stop) is None
    over_tcp.call(client.put, [b"unseen"])
    assert len(arrived) == 3


def test_a_watch_of_a_feed_that_is_left(client, over_tcp, monkeypatch):
    monkeypatch.setattr(Watcher, "BEAT_SECONDS", 0.1)
    over_tcp.node.add(FeedSettings(key=b"k" * 32, alias="k"))
    watch = over_tcp.call(lambda: client.watch(lambda arrival: None, feed="k"))
    over_tcp.call(client.ask, "DELETE", "/v1/feeds/k")
    with pytest.raises(Problem, match="the feed was left"):
        over_tcp.call(lambda: watch.ended)


def test_a_node_that_stops(over_tcp):
    client = TwistedClient.over_unix(over_tcp.thread.reactor, over_tcp.path)
    watch = over_tcp.call(lambda: client.watch(lambda arrival: None))
    over_tcp.call(over_tcp.service.stopService)
    with pytest.raises(NodeUnreachable, match="has stopped"):
        over_tcp.call(lambda: watch.ended)
    with pytest.raises(NodeUnreachable, match="no node answers"):
        over_tcp.call(client.ping)


def test_a_token_that_cannot_be_read(over_tcp, tmp_path):
    with pytest.raises(PassphraseError):
        TwistedClient.over_tcp(over_tcp.thread.reactor, "127.0.0.1:1", tmp_path / "none")


def test_a_path_longer_than_a_socket_address(reactor_thread, tmp_path):
    folder = tmp_path
    while len(str(folder)) < 150:
        folder = folder / "a-rather-long-name"
    folder.mkdir(parents=True)
    served = Served(reactor_thread, folder)
    client = TwistedClient.over_unix(reactor_thread.reactor, served.path)
    try:
        assert served.call(client.ping)["version"]
        # The server's own: the client lets go of the folder once it is connected.
        assert [file.resolve() for file in Path("/proc/self/fd").iterdir()].count(folder) == 1
    finally:
        served.close()
    with pytest.raises(NodeUnreachable, match="no node answers"):
        served.call(client.ping)
