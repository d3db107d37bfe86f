"""A member who floods with a new key below its own for each connection, again and again.

What counts is not how long an honest replication takes, but what the attackers get meanwhile.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import struct
import threading
import time

import pytest
from attacker import DATA, Connection, Ended, KeyPair, field, hashed
from test_floods import UnixConnection, own_bytes

FLOODS = 12
LIFE_SECONDS = 0.5
TINY = 20_000
HELD = [b"value %06d" % number for number in range(60_000)]
#: The attackers have been at it for so long when the honest member comes.
BEFORE_SECONDS = 3.0
ROUNDS = 10
MEGABYTE = 2**20


def send_tiny(wire):
    """Frames full of new values of four bytes."""
    while True:
        raw = os.urandom(TINY * 4)
        values = [raw[at : at + 4] for at in range(0, len(raw), 4)]
        signed = wire.feed + struct.pack(">Q", TINY) + raw
        body = b"".join(b"\x0a\x04" + value for value in values)
        wire.send(DATA, body + field(2, wire.key.sign(hashed(signed))))


def ask_expensive(wire):
    """The dearest Syncs that the limits allow."""
    while True:
        wire.send_sync(b"\xff" * 255_000, n=64)


def leave(wire):
    with contextlib.suppress(OSError):
        wire.socket.shutdown(socket.SHUT_RDWR)


def connect_once(owner, member, link, doing, number, secure):
    """A connection of a new key, for LIFE_SECONDS."""
    port, feed = owner
    key = KeyPair.random()
    with Connection.dial(("127.0.0.1", port), source=f"127.0.3.{number + 1}") as wire:
        timer = threading.Timer(LIFE_SECONDS, leave, (wire,))
        timer.start()
        try:
            chain = [link, member.link(key.public)]
            wire.shake_hands(feed, key, chain, extensions=[b"split-replies"])
            with secure.get_lock():
                secure.value += 1
            doing(wire)
        finally:
            timer.cancel()


def flood_until(stop, *arguments):
    """In a process of its own: FLOODS connections, again and again."""

    def again(number):
        while not stop.is_set():
            with contextlib.suppress(Ended, OSError, AssertionError):
                connect_once(*arguments[:-1], number, arguments[-1])

    for number in range(FLOODS):
        threading.Thread(target=again, args=(number,)).start()


@contextlib.contextmanager
def flood(owner, seed, doing):
    """The attackers at work; how many keys they have proved is the value of what is given."""
    here = multiprocessing.get_context("fork")
    secure, stop = here.Value("i", 0), here.Event()
    member = KeyPair.random()
    link = KeyPair(seed).link(member.public)
    arguments = (stop, (owner.port, owner.key), member, link, doing, secure)
    process = here.Process(target=flood_until, args=arguments)
    process.start()
    try:
        yield secure
    finally:
        stop.set()
        process.join(60)


def ask_for_all(owner, seed, rounds):
    """An honest member asks for everything, and again once it has come."""
    key = KeyPair.random()
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.socket.settimeout(120)
        chain = [KeyPair(seed).link(key.public)]
        wire.shake_hands(owner.key, key, chain, extensions=[b"split-replies"])
        for _ in range(rounds):
            wire.send_request(start=b"")
            missing = len(HELD)
            while missing > 0:
                kind, body = wire.receive()
                if kind == DATA:
                    missing -= body.count(b"value ")


def received(node):
    """Bytes that the node has read of its peers."""
    connection = UnixConnection(node.folder / "control.sock")
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    (line,) = [one for one in text.splitlines() if one.startswith("hyperbloom_received_bytes")]
    return float(line.split()[-1])


@pytest.mark.parametrize(
    ("doing", "most_megabytes"), [(send_tiny, 40), (ask_expensive, 60)], ids=["tiny", "filters"]
)
def test_new_keys_below_a_link_get_no_more_than_one_key(nodes, doing, most_megabytes):
    seed = bytes(range(32))
    owner = nodes.make("owner", seed=seed).start()
    for start in range(0, len(HELD), 10_000):
        owner.put(*HELD[start : start + 10_000])
    before, peak, stopped = own_bytes(owner), [0], threading.Event()

    def watch():
        while not stopped.wait(0.05):
            peak[0] = max(peak[0], own_bytes(owner))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with flood(owner, seed, doing) as secure:
            time.sleep(BEFORE_SECONDS)
            read, begun = received(owner), time.monotonic()
            ask_for_all(owner, seed, ROUNDS)
            read, seconds = received(owner) - read, time.monotonic() - begun
            assert owner.put(b"inserted") == 1
    finally:
        stopped.set()
        watching.join()
    grown = (peak[0] - before) / MEGABYTE
    print(f"{seconds:.1f} s: {read / MEGABYTE:.1f} MB read, +{grown:.1f} MB, {secure.value} keys")
    assert secure.value > FLOODS, "they came again with other keys"
    assert read <= most_megabytes * MEGABYTE
    assert grown <= 100
