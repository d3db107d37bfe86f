"""Twenty nodes, one feed, a bad network: everything that was stored anywhere is everywhere.

Each seed gives another graph, other latencies, other moments at which connections are cut and the
network falls apart. Seeds that once found something stay in `KEPT`.
"""

from __future__ import annotations

import os

import pytest
from sim import Network

from hyperbloom.replication.settings import FeedSettings, SyncSettings

NODES = 20
KEPT = [1, 2, 3]
SEEDS = [int(os.environ["HYPERBLOOM_SEED"])] if "HYPERBLOOM_SEED" in os.environ else KEPT


class Swarm:
    """Nodes along a random connected graph whose edges are redialled when they are lost."""

    def __init__(self, folder, seed):
        self.network = Network(folder, seed=seed, latency=0.05)
        self.random = self.network.random
        sync = SyncSettings(interval=5.0, answer_wait=0.5)
        self.owner = self.network.add("n00", sync=sync)
        self.feed = self.owner.key
        self.nodes = [self.owner]
        for number in range(1, NODES):
            self.add_member(number, sync)
        self.edges = {(number, self.random.randrange(number)) for number in range(1, NODES)}
        while len(self.edges) < 2 * NODES:
            one, two = self.random.sample(range(NODES), 2)
            if (two, one) not in self.edges:
                self.edges.add((one, two))
        self.open = {}
        self.inserted = set()

    def add_member(self, number, sync):
        node = self.network.add(f"n{number:02}", feeds=(FeedSettings(key=self.feed),), sync=sync)
        inviters = [n for n in self.nodes if len(n.feed(self.feed).trust.chain) < 4]
        self.random.choice(inviters).invite(self.feed, node)
        self.nodes.append(node)

    def redial(self):
        for edge in sorted(self.edges):
            connection = self.open.get(edge)
            if connection is not None and connection.transport.connected:
                continue
            one, two = (self.nodes[number] for number in edge)
            if self.network.group[one.name] == self.network.group[two.name]:
                self.open[edge] = self.network.connect(one, two, self.feed)

    def insert_somewhere(self):
        node = self.random.choice(self.nodes)
        count = self.random.choice([1, 1, 1, 5, 200])
        longest = self.random.choice([4, 40, 4000])
        values = [self.random.randbytes(self.random.randint(1, longest)) for _ in range(count)]
        node.feed(self.feed).insert(values)
        self.inserted.update(values)

    def cut_some(self):
        for transport in sorted(
            self.network.transports, key=lambda t: (t.local.host, t.local.port)
        ):
            if transport.connected and self.random.random() < 0.1:
                self.network.cut(transport)

    def fall_apart(self):
        self.network.partition({node.name: self.random.randrange(3) for node in self.nodes})

    def heal(self):
        self.network.partition({node.name: 0 for node in self.nodes})

    def digests(self):
        return {node.feed(self.feed).values.record().digest for node in self.nodes}

    def converged(self):
        self.redial()
        return len(self.digests()) == 1 and (
            self.owner.feed(self.feed).values.record().count == len(self.inserted)
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_swarm_converges_through_loss_and_partitions(tmp_path, seed):
    print(f"seed {seed} (HYPERBLOOM_SEED={seed} runs it alone)")
    swarm = Swarm(tmp_path, seed)
    network = swarm.network
    for turn in range(40):
        swarm.redial()
        swarm.insert_somewhere()
        if turn % 3 == 2:
            swarm.cut_some()
        if turn in (10, 25):
            swarm.fall_apart()
        if turn in (18, 33):
            swarm.heal()
        network.run(0.5, step=0.02)
    network.run_until(swarm.converged, 60, step=0.1)
    assert set(swarm.nodes[-1].values(swarm.feed)) == swarm.inserted
    assert swarm.nodes[7].values(swarm.feed) == sorted(swarm.inserted)
    moved = network.bytes_moved
    counted = sum(peer.values_out for node in swarm.nodes for peer in node.node.peers())
    network.run(4)
    after = sum(peer.values_out for node in swarm.nodes for peer in node.node.peers())
    assert after == counted, "values go round in circles"
    assert network.bytes_moved - moved < 60 * len(swarm.inserted) * len(swarm.edges)
    network.close()


def test_a_long_line_carries_a_value_to_its_end_once(tmp_path):
    network = Network(tmp_path, seed=4, latency=0.02)
    owner = network.add("n0")
    nodes = [owner]
    for number in range(1, 6):
        node = network.add(f"n{number}", feeds=(FeedSettings(key=owner.key),))
        owner.invite(owner.key, node)
        network.connect(node, nodes[-1], owner.key)
        nodes.append(node)
    network.run(3)
    before = [sum(p.values_out for p in node.node.peers()) for node in nodes]
    nodes[-1].feed(owner.key).insert([b"from the end"])
    network.run(1)
    assert owner.values(owner.key) == [b"from the end"]
    sent = [sum(p.values_out for p in node.node.peers()) for node in nodes]
    assert [after - b for after, b in zip(sent, before, strict=True)] == [0, 1, 1, 1, 1, 1]
    network.close()
