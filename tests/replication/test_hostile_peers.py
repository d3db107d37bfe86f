"""Peers that are trusted and ask, send or claim what they should not, and faults of our own."""

from __future__ import annotations

from players import Intruder, numbered, refusals
from sim import pair

from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.replication.sync.reply import reply_to_sync
from hyperbloom.store.records import RangeSlice
from hyperbloom.wire import Request, Sync
from hyperbloom.wire.credentials import sign_data
from hyperbloom.wire.framing import encode_varint
from hyperbloom.wire.packing import MAX_VALUE_BYTES


def test_a_peer_cannot_pass_for_another_by_its_id(network):
    owner, member, feed = pair(network)
    rogue = network.add("rogue", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, rogue)
    object.__setattr__(rogue.context, "peer_id", member.context.peer_id)
    network.connect(member, owner, feed)
    network.run(1)
    network.connect(rogue, owner, feed)
    network.connect(owner, rogue, feed)
    network.run(2)
    assert member.key in {p.remote_key for p in owner.feed(feed).peers}
    assert rogue.key in {p.remote_key for p in owner.feed(feed).peers}


def test_two_nodes_with_much_to_ask_and_to_answer_do_not_wait_for_each_other(network):
    limits = Limits(pending_requests=2, stall_seconds=100_000)
    sync = SyncSettings(interval=60.0, answer_wait=0.0, false_positive=1e-12)
    owner, member, feed = pair(
        network, owner={"limits": limits, "sync": sync}, member={"limits": limits, "sync": sync}
    )
    for batch in range(20):
        owner.feed(feed).insert(numbered(10_000, b"a%02d" % batch))
        member.feed(feed).insert(numbered(10_000, b"b%02d" % batch))
    network.connect(member, owner, feed)
    network.run_until(
        lambda: owner.feed(feed).values.count == member.feed(feed).values.count == 400_000, 600, 0.5
    )


def test_a_subscriber_that_fails_harms_nobody_else(network):
    owner, member, feed = pair(network, owner={"limits": Limits(unwritten_bytes=262_144)})

    def fail(appended, origin):
        raise RuntimeError("a fault of ours")

    owner.feed(feed).values.subscribe(fail)
    network.connect(member, owner, feed)
    network.run(2)
    for batch in range(5):
        member.feed(feed).insert(numbered(2_000, b"%d" % batch + b"x" * 80))
        network.run(1)
    assert owner.feed(feed).values.count == 10_000
    (peering,) = owner.feed(feed).peers
    assert peering.intake.unwritten == 0


def test_a_value_that_no_frame_of_ours_can_carry_on_is_not_taken(network):
    owner, member, feed = pair(network, owner={"limits": Limits(value_bytes=300_000)})
    intruder = Intruder(network, member, owner, feed)
    value = b"x" * (MAX_VALUE_BYTES + 500)
    session = intruder.session
    data = sign_data(session.credentials, [value])
    body = bytes([data.message_id]) + data.encode()
    intruder.send(network, intruder.encrypt(encode_varint(len(body)) + body), 1)
    assert owner.node.peers()[0].values_in == 1
    assert owner.values(feed) == []


def test_who_is_banned_is_dialled_all_the_same(network):
    owner, member, feed = pair(network, owner={"limits": Limits(strikes=3, ban_seconds=60)})
    for _ in range(3):
        intruder = Intruder(network, member, owner, feed)
        intruder.send(network, intruder.encrypt(b"\xff" * 40), seconds=6)
    network.connect(member, owner, feed)
    network.run(1)
    assert refusals(owner)[0] == "banned"
    assert not owner.feed(feed).peers
    network.connect(owner, member, feed)
    network.run(1)
    assert owner.feed(feed).peers


def test_a_ban_holds_for_a_key_where_it_came_from(network):
    owner, member, feed = pair(network, owner={"limits": Limits(strikes=3, ban_seconds=60)})
    other = network.add("other", feeds=(FeedSettings(key=feed),), identity=member.identity)
    neighbour = network.add("neighbour", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, other)
    owner.invite(feed, neighbour)
    for _ in range(3):
        intruder = Intruder(network, other, owner, feed)
        intruder.send(network, intruder.encrypt(b"\xff" * 40), seconds=6)
    network.connect(member, owner, feed)
    neighbour.name = other.name
    network.group[neighbour.name] = 0
    network.connect(neighbour, owner, feed)
    network.run(1)
    keys = {peer.remote_key for peer in owner.feed(feed).peers}
    assert keys == {member.key, neighbour.key}


def test_long_values_weigh_as_much_as_the_work_they_make():
    values = [bytes([n]) * 200_000 for n in range(5)]
    sync = Sync(filter=b"\1" * 8, size=64, n=64, seed=0)
    reply = reply_to_sync(
        sync, lambda start, end, most: RangeSlice(values=values, next_start=None), lambda v: v
    )
    reply.next_portion()
    assert reply.tested >= 5 * 200_000 / 64


def test_questions_without_an_answer_are_slowed_as_well(network):
    limits = Limits(sync_rate=1_000, sync_burst=10_000)
    owner, member, feed = pair(network, owner={"limits": limits})
    intruder = Intruder(network, member, owner, feed)
    (peering,) = owner.feed(feed).peers
    for _ in range(3_000):
        intruder.write(intruder.session.send_request(Request(start=b"x")))
    network.run(5)
    assert peering.is_behind


def test_values_are_held_against_every_range_asked_for(network):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key, mode="light"),))
    owner.invite(owner.key, member)
    feed = member.feed(owner.key)
    for number in range(100):
        feed.take_interest(b"%03d" % number, b"%03d5" % number)
    feed.values.accept([b"%03d%d" % (n, m) for n in range(100) for m in range(10)], owner.key)
    assert member.values(owner.key) == [b"%03d%d" % (n, m) for n in range(100) for m in range(5)]
