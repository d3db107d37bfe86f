"""Objects made, changed and removed at random everywhere: in the end every pool is the same.

Two nodes, three in a ring, twenty along a random graph; connections are cut and made anew. Seeds
that once found something stay in `KEPT`.
"""

from __future__ import annotations

import contextlib
import itertools
import os

import pytest
from pool_network import PoolNet

from hyperbloom.objects.wire.errors import ObjectGone

KEPT = [1, 2, 3, 4, 5, 6]
SEEDS = [int(os.environ["HYPERBLOOM_SEED"])] if "HYPERBLOOM_SEED" in os.environ else KEPT


class World:
    """Nodes along a graph, and what happens to their objects."""

    def __init__(self, folder, seed, count, edges, *, skews=(0, 0, 0, -3, 40), **more):
        self.net = PoolNet(folder, seed=seed, latency=0.05)
        self.random = self.net.random
        self.nodes = [
            self.net.add(f"n{i:02}", skew=self.random.choice(skews), **more) for i in range(count)
        ]
        self.edges = edges
        self.open = {}

    def redial(self):
        for one, two in self.edges:
            peer = self.open.get((one, two))
            if peer is None or not peer.transport.connected:
                self.open[one, two] = self.net.connect(self.nodes[one], self.nodes[two])

    def cut_some(self, part):
        for peer in self.open.values():
            if peer.transport.connected and self.random.random() < part:
                self.net.cut(peer)

    def act(self):
        """One thing at one node. Every object has a name of its own, and values that repeat."""
        node = self.random.choice(self.nodes)
        present = sorted(node.contents())
        what = self.random.random()
        if not present or what < 0.25:
            # Java's hashCode of "a14", 1 is that of "a24", 0: names must be far from each other.
            node.put(name=self.random.randbytes(8).hex(), n=0, on=False)
        elif what < 0.85:
            change = self.random.choice(
                [{"n": self.random.randrange(3)}, {"on": self.random.random() < 0.5}]
            )
            self.try_it(node.change, self.random.choice(present), **change)
        else:
            self.try_it(node.remove, self.random.choice(present))

    def try_it(self, call, *arguments, **more):
        # Its clock may be behind another node's, whose change then holds.
        with contextlib.suppress(ObjectGone):
            call(*arguments, **more)

    def agreed(self):
        first, *others = self.net.pools()
        return all(other == first for other in others)

    def digests(self):
        return {node.pool.figures().digest for node in self.nodes}

    def check_quiet(self):
        """Nothing travels any more, and all pools are equal."""
        self.net.run(5)
        before = self.net.messages()
        self.net.run(5)
        assert self.net.messages() == before, "messages travel for ever"
        assert self.agreed()
        assert len(self.digests()) == 1
        names = [fields["name"] for fields in self.nodes[0].contents().values()]
        assert len(names) == len(set(names)), "an object is there in two versions"


def ring(count):
    return [(i, (i + 1) % count) for i in range(count)]


def graph(random, count):
    edges = {(i, random.randrange(i)) for i in range(1, count)}
    while len(edges) < 2 * count:
        one, two = random.sample(range(count), 2)
        if (two, one) not in edges:
            edges.add((one, two))
    return sorted(edges)


SHAPES = {"two": (2, [(0, 1)]), "both ways": (2, [(0, 1), (1, 0)]), "ring": (3, ring(3))}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_few_nodes_agree(tmp_path, shape, seed):
    count, edges = SHAPES[shape]
    world = World(tmp_path, seed, count, edges)
    for turn in range(150):
        world.redial()
        for _ in range(world.random.randrange(4)):
            world.act()
        if turn % 20 == 19:
            world.cut_some(0.5)
        world.net.run(world.random.choice([0.02, 0.1, 0.4]))
    world.redial()
    world.check_quiet()
    world.net.close()


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_twenty_nodes_on_a_random_graph_agree(tmp_path, seed):
    count = 20
    world = World(tmp_path, seed, count, [])
    world.edges = graph(world.random, count)
    for turn in range(60):
        world.redial()
        for _ in range(world.random.randrange(5)):
            world.act()
        if turn % 10 == 9:
            world.cut_some(0.2)
        world.net.run(0.1)
    world.redial()
    world.check_quiet()
    # Each event went over each edge at most a few times: no flood.
    assert world.net.messages() < 60 * 5 * len(world.edges) * 10
    world.net.close()


@pytest.mark.parametrize("seed", SEEDS[:3])
def test_pools_that_were_parted_for_long_agree_again(tmp_path, seed):
    world = World(tmp_path, seed, 3, [(0, 1), (1, 2)])
    world.redial()
    for _ in range(20):
        world.act()
        world.net.run(0.1)
    world.net.run(2)
    for _ in range(4):
        for peer in world.open.values():
            world.net.cut(peer)
        for _ in range(25):
            world.act()
            world.net.run(0.02)
        world.redial()
        world.net.run(3)
    world.check_quiet()
    world.net.close()


@pytest.mark.parametrize("passphrase", [None, "secret"])
@pytest.mark.parametrize("ahead", [0, 1, 2, None])
@pytest.mark.parametrize("values", list(itertools.permutations((1, 2, 3))), ids=str)
def test_changes_cross_in_a_ring_and_the_latest_holds(tmp_path, passphrase, ahead, values):
    world = World(tmp_path, 5, 3, ring(3), skews=[0], passphrase=passphrase)
    if ahead is not None:
        world.nodes[ahead].skew = 40.0
    world.redial()
    world.net.run(1)
    number = world.nodes[1].put(name="x", n=0, on=False)
    world.net.run(1)
    changed = [
        node.change(number, n=value) for node, value in zip(world.nodes, values, strict=True)
    ]
    world.check_quiet()
    # The greater stamp; of equal ones, the greater hash.
    holds = max(changed) if ahead is None else changed[ahead]
    assert list(world.nodes[0].contents()) == [holds]
    world.net.close()


def test_a_message_in_a_ring_goes_over_each_edge_once_or_twice(tmp_path):
    world = World(tmp_path, 6, 3, ring(3))
    world.redial()
    world.net.run(1)
    before = world.net.messages()
    world.nodes[0].put(name="x", n=0, on=False)
    world.net.run(2)
    # The two neighbours hear of it, and tell each other.
    assert world.net.messages() - before == 4
    world.net.close()
