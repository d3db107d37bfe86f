"""With whom streams are protected, who is refused without, and who is remembered."""

from __future__ import annotations

import time

import pytest
from players import fired, refusals
from sim import SimEndpoints, pair
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from hyperbloom.addresses import Address
from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.keys import Identity
from hyperbloom.replication.limits import NOISE_MET_SECONDS
from hyperbloom.replication.net import noise_memory
from hyperbloom.replication.settings import FeedSettings, NoisePolicy, why_no_noise
from hyperbloom.store import StoreFull
from hyperbloom.store.limits import MAX_NOISE_KEYS
from hyperbloom.store.tables import noise as noise_table
from hyperbloom.trust import mark_of
from hyperbloom.wire import DIALECTS

OFF, PREFER, REQUIRE = NoisePolicy.OFF, NoisePolicy.PREFER, NoisePolicy.REQUIRE


def done(coroutine):
    return fired(Deferred.fromCoroutine(coroutine))


def is_protected(node, feed):
    return [peer.protected for peer in node.node.peers() if peer.feed == feed]


def remembered(node):
    return {one.key: (one.first_met, one.last_met) for one in node.store.noise_keys()}


@pytest.fixture
def logged():
    found = []
    globalLogPublisher.addObserver(found.append)
    yield lambda kind: [
        (event["log_level"].name, event["log_format"].format(**event))
        for event in found
        if event.get("kind") == kind
    ]
    globalLogPublisher.removeObserver(found.append)


@pytest.mark.parametrize(
    ("here", "there", "outcome"),
    [
        (PREFER, PREFER, True),
        (REQUIRE, REQUIRE, True),
        (REQUIRE, PREFER, True),
        (PREFER, REQUIRE, True),
        (OFF, PREFER, False),
        (PREFER, OFF, False),
        (OFF, OFF, False),
        (REQUIRE, OFF, None),
        (OFF, REQUIRE, None),
    ],
)
@pytest.mark.parametrize("dialler", ["owner", "member"])
def test_what_comes_of_two_policies(network, here, there, outcome, dialler):
    """None: no connection."""
    owner, member, feed = pair(network)
    owner.context.noise, member.context.noise = here, there
    ends = {"owner": (owner, member), "member": (member, owner)}[dialler]
    network.connect(*ends, feed)
    owner.feed(feed).insert([b"value"])
    network.run(3)
    expected = [] if outcome is None else [outcome]
    assert is_protected(owner, feed) == is_protected(member, feed) == expected
    assert member.values(feed) == ([] if outcome is None else [b"value"])
    for node in (owner, member):
        (told,) = [one for one in node.node.status().feeds if one.key == feed]
        assert (told.peers, told.peers_unprotected) == (len(expected), expected.count(False))
        assert told.noise == node.context.noise
        (moved,) = [one for one in node.node.traffic().feeds if one.key == feed]
        assert (moved.peers, moved.peers_unprotected) == (len(expected), expected.count(False))


def test_who_does_not_speak_it_is_refused_with_what_to_do(network, monkeypatch):
    """As an npm peer at an address of the settings is."""
    SimEndpoints(network, monkeypatch)
    owner, member, feed = pair(network, owner={}, member={})
    owner.context.noise = OFF
    fired(member.node.join(FeedSettings(key=feed, peers=("owner:4365",), noise="require")))
    network.run(3)
    assert "unprotected" in refusals(member)
    problem = member.status(feed).problem
    assert problem.startswith("owner:4365: it does not speak `noise`, and this node requires it")
    assert 'set `noise = "prefer"` for this feed, or have the peer run a hyperbloom' in problem
    assert not member.node.connections.strikes
    fired(member.node.join(FeedSettings(key=feed, peers=("owner:4365",), noise="prefer")))
    network.run(3)
    assert is_protected(member, feed) == [False]


def test_a_feed_may_have_another_policy_than_the_node(network):
    owner, member, feed = pair(network)
    assert owner.feed(feed).noise is PREFER
    owner.feed(feed).settings = FeedSettings(key=feed, noise="off")
    assert owner.feed(feed).noise is OFF
    network.connect(member, owner, feed)
    network.run(2)
    assert is_protected(member, feed) == [False]
    assert owner.feed(owner.key).settings.to_json()["noise"] == "off"
    settings = FeedSettings.from_json(FeedSettings(key=feed, noise="require").to_json())
    assert settings.noise == "require"
    older = FeedSettings(key=feed).to_json()
    del older["noise"]
    assert FeedSettings.from_json(older).noise is None


