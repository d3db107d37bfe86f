"""The cases of values on their way to the disk: first replication, inserts, and LMDB alone."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
from nodes import BenchNode, member_links, prefill, running

from hyperbloom.keys import Identity
from hyperbloom.store import AppendValues, PutFeed, Store, Writer
from hyperbloom.store.lmdb.layout import LOG_HEAD, U64, FeedState
from hyperbloom.store.records import Appended

__all__ = [
    "FEED",
    "MEMBER",
    "OWNER",
    "WRITES_CASES",
    "batches",
    "random_values",
    "replicate",
    "two_nodes",
    "wait_for_counts",
]

Figures = dict[str, Any]

OWNER = Identity(b"o" * 32)
MEMBER = Identity(b"m" * 32)
FEED = OWNER.public_key


def random_values(count: int, seed: int, length: int = 64) -> list[bytes]:
    """Values that are the same in every run."""
    numbers = random.Random(seed)
    return [numbers.randbytes(length) for _ in range(count)]


def batches(values: list[bytes], size: int = 50_000) -> Iterator[list[bytes]]:
    """The values in parts."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def wait_for_counts(nodes: list[BenchNode], count: int, seconds: float) -> None:
    """Until every node has that many values; raises when it takes too long."""
    deadline = time.perf_counter() + seconds
    while any(node.count() < count for node in nodes):
        if time.perf_counter() > deadline:
            counts = [node.count() for node in nodes]
            raise RuntimeError(f"counts are {counts}, not {count}, after {seconds} s")
        time.sleep(0.02)


def two_nodes(
    folder: Path, owner: list[bytes], member: list[bytes], *, noise: str = "prefer"
) -> tuple[BenchNode, BenchNode]:
    """An owner and a member that dials it, with these values in their stores."""
    links = member_links(OWNER, MEMBER)
    one = BenchNode(folder / "owner", OWNER, FEED)
    two = BenchNode(folder / "member", MEMBER, FEED, peers=f"127.0.0.1:{one.port}")
    for node, values in ((one, owner), (two, member)):
        node.prepare(noise=noise)
        prefill(node.folder, node.identity, FEED, batches(values), links=links)
    return one, two


def replicate(
    folder: Path, values: list[bytes], *, read_back: bool = True, noise: str = "prefer"
) -> Figures:
    """An empty member takes all of these from the owner: seconds, rate, stalls, processor time."""
    one, two = two_nodes(folder, values, [], noise=noise)
    with running(one):
        one.stall()
        begun = time.perf_counter()
        started = two.start()
        try:
            wait_for_counts([two], len(values), 240)
            seconds = time.perf_counter() - begun - started
            stalls = [one.stall(), two.stall()]
            cpu = [one.cpu_seconds(), two.cpu_seconds()]
            with two.client() as client:
                ordered = not read_back or list(client.range(feed=FEED.hex())) == sorted(values)
        finally:
            two.stop()
    return {
        "values": len(values),
        "seconds": seconds,
        "values_per_s": len(values) / seconds,
        "stall_ms": [round(stall * 1e3, 1) for stall in stalls],
        "cpu_s": cpu,
        "in_exact_order": ordered,
    }


def first_replication_case(folder: Path, scale: float) -> Figures:
    """An empty member takes a whole feed over loopback, durable on both sides.

    A value of 200 KiB and values of one byte are among them; in the end the member's values are
    read back and compared, in order.
    """
    odd = [bytes([byte]) for byte in range(256)] + random_values(1, 10, 200 * 1024)
    figures = replicate(folder, random_values(int(1_000_000 * scale) - len(odd), 2) + odd)
    return {
        **figures,
        "must": ">= 150,000 values/s",
        "ok": figures["values_per_s"] >= 150_000 and figures["in_exact_order"],
    }


def growth_case(folder: Path, scale: float) -> Figures:
    """The rate of a first replication of five times as many values, against that of one million."""
    count = int(1_000_000 * scale)
    few = replicate(folder / "few", sorted(random_values(count, 2)), read_back=False)
    shutil.rmtree(folder / "few")
    many = replicate(folder / "many", sorted(random_values(5 * count, 2)), read_back=False)
    ratio = many["values_per_s"] / few["values_per_s"]
    return {
        "values": [count, 5 * count],
        "values_per_s": [few["values_per_s"], many["values_per_s"]],
        "ratio": ratio,
        "member_cpu_us": [run["cpu_s"][1] / run["values"] * 1e6 for run in (few, many)],
        "stall_ms": max(few["stall_ms"] + many["stall_ms"]),
        "must": ">= 0.9",
        "ok": ratio >= 0.9,
    }


class Answers:
    """Takes the writer's answers back to the caller's thread, as a reactor would."""

    def __init__(self) -> None:
        self._ready: deque[Callable[[], None]] = deque()
        self._event = threading.Event()

    def deliver(self, call: Callable[[], None]) -> None:
        self._ready.append(call)
        self._event.set()

    def run_one(self) -> None:
        while not self._ready:
            self._event.wait()
            self._event.clear()
        self._ready.popleft()()


