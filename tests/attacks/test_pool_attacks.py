"""Strangers at a pool: what they take of disk, memory and time, and what they must not end.

PPPP 2 proves nobody, so whoever connects is a stranger: he is counted by the network he comes from.
"""

from __future__ import annotations

import contextlib
import struct
import time
from pathlib import Path

import lz4.frame
import msgpack
import pytest
from nodes import free_port, wait_until
from pool_attacker import CREATION, INITIALIZE, LATEST, REMOVAL, PoolPeer, frame, now

MIB = 1024 * 1024
DISK, PEER = 16 * MIB, 2 * MIB
#: LMDB's free pages, and what a transaction needs beside what it leaves.
SLACK = 3 * MIB
LARGE = "x" * 60_000


@pytest.fixture
def pool(nodes):
    """A started node with a pool, and the pool's port."""

    def make(**settings):
        port = free_port()
        lines = {"listen": f'["tcp:{port}:interface=127.0.0.1"]', "enabled": "true"} | settings
        text = "\n".join(f"{key} = {value}" for key, value in lines.items())
        node = nodes.make("node", config=f"[objects]\n{text}").start()
        return node, port

    return make


def status(node):
    with node.client() as client:
        found = client.status()
    return found["objects"], found["store"]["used_bytes"]


def creations(first, count):
    return b"".join(
        frame({"t": now(), "op": CREATION, "d": {"n": n, "text": LARGE}, "h": n})
        for n in range(first, first + count)
    )


def memory(node, name="RssAnon"):
    for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)


def test_strangers_fill_their_part_of_the_disk_and_no_more(pool):
    node, port = pool(disk_bytes=DISK, peer_disk_bytes=PEER, connections_per_address=64)
    _, before = status(node)
    sent = creations(1, 200)
    assert len(sent) < MIB / 4, "0.25 MB that would be 12 MB"
    with PoolPeer(port, source="127.8.0.1") as one:
        one.send(sent)
        wait_until(lambda: status(node)[0]["full"], 20, "the part is full")
        one.settle()
    # He comes again, as somebody else would who is behind the same address.
    with PoolPeer(port, source="127.8.0.1") as one:
        one.send(creations(1_000, 50))
        one.settle()
        found, used = status(node)
        assert found["count"] <= PEER // len(LARGE)
        assert used - before <= PEER + SLACK
        objects = found["count"]
    assert objects > PEER // len(LARGE) - 5
    for number in range(2, 14):
        with PoolPeer(port, source=f"127.8.0.{number}") as other:
            other.send(creations(number * 10_000, 60))
            other.settle()
    wait_until(lambda: status(node)[0]["full"] > 400, 20, "they have all been refused")
    found, used = status(node)
    assert found["disk_bytes"] <= DISK
    assert used - before <= DISK + SLACK
    added = node.command("object", "add", "name=Ada", "age=36")
    assert added.returncode == 0, added.stderr


def list_of(count, item):
    return b"\xdd" + struct.pack(">I", count) + item * count


def bomb(objects=33_000):
    """INITIALIZE of very many small objects: 132 KB of MessagePack, 10 MB as dicts."""
    packed = msgpack.packb({"t": 1, "op": INITIALIZE})
    inner = b"\x82" + msgpack.packb("p") + list_of(objects, b"\x81\xa1a\x90")
    inner += msgpack.packb("r") + b"\xc2"
    data = lz4.frame.compress(b"\x83" + packed[1:] + msgpack.packb("d") + inner)
    return struct.pack(">BI", 0, len(data)) + data


def test_what_is_parsed_and_waits_is_bounded_for_all_strangers_together(pool):
    node, port = pool(disk_bytes=DISK, peer_disk_bytes=PEER)
    message = bomb()
    with contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(PoolPeer(port, source=f"127.8.0.{n // 8 + 1}")) for n in range(64)
        ]
        before = peak = memory(node)
        for peer in peers:
            peer.send_until(3 * message, 2)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            peak = max(peak, memory(node))
            time.sleep(0.01)
    print("grew by", (peak - before) / 1e6, "MB")
    assert peak - before <= 30_000_000


def test_messages_that_never_end_are_bounded_for_all_strangers_together(pool):
    node, port = pool()
    begun = struct.pack(">BI", 0, MIB - 1) + b"\x04\x22\x4d\x18" + bytes(MIB - 65_536)
    with contextlib.ExitStack() as stack:
        peers = [
            stack.enter_context(PoolPeer(port, source=f"127.8.0.{n // 8 + 1}")) for n in range(48)
        ]
        honest = stack.enter_context(PoolPeer(port, source="127.9.0.1"))
        before = memory(node)
        for peer in peers:
            with contextlib.suppress(OSError):
                peer.send_until(begun, 1)
        time.sleep(0.5)
        grown = memory(node) - before
        honest.send(creations(1, 1))
        honest.settle()
        wait_until(lambda: status(node)[0]["count"] == 1, 20, "the honest object is there")
    print("grew by", grown / 1e6, "MB")
    assert grown <= 30_000_000


def test_a_removal_from_the_far_future_does_not_shut_an_object_out(pool):
    node, port = pool()
    fields = {"name": "Ada"}
    creation = {"op": CREATION, "d": fields, "h": 5}
    with PoolPeer(port, source="127.8.0.1") as stranger:
        stranger.send(frame({"t": now(), **creation}))
        stranger.send(frame({"t": LATEST, "op": REMOVAL, "h": 5}))
        stranger.settle()
        wait_until(lambda: status(node)[0]["past"] == 1, 20, "it is removed")
    time.sleep(0.05)
    with PoolPeer(port, source="127.9.0.1") as honest:
        honest.send(frame({"t": now(), **creation}))
        honest.settle()
        wait_until(lambda: status(node)[0]["count"] == 1, 5, "it is there again")
