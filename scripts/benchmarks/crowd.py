"""One owner and many members that read: what a put costs, what a crowd of newcomers costs.

The owner is a real node. Its members are `light_peers.py`, in two processes, so that what is
measured is the node.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hostile import MANY_CONNECTIONS, Attack, attackers
from light_peers import Task, marked_value
from nodes import BenchNode, prefill, running

from hyperbloom.client.client import Client
from hyperbloom.keys import Identity

__all__ = ["CROWD_CASES", "Size"]

Figures = dict[str, Any]

OWNER_SEED = b"o" * 32
OWNER = Identity(OWNER_SEED)
FEED = OWNER.public_key.hex()
PROCESSES = 2
#: Seconds that members may take to connect, and values to come.
PATIENCE = 240.0


class Size:
    """How large the crowd is, at scale 1."""

    peers = 1_000


class Members:
    """The processes of the members."""

    def __init__(self, node: BenchNode, count: int, *, asks: bool = True) -> None:
        self.count = count
        self._asks = asks
        self._node = node
        self._running: list[subprocess.Popen[bytes]] = []

    def connect(self) -> None:
        """Start them all, and wait until all connections are secure."""
        self.start()
        self.wait_secure()

    def start(self) -> None:
        """Start them all."""
        script = Path(__file__).with_name("light_peers.py")
        for number in range(PROCESSES):
            first = self.count * number // PROCESSES
            task = Task(
                port=self._node.port,
                owner=OWNER_SEED.hex(),
                count=self.count * (number + 1) // PROCESSES - first,
                first=first,
                asks=self._asks,
            )
            process = subprocess.Popen(
                [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._running.append(process)
            self._say(process, task.to_line())

    def wait_secure(self) -> None:
        """Until all connections are secure; raises where one is lost."""
        for process in self._running:
            line = self._hear(process)
            if line.strip() != b"secure, 0 lost":
                raise RuntimeError(f"the members say {line!r}, not that all are secure")

    def report(self) -> Figures:
        """What all of them have seen."""
        for process in self._running:
            self._say(process, b"report\n")
        reports = [json.loads(self._hear(process)) for process in self._running]
        delays, sets = Counter[int](), Counter[str]()
        arrived: dict[str, list[float]] = {}
        for report in reports:
            delays.update({int(ms): count for ms, count in report["delays"].items()})
            sets.update(report["sets"])
            for value, (count, longest) in report["arrived"].items():
                seen = arrived.setdefault(value, [0, 0.0])
                arrived[value] = [seen[0] + count, max(seen[1], longest)]
        return {
            "delays": delays,
            "sets": sets,
            "arrived": arrived,
            "lost": sum(report["lost"] for report in reports),
            "frames": sum(report["frames"] for report in reports),
            "compared": sum(report["compared"] for report in reports),
            "bytes_in": sum(report["bytes_in"] for report in reports),
            "fewest": min(report["fewest"] for report in reports),
            "most": max(report["most"] for report in reports),
            "cpu_s": [round(report["cpu_s"], 2) for report in reports],
        }

    def wait_for(self, count: int) -> Figures:
        """Until each member has received that many values; raises when it takes too long."""
        deadline = time.perf_counter() + PATIENCE
        while (seen := self.report())["fewest"] < count:
            if seen["lost"] or time.perf_counter() > deadline:
                lost, fewest = seen["lost"], seen["fewest"]
                raise RuntimeError(f"{lost} members are lost, one has {fewest} of {count} values")
            time.sleep(0.25)
        return seen

    def leave(self) -> None:
        """End all connections."""
        for process in self._running:
            self._say(process, b"leave\n")

    def stop(self) -> None:
        """End the processes."""
        for process in self._running:
            process.kill()
            process.wait()

    @staticmethod
    def _say(process: subprocess.Popen[bytes], line: bytes) -> None:
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()

    @staticmethod
    def _hear(process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        return process.stdout.readline()


def owner(folder: Path, members: int, values: int) -> BenchNode:
    """A node that owns a feed of so many values and takes so many members."""
    node = BenchNode(folder / "owner", OWNER, OWNER.public_key)
    # The default, and more only where it does not do: half of all may be strangers.
    node.prepare(limits=f"connections = {max(2_000, members * 5 // 4 + 300)}")
    batches = (
        [b"%060d" % number for number in range(start, min(start + 50_000, values))]
        for start in range(0, values, 50_000)
    )
    prefill(node.folder, OWNER, OWNER.public_key, batches)
    return node


@contextlib.contextmanager
def crowd(
    folder: Path, count: int, values: int = 1, *, attack: Attack | None = None
) -> Iterator[tuple[BenchNode, Members]]:
    """An owner and its members, all secure, all with all values, at rest but for an attack."""
    node = owner(folder, count, values)
    members = Members(node, count)
    with running(node), contextlib.ExitStack() as stack:
        stack.callback(members.stop)
        members.connect()
        members.wait_for(values)
        if attack is not None:
            stack.enter_context(attackers(node.port, attack))
        time.sleep(3)
        yield node, members


def check_all(node: BenchNode, members: Members, count: int) -> bool:
    """Whether each member has received each value of the owner once."""
    seen = members.wait_for(count)
    with node.client() as client:
        digest = client.feed(FEED)["digest"]
    return bool(seen["sets"] == Counter({digest: members.count}))


def percentile(delays: Counter[int], part: float) -> float:
    """The delay in milliseconds that this part of all is not above."""
    left = part * delays.total()
    for delay, count in sorted(delays.items()):
        left -= count
        if left <= 0:
            return delay + 1.0
    return 0.0


def put_case(folder: Path, scale: float, *, attack: Attack | None = None) -> Figures:
    """One value at a time, once a second: until the last member has it."""
    count = int(Size.peers * scale)
    puts = 30
    with crowd(folder, count, attack=attack) as (node, members), node.client() as client:
        node.stall()
        begun = node.cpu_seconds()
        for _ in range(puts):
            client.put([marked_value()], feed=FEED)
            time.sleep(1)
        cpu = node.cpu_seconds() - begun
        stall = node.stall()
        complete = check_all(node, members, 1 + puts)
        last = sorted(longest for _, longest in members.report()["arrived"].values())
    median = statistics.median(last)
    return {
        "peers": count,
        "median_ms": median * 1e3,
        "worst_ms": last[-1] * 1e3,
        "stall_ms": stall * 1e3,
        "cpu_ms_a_put": cpu / puts * 1e3,
        "complete": complete,
        "must": "median <= 100 ms, worst <= 250 ms, stall <= 50 ms",
        "ok": complete and median <= 0.1 and last[-1] <= 0.25 and stall <= 0.05,
    }


def keep_putting(
    node: BenchNode, *, rate: float, seconds: float, values: int, callers: int
) -> list[float]:
    """Put at a rate, whether or not earlier puts are answered; how long each took, in seconds.

    `callers` puts at most are under way. The time of a put begins when it was due.
    """
    due = iter(range(int(rate * seconds)))
    lock = threading.Lock()
    took: list[float] = []
    begun = time.perf_counter()

    def call(client: Client) -> None:
        while True:
            with lock:
                number = next(due, None)
            if number is None or time.perf_counter() - begun > 3 * seconds:
                return
            at = begun + number / rate
            time.sleep(max(0.0, at - time.perf_counter()))
            client.put([marked_value() for _ in range(values)], feed=FEED)
            with lock:
                took.append(time.perf_counter() - at)

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(node.client()) for _ in range(callers)]
        threads = [threading.Thread(target=call, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return took


def puts_case(folder: Path, scale: float, *, attack: Attack | None = None) -> Figures:
    """100 single puts a second while all members listen: when they are acknowledged."""
    count = int(Size.peers * scale)
    rate, seconds = 100.0, 15.0
    with crowd(folder, count, attack=attack) as (node, members):
        node.stall()
        begun, cpu = time.perf_counter(), node.cpu_seconds()
        took = keep_putting(node, rate=rate, seconds=seconds, values=1, callers=16)
        passed = time.perf_counter() - begun
        cpu = node.cpu_seconds() - cpu
        stall = node.stall()
        complete = check_all(node, members, 1 + len(took))
        delays = members.report()["delays"]
    p50 = statistics.median(took)
    return {
        "peers": count,
        "acknowledged_per_s": len(took) / passed,
        "p50_ms": p50 * 1e3,
        "p99_ms": sorted(took)[int(len(took) * 0.99)] * 1e3,
        "delivery_p50_ms": percentile(delays, 0.5),
        "delivery_p99_ms": percentile(delays, 0.99),
        "stall_ms": stall * 1e3,
        "processor": cpu / passed,
        "complete": complete,
        "must": "100/s (>= 98 in 15 s), p50 <= 15 ms",
        "ok": complete and len(took) / passed >= 98 and p50 <= 0.015,
    }


def batches_case(folder: Path, scale: float) -> Figures:
    """Puts of 10 values, 10 a second: when members have them."""
    count = int(Size.peers * scale)
    seconds = 20.0
    with crowd(folder, count) as (node, members):
        node.stall()
        begun, cpu = time.perf_counter(), node.cpu_seconds()
        took = keep_putting(node, rate=10, seconds=seconds, values=10, callers=8)
        passed = time.perf_counter() - begun
        cpu = node.cpu_seconds() - cpu
        complete = check_all(node, members, 1 + 10 * len(took))
        stall = node.stall()
        delays = members.report()["delays"]
    p50, p99 = percentile(delays, 0.5), percentile(delays, 0.99)
    return {
        "peers": count,
        "puts_per_s": len(took) / passed,
        "delivery_p50_ms": p50,
        "delivery_p99_ms": p99,
        "stall_ms": stall * 1e3,
        "processor": cpu / passed,
        "complete": complete,
        "must": "delivery p50 <= 300 ms, p99 <= 1 s",
        "ok": complete and p50 <= 300 and p99 <= 1_000,
    }


def newcomers_case(folder: Path, scale: float) -> Figures:
    """A fifth of the members connect at once and ask for 100,000 values."""
    count, values = max(2, int(Size.peers * scale) // 5), int(100_000 * scale)
    node = owner(folder, count, values)
    members = Members(node, count)
    with running(node):
        try:
            time.sleep(2)
            node.stall()
            before, highest = node.resident_bytes(), 0
            begun, cpu = time.perf_counter(), node.cpu_seconds()
            members.start()
            done = threading.Event()

            def watch() -> None:
                nonlocal highest
                while not done.wait(0.05):
                    highest = max(highest, node.resident_bytes())

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                members.wait_secure()
                secure = time.perf_counter() - begun
                seen = members.wait_for(values)
            finally:
                done.set()
                watcher.join()
            seconds = time.perf_counter() - begun
            cpu = node.cpu_seconds() - cpu
            stall = node.stall()
            complete = check_all(node, members, values)
        finally:
            members.stop()
    grown = highest - before
    return {
        "peers": count,
        "values": values,
        "secure_s": secure,
        "seconds": seconds,
        "stall_ms": stall * 1e3,
        "grown_mb": grown / 1e6,
        "node_cpu_s": cpu,
        "members_cpu_s": seen["cpu_s"],
        "moved_mb": seen["bytes_in"] / 1e6,
        "complete": complete,
        "must": "<= 45 s, stall <= 50 ms, <= +100 MB",
        "ok": complete and seconds <= 45 and stall <= 0.05 and grown <= 100e6,
    }


def rest_case(folder: Path, scale: float) -> Figures:
    """All members idle for two minutes, and a minute after they have left."""
    count = int(Size.peers * scale)
    node = owner(folder, count, 1_000)
    members = Members(node, count)
    with running(node, tac=False):
        try:
            time.sleep(3)
            before = node.resident_bytes()
            members.connect()
            members.wait_for(1_000)
            time.sleep(30)
            connected = node.resident_bytes()
            compared, cpu = members.report()["compared"], node.cpu_seconds()
            time.sleep(120)
            cpu = (node.cpu_seconds() - cpu) / 2
            compared = members.report()["compared"] - compared
            with node.client() as client:
                there = len(client.peers())
            members.leave()
            time.sleep(60)
            held = node.resident_bytes() - before
        finally:
            members.stop()
    return {
        "peers": there,
        "asked_a_minute": compared / 2,
        "cpu_s_a_minute": cpu,
        "kb_each": (connected - before) / count / 1e3,
        "held_mb": held / 1e6,
        "must": "<= 2 s a minute, <= 10 MB held",
        "ok": there == count and cpu <= 2 and held <= 10e6,
    }


CROWD_CASES: dict[str, Callable[[Path, float], Figures]] = {
    "crowd-put": put_case,
    "crowd-puts": puts_case,
    "crowd-batches": batches_case,
    "crowd-newcomers": newcomers_case,
    "crowd-rest": rest_case,
    # A hostile member, with as many connections as it may have, changes nothing.
    **{
        f"crowd-{name}-{kind}": partial(case, attack=Attack(kind, MANY_CONNECTIONS, 0.0))
        for name, case in (("put", put_case), ("puts", puts_case))
        for kind in ("filters", "requests")
    },
}
