"""Many trackers over simulated time: they find each other, merge, and keep to the rate limit.

Every test is made of a seed, which a failure shows; HYPERBLOOM_SEED adds another one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tracker_sim import FEED_KEY, POLICIES, World

from hyperbloom.keys import Identity, discovery_key

SEEDS = [1, 2, 3, *(int(text) for text in [os.environ.get("HYPERBLOOM_SEED", "")] if text)]
STORES = [*((policy,) for policy in POLICIES), POLICIES]


@contextmanager
def seeded(seed: int, **changes: object) -> Iterator[World]:
    world = World(seed, **changes)  # type: ignore[arg-type]
    print(f"seed {seed} (set HYPERBLOOM_SEED to try another)")
    yield world
    world.stop()


def start(world: World, count: int, *, side: int = 0, within: float = 3.0) -> None:
    for _ in range(count):
        world.node(side=side, after=world.random.uniform(0, within))


def is_whole(world: World) -> bool:
    return world.components() == [len(world.nodes)]


def have_converged(world: World) -> bool:
    return len({frozenset(node.around.values) for node in world.nodes}) == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policies", STORES, ids="+".join)
def test_twelve_nodes_find_each_other_and_converge_within_30_seconds(
    seed: int, policies: tuple[str, ...]
) -> None:
    with seeded(seed, policies=policies) as world:
        start(world, 12)
        for number, node in enumerate(world.nodes):
            node.around.insert(b"value %d" % number)
        assert world.run(30, until=lambda: is_whole(world) and have_converged(world))
        assert len(world.nodes[0].around.values) == 12


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policies", STORES, ids="+".join)
def test_two_bubbles_merge_when_their_dht_nodes_do(seed: int, policies: tuple[str, ...]) -> None:
    """Six nodes on one half of the DHT, six on the other: neither sees the other's records."""
    with seeded(seed, policies=policies) as world:
        world.is_split = True
        start(world, 6, side=0)
        start(world, 6, side=1)
        for number, node in enumerate(world.nodes):
            node.around.insert(b"value %d" % number)
        world.run(240)
        assert world.components() == [6, 6]
        world.is_split = False
        assert world.run(600, until=lambda: is_whole(world) and have_converged(world))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policies", STORES, ids="+".join)
def test_two_rings_without_messages_merge_as_bubbles(seed: int, policies: tuple[str, ...]) -> None:
    """Joined from the start, so that no bootstrap loop runs; two neighbours are few."""
    with seeded(seed, policies=policies) as world:
        start(world, 12, within=0)
        for ring in (world.nodes[:6], world.nodes[6:]):
            for index, node in enumerate(ring):
                world.connect(node.around, ring[index - 1].around)
        assert world.components() == [6, 6]
        assert world.run(600, until=lambda: is_whole(world))


def full_mesh(world: World, side: int) -> None:
    """So many neighbours that the bubble merge has nothing to do."""
    members = [node.around for node in world.nodes if node.store.side == side]
    for index, one in enumerate(members):
        for other in members[index + 1 :]:
            world.connect(one, other)


@pytest.mark.parametrize(("seed", "with_messages"), [*((s, True) for s in SEEDS), (1, False)])
def test_partitions_merge_by_messages_that_do_not_overlap(seed: int, with_messages: bool) -> None:
    with seeded(seed) as world:
        world.is_split = True
        world.cut()
        start(world, 6, side=0)
        start(world, 6, side=1)
        world.run(60)
        for side in (0, 1):
            full_mesh(world, side)
        assert world.components() == [6, 6]
        if with_messages:
            for number, node in enumerate(world.nodes):
                node.around.insert(b"value %d" % number)
        world.is_split = world.is_cut = False
        merged = world.run(400, until=lambda: is_whole(world) and have_converged(world))
        assert merged is with_messages, "without messages a partition of meshes does not show"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_swarm_survives_cuts_losses_and_nodes_that_leave(seed: int) -> None:
    with seeded(seed, loss=0.3) as world:
        start(world, 6, side=0, within=60)
        start(world, 6, side=1, within=60)
        assert world.run(600, until=lambda: is_whole(world))
        for round_number in range(3):
            world.is_split = True
            world.cut()
            world.run(world.random.uniform(30, 300))
            for node in world.nodes:
                node.around.insert(b"round %d of %s" % (round_number, node.identity.public_key))
            world.is_split = world.is_cut = False
            assert world.run(900, until=lambda: is_whole(world))
        assert world.run(60, until=lambda: have_converged(world))


def test_over_an_hour_few_publish_where_enough_records_are_seen() -> None:
    """Nodes that keep what came first and answer seldom: many records of a minute are visible."""
    with seeded(1, policies=("keep",), storers=60, loss=0.8) as world:
        start(world, 10)
        assert world.run(60, until=lambda: is_whole(world))
        world.run(3_600)
        most = world.settings.max_bootstrap_records
        seen = [count for node in world.nodes for count in node.store.seen_before_puts]
        held_back = sum(node.tracker.status().rate_limited for node in world.nodes)
        assert 0 < sum(count >= most for count in seen) < held_back / 4
        for node in world.nodes:
            assert node.tracker.status().rate_limited > 5
            assert max(Counter(int(at // 60) for at in node.store.puts).values()) <= 6


def test_over_hours_a_node_publishes_no_faster_than_its_interval() -> None:
    """Where every put overwrites, one record is visible and the limit never holds anybody back."""
    with seeded(1, policies=("overwrite",), loss=0.0) as world:
        start(world, 5)
        hours = 3
        world.run(hours * 3_600)
        for node in world.nodes:
            late = [at for at in node.store.puts if at > 60]
            assert max(Counter(int(at // 60) for at in late).values()) <= 6
            assert hours * 3_600 / 64 <= len(late) <= hours * 3_600 / 30
            assert set(node.store.seen_before_puts) <= {0, 1}


@pytest.mark.parametrize("seed", SEEDS)
def test_who_does_not_know_the_feed_finds_nobody_and_is_not_found(seed: int) -> None:
    """One knows another feed only, one mistakes the discovery key for the key."""
    with seeded(seed) as world:
        start(world, 4)
        strangers = [
            world.node(feed_key=Identity(b"g" * 32).public_key),
            world.node(feed_key=discovery_key(FEED_KEY)),
        ]
        world.run(600)
        for stranger in strangers:
            assert stranger.around.joins == []
            assert stranger.tracker.status().records_seen == 0
        assert world.components() == [4, 1, 1]
