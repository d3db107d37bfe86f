"""Members who tell ids and lie: values reach the honest all the same, at a small cost.

The messages are written here from the description of `broadcast-tree` alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest
from attacker import DATA, Connection, Ended, KeyPair, values_of
from nodes import wait_until
from reconciler import EXTENSIONS, id_of

VALUES_TOLD, VALUES_PULL = 4370, 4371
AS_BEFORE, PUSH, TELL = range(3)
SEED = bytes(range(32))
OWNER = KeyPair(SEED)
SPEAKS = (*EXTENSIONS, b"broadcast-tree-1")
#: Comparisons that bring what was withheld come after all this is over.
QUICK = "[sync]\nretry_first = 0.2\ninterval = 3600\n"
#: Seconds for a message to come.
SOON = 20.0
#: Memory that attackers may cost beyond what the node takes anyway.
MOST_GROWTH = 60e6
ATTACKERS = 4


@contextlib.contextmanager
def member(port, number=0, key=None):
    """A connection of a member that speaks the extension."""
    key = key or KeyPair.random()
    with Connection.dial(("127.0.0.1", port), source=f"127.0.6.{number + 1}") as wire:
        wire.shake_hands(OWNER.public, key, [OWNER.link(key.public)], extensions=SPEAKS)
        wire.socket.settimeout(2.0)
        yield wire


def pull(kind, ids=()):
    return bytes([kind]) + b"".join(sorted(ids))


def honest_pair(nodes):
    owner = nodes.make("owner", seed=SEED, config=QUICK).start()
    honest = nodes.invited(owner, "honest", config=QUICK)
    owner.wait_for_peers(OWNER.public, 1)
    return owner, honest


def bodies(wire, wanted, seconds=SOON):
    """The bodies of the messages of this id that come, for so long."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        with contextlib.suppress(TimeoutError):
            kind, body = wire.receive()
            if kind == wanted:
                yield body


# Who plays fair


def test_an_implementation_from_the_description_is_told_and_pulls(nodes):
    owner, _ = honest_pair(nodes)
    with member(owner.port) as wire:
        wire.send(VALUES_PULL, pull(TELL))
        time.sleep(0.5)
        owner.put(b"one", b"two")
        told = next(bodies(wire, VALUES_TOLD))
        assert told == b"".join(sorted(map(id_of, (b"one", b"two"))))
        wire.send(VALUES_PULL, pull(PUSH, [id_of(b"one")]))
        assert values_of(next(bodies(wire, DATA))) == [b"one"]
        owner.put(b"three")
        assert values_of(next(bodies(wire, DATA))) == [b"three"], "pushed from now on"
        wire.send(VALUES_TOLD, id_of(b"four"))
        assert next(bodies(wire, VALUES_PULL))[1:] == id_of(b"four")
        wire.send_data([b"four"])
        owner.wait_for_count(OWNER.public, 4)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (VALUES_TOLD, b""),
        (VALUES_TOLD, bytes(15)),
        (VALUES_TOLD, bytes(32)),
        (VALUES_TOLD, b"".join(n.to_bytes(16, "big") for n in range(4_097))),
        (VALUES_PULL, b""),
        (VALUES_PULL, b"\x03"),
    ],
)
def test_a_body_that_breaks_the_rules_ends_the_connection(owner_alone, kind, body):
    with member(owner_alone.port) as wire:
        wire.send(kind, body)
        with pytest.raises((Ended, OSError)):
            all(wire.receive() for _ in range(100))


@pytest.fixture
def owner_alone(nodes):
    return nodes.make("owner", seed=SEED, config=QUICK).start()


# Who lies


def promise(wire, number, values):
    """Tells first, and sends nothing; and wants to be pushed, and to be told."""
    wire.send(VALUES_TOLD, b"".join(sorted(map(id_of, values))))
    for kind in (PUSH, TELL, PUSH):
        wire.send(VALUES_PULL, pull(kind))
    wire.drain(0.5)


def tell_nothing(wire, number, values):
    """Ids of nothing, as many as fit."""
    for _ in range(100):
        ids = sorted(os.urandom(16) for _ in range(4_096))
        wire.send(VALUES_TOLD, b"".join(ids))


def pull_nothing(wire, number, values):
    """Values that nobody has, as many as fit."""
    for _ in range(100):
        wire.send(VALUES_PULL, pull(AS_BEFORE, [os.urandom(16) for _ in range(4_096)]))


def pull_and_not_read(wire, number, values):
    """What there is, again and again, which nobody reads."""
    ids = [id_of(value) for value in values]
    for _ in range(5_000):
        wire.send(VALUES_PULL, pull(PUSH, ids))


def attack(port, number, doing, values, stop):
    """One connection, again and again."""
    key = KeyPair.random()
    while not stop.is_set():
        with (
            contextlib.suppress(Ended, OSError, AssertionError),
            member(port, number, key) as wire,
        ):
            doing(wire, number, values)
            stop.wait(0.5)


def own_bytes(node) -> int:
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


@pytest.mark.parametrize("doing", [promise, tell_nothing, pull_nothing, pull_and_not_read])
def test_liars_keep_no_value_from_the_honest(nodes, doing):
    owner, honest = honest_pair(nodes)
    values = [b"value %03d " % number + b"v" * 500 for number in range(40)]
    owner.put(*values[:20])
    honest.wait_for_count(OWNER.public, 20)
    before = own_bytes(owner)
    stop = threading.Event()
    threads = [
        threading.Thread(target=attack, args=(owner.port, number, doing, values, stop))
        for number in range(ATTACKERS)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(owner.peers()) > 1, 30, "an attacker is there")
        for number in range(20, 40):
            source, target = (owner, honest) if number % 2 else (honest, owner)
            source.put(values[number], feed=OWNER.public)
            target.wait_for_count(OWNER.public, number + 1)
        assert own_bytes(owner) - before < MOST_GROWTH
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    assert owner.values(OWNER.public) == honest.values(OWNER.public) == sorted(values)
