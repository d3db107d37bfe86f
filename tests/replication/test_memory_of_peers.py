"""What a peer takes of a node's memory while it is there, and what stays of it when it has gone."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from hyperbloom.connections.limits import FORGIVEN_AFTER
from hyperbloom.connections.tally import Tally
from hyperbloom.replication.settings import FeedSettings

MEMBERS = 24

#: Bytes of one side of a connection at rest, of what hyperbloom's modules make; the transport is
#: Twisted's. With Python 3.11 it is 4,300, up to 5,150 in a process that has run other tests.
MOST_AT_REST = 5_800

#: Bytes that a member leaves behind who comes and goes again: 34, of what lies in tables.
MOST_LEFT = 100


def taken(before: tracemalloc.Snapshot) -> float:
    """Bytes more than before of what hyperbloom's modules have made, for one side of one pair."""
    gc.collect()
    only = [tracemalloc.Filter(True, "*/hyperbloom/*")]
    now = tracemalloc.take_snapshot().filter_traces(only)
    moved = now.compare_to(before.filter_traces(only), "filename")
    return sum(one.size_diff for one in moved) / (2 * MEMBERS)


class Crowd:
    """An owner and its members, each of them a whole node; a connection has two sides of theirs."""

    def __init__(self, network):
        self.network = network
        self.owner = network.add("owner")
        settings = FeedSettings(key=self.owner.key)
        names = [f"member {number}" for number in range(MEMBERS)]
        self.members = [network.add(name, feeds=(settings,)) for name in names]
        for member in self.members:
            self.owner.invite(self.owner.key, member)

    def come(self):
        for member in self.members:
            self.network.connect(member, self.owner, self.owner.key)
        self.network.run(90)
        assert len(self.owner.feed(self.owner.key).peers) == MEMBERS

    def go(self):
        for transport in list(self.network.transports):
            if transport.connected:
                self.network.cut(transport)
        self.network.transports = set()
        self.network.run(FORGIVEN_AFTER + 1)
        for node in (self.owner, *self.members):
            node.node.context.shares.forget_gone()


@pytest.fixture
def crowd(network, monkeypatch):
    """One that has come and gone: what every node makes when it is first used is there."""
    # Twisted keeps the lines of a log that goes nowhere yet.
    monkeypatch.setattr(Tally, "tell", lambda *_, **__: None)
    crowd = Crowd(network)
    tracemalloc.start()
    try:
        crowd.come()
        crowd.go()
        yield crowd
    finally:
        tracemalloc.stop()


def test_a_peer_at_rest_takes_few_kilobytes_and_leaves_nothing_behind(crowd):
    gc.collect()
    before = tracemalloc.take_snapshot()
    crowd.come()
    assert taken(before) <= MOST_AT_REST
    crowd.go()
    assert taken(before) <= MOST_LEFT
