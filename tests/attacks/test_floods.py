"""Members who flood: an honest member gets what there is, and inserts are acknowledged."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from attacker import DATA, REQUEST, Connection, Ended, KeyPair, field, hashed, varint
from nodes import wait_until

FLOODS = 12
TINY = 40_000
HELD = [b"value %06d" % number for number in range(30_000)]


def send_tiny(wire, number):
    for frame in range(4):
        values = [struct.pack(">I", (number * 4 + frame) << 16 | value) for value in range(TINY)]
        wire.send_data(values)


def ask_expensive(wire, number):
    for _ in range(20):
        wire.send_sync(b"\xff" * 255_000, n=64)


def ask_and_not_read(wire, number):
    body = varint(REQUEST) + field(1, b"")
    for _ in range(10):
        wire.send_frame((varint(len(body)) + body) * 2_000)


def attack(port, feed, key, chain, doing, number, stop):
    """One connection, again and again."""
    while not stop.is_set():
        with contextlib.suppress(Ended, OSError, AssertionError):
            address = ("127.0.0.1", port)
            with Connection.dial(address, source=f"127.0.2.{number + 1}") as wire:
                wire.shake_hands(feed, key, chain, extensions=[b"split-replies"])
                wire.socket.settimeout(2.0)
                doing(wire, number)
                stop.wait(1.0)


@contextlib.contextmanager
def flood(owner, seed, doing):
    """FLOODS connections of one member, each in a thread, until the block ends."""
    key, stop = KeyPair.random(), threading.Event()
    chain = [KeyPair(seed).link(key.public)]
    arguments = (owner.port, owner.key, key, chain, doing)
    threads = [
        threading.Thread(target=attack, args=(*arguments, number, stop)) for number in range(FLOODS)
    ]
    for thread in threads:
        thread.start()
    try:
        yield key
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


@pytest.mark.parametrize("doing", [send_tiny, ask_expensive, ask_and_not_read])
def test_an_honest_member_gets_all_and_inserts_are_acknowledged(nodes, doing):
    seed = bytes(range(32))
    owner = nodes.make("owner", seed=seed).start()
    for start in range(0, len(HELD), 10_000):
        owner.put(*HELD[start : start + 10_000])
    with flood(owner, seed, doing):
        member = nodes.invited(owner, "member")
        inserted = [b"inserted %d" % number for number in range(20)]
        for value in inserted:
            assert owner.put(value) == 1
        asked = HELD[::50] + HELD[-1:] + inserted
        with member.client() as client:
            wait_until(lambda: all(client.has(asked, feed=owner.key.hex())), 90, "all is there")


def own_bytes(node):
    """The node's memory that no file is behind: the store's pages come and go with the disk."""
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def test_answers_that_nobody_reads_are_not_made(nodes):
    seed = bytes(range(32))
    owner = nodes.make("owner", seed=seed).start()
    for start in range(0, len(HELD), 10_000):
        owner.put(*HELD[start : start + 10_000])
    before, peak = own_bytes(owner), 0
    with flood(owner, seed, ask_and_not_read):
        owner.wait_for_peers(owner.key, 1)
        for number in range(40):
            assert owner.put(b"inserted %d" % number) == 1
            peak = max(peak, own_bytes(owner) - before)
            time.sleep(0.1)
    assert peak <= 40 * 2**20


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the control socket."""

    def __init__(self, path):
        super().__init__("node")
        self._path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def commits(node):
    """How many transactions the node has written."""
    connection = UnixConnection(node.folder / "control.sock")
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    (line,) = [
        one for one in text.splitlines() if one.startswith("hyperbloom_commit_seconds_count")
    ]
    return int(float(line.split()[-1]))


def test_a_frame_of_tiny_values_is_written_in_several_transactions(nodes):
    seed, key = bytes(range(32)), KeyPair.random()
    node = nodes.make("owner", seed=seed).start()
    owner = KeyPair(seed)
    with Connection.dial(("127.0.0.1", node.port)) as wire:
        wire.shake_hands(owner.public, key, [owner.link(key.public)])
        node.wait_for_peers(owner.public, 1)
        before = commits(node)
        values = [struct.pack(">I", value) for value in range(TINY)]
        signed = owner.public + struct.pack(">Q", TINY) + b"".join(values)
        body = b"".join(field(1, value) for value in values)
        wire.send(DATA, body + field(2, key.sign(hashed(signed))))
        node.wait_for_count(owner.public, TINY, 60)
        assert commits(node) - before >= 4
