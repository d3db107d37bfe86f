"""The cases: each returns what was measured and what must be reached, as a dict or several."""

from __future__ import annotations

import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from crowd import CROWD_CASES
from dht import (
    dht_nodes_case,
    dht_packets_case,
    dht_simulated_case,
    hostile_prefix_case,
)
from forgetting import forgetting_case
from hostile import HOSTILE_CASES
from hostile_told import HOSTILE_TOLD_CASES
from inputs import INPUTS_CASES
from node_inputs import node_inputs_case
from node_swarm import swarm_case
from nodes import BenchNode, member_links, prefill, running
from outputs import OUTPUTS_CASES
from pools import changes_case, codec_case, initialize_case, strangers_case
from protection import PROTECTION_CASES
from reconcile import RECONCILE_CASES
from restoring import restore_case
from steady import steady_state
from writes import (
    FEED,
    MEMBER,
    OWNER,
    WRITES_CASES,
    batches,
    random_values,
    two_nodes,
    wait_for_counts,
)

from hyperbloom.addresses import Address
from hyperbloom.bloom import BloomFilter
from hyperbloom.discovery.tracker.content import Neighbour, RecordContent
from hyperbloom.discovery.tracker.record import (
    SEAL_ENTROPY_BYTES,
    open_value,
    record_item,
    seal_record,
    sign_record,
)
from hyperbloom.discovery.tracker.topic import Topic
from hyperbloom.store import (
    Store,
)

__all__ = ["CASES"]

Figures = dict[str, Any]


def timed(call: Callable[[], object]) -> float:
    """Seconds a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def bloom_case(folder: Path, scale: float) -> Figures:
    """Build and test a filter that fills one frame, 30 hash functions, 64-byte values."""
    count = 48_000
    values = random_values(count, 1)

    def build() -> BloomFilter:
        bloom = BloomFilter(43 * count, 30, 77)
        bloom.add(values)
        return bloom

    bloom = build()
    assert not bloom.missing(values)
    built = statistics.median(timed(build) for _ in range(7)) / count
    tested = statistics.median(timed(lambda: bloom.missing(values)) for _ in range(7)) / count
    return {
        "build_us": built * 1e6,
        "test_us": tested * 1e6,
        "must": "<= 1 us a value each",
        "ok": max(built, tested) <= 1e-6,
    }


def shared_sync_case(folder: Path, scale: float) -> Figures:
    """Two nodes share a feed and differ by 100 values each."""
    count = int(1_000_000 * scale)
    common = random_values(count, 3)
    one, two = two_nodes(folder, common + random_values(100, 4), common + random_values(100, 5))
    with running(one):
        one.stall()
        begun = time.perf_counter()
        started = two.start()
        try:
            two.stall()
            wait_for_counts([one, two], count + 200, 60)
            seconds = time.perf_counter() - begun - started
            stalls = [one.stall(), two.stall()]
            cpu = [one.cpu_seconds(), two.cpu_seconds()]
        finally:
            two.stop()
    return {
        "values": count,
        "seconds": seconds,
        "stall_ms": [round(stall * 1e3, 1) for stall in stalls],
        "cpu_s": cpu,
        "must": "<= 3 s, no stall above 50 ms",
        "ok": seconds <= 3 and max(stalls) <= 0.05,
    }


def steady_case(folder: Path, scale: float) -> Figures:
    """Two connected nodes hold the same and nothing changes."""
    values = random_values(int(1_000_000 * scale), 6)
    one, two = two_nodes(folder, values, values)
    return {"values": len(values), **steady_state(one, two)}


def call_socket(path: Path, requests: int, thread: int, problems: list[str]) -> None:
    """One keep-alive caller of the control socket, one value a request."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    buffer = b""
    for number in range(requests):
        body = b'{"values":["%s"]}' % os.urandom(32).hex().encode()
        connection.sendall(
            b"POST /v1/feeds/%s/values HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n"
            b"Content-Type: application/json\r\n\r\n%s" % (FEED.hex().encode(), len(body), body)
        )
        while b"\r\n\r\n" not in buffer:
            buffer += connection.recv(65_536)
        head, buffer = buffer.split(b"\r\n\r\n", 1)
        lower = head.lower()
        length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
        while len(buffer) < length:
            buffer += connection.recv(65_536)
        if b" 20" not in head[:15]:
            problems.append(f"request {number} of caller {thread}: {head[:60]!r}")
            return
        buffer = buffer[length:]
    connection.close()


