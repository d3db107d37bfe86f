"""Thirty nodes that dial three each: what a value costs until all have it, and beyond that.

All are real nodes on loopback. Values are put at some of them at a steady rate, one of 64 bytes and
one of about two thousand in turns. Meanwhile some of the others are killed and started again, and
the swarm falls into two halves, which put on, and heals. What goes from half to half goes through
`Cut`, which can end these connections and refuse others. Figures are the nodes' own, by `/metrics`;
a node is asked before it is killed, so that what it has moved counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from nodes import BenchNode, member_links, prefill

from hyperbloom.api.control_socket import connect_unix
from hyperbloom.keys import Identity

__all__ = ["swarm_case"]

OWNER = Identity(b"o" * 32)
FEED = OWNER.public_key
DIALS = 3
WRITERS = 5
SHORT, LONG = 64, (1_500, 2_500)
#: Values a second, over all writers.
RATE = 10.0
#: Seconds of putting and of resting, at scale 1.
PUTS, REST = 60.0, 60.0
KILLS = 5
#: Until all are equal; a case that takes longer has failed.
PATIENCE = 90.0
COUNTED = {
    "hyperbloom_received_bytes_total": "bytes_in",
    "hyperbloom_values_received_total": "values_in",
    "hyperbloom_values_stored_total": "values_new",
    "process_cpu_seconds_total": "cpu_s",
}


def quiet_ports() -> Iterator[int]:
    """Free ports, each once, of those that the system gives to nobody who asks for any."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 12_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


class Cut:
    """Carries connections between two halves of a swarm, until it is told to cut them."""

    def __init__(self, ports: Iterator[int]) -> None:
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._ways: dict[int, int] = {}
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def way_to(self, port: int) -> int:
        """A port that leads to this one while nothing is cut."""
        way = next(self._ports)
        self._ways[way] = port
        return way

    def join(self) -> None:
        """Let connections through."""
        self._do(self._listen())

    def cut(self) -> None:
        """End all of them, and refuse others."""
        self._do(self._end())

    def close(self) -> None:
        """Cut, and end the thread."""
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        for way, port in self._ways.items():
            take = self._taker(port)
            self._servers.append(await asyncio.start_server(take, "127.0.0.1", way))

    def _taker(
        self, port: int
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                there, back = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                writer.close()
                return
            self._open |= {writer, back}
            for source, target in ((reader, back), (there, writer)):
                task = self._loop.create_task(self._carry(source, target))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        return take

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        target.close()
        self._open.discard(target)

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)


class RealSwarm:
    """The nodes, where they dial, and what those that were killed had moved."""

    def __init__(self, folder: Path, count: int) -> None:
        self.chance = random.Random(f"swarm of {count}")
        self._ports = quiet_ports()
        self.cut = Cut(self._ports)
        self._moved = Counter[str]()
        self.nodes = [self._node(folder, number) for number in range(count)]
        for number, node in enumerate(self.nodes):
            others = [other for other in range(count) if other != number]
            for other in self.chance.sample(others, min(DIALS, len(others))):
                port = self.nodes[other].port
                apart = number % 2 != other % 2
                node.peers.append(f"127.0.0.1:{self.cut.way_to(port) if apart else port}")
            node.prepare(sync="retry_longest = 2.0")
        self.writers = self.nodes[:WRITERS]

    def _node(self, folder: Path, number: int) -> BenchNode:
        identity = OWNER if number == 0 else Identity(number.to_bytes(32, "big"))
        node = BenchNode(folder / f"n{number:02}", identity, FEED)
        node.port = next(self._ports)
        links = member_links(OWNER, identity) if number else ()
        prefill(node.folder, identity, FEED, [[b"the first value"]], links=links)
        return node

    def start(self) -> None:
        """Start them all, and wait until all have their connections."""
        self.cut.join()
        for node in self.nodes:
            node.start()
        deadline = time.perf_counter() + PATIENCE
        while any(self._secure(node) < len(node.peers) for node in self.nodes):
            if time.perf_counter() > deadline:
                raise RuntimeError("the nodes have not all found their peers")
            time.sleep(0.5)

    def stop(self) -> None:
        """End them all."""
        for node in self.nodes:
            if node.process is not None:
                node.process.kill()
                node.process.wait()
                node.process = None
        self.cut.close()

    def _secure(self, node: BenchNode) -> int:
        with node.client() as client:
            return len(client.peers())

    def kill_one(self) -> None:
        """One that nothing is put at ends without a word, and comes again with its store."""
        node = self.chance.choice(self.nodes[WRITERS:])
        self._moved.update(figures_of(node))
        assert node.process is not None
        node.process.kill()
        node.process.wait()
        node.start()

    def moved(self) -> Counter[str]:
        """What all have received since the beginning."""
        moved = self._moved.copy()
        for node in self.nodes:
            moved.update(figures_of(node))
        return moved

    def are_equal(self, count: int) -> bool:
        """Whether all hold the same, and so many values."""
        seen = set()
        for node in self.nodes:
            with node.client() as client:
                feed = client.feed(FEED.hex())
            seen.add((feed["count"], feed["digest"]))
            if len(seen) > 1:
                return False
        return seen.pop()[0] == count


