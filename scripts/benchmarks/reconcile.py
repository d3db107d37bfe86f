"""Two nodes that differ in little: by a sketch, and by a plan of filters.

Both run from copies of one store. For each case either gets half of the different values while the
two are apart; then one dials, and the round is measured in the nodes themselves (`round_meter`).
The ways take turns within the same two processes, whose sets grow by the differences of the cases
before. A round ends when both have seen by their digests that they hold the same; what goes over
the wire until then counts, but for the handshakes. The seconds end when the values are on disk on
both sides; where nothing differs, when one of them has seen it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nodes import BenchNode, member_links, prefill, running

from hyperbloom.keys import Identity
from hyperbloom.replication.sync.peer import Peering
from hyperbloom.wire.events import DataReceived, Event

# The simulated swarm is the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "replication"))

from swarm import Swarm

__all__ = ["RECONCILE_CASES"]

OWNER = Identity(b"o" * 32)
MEMBER = Identity(b"m" * 32)
FEED = OWNER.public_key

SHARED = {"50k": 50_000, "100k": 100_000, "1m": 1_000_000, "4m": 4_000_000}
DIFFERENT = (0, 2, 200, 20_000)
DIFFERENT_OF = {"50k": (5_000,)}
WAYS = ("sketch", "plan")
VALUE_BYTES = 64
TURNS = {"50k": 1, "100k": 3, "1m": 3, "4m": 2}


@dataclass(frozen=True)
class Most:
    """What a sketch may take: bytes, seconds, its part of a plan's seconds, processor seconds."""

    bytes_beyond: int
    seconds: float
    of_plan: float
    cpu: float


MOST = {
    2: Most(12_000, 0.3, 1 / 6, 0.06),
    200: Most(12_000, 0.3, 1 / 6, 0.06),
    5_000: Most(250_000, 1.5, 1.0, 60.0),
    20_000: Most(1_000_000, 1.5, 1.0, 60.0),
}
GROWTH_TURNS = 12
#: A round that takes longer has failed.
LONGEST_SECONDS = 120.0
PUT_VALUES = 5_000


@dataclass(frozen=True)
class Measured:
    """One round. Bytes and processor seconds, those of the owner first; equal: as the digests say.

    round_trips: answers that were awaited before anything else could be asked, on the side that
    awaited more of them, and one for the values.
    """

    seconds: float
    bytes_moved: tuple[int, int]
    cpu: tuple[float, float]
    round_trips: int
    syncs: int
    equal: bool


