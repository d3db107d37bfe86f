"""Thirty nodes, one feed, a bad network: everything that was stored anywhere is everywhere.

Each seed gives another graph, other latencies, other moments at which connections are cut, nodes
are started anew and the network falls apart. Seeds that once found something stay in `KEPT`. All
nodes reconcile by sketches where they can, none does, or some do.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from sim import Network
from swarm import Swarm

from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.sync.peer import Peering
from hyperbloom.wire.events import DataReceived

NODES = 30
SHARED = 2_000
KEPT = [("all", 1), ("none", 2), ("some", 3)]
MORE = [(who, seed) for seed in range(4, 12) for who in ("all", "none", "some")]
if "HYPERBLOOM_SEED" in os.environ:
    KEPT = MORE = [(who, int(os.environ["HYPERBLOOM_SEED"])) for who in ("all", "none", "some")]

WHO = {"all": lambda _: True, "none": lambda _: False, "some": lambda number: number % 2 == 0}


#: A value that comes though it is there, for each value that a node lacked: it was 2 while
#: everybody was sent everything.
MOST_DUPLICATES = 0.7


@pytest.fixture(autouse=True)
def copies(monkeypatch):
    """How many values have come anywhere, those that were there among them."""
    counted = Counter()
    take = Peering.take

    def count(peering, event):
        if isinstance(event, DataReceived):
            counted["values"] += len(event.values)
        take(peering, event)

    monkeypatch.setattr(Peering, "take", count)
    return counted


def converge(folder, who, seed, copies, *, turns):
    print(f"seed {seed} (HYPERBLOOM_SEED={seed} runs it alone)")
    swarm = Swarm(folder, seed, nodes=NODES, shared=SHARED, reconciles=WHO[who])
    network = swarm.network
    swarm.trouble(turns)
    network.run_until(swarm.converged, 60, step=0.1)
    lacked = (len(swarm.inserted) - SHARED) * (NODES - 1)
    print(f"{copies['values'] / lacked - 1:.2f} duplicates a value and node")
    assert lacked <= copies["values"] <= lacked * (1 + MOST_DUPLICATES)
    assert set(swarm.nodes[-1].values(swarm.feed)) == swarm.inserted
    assert swarm.nodes[7].values(swarm.feed) == sorted(swarm.inserted)
    ways = {peer.last_round.way for peer in swarm.statuses() if peer.last_round is not None}
    assert ("sketch" in ways) == (who != "none")
    network.run(4)
    # What was asked before they were equal is answered by now.
    counted = sum(peer.values_out for peer in swarm.statuses())
    moved = network.bytes_moved
    network.run(4)
    after = sum(peer.values_out for peer in swarm.statuses())
    assert after == counted, "values go round in circles"
    assert network.bytes_moved - moved < 500 * len(swarm.edges), "more than digests go around"
    swarm.close()


@pytest.mark.parametrize(("who", "seed"), KEPT)
def test_a_swarm_converges_through_loss_partitions_and_restarts(tmp_path, who, seed, copies):
    converge(tmp_path, who, seed, copies, turns=40)


@pytest.mark.soak
@pytest.mark.parametrize(("who", "seed"), MORE)
def test_swarms_of_more_seeds_converge_after_more_trouble(tmp_path, who, seed, copies):
    converge(tmp_path, who, seed, copies, turns=120)


def test_a_seed_gives_the_same_again(tmp_path):
    told = []
    for turn in ("one", "two"):
        swarm = Swarm(tmp_path / turn, 7, nodes=10, shared=500, reconciles=WHO["some"])
        swarm.trouble(8)
        told.append((swarm.network.bytes_moved, swarm.digests()))
        swarm.close()
    assert told[0] == told[1]


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