def socket_case(folder: Path, scale: float) -> Figures:
    """Durable inserts over the control socket: 64 keep-alive callers, one value a request."""
    each = max(1, int(150 * scale))
    node = BenchNode(folder / "owner", OWNER, FEED)
    node.prepare()
    with running(node):
        script = f"""
import sys, threading, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from cases import call_socket
problems = []
threads = [threading.Thread(target=call_socket, args=(Path({str(node.folder)!r}) / "control.sock",
    {each}, n, problems)) for n in range(64)]
begun = time.perf_counter()
[t.start() for t in threads]; [t.join() for t in threads]
print(time.perf_counter() - begun)
assert not problems, problems
"""
        run = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if run.returncode:
            raise RuntimeError(run.stderr)
        count = node.count()
    seconds = float(run.stdout)
    rate = 64 * each / seconds
    return {
        "requests_per_s": rate,
        "stored": count,
        "must": ">= 1,500 requests/s",
        "ok": rate >= 1_500 and count == 64 * each,
    }


def range_case(folder: Path, scale: float) -> Figures:
    """A range with limit 10: among many values, and among values that share 2 KiB."""
    figures: Figures = {"must": "<= 1 ms"}
    prefix = b"p" * 2048
    inputs = {
        "among_all_ms": random_values(int(1_000_000 * scale), 7),
        "shared_prefix_ms": [prefix + b"%08d" % i for i in range(int(100_000 * scale))],
    }
    for name, values in inputs.items():
        prefill(folder / name, OWNER, FEED, batches(values, 10_000))
        store = Store.open(folder / name / "store")
        starts = random.Random(8).sample(values, 300)

        def read(start: bytes, store: Store = store) -> None:
            found = store.range_slice(FEED, start, None, limit=10, max_bytes=1_000_000)
            assert found.values[0] == start

        figures[name] = statistics.median(timed(lambda s=s: read(s)) for s in starts) * 1e3  # type: ignore[misc]
        store.close()
    figures["ok"] = max(figures["among_all_ms"], figures["shared_prefix_ms"]) <= 1
    return figures


def start_case(folder: Path, scale: float) -> Figures:
    """twistd with a full feed: until it listens, and memory at rest."""
    node = BenchNode(folder / "owner", OWNER, FEED)
    node.prepare()
    prefill(node.folder, OWNER, FEED, batches(random_values(int(1_000_000 * scale), 9)))
    times = []
    for _ in range(5):
        times.append(node.start(tac=False))
        time.sleep(1)
        resident, own = node.resident_all_bytes(), node.resident_bytes()
        node.stop()
    seconds = statistics.median(times)
    return {
        "seconds": seconds,
        "resident_mb": resident / 1e6,
        "own_mb": own / 1e6,
        "must": "<= 1 s, <= 150 MB",
        "ok": seconds <= 1 and resident <= 150e6,
    }


