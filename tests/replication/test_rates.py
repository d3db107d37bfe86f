"""Nodes under `[limits] send_rate, receive_rate` and a peer's own, in a network in memory."""

from __future__ import annotations

import pytest
from sim import pair
from twisted.internet.tcp import Connection as TCPConnection

from hyperbloom.connections.limits import BURST_SECONDS
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import FeedSettings

RATE = 65_536
#: What is moved beside the values: handshakes, which are not held back, and a burst.
BESIDE = 20_000 + RATE * BURST_SECONDS


def numbered(count, filling=b"y" * 1_000):
    return [b"%06d" % number + filling for number in range(count)]


def connected(network, *, owner=None, member=None):
    one, two, feed = pair(network, owner=owner, member=member)
    connection = network.connect(two, one, feed)
    network.run(3)
    assert one.feed(feed).peers
    return one, two, feed, connection


def seconds_for(network, node, feed, count, most):
    begun = network.clock.seconds()
    network.run_until(lambda: node.feed(feed).values.record().count == count, most)
    return network.clock.seconds() - begun


@pytest.mark.parametrize(
    ("who", "name"),
    [
        ("owner", "send_rate"),
        ("owner", "peer_send_rate"),
        ("member", "receive_rate"),
        ("member", "peer_receive_rate"),
    ],
)
def test_a_first_replication_takes_as_long_as_the_rate_says(network, who, name):
    limits = {who: {"limits": Limits(**{name: RATE})}}
    one, two, feed = pair(network, **limits)
    one.feed(feed).insert(numbered(2_000))
    network.run(1)
    connection = network.connect(two, one, feed)
    took = seconds_for(network, two, feed, 2_000, 60)
    size = 2_000 * 1_006
    assert took >= (size - BESIDE) / RATE
    assert took <= 1.15 * size / RATE, "frames, questions and the way there weigh little"
    assert connection.close_reason is None
    network.run_until(lambda: all(peer.in_sync for peer in one.node.peers()), 10)
    # Slices come more than a look apart; nothing is asked again while one is on its way.
    assert [peer.counters.values_out for peer in one.feed(feed).peers] == [2_000]


def test_new_values_and_questions_go_on_under_a_low_rate(network):
    """Nothing that a peer waits for is lost, and nobody is closed as stalled or slow."""
    lowest = Limits(send_rate=16_384, receive_rate=16_384, stall_seconds=30)
    one, two, feed, connection = connected(
        network, owner={"limits": lowest}, member={"limits": Limits(stall_seconds=30)}
    )
    one.feed(feed).insert(numbered(1_000))
    two.feed(feed).insert(numbered(300, b"z" * 1_000))
    network.run_until(lambda: two.feed(feed).values.record().count == 1_300, 400)
    network.run_until(lambda: one.feed(feed).values.record().count == 1_300, 400)
    network.run_until(lambda: all(peer.in_sync for peer in one.node.peers()), 300)
    assert connection.close_reason is None
    assert (one.node.connections.opened.total(), two.node.connections.opened.total()) == (1, 1)
    assert one.node.connections.closed == two.node.connections.closed == {}


def test_what_waits_for_the_rate_is_bounded(network):
    one, _, feed, connection = connected(network, owner={"limits": Limits(send_rate=16_384)})
    near = connection.transport.other.protocol
    for batch in range(20):
        one.feed(feed).insert([b"%02d" % batch + value for value in numbered(500)])
        network.run(0.2)
        assert near.paced.queued < 200_000, "a slice and what was under way"
    assert one.feed(feed).values.record().bytes > 10_000_000


def test_a_peer_that_reads_nothing_is_closed_all_the_same(network):
    limits = Limits(send_rate=65_536, stall_seconds=30)
    one, _, feed, connection = connected(network, owner={"limits": limits})
    near = connection.transport
    near.reading = False
    near.resumeProducing = lambda: None
    one.feed(feed).insert(numbered(5_000))
    network.run(40)
    assert not one.feed(feed).peers
    assert [one.kind for one in one.node.status().refusals] == ["stalled"]


def test_members_share_what_may_be_sent(network):
    owner = network.add("owner", limits=Limits(send_rate=RATE))
    settings = FeedSettings(key=owner.key)
    members = [network.add(f"member {number}", feeds=(settings,)) for number in range(3)]
    owner.feed(owner.key).insert(numbered(3_000))
    network.run(1)
    for member in members:
        owner.invite(owner.key, member)
        network.connect(member, owner, owner.key)
    network.run(30)
    counts = [member.feed(owner.key).values.record().count for member in members]
    assert min(counts) > 0.8 * max(counts)
    assert sum(counts) * 1_006 <= 30 * RATE + BESIDE
    assert sum(counts) * 1_006 >= 0.8 * 30 * RATE


def test_rates_are_taken_over_while_the_node_runs(network):
    one, two, feed, connection = connected(network)
    near = connection.transport.other.protocol
    assert near.paced is None, "without a rate a connection has nothing for it"

    def use(limits):
        one.node.use_settings(limits=limits, sync=one.context.sync, advertise=(), pinned=())

    use(Limits(send_rate=RATE))
    one.feed(feed).insert(numbered(1_000))
    assert seconds_for(network, two, feed, 1_000, 60) >= (1_006_000 - BESIDE) / RATE
    sending = one.node.status().sending
    assert (sending.rate, sending.peer_rate) == (RATE, 0)
    assert sending.held_seconds > 10
    one.feed(feed).insert(numbered(1_000, b"x" * 1_000))
    network.run(2)
    assert one.node.status().sending.waiting == 1
    use(Limits())
    assert seconds_for(network, two, feed, 2_000, 60) < 5
    assert one.node.status().sending.waiting == 0
    assert near.wire.bufferSize == TCPConnection.bufferSize
    assert connection.close_reason is None


def test_a_rate_costs_nothing_while_there_is_none(network):
    one, _, _, connection = connected(network)
    for side in (connection, connection.transport.other.protocol):
        assert "paced" not in vars(side)
    assert not one.context.bandwidth.is_on
    assert one.node.status().sending.waiting == 0


def test_closing_says_the_end_though_bytes_wait(network):
    one, two, feed, connection = connected(network, owner={"limits": Limits(send_rate=16_384)})
    one.feed(feed).insert(numbered(1_000))
    network.run(1)
    one.node.stopService()
    network.run(6)
    assert connection.is_lost
    assert connection.close_reason.kind == "lost", "not cut: the end was said"
    assert not two.feed(feed).peers