def figures_of(node: BenchNode) -> Counter[str]:
    """What a node has counted since its start."""
    with connect_unix(node.folder / "control.sock", 30) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
        with connection.makefile() as lines:
            text = lines.read().partition("\n\n")[2]
    found = Counter[str]()
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if line[:1] not in ("", "#") and name.partition("{")[0] in COUNTED:
            found[COUNTED[name.partition("{")[0]]] += float(value)  # type: ignore[assignment]
    return found


def keep_putting(swarm: RealSwarm, seconds: float, put: list[int]) -> None:
    """Put at the writers in turn, at the rate; `put` gets the lengths of the values."""
    chance = random.Random("values")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(node.client()) for node in swarm.writers]
        begun = time.perf_counter()
        for number in range(int(seconds * RATE)):
            time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            length = SHORT if number % 2 else chance.randint(*LONG)
            clients[number % len(clients)].put([chance.randbytes(length)], feed=FEED.hex())
            put.append(length)


def trouble(swarm: RealSwarm, seconds: float) -> None:
    """Kills all the time, and a partition from two fifths of the time to three fifths of it."""
    what: list[tuple[float, Callable[[], None]]] = [
        (2 / 5, swarm.cut.cut),
        (3 / 5, swarm.cut.join),
        *(((kill + 0.5) / KILLS, swarm.kill_one) for kill in range(KILLS)),
    ]
    begun = time.perf_counter()
    for part, act in sorted(what, key=lambda one: one[0]):
        time.sleep(max(0.0, begun + part * seconds - time.perf_counter()))
        act()


def swarm_case(folder: Path, scale: float) -> Iterator[dict[str, Any]]:
    """Bytes and duplicates until all are equal, and for a minute after that."""
    count = max(6, round(30 * scale))
    seconds = max(10.0, PUTS * scale)
    swarm = RealSwarm(folder, count)
    lengths: list[int] = []
    try:
        swarm.start()
        time.sleep(3)
        before = swarm.moved()
        putting = threading.Thread(target=keep_putting, args=(swarm, seconds, lengths))
        putting.start()
        try:
            trouble(swarm, seconds)
        finally:
            putting.join()
        begun = time.perf_counter()
        while not swarm.are_equal(1 + len(lengths)):
            if time.perf_counter() - begun > PATIENCE:
                raise RuntimeError(f"not all nodes are equal after {PATIENCE:.0f} s")
            time.sleep(0.1)
        equal = time.perf_counter() - begun
        moved = swarm.moved()
        time.sleep(max(10.0, REST * scale))
        rested = swarm.moved()
    finally:
        swarm.stop()
    yield judged(count, lengths, before, moved, rested) | {"equal_s": equal}


def judged(
    nodes: int, lengths: list[int], before: Counter[str], moved: Counter[str], rested: Counter[str]
) -> dict[str, Any]:
    """What was measured, what must be reached, and whether it is."""

    def between(name: str, begin: Counter[str], end: Counter[str]) -> float:
        return float(end[name] - begin[name])

    def duplicates(begin: Counter[str], end: Counter[str]) -> float:
        return between("values_in", begin, end) - between("values_new", begin, end)

    receivers = nodes - 1
    ratio = between("bytes_in", before, rested) / (sum(lengths) * receivers)
    each = duplicates(before, moved) / (len(lengths) * receivers)
    after = duplicates(moved, rested)
    return {
        "nodes": nodes,
        "values": len(lengths),
        "value_bytes": sum(lengths),
        "bytes_in_by_values": ratio,
        "duplicates_each": each,
        "duplicates_after": int(after),
        "duplicates_after_each": after / (len(lengths) * receivers),
        "bytes_in_after": int(between("bytes_in", moved, rested)),
        "cpu_s": between("cpu_s", before, moved),
        "must": "<= 2.5 of bytes, <= 0.7 duplicates, none after",
        "ok": ratio <= 2.5 and each <= 0.7 and after == 0,
    }