def insert_rate(folder: Path, *, operations: int, size: int, callers: int) -> float:
    """Values a second of `callers` that each wait for one insert before the next."""
    store = Store.open(folder)
    answers = Answers()
    writer = Writer(store, deliver=answers.deliver)
    left = operations
    done_count = 0
    values = random_values(operations * size, 6)

    def submit() -> None:
        nonlocal left
        if left:
            left -= 1
            batch = values[left * size : (left + 1) * size]
            writer.submit(
                AppendValues(
                    feed_key=FEED, values=batch, origin=FEED, received_at=time.time_ns() // 1000
                ),
                done,
            )

    def done(outcome: Appended | BaseException) -> None:
        nonlocal done_count
        if isinstance(outcome, BaseException):
            raise outcome
        done_count += 1
        submit()

    writer.submit(PutFeed(feed_key=FEED, settings={}), lambda _: None)
    begun = time.perf_counter()
    for _ in range(callers):
        submit()
    while done_count < operations:
        answers.run_one()
    seconds = time.perf_counter() - begun
    writer.close()
    store.close()
    return operations * size / seconds


def inserts_case(folder: Path, scale: float) -> Figures:
    """Durable inserts in process by 64 callers: one value each, and batches of 1,000 each."""
    single = insert_rate(folder / "a", operations=int(60_000 * scale), size=1, callers=64)
    batch = insert_rate(folder / "b", operations=int(1_000 * scale), size=1_000, callers=64)
    alone = insert_rate(folder / "c", operations=int(200 * scale), size=1_000, callers=1)
    return {
        "single_per_s": single,
        "batch_per_s": batch,
        "batch_of_one_caller_per_s": alone,
        "must": ">= 10,000/s single, >= 150,000/s in batches",
        "ok": single >= 10_000 and batch >= 150_000,
    }


def raw_puts(folder: Path, values: list[bytes], *, in_order: bool, each: int = 0) -> float:
    """Values a second of LMDB alone, with the records that the store makes of them.

    One transaction, synced at its end, or one for `each` so many. The index is put as the values
    come, or `in_order`.
    """
    folder.mkdir()
    # From 3.0 on py-lmdb knows two file formats; the store's is the first.
    environment = lmdb.open(str(folder), map_size=1 << 34, max_dbs=2, lib_version=0)
    log, index = (environment.open_db(name) for name in (b"log", b"index"))
    feed = FeedState(feed_id=1, settings=b"")
    root, head = feed.prefix + U64.pack(0), LOG_HEAD.pack(1, FEED)
    begun = time.perf_counter()
    for start in range(0, len(values), each or len(values)):
        part = values[start : start + (each or len(values))]
        with environment.begin(write=True) as txn:
            entries = [(root + v, U64.pack(seq)) for seq, v in enumerate(part, start + 1)]
            for key, data in sorted(entries) if in_order else entries:
                txn.put(key, data, db=index)
            for seq, value in enumerate(part, start + 1):
                txn.put(feed.prefix + U64.pack(seq), head + value, append=True, db=log)
    seconds = time.perf_counter() - begun
    environment.close()
    shutil.rmtree(folder)
    return len(values) / seconds


def writes_case(folder: Path, scale: float) -> Iterator[Figures]:
    """How near the ways in come to LMDB alone: a line each, as parts of its rate.

    LMDB alone puts all of the records in one transaction, in two orders, before the others and
    after them; the fastest of these four counts. One caller of batches has a synced transaction for
    each, and `raw_synced_each_1000_per_s` is what LMDB alone does with these.
    """
    values = random_values(int(1_000_000 * scale), 2)
    few = values[: int(200_000 * scale)]

    def alone() -> list[float]:
        return [raw_puts(folder / "raw", values, in_order=one) for one in (False, True)]

    orders = alone()
    synced = raw_puts(folder / "raw", few, in_order=True, each=1_000)
    rates = {
        "first-replication": replicate(folder / "nodes", values)["values_per_s"],
        "inserts-of-64": insert_rate(
            folder / "many", operations=int(1_000 * scale), size=1_000, callers=64
        ),
        "inserts-of-one": insert_rate(
            folder / "one", operations=int(200 * scale), size=1_000, callers=1
        ),
    }
    orders = [max(both) for both in zip(orders, alone(), strict=True)]
    for way, rate in rates.items():
        yield {
            "way": way,
            "values_per_s": rate,
            "raw_as_they_come_per_s": orders[0],
            "raw_in_order_per_s": orders[1],
            "raw_synced_each_1000_per_s": synced,
            "ratio": rate / max(orders),
            "must": f">= {WRITES_MUST[way]}",
            "ok": rate / max(orders) >= WRITES_MUST[way],
        }


#: Parts of what LMDB alone does.
WRITES_MUST = {"first-replication": 0.9, "inserts-of-64": 0.65, "inserts-of-one": 0.5}


WRITES_CASES = {
    "first-replication": first_replication_case,
    "replication-growth": growth_case,
    "inserts": inserts_case,
    "writes": writes_case,
}
