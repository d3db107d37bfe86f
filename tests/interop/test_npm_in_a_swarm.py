"""Nodes of the npm reference in a swarm of ours, on a bad network.

Our nodes are in memory, with a clock of their own; each npm node is a process, and hangs on some of
ours by real connections, which are cut as the simulated ones are. What goes wrong is drawn from the
seed; when an npm node answers is not.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from npm_peer import NpmPeer
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

sys.path.insert(0, str(Path(__file__).parent.parent / "replication"))

from sim import SimNode
from sim_transport import Address
from swarm import Swarm

from hyperbloom.keys import Identity
from hyperbloom.replication.net.dialer import DialFactory
from hyperbloom.trust import issue_link

FAR = 4e9
OURS, NPM = 27, 3
SHARED = 1_000
#: Seconds that npm nodes are given to answer with each step of the clock.
PATIENCE = 0.002


class Bridge:
    """A real connection of a node in memory: a transport whose bytes are moved by `pump`."""

    disconnecting = False
    producer = None

    def __init__(self, node: SimNode, feed: bytes, port: int) -> None:
        self.node = node
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.connected = True
        self.is_paused = False
        self.protocol = DialFactory(node.node.connections, node.feed(feed)).buildProtocol(None)
        self.protocol.makeConnection(self)

    def getPeer(self) -> Address:
        return Address("127.0.0.1", self.port)

    getHost = getPeer

    def write(self, data: bytes) -> None:
        if self.connected:
            try:
                self.socket.sendall(data)
            except OSError:
                self.cut()

    def pauseProducing(self) -> None:
        self.is_paused = True

    def resumeProducing(self) -> None:
        self.is_paused = False

    def registerProducer(self, producer: object, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def pump(self) -> None:
        """Hand over what has come."""
        try:
            data = self.socket.recv(65_536)
        except OSError:
            data = b""
        if data:
            self.protocol.dataReceived(data)
        else:
            self.cut()

    def loseConnection(self) -> None:
        self.cut(ConnectionDone())

    def abortConnection(self) -> None:
        self.cut()

    def cut(self, reason: Exception | None = None) -> None:
        """The connection is over."""
        if self.connected:
            self.connected = False
            self.socket.close()
            self.protocol.connectionLost(Failure(reason or ConnectionLost()))


class NpmMember:
    """A process of the reference, with a link of the feed's owner."""

    def __init__(self, peer: NpmPeer, swarm: MixedSwarm, number: int) -> None:
        self.name, self.peer = f"npm{number}", peer
        identity = Identity(swarm.chance.randbytes(32))
        link = issue_link(
            swarm.owner.identity, identity.public_key, expires=FAR, nonce=bytes([number]) * 32
        )
        peer.node(seed=identity.seed, feed_key=swarm.feed, chain=[link.to_bytes()])
        peer.bulk_insert(swarm.shared)
        self.port = peer.listen()
        self.neighbours = swarm.chance.sample(range(OURS), 3)
        self.bridges: dict[int, Bridge] = {}


class MixedSwarm(Swarm):
    """A swarm with npm nodes among it, which partitions and cuts concern, too."""

    def __init__(
        self, folder: Path, seed: int, npm: Callable[[], NpmPeer], reconciles: Callable[[int], bool]
    ) -> None:
        super().__init__(folder, seed, nodes=OURS, shared=SHARED, reconciles=reconciles)
        self.npm = [NpmMember(npm(), self, number) for number in range(NPM)]
        self.network.group |= {member.name: 0 for member in self.npm}
        self._pump = LoopingCall(self.pump)
        self._pump.clock = self.network.clock
        self._pump.start(0.02)

    def bridges(self) -> list[Bridge]:
        return [b for member in self.npm for b in member.bridges.values() if b.connected]

    def pump(self) -> None:
        read = {bridge.socket: bridge for bridge in self.bridges() if not bridge.is_paused}
        for ready in select.select(list(read), [], [], PATIENCE)[0]:
            read[ready].pump()

    def redial(self) -> None:
        super().redial()
        for member in self.npm:
            for number in member.neighbours:
                node, bridge = self.nodes[number], member.bridges.get(number)
                if bridge is not None and bridge.connected and bridge.node is node:
                    continue
                if self.network.group[node.name] == self.network.group[member.name]:
                    member.bridges[number] = Bridge(node, self.feed, member.port)

    def insert_somewhere(self) -> None:
        super().insert_somewhere()
        if self.chance.random() < 0.5:
            values = [self.chance.randbytes(30) for _ in range(self.chance.choice([1, 20]))]
            self.chance.choice(self.npm).peer.bulk_insert(values)
            self.inserted.update(values)

    def cut_some(self) -> None:
        super().cut_some()
        for bridge in self.bridges():
            if self.chance.random() < 0.1:
                bridge.cut()

    def fall_apart(self) -> None:
        super().fall_apart()
        for member in self.npm:
            for bridge in member.bridges.values():
                if self.network.group[bridge.node.name] != self.network.group[member.name]:
                    bridge.cut()

    def converged(self) -> bool:
        want = len(self.inserted)
        return super().converged() and all(one.peer.count() == want for one in self.npm)

    def close(self) -> None:
        self._pump.stop()
        for bridge in self.bridges():
            bridge.cut()
        super().close()


@pytest.mark.parametrize("spoken", [True, False], ids=["sketches", "plans alone"])
def test_npm_nodes_among_thirty_get_and_give_all(
    tmp_path: Path, npm: Callable[[], NpmPeer], spoken: bool
) -> None:
    swarm = MixedSwarm(tmp_path, 5, npm, lambda _: spoken)
    swarm.trouble(24)
    swarm.network.run_until(swarm.converged, 90, step=0.1)
    for member in swarm.npm:
        assert set(member.peer.values()) == swarm.inserted
    assert set(swarm.owner.values(swarm.feed)) == swarm.inserted
    swarm.close()