# The draft


def test_the_draft_is_the_dialect_whose_streams_cannot_be_protected():
    for name, dialect in DIALECTS.items():
        assert (why_no_noise(name) is None) == dialect.carries_noise
    with pytest.raises(ValueError, match="cannot be required in the draft: a handshake of"):
        FeedSettings(key=bytes(32), dialect="draft", noise="require")
    FeedSettings(key=bytes(32), dialect="draft", noise="prefer")
    with pytest.raises(ValueError, match="prefer, require, off"):
        FeedSettings(key=bytes(32), noise="always")


def test_where_protection_is_required_a_feed_in_the_draft_is_shut(network):
    identity = Identity(b"\1" * 32)
    settings = FeedSettings(key=identity.public_key, dialect="draft")
    owner = network.add("owner", identity=identity, feeds=(settings,))
    member = network.add("member", feeds=(settings,))
    owner.invite(owner.key, member)
    network.connect(member, owner, owner.key)
    network.run(2)
    assert owner.feed(owner.key).noise is OFF
    assert is_protected(owner, owner.key) == [False]
    assert owner.status(owner.key).problem is None
    done(owner.node.use_noise(REQUIRE))
    network.run(2)
    assert is_protected(owner, owner.key) == []
    network.connect(member, owner, owner.key)
    network.run(2)
    assert refusals(owner)[0] == "unprotected"
    assert is_protected(owner, owner.key) == []
    assert owner.status(owner.key).problem.startswith("nobody is spoken to: this node requires")
    assert 'set `noise = "off"` for this feed' in owner.status(owner.key).problem
    owner.feed(owner.key).settings = FeedSettings(key=owner.key, dialect="draft", noise="off")
    network.connect(member, owner, owner.key)
    network.run(2)
    assert is_protected(owner, owner.key) == [False]


# The memory


def test_who_has_spoken_it_is_not_spoken_to_without(network, logged):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(2)
    assert is_protected(owner, feed) == [True]
    assert set(remembered(owner)) == {member.key}
    assert set(remembered(member)) == {owner.key}
    done(member.node.use_noise(OFF))
    network.run(2)
    network.connect(member, owner, feed)
    network.run(2)
    assert is_protected(owner, feed) == []
    assert refusals(owner)[0] == "unprotected"
    reason = owner.node.status().refusals[0].reason
    digits = member.key.hex()[:16]
    assert reason.startswith("its key has spoken `noise` before, and now does not")
    assert reason.endswith(f"`hyperbloom peers forget-noise {digits}`")
    assert member.key.hex() not in reason
    assert owner.node.traffic().closed["unprotected"] == 1
    assert [level for level, _ in logged("unprotected")] == ["info"]
    assert not owner.node.connections.strikes
    # It is of the node and not of the process.
    owner = network.restart("owner")
    network.connect(member, owner, feed)
    network.run(2)
    assert is_protected(owner, feed) == []
    # The operator's way out.
    assert done(owner.node.forget_noise(member.key)) is True
    assert done(owner.node.forget_noise(member.key)) is False
    network.connect(member, owner, feed)
    network.run(2)
    assert is_protected(owner, feed) == [False]
    assert remembered(owner) == {}


def test_where_it_is_off_nobody_is_refused_and_nobody_remembered(network):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    network.run(2)
    assert set(remembered(owner)) == {member.key}
    for node in (owner, member):
        done(node.node.use_noise(OFF))
    network.run(2)
    network.connect(member, owner, feed)
    network.run(2)
    assert is_protected(owner, feed) == [False]


def test_what_changes_for_all_feeds_has_those_connect_anew_that_it_changes(network):
    owner, member, feed = pair(network)
    owner.feed(feed).settings = FeedSettings(key=feed, noise="prefer")
    network.connect(member, owner, feed)
    network.run(2)
    (peer,) = owner.feed(feed).peers
    done(owner.node.use_noise(REQUIRE))
    network.run(2)
    assert list(owner.feed(feed).peers) == [peer], "the feed says something else"
    done(member.node.use_noise(REQUIRE))
    network.run(2)
    assert not list(owner.feed(feed).peers)


