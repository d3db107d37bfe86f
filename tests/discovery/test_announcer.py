"""The npm packages' swarm: announcing and looking up by BEP-5."""

from __future__ import annotations

import hashlib
from random import Random

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from hyperbloom.addresses import Address
from hyperbloom.discovery.announcer import UNREACHED_SECONDS, Announcer, swarm_hash
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.reports import AnnounceReport, PeerLookup
from hyperbloom.discovery.settings import SwarmSettings

KEY = bytes(range(32))
PEERS = (Address("192.0.2.1", 4365), Address("192.0.2.2", 4366))


class RecordedPeers:
    """A DHT that remembers what it was asked, and when."""

    def __init__(self, clock):
        self.clock = clock
        self.lookups, self.announced = [], []
        self.peers = ()
        self.stored = 8
        self.answered = 8
        self.hanging = None

    def get_peers(self, info_hash):
        self.lookups.append((self.clock.seconds(), info_hash))
        if self.hanging is not None:
            return self.hanging
        return succeed(PeerLookup(peers=self.peers, asked=8, answered=self.answered))

    def announce_peer(self, info_hash, port):
        self.announced.append((self.clock.seconds(), info_hash, port))
        report = AnnounceReport(asked=8, stored=self.stored, silent=0, refusals={})
        return succeed(report)


class Swarm:
    joined = False
    port = 4365


@pytest.fixture
def made():
    clock, swarm, found = Clock(), Swarm(), []
    peers = RecordedPeers(clock)
    announcer = Announcer(
        KEY,
        peers=peers,
        port=lambda: swarm.port,
        found=found.append,
        is_joined=lambda: swarm.joined,
        settings=SwarmSettings(),
        clock=clock,
        now=lambda: 1_900_000_000 + clock.seconds(),
        random=Random(1),
    )
    yield announcer, clock, peers, swarm, found
    announcer.stop()
    assert clock.getDelayedCalls() == []


def pass_time(clock, seconds):
    for _ in range(int(seconds // 10)):
        clock.advance(10)


def test_the_info_hash_is_the_sha1_of_the_discovery_key():
    assert swarm_hash(KEY) == hashlib.sha1(KEY).digest()
    assert len(swarm_hash(KEY)) == 20


def test_it_announces_looks_up_and_tells(made):
    announcer, _, peers, _, found = made
    peers.peers = PEERS
    announcer.start()
    assert [(h, port) for _, h, port in peers.announced] == [(swarm_hash(KEY), 4365)]
    assert [h for _, h in peers.lookups] == [swarm_hash(KEY)]
    assert found == list(PEERS)
    status = announcer.status()
    assert (status.announced_to, status.peers_found) == (8, 2)
    assert status.last_announce == status.last_lookup == 1_900_000_000
    assert status.as_json()["info_hash"] == swarm_hash(KEY).hex()


def test_without_a_peer_it_looks_often_and_announces_seldom(made):
    announcer, clock, peers, _, _ = made
    announcer.start()
    pass_time(clock, 3600)
    assert 45 <= len(peers.lookups) <= 60
    assert 3 <= len(peers.announced) <= 4


def test_with_a_peer_it_takes_its_time(made):
    announcer, clock, peers, swarm, _ = made
    swarm.joined = True
    announcer.start()
    pass_time(clock, 3600)
    assert 3 <= len(peers.lookups) <= 5
    assert len(peers.announced) == len(peers.lookups)


def test_an_announcement_that_nobody_stored_is_repeated(made):
    announcer, clock, peers, _, _ = made
    peers.stored = 0
    announcer.start()
    pass_time(clock, 300)
    assert len(peers.announced) >= 3
    assert announcer.status().last_announce is None


def test_a_dht_that_is_not_reached_yet_is_asked_again_soon(made):
    announcer, clock, peers, _, found = made
    peers.answered = peers.stored = 0
    announcer.start()
    clock.advance(2 * UNREACHED_SECONDS)
    assert len(peers.lookups) == 2
    peers.answered = peers.stored = 8
    peers.peers = PEERS
    clock.advance(2 * UNREACHED_SECONDS)
    assert found == list(PEERS)
    assert announcer.status().announced_to == 8
    clock.advance(2 * UNREACHED_SECONDS)
    assert len(peers.lookups) == 3


def test_who_does_not_listen_announces_nothing(made):
    announcer, clock, peers, swarm, _ = made
    swarm.port = None
    announcer.start()
    pass_time(clock, 600)
    assert peers.announced == []
    assert peers.lookups


@pytest.mark.parametrize("call", ["get_peers", "announce_peer"])
def test_a_dht_with_too_much_to_do_is_asked_again(made, monkeypatch, call):
    announcer, clock, peers, _, found = made
    peers.peers = PEERS
    refused = fail(LocalProtocolError("256 lookups and puts are under way"))
    with monkeypatch.context() as busy:
        busy.setattr(peers, call, lambda *_: refused)
        announcer.start()
    assert found == []
    pass_time(clock, 120)
    assert found[:2] == list(PEERS)
    assert announcer.status().announced_to == 8


def test_stopping_ends_what_is_under_way(made):
    announcer, clock, peers, _, found = made
    cancelled = []
    peers.hanging = Deferred(cancelled.append)
    announcer.start()
    announcer.stop()
    assert len(cancelled) == 1
    pass_time(clock, 3600)
    assert len(peers.lookups) == 1
    assert found == []
