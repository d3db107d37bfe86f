"""The pool's cases: codec, changes through three nodes, a first INITIALIZE, strangers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lz4.frame
import msgpack
from nodes import BenchNode, free_port, running

from hyperbloom.keys import Identity
from hyperbloom.objects.settings import ObjectsSettings
from hyperbloom.objects.wire.aes import NoProcessing
from hyperbloom.objects.wire.codec import decode, encode
from hyperbloom.objects.wire.framing import HEADER_BYTES
from hyperbloom.objects.wire.payloads import Change, Creation, Identify, Removal
from hyperbloom.objects.wire.session import KIN, KIN_VERSION
from hyperbloom.store import Store, WriterInline
from hyperbloom.store.objects.offers import OfferedObject
from hyperbloom.store.objects.rule import OfferObjects

__all__ = ["changes_case", "codec_case", "initialize_case", "strangers_case"]

Figures = dict[str, Any]
#: Objects that the changes go round.
CHANGED_OBJECTS = 1_000
MOST_OBJECTS = 10_000_000

#: Of the strangers: what the pool may take on disk, and one network of it; LMDB's free pages.
DISK_BYTES, PEER_DISK_BYTES = 128 * 1024**2, 16 * 1024**2
DISK_SLACK = 8 * 1024**2
STRANGERS = 64
NETWORKS = 16
#: Changes of one object, one after the other, before its first version is removed.
CHAIN = 60_000


class PoolNode(BenchNode):
    """A node with a pool that may dial another one's."""

    def __init__(self, folder: Path, seed: int, *parents: PoolNode) -> None:
        identity = Identity(bytes([seed]) * 32)
        super().__init__(folder, identity, identity.public_key)
        self.pool_port = free_port()
        self._parents = parents

    def prepare(self, *, limits: str = "", **settings: int) -> None:
        """Write the configuration, with a pool; settings that the program does not know are left
        out, so that an older one can be measured."""
        super().prepare(limits=limits)
        peers = ", ".join(f'"127.0.0.1:{parent.pool_port}"' for parent in self._parents)
        with (self.folder / "hyperbloom.toml").open("a") as file:
            file.write(
                f"\n[objects]\nenabled = true\npeers = [{peers}]\nretry_first = 0.05\n"
                f'listen = ["tcp:{self.pool_port}:interface=127.0.0.1"]\n'
            )
            known = {field.name for field in dataclasses.fields(ObjectsSettings)}
            file.writelines(
                f"{name} = {value}\n" for name, value in settings.items() if name in known
            )

    def used_bytes(self) -> int:
        """Bytes of the store's pages that were ever used."""
        with self.client() as client:
            used: int = client.status()["store"]["used_bytes"]
        return used

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


def _driver(port: int, source: str = "127.0.0.1") -> socket.socket:
    """A client of a node's pool that has been let in and reads nothing more."""
    driver = socket.create_connection(("127.0.0.1", port), 30, (source, 0))
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


def _bomb(objects: int = 33_000) -> bytes:
    """A frame of INITIALIZE: 132 KB of MessagePack, some 10 MB as dicts and lists."""
    listed = b"\xdd" + struct.pack(">I", objects) + b"\x81\xa1a\x90" * objects
    inner = b"\x82\xa1p" + listed + b"\xa1r\xc2"
    data = lz4.frame.compress(
        b"\x83" + msgpack.packb("t") + b"\x01" + msgpack.packb("op") + b"\x06\xa1d" + inner
    )
    return struct.pack(">BI", 0, len(data)) + data


def _send(driver: socket.socket, data: bytes, seconds: float) -> int:
    """Send what the node reads within so long; the bytes that were sent."""
    driver.settimeout(0.2)
    deadline, sent = time.perf_counter() + seconds, 0
    while sent < len(data) and time.perf_counter() < deadline:
        try:
            sent += driver.send(data[sent : sent + 65_536])
        except TimeoutError:
            continue
        except OSError:
            break
    return sent