def test_it_is_written_once_a_day(network):
    owner, member, feed = pair(network)
    times = []
    for rest in (10.0, 10.0, NOISE_MET_SECONDS, 10.0):
        peer = network.connect(member, owner, feed)
        network.run(2)
        times.append(remembered(owner)[member.key])
        network.cut(peer.transport)
        network.clock.advance(rest)
    assert times[0] == times[1] == times[2]
    assert times[3] == (times[0][0], pytest.approx(times[0][1] + NOISE_MET_SECONDS * 1e6, rel=1e-3))


def test_a_clock_that_was_set_back_does_not_keep_it_from_being_written(network):
    owner, member, _ = pair(network)
    memory = owner.node.connections.noise
    memory.met(member.key, branch=mark_of(member.key))
    first = remembered(owner)[member.key]
    now = owner.context.now()
    owner.context.now = lambda: now - 2 * NOISE_MET_SECONDS
    memory.met(member.key, branch=mark_of(member.key))
    assert remembered(owner)[member.key][1] < first[1]


def small_memory(network, monkeypatch, most):
    monkeypatch.setattr(noise_memory, "MAX_NOISE_KEYS", most)
    monkeypatch.setattr(noise_table, "MAX_NOISE_KEYS", most)
    return network.add("owner")


def key_of(number):
    return number.to_bytes(32, "big")


def test_the_memory_has_an_end_and_is_what_the_store_keeps(network, monkeypatch):
    owner = small_memory(network, monkeypatch, 3)
    memory = owner.node.connections.noise
    roots = {1: b"a" * 32, 2: b"a" * 32, 3: b"b" * 32, 4: b"b" * 32, 5: b"a" * 32}

    def meet(number):
        network.clock.advance(1)
        memory.met(key_of(number), branch=mark_of(roots[number]))
        kept = {number for number in roots if key_of(number) in memory}
        assert set(remembered(owner)) == {key_of(number) for number in kept}
        return kept

    assert meet(1) == {1}
    assert meet(2) == {1, 2}
    assert meet(3) == {1, 2, 3}
    assert meet(4) == {1, 2, 3}, "of two branches with two, the newcomer's own pays"
    assert meet(5) == {1, 2, 3}
    assert len(memory) == 3


def test_of_two_branches_the_larger_gives_way_and_its_newest_key(network, monkeypatch):
    owner = small_memory(network, monkeypatch, 4)
    memory = owner.node.connections.noise
    for number, root in ((1, b"a"), (2, b"a"), (3, b"a"), (4, b"b"), (5, b"b")):
        network.clock.advance(1)
        memory.met(key_of(number), branch=root * 7)
    assert [key_of(n) in memory for n in range(1, 6)] == [True, True, False, True, True]
    # Both have two: each pays for its own newcomers.
    for number, root in ((6, b"a"), (7, b"b")):
        network.clock.advance(1)
        memory.met(key_of(number), branch=root * 7)
    assert [key_of(n) in memory for n in (1, 2, 4, 5, 6, 7)] == [True] * 4 + [False] * 2
    # So it is after a restart, which the branches outlive.
    owner = network.restart("owner")
    memory = owner.node.connections.noise
    network.clock.advance(1)
    memory.met(key_of(8), branch=b"c" * 7)
    assert key_of(8) in memory
    assert len(memory) == 4
    assert set(remembered(owner)) == {key for key in map(key_of, range(9)) if key in memory}


def test_one_that_was_not_met_for_long_gives_way_before_those_that_were(network, monkeypatch):
    owner = small_memory(network, monkeypatch, 3)
    memory = owner.node.connections.noise
    for number in (1, 2, 3):
        network.clock.advance(1)
        memory.met(key_of(number), branch=b"a" * 7)
    network.clock.advance(noise_memory.NOISE_STALE_SECONDS)
    memory.met(key_of(2), branch=b"a" * 7)
    network.clock.advance(1)
    memory.met(key_of(4), branch=b"a" * 7)
    assert [key_of(n) in memory for n in (1, 2, 3, 4)] == [False, True, True, True]


