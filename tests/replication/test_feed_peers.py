"""The peers of a feed: what all are told, what is remembered of those that have gone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hyperbloom.replication.counters import Counters
from hyperbloom.replication.feed.peers import FeedPeers, ReplyScales
from hyperbloom.replication.limits import LEAST_REPLY_SCALE, MAX_REPLY_SCALES
from hyperbloom.replication.status import SyncState


@dataclass(eq=False)
class Peer:
    """A peer of which no more is known than who it is and how it stands."""

    remote_key: bytes = b"k"
    name: str = "192.0.2.1:1"
    counters: Counters = field(default_factory=Counters)
    sync_state: SyncState | None = None


@pytest.fixture
def peers():
    return FeedPeers()


def test_what_a_peer_has_moved_counts_when_it_is_gone(peers):
    one, other = Peer(counters=Counters(values_in=3)), Peer(counters=Counters(values_in=4))
    peers.add(one)
    peers.add(other)
    peers.remove(one)
    peers.remove(one)
    assert peers.moved().values_in == 7
    assert list(peers) == [other]


def test_who_is_connected_and_in_sync(peers):
    peers.add(Peer(remote_key=b"a", sync_state=SyncState(in_sync=True, at=1.0, source="digest")))
    assert not peers.has_others_than(b"a")
    peers.add(Peer(remote_key=b"b", sync_state=SyncState(in_sync=False, at=1.0, source="sync")))
    assert peers.has_others_than(b"a")
    assert peers.keys == {b"a", b"b"}
    assert peers.in_sync == 1


def test_a_peer_that_died_of_a_reply_is_asked_for_less_until_replies_arrive():
    scales = ReplyScales()
    assert scales.of((b"k",)) == 1.0
    assert scales.shorten((b"k",))
    assert scales.of((b"k",)) == 0.25
    assert scales.of((b"other",)) == 1.0
    for _ in range(14):
        scales.lengthen((b"k",))
    assert scales.of((b"k",)) < 1.0
    scales.lengthen((b"k",))
    assert scales.of((b"k",)) == 1.0


def test_less_than_one_value_is_never_asked_for():
    scales = ReplyScales()
    tries = 0
    while scales.shorten((b"k",)):
        tries += 1
    assert scales.of((b"k",)) == LEAST_REPLY_SCALE
    assert 5 < tries < 20


def test_of_so_many_peers_that_died_the_branch_with_the_most_gives_its_oldest():
    scales = ReplyScales()
    scales.shorten((b"honest",))
    for number in range(MAX_REPLY_SCALES):
        scales.shorten((b"member", b"%d" % number))
    assert scales.of((b"honest",)) == 0.25, "his keys push out his own ones"
    assert scales.of((b"member", b"0")) == 1.0
    assert scales.of((b"member", b"1")) == 0.25
