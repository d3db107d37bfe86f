"""Members who tell ids and lie: values reach the honest all the same, at a small cost.

The messages are written here from the description of `broadcast-tree` alone.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from pathlib import Path

import pytest
from attacker import DATA, Connection, Ended, KeyPair, _read_varint, values_of, varint
from nodes import wait_until
from reconciler import DIGEST_REQUEST, EXTENSIONS, digest_request, id_of

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


# One member with many keys

MEMBER = KeyPair.random()
#: Ten keys with as many connections as the node lets a key have.
KEYS, CONNECTIONS = 10, 40
IDS = 4_096
#: Ids that all peers may have told and not sent; a branch has half of it (`MAX_TOLD`).
ROOM = 32_768
#: Of one thread, while nobody else wants anything: a generous ceiling over `MESSAGE_PART`.
MOST_BUSY = 0.45
BUSY_SECONDS = 6.0


def ids_of_nothing(count=IDS):
    return b"".join(sorted(os.urandom(16) for _ in range(count)))


@contextlib.contextmanager
def one_branch(port, connections=CONNECTIONS):
    """Connections of keys below one member, to whom the owner has given one link."""
    keys = [KeyPair.random() for _ in range(KEYS)]
    link = OWNER.link(MEMBER.public)
    with contextlib.ExitStack() as stack:
        wires = []
        for number in range(connections):
            key = keys[number % KEYS]
            wire = Connection.dial(("127.0.0.1", port), source=f"127.0.7.{number + 1}")
            stack.enter_context(wire)
            chain = [link, MEMBER.link(key.public)]
            wire.shake_hands(OWNER.public, key, chain, extensions=SPEAKS)
            wires.append(wire)
        yield wires


class Asked(threading.Thread):
    """Reads what comes on many connections; how many ids each was asked for, and when first."""

    def __init__(self, wires):
        super().__init__()
        self.ids = dict.fromkeys(wires, 0)
        self.done = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join(60)

    def run(self):
        with selectors.DefaultSelector() as selector:
            for wire in self.ids:
                wire.socket.settimeout(SOON)
                selector.register(wire.socket, selectors.EVENT_READ, wire)
            while not self.done.is_set():
                for ready, _ in selector.select(0.1):
                    with contextlib.suppress(OSError, Ended):
                        self.take(ready.data)

    def take(self, wire):
        wire._more()
        while len(wire._buffer) > 4:
            length, at = _read_varint(wire._buffer, 0)
            if len(wire._buffer) < at + length:
                return
            kind, body = wire.receive()
            if kind == VALUES_PULL:
                self.ids[wire] += len(body) // 16


def test_ids_that_one_member_tells_with_many_keys_are_held_as_those_of_one(owner_alone):
    other = KeyPair.random()
    with one_branch(owner_alone.port) as wires, member(owner_alone.port, 0, other) as honest:
        with Asked([*wires, honest]) as asked:
            for wire in wires:
                for _ in range(2):
                    wire.send(VALUES_TOLD, ids_of_nothing())
            honest.send(VALUES_TOLD, ids_of_nothing(2_000))
            wait_until(lambda: asked.ids[honest] == 2_000, SOON, "the other one is asked")
            time.sleep(1.0)
        told = sum(asked.ids[wire] for wire in wires)
    # What is not sent is dropped after two seconds, and what was not read yet has its place.
    assert 0 < told <= 2 * ROOM, told


def framed(kind, body):
    content = varint(kind) + body
    return varint(len(content)) + content


def many_told():
    return [framed(VALUES_TOLD, ids_of_nothing()) for _ in range(40)]


def many_told_singly():
    return [b"".join(framed(VALUES_TOLD, os.urandom(16)) for _ in range(5_000)) for _ in range(4)]


def many_pulls():
    return [framed(VALUES_PULL, bytes([AS_BEFORE]) + ids_of_nothing()) for _ in range(40)]


def many_pulls_of_nothing():
    return [20_000 * framed(VALUES_PULL, pull(AS_BEFORE))]


def many_questions():
    return [10_000 * framed(DIGEST_REQUEST, digest_request(1))]


def processor_seconds(node):
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    "making", [many_told, many_told_singly, many_pulls, many_pulls_of_nothing, many_questions]
)
def test_small_messages_of_one_member_leave_most_of_the_processor(owner_alone, making):
    stop, frames = threading.Event(), making()

    def go_on(wire):
        wire.socket.settimeout(None)
        with contextlib.suppress(Ended, OSError):
            while not stop.is_set():
                for frame in frames:
                    wire.send_frame(frame)

    with one_branch(owner_alone.port) as wires, Asked(wires) as asked:
        threads = [threading.Thread(target=go_on, args=(wire,), daemon=True) for wire in wires]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        begun, used = time.monotonic(), processor_seconds(owner_alone)
        time.sleep(BUSY_SECONDS)
        used, seconds = processor_seconds(owner_alone) - used, time.monotonic() - begun
        pulled = sum(asked.ids.values())
        stop.set()
        for wire in wires:
            wire.socket.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(60)
    print(f"{used:.2f} of {seconds:.2f} s, {pulled} ids asked for")
    assert used <= MOST_BUSY * seconds
    # Each is asked of one, and is dropped after two seconds.
    assert pulled <= ROOM * (seconds + 2.0) / 2


def test_a_value_that_many_keys_of_one_member_tell_is_asked_of_another_soon(owner_alone):
    value = b"told by liars first"
    with one_branch(owner_alone.port, 20) as wires, member(owner_alone.port, 50) as honest:
        with Asked(wires) as asked:
            for wire in wires:
                wire.send(VALUES_TOLD, id_of(value))
            wait_until(lambda: any(asked.ids.values()), SOON, "a liar is asked")
            honest.send(VALUES_TOLD, id_of(value))
            body = next(bodies(honest, VALUES_PULL, 6 * SOON))
            before = sum(asked.ids.values())
        assert body[1:] == id_of(value)
        honest.send_data([value])
        owner_alone.wait_for_count(OWNER.public, 1)
    assert before <= 2, f"{before} liars were asked before"