def test_what_this_node_knows_by_itself_stays(network, monkeypatch):
    owner = small_memory(network, monkeypatch, 3)
    memory = owner.node.connections.noise
    named = key_of(2)
    done(owner.node.names.name(named, "alice"))
    for number in (1, 3, 4):
        network.clock.advance(1)
        memory.met(key_of(number), branch=b"a" * 7)
    network.clock.advance(1)
    memory.met(named, branch=b"a" * 7)
    assert [key_of(n) in memory for n in (1, 2, 3, 4)] == [True, True, True, False]
    network.clock.advance(1)
    memory.met(owner.key, branch=b"a" * 7)  # as the owner of its feed, at another node's
    assert [key_of(n) in memory for n in (1, 2, 3)] == [True, True, False]
    assert owner.key in memory


def test_ten_thousand_new_keys_of_a_member_push_out_nobody_elses(network):
    owner = network.add("owner")
    memory = owner.node.connections.noise
    friends = {key_of(n): key_of(n % 3) for n in range(600)}  # three branches, one of them M's own
    for key, root in friends.items():
        memory.met(key, branch=mark_of(root))
    network.clock.advance(1)
    longest = 0.0
    for number in range(10_300):
        begun = time.thread_time()
        memory.met(key_of(1_000 + number), branch=mark_of(key_of(0)))
        longest = max(longest, time.thread_time() - begun)
    assert len(memory) == MAX_NOISE_KEYS
    assert all(key in memory for key in friends)
    assert longest < 0.05
    # One of another branch: the member's newest gives way.
    memory.met(key_of(20_000), branch=mark_of(key_of(1)))
    assert key_of(20_000) in memory
    assert key_of(1_000 + MAX_NOISE_KEYS - 600 - 1) not in memory
    assert {key for key in remembered(owner) if key in friends} == set(friends)


def test_the_other_side_is_remembered_with_its_first_record(network):
    owner, member, feed = pair(network)
    peer = network.connect(member, owner, feed)
    (connection,) = owner.node.connections._open
    while not connection.is_ready:
        network.clock.advance(0.001)
    assert connection.session.is_protected
    assert set(remembered(owner)) == set()
    network.run(2)
    assert set(remembered(owner)) == {member.key}
    assert peer.is_ready


def test_a_full_disk_keeps_nobody_from_being_remembered_meanwhile(network):
    owner, member, _ = pair(network)
    memory = owner.node.connections.noise
    writer = owner.context.writer

    class Full:
        def submit(self, op, done, **more):
            done(StoreFull("the disk is full; make room"))

    owner.context.writer = Full()
    memory.met(member.key, branch=mark_of(member.key))
    assert member.key in memory
    assert remembered(owner) == {}
    owner.context.writer = writer
    assert done(owner.node.forget_noise(member.key)) is True
    assert member.key not in memory


# Found addresses, and what the operator sees


def test_a_found_address_that_does_not_speak_it_makes_room_at_once(network, monkeypatch):
    endpoints = SimEndpoints(network, monkeypatch)
    owner, member, feed = pair(network)
    owner.context.noise = OFF
    member.context.noise = REQUIRE
    found = member.node.discovered[feed]
    found.add(Address("owner", 4365))
    network.run(30)
    assert endpoints.dialled == ["owner"]
    (told,) = found.status()
    assert told.state == "resting"
    assert "requires it" in told.problem


@pytest.mark.parametrize(
    ("kind", "level"),
    [("stripped", "warn"), ("altered", "warn"), ("banned", "info"), ("cut", None)],
)
@pytest.mark.parametrize("is_ready", [True, False])
def test_what_somebody_on_the_path_did_is_warned_of(network, logged, kind, level, is_ready):
    owner, member, feed = pair(network)
    network.connect(member, owner, feed)
    if is_ready:
        network.run(2)
    (connection,) = owner.node.connections._open
    assert connection.is_ready is is_ready
    connection.close(CloseReason(kind, "somebody on the path did it"))
    network.run(2)
    assert owner.node.traffic().closed[kind] == 1
    told = [line for line in logged(kind) if "somebody on the path" in line[1]]
    assert [found for found, _ in told] == ([] if level is None else [level])
    assert (kind in refusals(owner)) == (level is not None)
