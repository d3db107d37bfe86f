"""Two nodes on an in-memory network with a fake clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from players import Intruder, SlowWriter, chain_of, fired, light_pair, numbered, refusals
from sim import Network, pair

from hyperbloom.bloom import BloomFilter
from hyperbloom.keys import Identity
from hyperbloom.replication.feed.fetch import TooManyFetches
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.limits import MAX_FETCHES, Limits
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.store.operations import written_bytes
from hyperbloom.trust import issue_link
from hyperbloom.wire import (
    Credentials,
    FilterOptions,
    Range,
    Request,
    Session,
    Sync,
)
from hyperbloom.wire.limits import SEND_FRAME_BYTES
from hyperbloom.wire.packing import MAX_VALUE_BYTES


def test_both_sides_get_what_they_lack(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert([b"a", b"b"])
    member.feed(feed).insert([b"b", b"c"])
    network.connect(member, owner, feed)
    network.run(2)
    assert owner.values(feed) == member.values(feed) == [b"a", b"b", b"c"]
    assert owner.feed(feed).values.record().digest == member.feed(feed).values.record().digest


def test_the_listening_side_syncs_as_well(network):
    owner, member, feed = pair(network)
    member.feed(feed).insert([b"c"])
    network.connect(owner, member, feed)
    network.run(2)
    assert owner.values(feed) == [b"c"]


def test_each_side_tells_who_dialled_and_by_what_chain_it_writes(network):
    owner, member, feed = pair(network)
    stranger = network.add("stranger", feeds=(FeedSettings(key=feed),))
    network.connect(member, owner, feed)
    network.run(2)
    dialled = {
        node.name: (node.node.traffic().dialled, node.node.traffic().accepted)
        for node in (owner, member, stranger)
    }
    assert dialled == {"owner": (0, 1), "member": (1, 0), "stranger": (0, 0)}
    told = member.status(feed)
    assert (told.trusted, told.chain_links) == (True, 1)
    assert told.chain_expires == member.feed(feed).trust.chain.expires
    told = stranger.status(feed)
    assert (told.trusted, told.chain_links, told.chain_expires) == (False, None, None)


def test_new_values_are_broadcast_without_an_echo(network):
    owner, member, feed = pair(network)
    connection = network.connect(member, owner, feed)
    network.run(2)
    owner.feed(feed).insert([b"new"])
    network.run(0.2)
    assert member.values(feed) == [b"new"]
    assert connection.peering.counters.values_out == 0, "nothing was sent back"


def test_what_a_peer_sent_while_it_was_to_be_told_is_not_sent_back(network):
    owner, member, feed = pair(network)
    connection = network.connect(member, owner, feed)
    network.run(2)
    (there,) = owner.feed(feed).peers
    there.scheduler.pauseProducing()
    owner.feed(feed).insert([b"here and there", b"here only"])
    connection.peering.output.send_values([b"here and there"])
    network.run(0.2)
    there.scheduler.resumeProducing()
    network.run(0.2)
    assert member.values(feed) == [b"here only"]
    assert there.counters.values_out == 1


def test_a_value_keeps_who_brought_it_and_when(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(2)
    member.feed(feed).insert([b"mine"])
    network.run(1)
    (record,) = owner.store.log_slice(feed, 0, limit=10, max_bytes=1000).records
    assert record.origin == member.key
    assert abs(record.received_at / 1e6 - network.now()) < 2


def test_a_reply_of_many_frames_arrives_whole(network):
    owner, member, feed = pair(network)
    values = [*numbered(30_000, b"x" * 40), b"L" * 204_800, b"1", b"\xff" * MAX_VALUE_BYTES]
    owner.feed(feed).insert(values)
    network.connect(member, owner, feed)
    network.run(5)
    assert member.values(feed) == sorted(values)


def test_a_feed_of_several_filters_syncs_both_ways(network):
    sync = SyncSettings(interval=5.0, answer_wait=0.5, false_positive=1e-6)
    owner, member, feed = pair(network, owner={"sync": sync}, member={"sync": sync})
    common = numbered(100_000)
    owner.feed(feed).insert([*common, b"only owner"])
    member.feed(feed).insert([*common, b"only member"])
    connection = network.connect(member, owner, feed)
    network.run(8)
    assert owner.feed(feed).values.record().digest == member.feed(feed).values.record().digest
    assert owner.feed(feed).values.record().count == 100_002
    assert connection.peering.counters.values_in < 50, "only what was missing was sent"


def test_a_small_peer_spares_a_large_one_its_long_plan(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert(numbered(150_000))
    member.feed(feed).insert([b"only member"])
    connection = network.connect(owner, member, feed)
    network.run(4)
    assert owner.feed(feed).values.record().digest == member.feed(feed).values.record().digest
    assert connection.peering.counters.values_in == 1, "what was sent did not come back"


@pytest.mark.parametrize("dialler", ["owner", "member"])
def test_a_sync_is_repeated_with_a_fresh_seed(network, dialler):
    owner, member, feed = pair(network)
    owner.feed(feed).insert([b"hidden"])
    near, far = (owner, member) if dialler == "owner" else (member, owner)
    connection = network.connect(near, far, feed)
    network.run(2)
    # A value that came to the store past everybody, as one hidden by a false positive would.
    peering = connection.peering
    peering.feed.values._subscribers.clear()
    near.feed(feed).insert([b"silent"])
    (other,) = far.feed(feed).peers
    before = peering.counters.syncs_sent + other.counters.syncs_sent
    network.run(15)
    assert peering.counters.syncs_sent + other.counters.syncs_sent > before
    assert far.values(feed) == [b"hidden", b"silent"]


def test_values_that_false_positives_hid_do_not_wait_for_the_interval(network):
    often_wrong = SyncSettings(interval=3_600.0, answer_wait=0.5, false_positive=0.1)
    owner, member, feed = pair(network, owner={"sync": often_wrong}, member={"sync": often_wrong})
    owner.feed(feed).insert(numbered(2_000))
    member.feed(feed).insert(numbered(1_500))
    connection = network.connect(member, owner, feed)
    network.run(0.9)
    hidden = 2_000 - member.feed(feed).values.record().count
    assert 10 < hidden < 490, "the first plan overlooks some"
    network.run(120)
    assert member.feed(feed).values.record().digest == owner.feed(feed).values.record().digest
    assert connection.peering.sync_state.in_sync


def test_sets_that_stay_different_are_asked_ever_less_often(network):
    hourly = SyncSettings(interval=3_600.0, answer_wait=0.5)
    short = Limits(value_bytes=8)
    owner, member, feed = pair(
        network, owner={"sync": hourly}, member={"sync": hourly, "limits": short}
    )
    owner.feed(feed).insert([b"short", b"longer than eight"])
    connection = network.connect(member, owner, feed)
    network.run(600)
    assert member.values(feed) == [b"short"]
    assert not connection.peering.sync_state.in_sync
    # The first, and those 1, 4, 16, 64 and 256 s after the one before.
    assert 4 <= connection.peering.counters.syncs_sent <= 6


def test_a_range_node_keeps_its_ranges_only(network):
    owner = network.add("owner")
    settings = FeedSettings(key=owner.key, mode="range", ranges=((b"b", b"d"), (b"x", None)))
    member = network.add("member", feeds=(settings,))
    owner.invite(owner.key, member)
    owner.feed(owner.key).insert([b"a", b"b", b"c", b"d", b"x", b"z"])
    network.connect(member, owner, owner.key)
    network.run(2)
    assert member.values(owner.key) == [b"b", b"c", b"x", b"z"]
    owner.feed(owner.key).insert([b"aa", b"cc"])
    network.run(1)
    assert b"cc" in member.values(owner.key)
    assert b"aa" not in member.values(owner.key)


def test_a_light_node_publishes_and_fetches(network):
    owner, member, feed = light_pair(network)
    owner.feed(feed).insert([b"a", b"b", b"c"])
    network.connect(member, owner, feed)
    network.run(3)
    assert member.values(feed) == [], "it keeps no copy"
    member.feed(feed).insert([b"mine"])
    network.run(1)
    assert b"mine" in owner.values(feed)
    fetching = member.node.fetch(feed, b"b", None, timeout=5)
    network.run(2)
    assert fired(fetching) == 2
    assert member.values(feed) == [b"b", b"c", b"mine"]


def test_a_light_node_that_watches_a_range_gets_its_new_values(network):
    owner, member, feed = light_pair(network)
    network.connect(member, owner, feed)
    network.run(2)
    lose = member.feed(feed).take_interest(b"w", None)
    owner.feed(feed).insert([b"a1", b"w1"])
    network.run(1)
    assert member.values(feed) == [b"w1"]
    lose()
    owner.feed(feed).insert([b"w2"])
    network.run(1)
    assert member.values(feed) == [b"w1"]


def test_fetches_are_bounded(network):
    owner, member, feed = light_pair(network)
    network.connect(member, owner, feed)
    network.run(2)
    fetches = [member.node.fetch(feed, b"", None, timeout=5) for _ in range(MAX_FETCHES)]
    with pytest.raises(TooManyFetches):
        fired(member.node.fetch(feed, b"", None, timeout=5))
    network.run(6)
    assert all(fired(fetch) == 0 for fetch in fetches)


# Trust


def test_nothing_is_inserted_without_a_chain(network):
    owner = network.add("owner")
    stranger = network.add("stranger", feeds=(FeedSettings(key=owner.key),))
    with pytest.raises(NotTrusted, match="no chain of links"):
        stranger.feed(owner.key).insert([b"a"])


def test_a_stranger_does_not_become_secure(network):
    owner, member, feed = pair(network)
    forger = Identity(b"f" * 32)
    link = issue_link(forger, member.key, expires=network.now() + 1000, nonce=b"n" * 32)
    chain = member.feed(feed).trust.chain
    forged = replace(chain, links=(link,))
    member.feed(feed).trust.membership._chain = forged
    connection = network.connect(member, owner, feed)
    network.run(2)
    assert connection.peering is None or not owner.feed(feed).peers
    assert "untrusted" in refusals(owner)


def test_an_expired_chain_is_said_apart_from_an_untrusted_one(network):
    owner = network.add("owner")
    feed = owner.key
    member = network.add("member", feeds=(FeedSettings(key=feed),))
    owner.invite(feed, member, seconds=5)
    expired = member.feed(feed).trust.chain
    network.run(6)
    # A member that does not look at its own clock.
    member.feed(feed).trust.membership._chain = expired
    member.feed(feed).trust.membership._searched_until = float("inf")
    network.connect(member, owner, feed)
    network.run(1)
    assert refusals(owner)[0] == "expired"
    assert not owner.feed(feed).peers


def test_a_member_whose_link_runs_out_is_closed_within_a_second(network):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key),))
    owner.invite(owner.key, member, seconds=10)
    connection = network.connect(member, owner, owner.key)
    network.run(9.5)
    assert connection.peering.remote.key == owner.key
    assert len(owner.feed(owner.key).peers) == 1
    network.run(1.5)
    assert not owner.feed(owner.key).peers
    with pytest.raises(NotTrusted, match="expired"):
        member.feed(owner.key).insert([b"late"])


def test_values_of_an_expired_member_are_refused_before_the_connection_is_closed(network):
    owner = network.add("owner")
    member = network.add("member", feeds=(FeedSettings(key=owner.key),))
    owner.invite(owner.key, member, seconds=10)
    connection = network.connect(member, owner, owner.key)
    network.run(2)
    connection.peering.context.now()
    for node in (owner, member):
        node.node._sweep.stop()
    network.run(9)
    assert connection.close_reason is None
    connection.peering.output.send_values([b"late"])
    network.run(1)
    assert owner.values(owner.key) == []


def test_expiry_is_forgiven_for_the_leeway_only(network):
    owner = network.add("owner", leeway=5.0)
    member = network.add("member", feeds=(FeedSettings(key=owner.key),), leeway=5.0)
    owner.invite(owner.key, member, seconds=10)
    network.connect(member, owner, owner.key)
    network.run(14)
    assert owner.feed(owner.key).peers
    network.run(2)
    assert not owner.feed(owner.key).peers


def test_a_shorter_chain_is_issued_taken_and_used(network):
    nodes, feed = chain_of(network, 3)
    last = nodes[3]
    assert len(last.feed(feed).trust.chain) == 3
    network.connect(last, nodes[0], feed)
    network.run(2)
    assert len(last.feed(feed).trust.chain) == 1
    assert last.feed(feed).trust.chain.holder == last.key
    stored = [link for link in last.feed(feed).trust.links() if link.issuer == feed]
    assert any(link.trustee == last.key for link in stored), "it survives a restart"


def test_links_are_not_issued_where_the_feed_says_so(network):
    nodes, feed = chain_of(network, 3)
    owner = nodes[0]
    owner.feed(feed).settings = replace(owner.feed(feed).settings, issue_links=False)
    network.connect(nodes[3], owner, feed)
    network.run(2)
    assert len(nodes[3].feed(feed).trust.chain) == 3


def test_five_links_are_the_most(network):
    nodes, feed = chain_of(network, 5)
    with pytest.raises(ValueError, match="cannot invite"):
        nodes[5].feed(feed).trust.issue_link(b"t" * 32, expires=network.now() + 100)
    nodes[5].feed(feed).insert([b"from afar"])
    network.connect(nodes[5], nodes[0], feed)
    network.run(2)
    assert nodes[0].values(feed) == [b"from afar"]


def test_a_link_never_outlives_the_chain_it_hangs_on(network):
    _, member, feed = pair(network)
    link = fired(member.feed(feed).trust.issue_link(b"t" * 32, expires=network.now() + 10 * 86_400))
    assert link.expires == member.feed(feed).trust.chain.expires


def test_the_chain_of_a_peer_is_learnt_and_told(network):
    nodes, feed = chain_of(network, 2)
    owner = nodes[0].feed(feed)
    owner.settings = replace(owner.settings, issue_links=False)
    network.connect(nodes[2], nodes[0], feed)
    network.run(2)
    members = {m.key: m for m in nodes[0].feed(feed).trust.members()}
    assert members[nodes[2].key].introduced_by == nodes[1].key
    assert members[nodes[2].key].depth == 2


# Connections


def test_a_node_that_dials_itself_notices(network):
    owner, _, feed = pair(network)
    network.connect(owner, owner, feed)
    network.run(2)
    assert not owner.feed(feed).peers


def test_of_two_connections_between_two_nodes_one_stays(network):
    owner, member, feed = pair(network)
    network.connect(owner, member, feed)
    network.connect(member, owner, feed)
    network.run(2)
    assert len(owner.feed(feed).peers) == len(member.feed(feed).peers) == 1
    (mine,) = owner.feed(feed).peers
    (theirs,) = member.feed(feed).peers
    assert mine.connection.outgoing != theirs.connection.outgoing, "the same one on both sides"


def test_an_unknown_feed_is_refused(network):
    owner, member, _ = pair(network)
    network.connect(member, owner, member.key)
    network.run(1)
    assert refusals(owner) == ["unknown-feed"]


def test_a_handshake_that_does_not_come_is_not_waited_for(network):
    owner, member, feed = pair(network)
    connection = network.connect(member, owner, feed)
    far = connection.transport.other
    far.pauseProducing()
    network.run(9)
    assert far.connected
    network.run(8)
    assert not far.connected
    assert refusals(owner) == ["slow"]


def test_a_broken_frame_is_a_strike_and_ends_the_connection(network):
    owner, member, feed = pair(network)
    intruder = Intruder(network, member, owner, feed)
    intruder.send(network, intruder.encrypt(b"\xff" * 40))
    assert refusals(owner) == ["protocol"]
    assert not owner.feed(feed).peers


def test_a_member_that_breaks_the_protocol_often_is_banned_for_a_while(network):
    owner, member, feed = pair(network, owner={"limits": Limits(strikes=3, ban_seconds=60)})
    for _ in range(3):
        intruder = Intruder(network, member, owner, feed)
        intruder.send(network, intruder.encrypt(b"\xff" * 40), seconds=6)
    network.connect(member, owner, feed)
    network.run(1)
    assert refusals(owner)[0] == "banned"
    network.run(61)
    network.connect(member, owner, feed)
    network.run(1)
    assert owner.feed(feed).peers


def test_a_wrongly_signed_data_is_not_stored_and_is_a_strike(network):
    owner, member, feed = pair(network)
    intruder = Intruder(network, member, owner, feed)
    good = intruder.session.credentials
    other = Credentials(
        feed_key=feed,
        identity=owner.identity,
        chain=owner.feed(feed).trust.chain,
        dialect=good.dialect,
    )
    intruder.session._credentials = other
    intruder.send(network, intruder.session.send_data([b"forged"]))
    assert owner.values(feed) == []
    (peering,) = owner.feed(feed).peers
    assert owner.node.peers()[0].strikes == 1
    assert peering.counters.values_in == 0


def test_a_filter_of_too_many_hash_functions_is_answered_with_options(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert([b"a"])
    intruder = Intruder(network, member, owner, feed)
    sync = Sync(filter=b"\0" * 8, size=64, n=65, seed=1)
    before = owner.node.peers()[0].values_out
    intruder.send(network, intruder.session.send_sync(sync))
    assert owner.node.peers()[0].strikes == 1
    assert owner.node.peers()[0].values_out == before
    intruder.send(network, intruder.session.send_sync(replace(sync, n=64)))
    assert owner.node.peers()[0].values_out == before + 1


def test_questions_beyond_the_bound_wait_unread(network):
    limits = Limits(pending_requests=4)
    owner, member, feed = pair(network, owner={"limits": limits, "thread_seconds": 1.0})
    owner.feed(feed).insert([b"a"])
    intruder = Intruder(network, member, owner, feed)
    for _ in range(20):
        intruder.write(intruder.session.send_request(Request(start=b"", end=None)))
    network.run(1)
    (peering,) = owner.feed(feed).peers
    assert len(peering._replies) == 4
    assert peering.is_behind
    network.run(60)
    assert not peering.is_behind
    assert owner.node.peers()[0].values_out >= 20


def test_a_peer_that_asks_too_much_is_slowed_not_cut(network):
    limits = Limits(sync_rate=3_000, sync_burst=10_000)
    owner, member, feed = pair(network, owner={"limits": limits})
    owner.feed(feed).insert(numbered(5_000))
    intruder = Intruder(network, member, owner, feed)
    full = BloomFilter(8, 1, 0)
    full.add(numbered(200))
    ask = Sync(filter=full.to_bytes(), size=8, n=1, seed=0)
    (peering,) = owner.feed(feed).peers
    for _ in range(10):
        intruder.write(intruder.session.send_sync(ask))
    network.run(2)
    assert len(peering._replies) > 3
    network.run(70)
    assert len(peering._replies) == 0
    assert owner.feed(feed).peers


def test_a_peer_that_sends_faster_than_the_disk_takes_it_is_slowed(network):
    owner, member, feed = pair(network, owner={"limits": Limits(unwritten_bytes=262_144)})
    object.__setattr__(owner.context, "writer", SlowWriter(owner.context.writer, network.clock))
    connection = network.connect(member, owner, feed)
    network.run(2)
    (peering,) = owner.feed(feed).peers
    values = numbered(100_000, b"x" * 90)
    member.feed(feed).insert(values)
    network.run(1.5)
    in_a_frame = values[: SEND_FRAME_BYTES // len(values[0])]
    assert peering.intake.unwritten <= 262_144 + written_bytes(in_a_frame)
    far = connection.transport.other
    waiting = far.protocol.session.buffered_bytes + sum(map(len, far.arrived))
    assert connection.peering.scheduler.paused, "the sender's transport is full"
    assert far.protocol.session.buffered_bytes <= 2 * SEND_FRAME_BYTES
    assert waiting < 3_000_000, "what waits is bounded by the sender's own buffer"
    owner.context.writer.seconds = 0.01
    network.run_until(lambda: owner.feed(feed).values.record().count == 100_000, 60)


def test_a_peer_that_reads_nothing_costs_one_slice_and_is_closed_in_the_end(network):
    owner, member, feed = pair(network, owner={"limits": Limits(stall_seconds=30)})
    connection = network.connect(member, owner, feed)
    network.run(2)
    near = connection.transport
    near.reading = False
    near.resumeProducing = lambda: None
    for batch in range(20):
        owner.feed(feed).insert(numbered(5_000, b"%02d" % batch + b"y" * 90))
        network.run(0.1)
    assert near.other.in_flight < 3_000_000
    assert owner.feed(feed).peers
    network.run(35)
    assert not owner.feed(feed).peers
    assert refusals(owner) == ["stalled"]


def test_values_beyond_the_own_limit_are_refused_once_and_remembered(network):
    owner, member, feed = pair(network, owner={"limits": Limits(value_bytes=10)})
    member.feed(feed).insert([b"short", b"much too long a value"])
    connection = network.connect(member, owner, feed)
    network.run(2)
    assert owner.values(feed) == [b"short"]
    assert [r.value for r in owner.store.refused(feed)] == [b"much too long a value"]
    sent = connection.peering.counters.values_out
    network.run(30)
    assert connection.peering.counters.values_out == sent, "it was not sent again"


def test_a_full_feed_takes_no_more_and_says_so(network):
    owner, member, feed = pair(network, owner={"limits": Limits(feed_values=3)})
    network.connect(member, owner, feed)
    network.run(2)
    member.feed(feed).insert(numbered(3))
    network.run(1)
    member.feed(feed).insert([b"one more"])
    network.run(1)
    assert len(owner.values(feed)) == 3
    assert owner.status(feed).is_full


@pytest.mark.parametrize("value", [b"", b"x" * (MAX_VALUE_BYTES + 1)], ids=["empty", "too long"])
def test_values_that_no_frame_can_carry_are_not_inserted(network, value):
    owner = network.add("owner")
    with pytest.raises(ValueError, match="a value has"):
        owner.feed(owner.key).insert([value])


def test_an_unknown_message_and_options_are_skipped(network):
    owner, member, feed = pair(network)
    intruder = Intruder(network, member, owner, feed)
    session = intruder.session
    intruder.send(network, intruder.encrypt(b"\x03\x63ab"))
    intruder.send(network, session.send_filter_options(FilterOptions(size=1000, n=7)))
    assert owner.node.peers()[0].strikes == 0


def test_a_range_whose_end_is_its_start_is_answered_with_nothing(network):
    owner, member, feed = pair(network)
    owner.feed(feed).insert([b"a"])
    intruder = Intruder(network, member, owner, feed)
    sent = owner.node.peers()[0].values_out
    empty = Sync(filter=b"\0", size=8, n=1, seed=0, range=Range(start=b"b", end=b"a"))
    intruder.send(network, intruder.session.send_sync(empty))
    assert owner.node.peers()[0].values_out == sent
    assert owner.feed(feed).peers


def test_a_session_of_two_mutes_is_closed_by_both(tmp_path):
    network = Network(tmp_path)
    owner, member, feed = pair(network)
    connection = network.connect(member, owner, feed)
    network.run(1)
    connection.transport.loseConnection()
    network.run(1)
    assert not owner.feed(feed).peers
    assert not member.feed(feed).peers
    assert isinstance(connection.session, Session)
    network.close()


def test_plans_that_take_long_are_made_less_often(network):
    sync = SyncSettings(interval=5.0, jitter=0.0, answer_wait=0.5)
    owner, member, feed = pair(
        network,
        owner={"sync": sync, "thread_seconds": 2.0},
        # What the member refuses keeps the two apart, so that there is a plan each time.
        member={"sync": sync, "limits": Limits(value_bytes=1)},
    )
    owner.feed(feed).insert([b"too long"])
    network.connect(owner, member, feed)
    network.run(8)
    (peering,) = owner.feed(feed).peers
    first = peering.counters.last_sync_sent
    assert first is not None
    network.run(34)
    assert peering.counters.last_sync_sent == first, "two seconds of work: every forty seconds"
    network.run(12)
    assert peering.counters.last_sync_sent > first
