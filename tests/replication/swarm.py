"""A swarm in memory: a bad network, nodes that are started anew, values put here and there.

What happens is drawn from the seed alone, and not from what the nodes draw for themselves: the same
happens whichever way they ask each other for what they lack.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import sim

from hyperbloom.replication.settings import FeedSettings, SyncSettings

__all__ = ["Swarm"]


class Swarm:
    """Nodes along a random connected graph whose edges are redialled when they are lost.

    All hold `shared` values from the beginning. `reconciles` says of a node's number whether it
    speaks `reconcile`.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        nodes: int,
        shared: int,
        reconciles: Callable[[int], bool],
        interval: float = 5.0,
    ) -> None:
        self.network = sim.Network(folder, seed=seed, latency=0.05)
        self.chance = random.Random(f"swarm {seed}")
        self._interval, self._reconciles = interval, reconciles
        self.owner = self.network.add("n00", **self._settings(0))
        self.feed = self.owner.key
        self.nodes = [self.owner]
        for number in range(1, nodes):
            self._add_member(number)
        self.edges = {(number, self.chance.randrange(number)) for number in range(1, nodes)}
        while len(self.edges) < 2 * nodes:
            one, two = self.chance.sample(range(nodes), 2)
            if (two, one) not in self.edges:
                self.edges.add((one, two))
        self._open: dict[tuple[int, int], object] = {}
        self.shared = [self.chance.randbytes(40) for _ in range(shared)]
        self.inserted = set(self.shared)
        for node in self.nodes:
            node.feed(self.feed).insert(self.shared)

    def _settings(self, number: int) -> dict[str, object]:
        reconcile = self._reconciles(number)
        sync = SyncSettings(interval=self._interval, answer_wait=0.5, reconcile=reconcile)
        return {"feeds": (FeedSettings(key=self.feed),) if number else (), "sync": sync}

    def _add_member(self, number: int) -> None:
        name = f"n{number:02}"
        node = self.network.add(name, **self._settings(number))
        inviters = [n for n in self.nodes if len(n.feed(self.feed).trust.chain) < 4]
        self.chance.choice(inviters).invite(self.feed, node)
        self.nodes.append(node)

    # What goes wrong, and what users do

    def redial(self) -> None:
        for edge in sorted(self.edges):
            connection = self._open.get(edge)
            if connection is not None and connection.transport.connected:
                continue
            one, two = (self.nodes[number] for number in edge)
            if self.network.group[one.name] == self.network.group[two.name]:
                self._open[edge] = self.network.connect(one, two, self.feed)

    def insert_somewhere(self) -> None:
        node = self.chance.choice(self.nodes)
        count = self.chance.choice([1, 1, 1, 5, 200])
        longest = self.chance.choice([4, 40, 4000])
        values = [self.chance.randbytes(self.chance.randint(1, longest)) for _ in range(count)]
        node.feed(self.feed).insert(values)
        self.inserted.update(values)

    def cut_some(self) -> None:
        for edge in sorted(self.edges):
            connection = self._open.get(edge)
            if self.chance.random() < 0.1 and connection and connection.transport.connected:
                self.network.cut(connection.transport)

    def restart_one(self) -> None:
        """A node goes without a word, and comes again with its store."""
        number = self.chance.randrange(len(self.nodes))
        name = self.nodes[number].name
        self.nodes[number] = self.network.restart(name, **self._settings(number))
        self.owner = self.nodes[0]

    def fall_apart(self) -> None:
        self.network.partition({name: self.chance.randrange(3) for name in self.network.group})

    def heal(self) -> None:
        self.network.partition(dict.fromkeys(self.network.group, 0))

    def trouble(self, turns: int, *, step: float = 0.02) -> None:
        """So many turns of half a second, in which the swarm falls apart twice for some seconds."""
        for turn in range(turns):
            self.redial()
            self.insert_somewhere()
            if turn % 3 == 2:
                self.cut_some()
            if turn % 4 == 1:
                self.restart_one()
            if turn in (turns // 4, 5 * turns // 8):
                self.fall_apart()
            if turn in (9 * turns // 20, 33 * turns // 40):
                self.heal()
            self.network.run(0.5, step=step)

    # What has come of it

    def records(self):
        return [node.feed(self.feed).values.record() for node in self.nodes]

    def digests(self) -> list[bytes]:
        """Of what each node holds."""
        return [record.digest for record in self.records()]

    def converged(self) -> bool:
        """Whether all hold all; lost connections are dialled again."""
        self.redial()
        return len(set(self.digests())) == 1 and self.records()[0].count == len(self.inserted)

    def statuses(self) -> Iterable[object]:
        return (peer for node in self.nodes for peer in node.node.peers())

    def lacked_bytes(self) -> int:
        """Bytes of all the values that nodes got of others, once all hold all."""
        inserted = sum(map(len, self.inserted)) - sum(map(len, self.shared))
        return inserted * (len(self.nodes) - 1)

    def close(self) -> None:
        self.network.close()
