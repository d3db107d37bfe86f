"""Nodes that find by symbols what they differ by: what moves, what it costs, what goes wrong."""

from __future__ import annotations

from players import numbered
from sim import pair


def status(node):
    (peer,) = node.node.peers()
    return peer


def different(network, shared, here, there, **more):
    """An owner and a member with values that one of both lacks, not connected yet."""
    owner, member, feed = pair(network, **more)
    for node, own in (
        (owner, numbered(here, b"owner's ")),
        (member, numbered(there, b"member's ")),
    ):
        node.feed(feed).insert([*numbered(shared), *own])
    return owner, member, feed


def in_sync(owner, member, feed):
    return owner.values(feed) == member.values(feed)


def test_both_sides_get_what_they_lack_by_symbols(network):
    owner, member, feed = different(network, 5_000, 40, 30)
    network.connect(member, owner, feed)
    network.run(0.5)
    assert in_sync(owner, member, feed)
    one = status(member).last_round
    assert (one.way, one.differences) == ("sketch", 70)
    assert 128 <= one.symbols <= 300
    assert status(owner).last_sync_sent is status(member).last_sync_sent is None
    network.run(10)
    for node in (owner, member):
        assert (status(node).in_sync, status(node).in_sync_by) == (True, "digest")
        assert status(node).last_sync_sent is None
