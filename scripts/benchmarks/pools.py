"""The object pool's cases: the codec alone, changes through three nodes, a first INITIALIZE."""

from __future__ import annotations

import os
import random
import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodes import BenchNode, free_port, running

from hyperbloom.keys import Identity
from hyperbloom.objects.wire.aes import NoProcessing
from hyperbloom.objects.wire.codec import decode, encode
from hyperbloom.objects.wire.framing import HEADER_BYTES
from hyperbloom.objects.wire.payloads import Change, Creation, Identify
from hyperbloom.objects.wire.session import KIN, KIN_VERSION
from hyperbloom.store import Store, WriterInline
from hyperbloom.store.objects.offers import OfferedObject
from hyperbloom.store.objects.rule import OfferObjects

__all__ = ["changes_case", "codec_case", "initialize_case"]

Figures = dict[str, Any]
#: Objects that the changes go round.
CHANGED_OBJECTS = 1_000
MOST_OBJECTS = 10_000_000


class PoolNode(BenchNode):
    """A node with a pool that may dial another one's."""

    def __init__(self, folder: Path, seed: int, *parents: PoolNode) -> None:
        identity = Identity(bytes([seed]) * 32)
        super().__init__(folder, identity, identity.public_key)
        self.pool_port = free_port()
        self._parents = parents

    def prepare(self, *, limits: str = "") -> None:
        """Write the configuration, with a pool."""
        super().prepare(limits=limits)
        peers = ", ".join(f'"127.0.0.1:{parent.pool_port}"' for parent in self._parents)
        with (self.folder / "hyperbloom.toml").open("a") as file:
            file.write(
                f"\n[objects]\nenabled = true\npeers = [{peers}]\nretry_first = 0.05\n"
                f'listen = ["tcp:{self.pool_port}:interface=127.0.0.1"]\n'
            )

    def pool(self) -> dict[str, Any]:
        """The pool's status."""
        with self.client() as client:
            found: dict[str, Any] = client.status()["objects"]
        return found


def codec_case(folder: Path, scale: float) -> Figures:
    """A CHANGE of one field to a frame's bytes, and back."""
    count = int(20_000 * scale) or 1
    payload = Change(t=1_800_000_000_000, d={"age": 37}, h=1 << 61, oh=-(1 << 61))
    processing = NoProcessing()
    frame = encode(payload, processing)
    assert decode(frame[HEADER_BYTES:], processing) == payload

    def seconds(call: Any, argument: Any) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            call(argument, processing)
        return time.perf_counter() - begun

    encoded = count / statistics.median(seconds(encode, payload) for _ in range(5))
    decoded = count / statistics.median(seconds(decode, frame[HEADER_BYTES:]) for _ in range(5))
    return {
        "encoded_per_s": encoded,
        "decoded_per_s": decoded,
        "frame_bytes": len(frame),
        "must": ">= 20,000/s each",
        "ok": min(encoded, decoded) >= 20_000,
    }


