"""What members who flood, and strangers, take from an honest member and from the owner.

Each row is measured in turns: an empty member takes the whole feed while one value after the other
is inserted at the owner, once with nobody else, then with the attackers at the owner's port. They
are a process of their own (`hostile_peers`). All share one machine, where an attacker would have
its own. So the attackers run while a processor is idle and no longer: what is measured is how the
node shares itself out, and not how the system shares the machine. A machine that is busy with other
work shows in `insert_p99_ms_alone`: such a run says nothing, and is to be repeated. So does a small
scale: a replication that lasts less than some seconds pays for little but the beginning.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nodes import BenchNode, member_links, prefill, running

from hyperbloom.keys import Identity
from hyperbloom.store.records import LinkRecord

__all__ = ["HOSTILE_CASES"]

OWNER = Identity(b"o" * 32)
MEMBER = Identity(b"m" * 32)
HOSTILE = Identity(b"x" * 32)
FEED = OWNER.public_key

VALUES = 1_000_000
MANY_CONNECTIONS = 200
BRANCH_CONNECTIONS = 12
STRANGERS = 1_000
TURNS = 2
INSERT_EVERY = 0.02
#: The attackers have been at it for so long when the member comes.
BEFORE_SECONDS = 5.0
#: A replication that takes longer is measured by what has come until then.
LONGEST_SECONDS = 90.0


@dataclass(frozen=True)
class Attack:
    """Who attacks with how many connections, and what the honest member must be left."""

    kind: str
    connections: int
    least_rate: float
    keys: str = "own"


#: One connection; as many as the node lets a member have (and more that it turns away); and some
#: that take a new key below the member's each time.
ATTACKS = {
    f"hostile-{kind}-{name}": Attack(kind, connections, 0.7, keys)
    for kind in ("filters", "requests", "tiny", "reconnects")
    for name, connections, keys in (
        ("one", 1, "own"),
        ("many", MANY_CONNECTIONS, "own"),
        ("branch", BRANCH_CONNECTIONS, "new"),
    )
} | {"hostile-strangers": Attack("strangers", STRANGERS, 0.8)}


@dataclass(frozen=True)
class Measured:
    """One replication. Rates are values a second, insert times seconds.

    rate: of the values that the feed had when the member came. Those that attackers had put there
    by then count, for the member has to store them like any others; what they add meanwhile is
    only a cost. own_rate: of the owner's alone.
    """

    rate: float
    own_rate: float
    inserts: Sequence[float]
    grown: int
    log_a_minute: float
    stall: float
    extra: int


@contextlib.contextmanager
def attackers(port: int, attack: Attack) -> Iterator[None]:
    """The hostile process, at work."""
    command = [sys.executable, str(Path(__file__).with_name("hostile_peers.py")), str(port)]
    command += [attack.kind, str(attack.connections), FEED.hex(), attack.keys, HOSTILE.seed.hex()]
    command.append(member_links(OWNER, HOSTILE)[0].raw.hex())
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != b"attacking":
            raise RuntimeError("the attackers could not begin")
        yield
    finally:
        process.kill()
        process.wait()


class Inserts(threading.Thread):
    """Inserts one value after the other at a node, and notes how long each took, in seconds."""

    def __init__(self, node: BenchNode) -> None:
        super().__init__()
        self.node = node
        self.seconds: list[float] = []
        self.done = threading.Event()

    def run(self) -> None:
        with self.node.client() as client:
            while not self.done.wait(INSERT_EVERY):
                begun = time.perf_counter()
                client.put([os.urandom(64)], feed=FEED.hex())
                self.seconds.append(time.perf_counter() - begun)


class Peak(threading.Thread):
    """The most memory of its own that a node takes."""

    def __init__(self, node: BenchNode) -> None:
        super().__init__()
        self.node = node
        self.first = self.most = node.resident_bytes()
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.1):
            self.most = max(self.most, self.node.resident_bytes())


def wait_for(node: BenchNode, values: Sequence[bytes], seconds: float) -> int:
    """Until a node has these values, the last ones in byte order first; how many it has then."""
    deadline = time.perf_counter() + seconds
    with node.client() as client:
        for some in (values[-10:], values[:: max(1, len(values) // 2_000)]):
            while not all(client.has(some, feed=FEED.hex())):
                if time.perf_counter() > deadline:
                    sample = values[:: max(1, len(values) // 2_000)]
                    has = client.has(sample, feed=FEED.hex())
                    return round(len(values) * sum(has) / len(has))
                time.sleep(0.05)
    return len(values)


def fill(node: BenchNode, held: Sequence[bytes], links: tuple[LinkRecord, ...], kept: Path) -> None:
    """Give a node a store with these values; it is made once and kept for the next turns."""
    if not kept.exists():
        parts = [list(held[at : at + 20_000]) for at in range(0, len(held), 20_000)]
        prefill(node.folder, node.identity, FEED, parts, links=links)
        shutil.copytree(node.folder / "store", kept)
    else:
        shutil.copytree(kept, node.folder / "store")
    os.sync()


def measure(folder: Path, values: Sequence[bytes], attack: Attack | None) -> Measured:
    """One first replication, with or without attackers, from a fresh store on both sides."""
    owner = BenchNode(folder / "owner", OWNER, FEED)
    member = BenchNode(folder / "member", MEMBER, FEED, peers=f"127.0.0.1:{owner.port}")
    links = member_links(OWNER, MEMBER)
    for node, held in ((owner, values), (member, [])):
        node.prepare()
        fill(node, held, links, folder.parent / f"{len(held)}.mdb")
    log = owner.folder / "node.log"
    with running(owner):
        time.sleep(1)
        peak, inserts = Peak(owner), Inserts(owner)
        logged, began = log.stat().st_size, time.perf_counter()
        with contextlib.ExitStack() as stack:
            if attack is not None:
                stack.enter_context(attackers(owner.port, attack))
                time.sleep(BEFORE_SECONDS)
            owner.stall()
            peak.start()
            before = owner.count() - len(values)
            inserts.start()
            begun = time.perf_counter()
            started = member.start()
            try:
                got = wait_for(member, sorted(values), LONGEST_SECONDS)
                seconds = time.perf_counter() - begun - started
            finally:
                inserts.done.set()
                inserts.join()
                peak.done.set()
                peak.join()
                extra = member.count() - got
                member.stop()
            stall = owner.stall()
        minutes = (time.perf_counter() - began) / 60
        logged = log.stat().st_size - logged
    return Measured(
        rate=(got + min(extra, before)) / seconds,
        own_rate=got / seconds,
        inserts=inserts.seconds,
        grown=peak.most - peak.first,
        log_a_minute=logged / minutes,
        stall=stall,
        extra=extra,
    )


def hostile_case(name: str, folder: Path, scale: float) -> dict[str, Any]:
    """One row: without, with, without, and with the attackers again."""
    attack = ATTACKS[name]
    numbers = random.Random(12)
    values = [numbers.randbytes(64) for _ in range(int(VALUES * scale))]
    alone, attacked = [], []
    for turn in range(TURNS):
        alone.append(measure(folder / f"{turn}a", values, None))
        attacked.append(measure(folder / f"{turn}b", values, attack))
    ratios = [with_.rate / without.rate for without, with_ in zip(alone, attacked, strict=True)]
    ratio = statistics.median(ratios)
    inserts = [seconds for one in attacked for seconds in one.inserts]
    p99 = percentile(inserts, 0.99)
    grown = max(one.grown for one in attacked)
    log_bytes = max(one.log_a_minute for one in attacked)
    return {
        "values": len(values),
        "alone_per_s": [round(one.rate) for one in alone],
        "attacked_per_s": [round(one.rate) for one in attacked],
        "attacked_own_per_s": [round(one.own_rate) for one in attacked],
        "rate": ratio,
        "insert_p99_ms_alone": percentile([s for one in alone for s in one.inserts], 0.99) * 1e3,
        "insert_p99_ms": p99 * 1e3,
        "inserts": len(inserts),
        "stall_ms": [round(one.stall * 1e3, 1) for one in attacked],
        "grown_mb": grown / 1e6,
        "grown_mb_alone": max(one.grown for one in alone) / 1e6,
        "log_kb_per_minute": log_bytes / 1e3,
        "values_of_attackers": [one.extra - len(one.inserts) for one in attacked],
        "must": f"rate >= {attack.least_rate}, insert p99 <= 100 ms, <= +60 MB, log <= 20 KB/min",
        "ok": ratio >= attack.least_rate and p99 <= 0.1 and grown <= 60e6 and log_bytes <= 20e3,
    }


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which this part of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


HOSTILE_CASES = {name: partial(hostile_case, name) for name in ATTACKS}