def idle_case(folder: Path, scale: float) -> Figures:
    """Idle secure connections: memory of the node a connection."""
    count = int(1_000 * scale)
    node = BenchNode(folder / "owner", OWNER, FEED)
    names = ("connections", "connections_per_address", "connections_per_key")
    node.prepare(limits="\n".join(f"{name} = {count + 10}" for name in names))
    prefill(node.folder, OWNER, FEED, [[b"one"]], links=member_links(OWNER, MEMBER))
    script = Path(__file__).with_name("idle_peers.py")
    link = member_links(OWNER, MEMBER)[0].raw.hex()
    with running(node):
        time.sleep(1)
        before = node.resident_bytes()
        peers = subprocess.Popen(
            [sys.executable, str(script), str(node.port), str(count), link, FEED.hex()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            assert peers.stdout is not None
            if peers.stdout.readline().strip() != b"secure":
                raise RuntimeError("the peers did not become secure")
            time.sleep(3)
            with node.client() as client:
                connected = len(client.peers())
            after = node.resident_bytes()
        finally:
            peers.kill()
            peers.wait()
    each = (after - before) / count
    return {
        "connections": connected,
        "kb_each": each / 1e3,
        "must": "<= 50 KB each",
        "ok": each <= 50e3 and connected == count,
    }


def records_case(folder: Path, scale: float) -> Figures:
    """A full topic record: from its content to a signed DHT item, and back from the item's value.

    Opening happens on the reactor, 8 a turn, for every item that strangers put: it is what bounds
    the turn.
    """
    count = int(500 * scale)
    keys = Topic.of_feed(FEED).keys(29_000_000)
    here = (Address("192.0.2.1", 4365), Address("2001:db8::1", 4365))
    content = RecordContent(
        addresses=here,
        active_peers=tuple(Neighbour(node_id=bytes([n]) * 32, addresses=here) for n in range(1, 6)),
        last_message_hashes=tuple(random_values(5, 11, 32)),
    )

    def publish() -> bytes:
        record = sign_record(OWNER, keys, content)
        encrypted = seal_record(record, keys, entropy=os.urandom(SEAL_ENTROPY_BYTES))
        return record_item(encrypted, keys).value

    values = [publish() for _ in range(20)]
    assert open_value(values[0], keys).decoded == content
    sealed = statistics.median(timed(publish) for _ in range(count))
    opened = statistics.median(
        timed(lambda n=n: open_value(values[n % 20], keys)) for n in range(count)
    )  # type: ignore[misc]
    return {
        "publish_ms": sealed * 1e3,
        "open_ms": opened * 1e3,
        "value_bytes": len(values[0]),
        "must": "<= 2 ms each",
        "ok": max(sealed, opened) <= 2e-3,
    }


def export_case(folder: Path, scale: float) -> Figures:
    """An export; imported here, for the other cases do without the extras `export` and `spark`."""
    import exports

    return exports.export_case(folder, scale)


def following_case(folder: Path, scale: float) -> Figures:
    """A streaming query that follows a node; imported here like an export."""
    import following

    return following.following_case(folder, scale)


CASES: dict[str, Callable[[Path, float], Figures | Iterator[Figures]]] = {
    "bloom": bloom_case,
    "shared-sync": shared_sync_case,
    "steady": steady_case,
    "socket": socket_case,
    "range": range_case,
    "start": start_case,
    "idle": idle_case,
    "records": records_case,
    "export-tables": export_case,
    "export-following": following_case,
    "forgetting": forgetting_case,
    "restore": restore_case,
    "dht-packets": dht_packets_case,
    "dht-simulated": dht_simulated_case,
    "dht-nodes": dht_nodes_case,
    "objects-codec": codec_case,
    "objects-changes": changes_case,
    "objects-initialize": initialize_case,
    "objects-strangers": strangers_case,
    **WRITES_CASES,
    **PROTECTION_CASES,
    **RECONCILE_CASES,
    **INPUTS_CASES,
    **OUTPUTS_CASES,
    "inputs-node": node_inputs_case,
    "swarm": swarm_case,
    **CROWD_CASES,
    **HOSTILE_CASES,
    "hostile-dht-prefix": hostile_prefix_case,
    **HOSTILE_TOLD_CASES,
}


def run_case(name: str, folder: Path, scale: float) -> Iterator[Figures]:
    """Run one case in a folder of its own, which is removed; most give one line of figures."""
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        figures = CASES[name](place, scale)
        for line in [figures] if isinstance(figures, dict) else figures:
            yield {"case": name, "scale": scale, **line}
    finally:
        shutil.rmtree(place, ignore_errors=True)
