"""Keys that a member makes below its own, in whole nodes."""

from __future__ import annotations

import pytest
from players import Intruder
from sim import pair

from hyperbloom.connections.limits import STRIKE_SECONDS
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import mark_of


def below(network, member, owner, feed, name):
    """A node with a key that the member has let in."""
    sub = network.add(name, feeds=(FeedSettings(key=feed),))
    member.invite(feed, sub)
    return sub


@pytest.fixture
def branch(network):
    """An owner, a member, and its sub-key connected to the owner."""
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(1)
    sub = below(network, member, owner, feed, "sub")
    intruder = Intruder(network, sub, owner, feed)
    (peering,) = [one for one in owner.feed(feed).peers if one.remote_key == sub.key]
    return owner, member, feed, intruder, peering


def test_a_sub_key_counts_by_the_path_down_to_it(branch):
    owner, member, _, _, peering = branch
    assert peering.path == (mark_of(member.key), mark_of(peering.remote_key))
    assert peering.share.parent.parent is owner.context.shares._branches[(mark_of(member.key),)]


def test_what_a_handshake_took_is_charged_to_the_branch(network, branch):
    owner, member, feed, _, _ = branch
    shares, seconds = owner.context.shares, 0.0

    def work_seconds():
        nonlocal seconds
        seconds += 0.001
        return seconds

    owner.context.work_seconds = work_seconds
    before = shares.strangers.weight(network.clock.seconds())
    weight = shares._branches[(mark_of(member.key),)].weight(network.clock.seconds())
    Intruder(network, below(network, member, owner, feed, "more"), owner, feed)
    now = network.clock.seconds()
    assert shares.strangers.weight(now) <= before
    assert shares._branches[(mark_of(member.key),)].weight(now) > weight + 0.002


def test_a_handshake_waits_while_its_branch_rests(network, branch):
    owner, member, feed, _, _ = branch
    shares = owner.context.shares
    shares._branches[(mark_of(member.key),)].rests_until = network.clock.seconds() + 2.0
    sub = below(network, member, owner, feed, "more")
    other = network.add("other", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, other)
    network.connect(sub, owner, feed)
    network.connect(other, owner, feed)
    network.run(1)
    keys = {one.remote_key for one in owner.feed(feed).peers}
    assert other.key in keys
    assert sub.key not in keys
    network.run(2)
    assert sub.key in {one.remote_key for one in owner.feed(feed).peers}


def test_a_strike_weighs_on_the_branch_and_shuts_nobody_else_of_it_out(network, branch):
    owner, member, feed, intruder, _ = branch
    branch_share = owner.context.shares._branches[(mark_of(member.key),)]
    before = branch_share.weight(network.clock.seconds())
    intruder.send(network, intruder.encrypt(b"\xff" * 40), seconds=1)
    assert branch_share.weight(network.clock.seconds()) >= before + 0.9 * STRIKE_SECONDS
    Intruder(network, below(network, member, owner, feed, "more"), owner, feed)
    assert len(owner.feed(feed).peers) == 2
