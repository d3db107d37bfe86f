"""With whom streams are protected, who is refused without, and who is remembered."""

from __future__ import annotations

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
from hyperbloom.store.tables import noise as noise_table
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
    memory.met(member.key)
    first = remembered(owner)[member.key]
    now = owner.context.now()
    owner.context.now = lambda: now - 2 * NOISE_MET_SECONDS
    memory.met(member.key)
    assert remembered(owner)[member.key][1] < first[1]


def test_the_memory_has_an_end_and_is_what_the_store_keeps(network, monkeypatch):
    monkeypatch.setattr(noise_memory, "MAX_NOISE_KEYS", 3)
    monkeypatch.setattr(noise_table, "MAX_NOISE_KEYS", 3)
    owner = network.add("owner")
    memory = owner.node.connections.noise
    keys = [bytes([number]) * 32 for number in range(5)]
    for number, key in enumerate(keys[:3]):
        network.clock.advance(1.0 + number)
        memory.met(key)
    assert len(memory) == 3
    network.clock.advance(NOISE_MET_SECONDS)
    memory.met(keys[0])  # a day later: it is written anew, and the second is the oldest
    network.clock.advance(1)
    memory.met(keys[3])
    assert len(memory) == 3
    assert [key in memory for key in keys] == [True, False, True, True, False]
    assert set(remembered(owner)) == {key for key in keys if key in memory}
    owner = network.restart("owner")
    memory = owner.node.connections.noise
    network.clock.advance(1)
    memory.met(keys[4])
    assert [key in memory for key in keys] == [True, False, False, True, True]
    assert set(remembered(owner)) == {key for key in keys if key in memory}


def test_a_full_disk_keeps_nobody_from_being_remembered_meanwhile(network):
    owner, member, _ = pair(network)
    memory = owner.node.connections.noise
    writer = owner.context.writer

    class Full:
        def submit(self, op, done, **more):
            done(StoreFull("the disk is full; make room"))

    owner.context.writer = Full()
    memory.met(member.key)
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
