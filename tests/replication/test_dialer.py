"""Keeping one connection to one address."""

from __future__ import annotations

import socket

import pytest
from players import fired
from sim import SimTransport, pair
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectingCancelledError, ConnectionLost

from hyperbloom.addresses import Address
from hyperbloom.replication.net.dialer import Dialer
from hyperbloom.store import StoreFull
from hyperbloom.store.writer import CommitFigures


class SimEndpoint:
    """Dials over the network in memory; counts connections, and how many were open at once."""

    def __init__(self, network, dialler, listener, feed):
        self.network, self.ends = network, (dialler, listener, feed)
        self.made = []
        self.most = 0
        self.hanging = False
        self.cancelled = 0

    def connect(self, factory):
        if self.hanging:
            return Deferred(self.cancel)
        try:
            made = self.network.connect(*self.ends, factory)
        except ConnectionLost as error:
            return fail(error)
        self.made.append(made)
        self.most = max(self.most, sum(not one.is_lost for one in self.made))
        return succeed(made)

    def cancel(self, deferred):
        self.cancelled += 1
        deferred.errback(ConnectingCancelledError("sim"))


class FullWriter:
    """A writer whose disk is full."""

    queued_bytes = 0
    figures = CommitFigures()

    def submit(self, op, done, **more):
        done(StoreFull("the disk is full; make room"))


@pytest.fixture
def endpoint(network, monkeypatch):
    owner, member, feed = pair(network)
    one = SimEndpoint(network, member, owner, feed)
    monkeypatch.setattr("hyperbloom.connections.dialing.HostnameEndpoint", lambda *a, **k: one)
    return one


def test_a_peer_that_ends_every_connection_is_dialled_less_and_less(network, endpoint):
    member, owner, feed = endpoint.ends
    member.feed(feed).insert([b"a"])
    object.__setattr__(owner.context, "writer", FullWriter())
    dialer = Dialer(member.node.connections, member.feed(feed), Address("127.0.0.1", 1))
    dialer.start()
    network.run(300)
    assert 3 < len(endpoint.made) < 15
    dialer.stop()


def test_a_connection_that_still_closes_is_not_dialled_beside(network, endpoint):
    member, owner, feed = endpoint.ends
    owner.node.leave(feed)
    network.latency = 1.5
    dialer = Dialer(member.node.connections, member.feed(feed), Address("127.0.0.1", 1))
    dialer.start()
    network.run(120)
    assert len(endpoint.made) > 3
    assert endpoint.most == 1
    dialer.stop()


def test_a_dialer_that_is_stopped_leaves_nothing_behind(network, endpoint):
    member, _, feed = endpoint.ends
    endpoint.hanging = True
    dialer = Dialer(member.node.connections, member.feed(feed), Address("127.0.0.1", 1))
    before = len(network.clock.getDelayedCalls())
    dialer.start()
    fired(dialer.stop())
    assert endpoint.cancelled == 1
    endpoint.hanging = False
    network.run(30)
    assert endpoint.made == []
    assert len(network.clock.getDelayedCalls()) == before


def test_a_lost_peer_is_dialled_again(network, endpoint):
    member, owner, feed = endpoint.ends
    dialer = Dialer(member.node.connections, member.feed(feed), Address("127.0.0.1", 1))
    dialer.start()
    for _ in range(3):
        network.run(20)
        assert owner.feed(feed).peers
        network.cut(endpoint.made[-1].transport)
    network.run(3)
    assert len(endpoint.made) == 4
    stopped = dialer.stop()
    network.run(5)
    fired(stopped)
    assert not owner.feed(feed).peers
    assert len(endpoint.made) == 4


def test_a_peer_whose_machine_is_gone_is_noticed_in_minutes(network, monkeypatch):
    owner, member, feed = pair(network)
    with socket.socket() as one:
        monkeypatch.setattr(SimTransport, "getHandle", lambda self: one, raising=False)
        monkeypatch.setattr(SimTransport, "setTcpNoDelay", lambda self, on: None, raising=False)
        monkeypatch.setattr(
            SimTransport,
            "setTcpKeepAlive",
            lambda self, on: one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, on),
            raising=False,
        )
        network.connect(member, owner, feed)
        network.run_until(lambda: owner.feed(feed).peers, 10)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, count = (
            one.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        )
        assert idle + interval * count <= 180
        assert 0 < one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 180_000