def _wait(reached: Any, seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    while not reached():
        if time.perf_counter() > deadline:
            raise RuntimeError(f"not reached within {seconds} s")
        time.sleep(0.02)


def _driver(port: int) -> socket.socket:
    """A client of a node's pool that has been let in and reads nothing more."""
    driver = socket.create_connection(("127.0.0.1", port))
    hello = Identify(t=0, v=1, d={KIN: KIN_VERSION, "id": "bench"})
    driver.sendall(encode(hello, NoProcessing()))
    driver.recv(65_536)
    return driver


def _changes(count: int) -> Iterator[bytes]:
    """CREATIONs of the objects, then changes of one field each, in frames."""
    numbers = random.Random(3)
    hashes = [numbers.getrandbits(62) for _ in range(CHANGED_OBJECTS)]
    now = int(time.time() * 1_000)
    for number in hashes:
        fields = {"name": f"object {number}", "n": 0, "on": True}
        yield encode(Creation(t=now, d=fields, h=number), NoProcessing())
    for index in range(count):
        at = index % CHANGED_OBJECTS
        following = numbers.getrandbits(62)
        change = Change(t=now + 1 + index, d={"n": index}, h=following, oh=hashes[at])
        hashes[at] = following
        yield encode(change, NoProcessing())


def changes_case(folder: Path, scale: float) -> Figures:
    """Changes that come to the first of three nodes in a row, until they are on the third's disk.

    Every change is durable on each node before it is passed on.
    """
    count = int(20_000 * scale)
    one = PoolNode(folder / "one", 1)
    two = PoolNode(folder / "two", 2, one)
    three = PoolNode(folder / "three", 3, two)
    nodes = (one, two, three)
    for node in nodes:
        node.prepare()
    data = b"".join(_changes(count))
    with running(*nodes):
        _wait(lambda: len(two.pool()["peers"]) == 2, 20)
        with _driver(one.pool_port) as driver:
            for node in nodes:
                node.stall()
            begun = time.perf_counter()
            driver.sendall(data)
            events = count + CHANGED_OBJECTS

            def done() -> bool:
                status = three.pool()
                return status["count"] == CHANGED_OBJECTS and status["past"] == count

            _wait(done, 120)
            seconds = time.perf_counter() - begun
            digests = {node.pool()["digest"] for node in nodes}
            stalls = [node.stall() for node in nodes]
    return {
        "changes": count,
        "changes_per_s": events / seconds,
        "stalls_ms": [round(stall * 1e3, 1) for stall in stalls],
        "must": ">= 1,000/s, equal pools, no stall above 50 ms",
        "ok": events / seconds >= 1_000 and len(digests) == 1 and max(stalls) <= 0.05,
    }


def _prefill(folder: Path, count: int) -> None:
    store = Store.open(folder / "store", durable=False)
    writer = WriterInline(store)
    numbers = random.Random(4)
    for begin in range(0, count, 10_000):
        offers = [
            OfferedObject(
                hash=numbers.getrandbits(62),
                stamp=1,
                fields={"name": f"object {number}", "n": number, "on": True, "size": 1.5},
            )
            for number in range(begin, min(count, begin + 10_000))
        ]
        writer.submit(OfferObjects(offers, 1, MOST_OBJECTS), lambda outcome: None)
    store.close()
    os.sync()


def initialize_case(folder: Path, scale: float) -> Figures:
    """An empty node takes a pool of 100,000 objects by INITIALIZE, durable."""
    count = int(100_000 * scale)
    one = PoolNode(folder / "one", 1)
    two = PoolNode(folder / "two", 2, one)
    one.prepare()
    two.prepare()
    _prefill(one.folder, count)
    with running(one):
        before = one.resident_bytes()
        one.stall()
        begun = time.perf_counter()
        started = two.start()
        try:
            empty = two.resident_bytes()
            _wait(lambda: two.pool()["count"] == count, 120)
            seconds = time.perf_counter() - begun - started
            stalls = [one.stall(), two.stall()]
            equal = one.pool()["digest"] == two.pool()["digest"]
            grown = [one.resident_bytes() - before, two.resident_bytes() - empty]
            with two.client() as client:
                disk = client.status()["store"]["used_bytes"]
        finally:
            two.stop()
    return {
        "objects": count,
        "seconds": seconds,
        "objects_per_s": count / seconds,
        "memory_bytes_each": [round(size / count, 1) for size in grown],
        "disk_bytes_each": disk / count,
        "stalls_ms": [round(stall * 1e3, 1) for stall in stalls],
        "must": "<= 30 s, <= 200 bytes of memory each, no stall above 50 ms",
        "ok": equal
        and seconds <= 30 * max(scale, 0.1)
        and max(grown) <= 200 * count + 20e6
        and max(stalls) <= 0.05,
    }