@dataclass
class Pair:
    """An owner and a member that dials it, and what is known of their sets."""

    owner: BenchNode
    member: BenchNode
    count: int
    numbers: random.Random = field(default_factory=lambda: random.Random(21))

    @property
    def nodes(self) -> tuple[BenchNode, BenchNode]:
        """The owner first."""
        return self.owner, self.member

    def differ(self, different: int) -> None:
        """Half of so many new values for either side."""
        for node in self.nodes:
            half = [self.numbers.randbytes(VALUE_BYTES) for _ in range(different // 2)]
            with node.client() as client:
                for start in range(0, len(half), PUT_VALUES):
                    client.put(half[start : start + PUT_VALUES], feed=FEED.hex())
        self.count += different // 2 * 2

    def meet(self, *, sketches: bool, different: int) -> Measured:
        """One round, from no connection to none; raises when it comes to no end."""
        self.differ(different)
        for node in self.nodes:
            order(node, "expect", count=self.count, sketches=sketches)
        order(self.member, "dial", port=self.owner.port)
        try:
            seen = self._wait_until_in_sync()
        finally:
            order(self.member, "close")
            self._wait_until_apart()
        secure = min(one["secure_at"] for one in seen)
        if different:
            end = max(one["equal_at"] for one in seen)
        else:
            end = min(one["secure_at"] + one["in_sync_at"] for one in seen)
        trips = max(one["answers"] for one in seen) + (different > 0)
        cpu = [(one["equal_cpu"] or one["secure_cpu"]) - one["secure_cpu"] for one in seen]
        return Measured(
            seconds=end - secure,
            bytes_moved=(seen[0]["bytes"], seen[1]["bytes"]),
            cpu=(cpu[0], cpu[1]),
            round_trips=trips,
            syncs=sum(one["syncs_sent"] for one in seen),
            equal=len({self._digest(node) for node in self.nodes}) == 1,
        )

    def _digest(self, node: BenchNode) -> tuple[int, str]:
        with node.client() as client:
            feed = client.feed(FEED.hex())
        return feed["count"], feed["digest"]

    def _wait_until_in_sync(self) -> list[dict[str, Any]]:
        deadline = time.perf_counter() + LONGEST_SECONDS
        while time.perf_counter() < deadline:
            seen = [order(node, "figures") for node in self.nodes]
            if all(one.get("in_sync") for one in seen):
                return seen
            if all(one.get("equal_at") for one in seen):
                for node in self.nodes:
                    order(node, "hurry")
            time.sleep(0.05)
        raise RuntimeError(f"the two were not in sync after {LONGEST_SECONDS:.0f} s: {seen}")

    def _wait_until_apart(self) -> None:
        deadline = time.perf_counter() + 30
        while any(order(node, "figures").get("is_open") for node in self.nodes):
            if time.perf_counter() > deadline:
                raise RuntimeError("the connection did not end")
            time.sleep(0.02)


def order(node: BenchNode, do: str, **more: object) -> dict[str, Any]:
    """Tell a node's meter what to do; its answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(node.folder / "rounds.sock"))
        connection.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
        with connection.makefile() as lines:
            answer: dict[str, Any] = json.loads(lines.readline())
            return answer


def shared_values(count: int) -> Iterator[list[bytes]]:
    """The same in every run, part by part: all of them at once would take too much memory."""
    numbers = random.Random(20)
    for start in range(0, count, 50_000):
        yield [numbers.randbytes(VALUE_BYTES) for _ in range(min(50_000, count - start))]


def make_pair(folder: Path, count: int) -> Pair:
    """Both nodes, prepared, with so many values in common."""
    owner = BenchNode(folder / "owner", OWNER, FEED)
    member = BenchNode(folder / "member", MEMBER, FEED)
    for node in (owner, member):
        node.prepare(rounds=True)
    prefill(owner.folder, OWNER, FEED, shared_values(count), links=member_links(OWNER, MEMBER))
    shutil.copytree(owner.folder / "store", member.folder / "store")
    os.sync()
    return Pair(owner, member, count)


def reconcile_case(name: str, folder: Path, scale: float) -> Iterator[dict[str, Any]]:
    """A line for each number of different values and each way; before them one of a cold start."""
    pair = make_pair(folder, int(SHARED[name] * scale))
    with running(*pair.nodes):
        first = {"shared": pair.count, "different": 200, "way": "sketch", "warm": False}
        yield first | judged(name, first, [pair.meet(sketches=True, different=200)], [])
        for different in DIFFERENT_OF.get(name, DIFFERENT):
            wanted = different if different <= 200 else max(200, int(different * scale))
            rounds: dict[str, list[Measured]] = {way: [] for way in WAYS}
            shared = pair.count
            for _ in range(TURNS[name]):
                for way in WAYS:
                    rounds[way].append(pair.meet(sketches=way == "sketch", different=wanted))
            for way in WAYS:
                line = {"shared": shared, "different": wanted, "way": way, "warm": True}
                yield line | judged(name, line, rounds[way], rounds["plan"])


def growth_case(folder: Path, scale: float) -> dict[str, Any]:
    """Two hundred different values among four million and among one, in turns, by sketches."""
    pairs = [make_pair(folder / name, int(SHARED[name] * scale)) for name in ("1m", "4m")]
    rounds: list[list[Measured]] = [[], []]
    with running(*pairs[0].nodes), running(*pairs[1].nodes):
        for turn in range(GROWTH_TURNS):
            for pair, measured in zip(pairs, rounds, strict=True):
                one = pair.meet(sketches=True, different=200)
                if turn:  # the first one has loaded what a node has at hand from then on
                    measured.append(one)
    less, more = (figures_of(measured, 200) for measured in rounds)
    ratio = more["seconds"] / less["seconds"]
    beyond = more["bytes_beyond_values"] / less["bytes_beyond_values"]
    return {
        "shared": [pair.count for pair in pairs],
        "different": 200,
        "way": "sketch",
        **{key: [less[key], more[key]] for key in less},
        "seconds_ratio": ratio,
        "bytes_ratio": beyond,
        "must": "<= 1.3 of the seconds, and as many bytes (within 5 in 100)",
        "ok": ratio <= 1.3 and 0.95 <= beyond <= 1.05,
    }


def judged(
    name: str, line: dict[str, Any], rounds: Sequence[Measured], plan: Sequence[Measured]
) -> dict[str, Any]:
    """What was measured, what must be reached, and whether it is."""
    different, is_sketch = line["different"], line["way"] == "sketch"
    figures = figures_of(rounds, different)
    most = MOST.get(different) if is_sketch and different else None
    ok = all(one.equal for one in rounds) and not (is_sketch and figures["filters_sent"])
    must = ["equal sets"]
    if most is not None:
        ok = ok and figures["bytes_beyond_values"] <= most.bytes_beyond
        ok = ok and figures["seconds"] <= most.seconds
        must.append(f"<= {most.bytes_beyond} bytes, <= {most.seconds} s")
    if most is not None and plan and name not in ("50k", "100k"):
        against = figures_of(plan, different)
        ok = ok and figures["seconds"] <= most.of_plan * against["seconds"]
        ok = ok and figures["bytes_beyond_values"] < against["bytes_beyond_values"]
        ok = ok and max(figures["cpu_s"]) <= most.cpu
        must.append(f"<= {most.of_plan:.2f} of the plan, <= {most.cpu} s of processor a side")
    return {**figures, "must": ", ".join(must), "ok": ok}


def figures_of(rounds: Sequence[Measured], different: int) -> dict[str, Any]:
    """The medians of some rounds; processor seconds and bytes of either side, the owner's first."""

    def median(values: Sequence[float]) -> float:
        return statistics.median(values)

    beyond = [sum(one.bytes_moved) - different * VALUE_BYTES for one in rounds]
    return {
        "bytes_beyond_values": round(median(beyond)),
        "seconds": median([one.seconds for one in rounds]),
        "round_trips": round(median([one.round_trips for one in rounds])),
        "cpu_s": [round(median([one.cpu[side] for one in rounds]), 4) for side in (0, 1)],
        "filters_sent": sum(one.syncs for one in rounds),
    }


@contextlib.contextmanager
def received_values() -> Iterator[list[int]]:
    """Gives the bytes of all values that nodes of this process receive, message by message."""
    sizes: list[int] = []
    take = Peering.take

    def counted(peering: Peering, event: Event) -> None:
        if isinstance(event, DataReceived):
            sizes.append(sum(map(len, event.values)))
        take(peering, event)

    Peering.take = counted  # type: ignore[method-assign]
    try:
        yield sizes
    finally:
        Peering.take = take  # type: ignore[method-assign]


def swarm_case(folder: Path, scale: float) -> Iterator[dict[str, Any]]:
    """What a bad network costs thirty nodes beyond the values that they lack, by either way.

    The same happens to both swarms. Bytes are all that arrive anywhere, handshakes among them.
    Values arrive more than once where several neighbours have them.
    """
    shared = int(20_000 * scale)
    for way in WAYS:

        def reconciles(_: int, way: str = way) -> bool:
            return way == "sketch"

        with received_values() as sizes:
            swarm = Swarm(
                folder / way, 1, nodes=30, shared=shared, reconciles=reconciles, interval=60
            )
            begun = time.process_time()
            swarm.trouble(40)
            swarm.network.run_until(swarm.converged, 300, step=0.1)
            spent = time.process_time() - begun
            lacked, moved, values = swarm.lacked_bytes(), swarm.network.bytes_moved, sum(sizes)
            swarm.close()
        yield {
            "shared": shared,
            "way": way,
            "lacked_bytes_a_node": round(lacked / 30),
            "moved_bytes_a_node": round(moved / 30),
            "beyond_values_a_node": round((moved - values) / 30),
            "moved_by_lacked": moved / lacked,
            "cpu_s": spent,
            "must": "all hold all",
            "ok": True,
        }


RECONCILE_CASES = {
    **{f"reconcile-{name}": partial(reconcile_case, name) for name in SHARED},
    "reconcile-growth": growth_case,
    "reconcile-swarm": swarm_case,
}
