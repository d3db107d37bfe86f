"""One member with keys without end, who does all that a member can do, beside an honest pair.

Small in every run, with 10,000 keys in the soak. What each attack does by itself is in the tests
beside this one; here they come together, a new key for each connection.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import struct
import threading
import time
from collections import Counter

import pytest
from attacker import FILTER_OPTIONS, LINK, REQUEST, Connection, Ended, KeyPair, field, varint
from keymaker import Keymaker, Sub
from nodes import wait_until
from reconciler import DIGEST_REQUEST, EXTENSIONS, SKETCH_REQUEST, digest_request, sketch_request
from test_floods import own_bytes

SEED = bytes(range(32))
SPEAKS = (*EXTENSIONS, b"broadcast-tree-1", b"renew-links-1")
VALUES_TOLD, VALUES_PULL, RENEWED_CHAIN = 4370, 4371, 4373
HELD = [b"value %06d" % number for number in range(5_000)]
#: Seconds that a connection is used before the next key takes its place.
USED_SECONDS = 0.5
MOST_GROWTH = 60e6
#: Above debug, which tests have on.
MOST_LINES = 300


def tiny(wire: Connection, sub: Sub) -> None:
    first = random.getrandbits(32)
    wire.send_data([struct.pack(">QI", first, number) for number in range(2_000)])


def filters(wire: Connection, sub: Sub) -> None:
    for _ in range(3):
        wire.send_sync(b"\xff" * 255_000, n=64)


def requests(wire: Connection, sub: Sub) -> None:
    body = varint(REQUEST) + field(1, b"")
    wire.send_frame((varint(len(body)) + body) * 500)


def told(wire: Connection, sub: Sub) -> None:
    for _ in range(4):
        wire.send(VALUES_TOLD, b"".join(sorted(os.urandom(16) for _ in range(4_096))))


def pulls(wire: Connection, sub: Sub) -> None:
    for _ in range(4):
        ids = b"".join(sorted(os.urandom(16) for _ in range(4_096)))
        wire.send(VALUES_PULL, b"\x01" + ids)


def digests(wire: Connection, sub: Sub) -> None:
    for number in range(200):
        wire.send(DIGEST_REQUEST, digest_request(number))


def tries(wire: Connection, sub: Sub) -> None:
    for number in range(20):
        salt = os.urandom(16) if number % 2 else b""
        wire.send(SKETCH_REQUEST, sketch_request(number, 0, 32_768, salt=salt))


def links(wire: Connection, sub: Sub) -> None:
    wire.send(LINK, field(1, sub.key.link(KeyPair.random().public)))


def renewals(wire: Connection, sub: Sub) -> None:
    for _ in range(50):
        chain = (*sub.chain, sub.key.link(KeyPair.random().public))
        wire.send(RENEWED_CHAIN, b"".join(field(1, link) for link in chain))


def options(wire: Connection, sub: Sub) -> None:
    for _ in range(200):
        wire.send(FILTER_OPTIONS, b"\x08\x80\x80\x10\x10\x40")


def unknown(wire: Connection, sub: Sub) -> None:
    for message_id in range(6_000, 6_100):
        wire.send(message_id, os.urandom(100))


KINDS = (tiny, filters, requests, told, pulls, digests, tries, links, renewals, options, unknown)


class Army:
    """So many connections at a time, each of a new key with the next kind of flood."""

    def __init__(self, mallory: Keymaker, ports: tuple[int, ...], *, at_once: int, keys: int):
        self.mallory = mallory
        self.done: Counter[str] = Counter()
        self.refused = 0
        self._ports = ports
        self._orders = itertools.count()
        self._keys = keys
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._attack) for _ in range(at_once)]

    def __enter__(self) -> Army:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)

    @property
    def is_through(self) -> bool:
        """Whether all keys were used."""
        return not any(thread.is_alive() for thread in self._threads)

    def _attack(self) -> None:
        for order in self._orders:
            if order >= self._keys or self._stopped.is_set():
                return
            kind, port = KINDS[order % len(KINDS)], self._ports[order % len(self._ports)]
            (sub,) = self.mallory.subs(1, depth=1 + order % 3)
            try:
                with self.mallory.connect(port, sub, extensions=SPEAKS) as wire:
                    wire.socket.settimeout(USED_SECONDS)
                    with contextlib.suppress(TimeoutError):
                        kind(wire, sub)
                        self.done[kind.__name__] += 1
                        self._read(wire)
            except (Ended, OSError, AssertionError, IndexError):
                self.refused += 1

    @staticmethod
    def _read(wire: Connection) -> None:
        """Some of what comes back, for a while; then the next key comes."""
        ends = time.monotonic() + USED_SECONDS
        while time.monotonic() < ends:
            wire.receive()


def lines_of(node) -> int:
    """What an operator would have in the log."""
    return sum(b"#debug]" not in line for line in node.log_path.read_bytes().splitlines())


@pytest.mark.parametrize(
    ("at_once", "keys"),
    [(12, 240), pytest.param(48, 10_000, marks=pytest.mark.soak)],
    ids=["small", "ten thousand"],
)
@pytest.mark.timeout(1_200)
def test_an_honest_pair_goes_on_and_a_denial_ends_it(nodes, at_once, keys):
    owner = nodes.make("owner", seed=SEED).start()
    owner.put(*HELD)
    mallory = Keymaker(owner.key, KeyPair(SEED))
    bob = nodes.invited(owner, "bob")
    bob.wait_for_count(owner.key, len(HELD))
    nodes_of_both = (owner, bob)
    before = [own_bytes(node) for node in nodes_of_both]
    peak = [0, 0]
    logged = [lines_of(node) for node in nodes_of_both]
    with Army(mallory, (owner.port, bob.port), at_once=at_once, keys=keys) as army:
        # Values go both ways, and a new member gets everything, while all of it goes on.
        for number in range(30):
            node = nodes_of_both[number % 2]
            assert node.put(b"honest %d" % number, feed=owner.key) == 1
            peak = [max(*pair) for pair in zip(peak, map(own_bytes, nodes_of_both), strict=True)]
        carol = nodes.invited(owner, "carol")
        asked = [*HELD[::25], *(b"honest %d" % number for number in range(30))]
        for node in (owner, bob, carol):
            with node.client() as client:
                wait_until(
                    lambda client=client: all(client.has(asked, feed=owner.key.hex())),
                    180,
                    "every honest value is there",
                )
        wait_until(lambda: army.is_through, 900, "all keys were used")
    print(f"done {dict(army.done)}, refused {army.refused}")
    assert all(army.done[kind.__name__] for kind in KINDS), "each flood has begun"
    for most, first in zip(peak, before, strict=True):
        assert most - first < MOST_GROWTH
    for node, then in zip(nodes_of_both, logged, strict=True):
        assert lines_of(node) - then < MOST_LINES
    for node in nodes_of_both:
        with node.client() as client:
            client.deny(mallory.key.public.hex())
    (sub,) = mallory.subs(1)
    assert not mallory.is_let_in(owner.port, sub)
    assert not mallory.is_let_in(bob.port, sub)
    honest = {bob.key.hex(), carol.key.hex()}
    wait_until(lambda: {peer["key"] for peer in owner.peers()} <= honest, 30, "he is gone")

    def links_below() -> int:
        with owner.client() as client:
            found = client.links(feed=owner.key.hex())
        return sum(link["trustee"] not in honest for link in found)

    wait_until(lambda: links_below() == 1, 30, "of his links the one to himself is left")
    owner.put(b"after all of it")
    with bob.client() as client:
        wait_until(
            lambda: client.has([b"after all of it"], feed=owner.key.hex())[0], 60, "it goes on"
        )