@contextlib.contextmanager
def _sampled(node: BenchNode) -> Iterator[list[int]]:
    """What the node has in memory, every 10 ms while the block runs."""
    samples, over = [node.resident_bytes()], threading.Event()

    def sample() -> None:
        while not over.wait(0.01):
            samples.append(node.resident_bytes())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def _together(drivers: Sequence[socket.socket], data: Sequence[bytes], seconds: float) -> int:
    """Send each its bytes at the same time; all that were sent."""
    sent: list[int] = []
    threads = [
        threading.Thread(target=lambda one=one, d=d: sent.append(_send(one, d, seconds)))
        for one, d in zip(drivers, data, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(sent)


def _large(number: int, count: int) -> bytes:
    now = int(time.time() * 1_000)
    return b"".join(
        encode(Creation(t=now, d={"n": n, "text": "x" * 60_000}, h=n), NoProcessing())
        for n in range(number * 10_000, number * 10_000 + count)
    )


def _chain(length: int) -> bytes:
    """An object, changed one time after the other; the last hash is its length."""
    now = int(time.time() * 1_000)
    frames = [encode(Creation(t=now, d={"n": 0}, h=0), NoProcessing())]
    frames += (
        encode(Change(t=now + n, d={"n": n}, h=n, oh=n - 1), NoProcessing())
        for n in range(1, length + 1)
    )
    return b"".join(frames)


def _inserts_while(node: BenchNode, done: Any, seconds: float) -> list[float]:
    """Seconds that one insert after the other into a feed takes, until it is done."""
    taken: list[float] = []
    deadline = time.perf_counter() + seconds
    with node.client() as client:
        while not taken or (not done() and time.perf_counter() < deadline):
            begun = time.perf_counter()
            client.put([b"value %d %d" % (id(taken), len(taken))], feed=node.feed.hex())
            taken.append(time.perf_counter() - begun)
    return taken


def strangers_case(folder: Path, scale: float) -> Figures:
    """What strangers at a pool take: memory, disk, and the writer's time for a feed beside it."""
    node = PoolNode(folder / "node", 1)
    node.prepare(disk_bytes=DISK_BYTES, peer_disk_bytes=PEER_DISK_BYTES)
    sources = [f"127.8.0.{n % NETWORKS + 1}" for n in range(STRANGERS)]
    length = int(CHAIN * scale)
    with running(node), contextlib.ExitStack() as stack:
        node.stall()
        drivers = [stack.enter_context(_driver(node.pool_port, source)) for source in sources]
        with _sampled(node) as samples:
            _together(drivers, [_bomb() * 3] * STRANGERS, 10)
            time.sleep(1)
        grown = max(samples) - samples[0]
        stack.close()
        _wait(lambda: not node.pool()["peers"], 60)
        stalls = [node.stall()]
        alone = _inserts_while(node, lambda: False, 2)
        with _driver(node.pool_port, "127.9.0.1") as driver:
            past = node.pool()["past"]
            driver.settimeout(300)
            driver.sendall(_chain(length))
            _wait(lambda: node.pool()["past"] - past >= length, 300)
            node.stall()
            count = node.pool()["count"]
            driver.sendall(encode(Removal(t=int(time.time() * 1e3) + 99_999, h=0), NoProcessing()))
            inserts = _inserts_while(node, lambda: node.pool()["count"] < count, 20)
            stalls.append(node.stall())
        before = node.used_bytes()
        drivers = [stack.enter_context(_driver(node.pool_port, source)) for source in sources]
        sent = _together(drivers, [_large(n, 40) for n in range(1, STRANGERS + 1)], 60 * scale)
        used = -1
        while used < (used := node.used_bytes()):
            time.sleep(2)
        stack.close()
        _wait(lambda: not node.pool()["peers"], 60)
        disk = node.used_bytes() - before
        stalls.append(node.stall())
    return {
        "sent_bytes": sent,
        "memory_grown_bytes": grown,
        "disk_grown_bytes": disk,
        "insert_ms_alone": [
            round(part * 1e3, 1) for part in (statistics.median(alone), max(alone))
        ],
        "insert_ms_during_chain": round(max(inserts) * 1e3, 1),
        "stalls_ms": [round(stall * 1e3, 1) for stall in stalls],
        "must": "<= 30 MB of memory; the disk that is set; no stall above 50 ms",
        "ok": grown <= 30e6 and disk <= DISK_BYTES + DISK_SLACK and max(stalls) <= 0.05,
    }
