"""A member with keys without end of his own making lies in symbols and hoards what they need.

All his keys are below one link, so all of them together get what one branch gets.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from attacker import SYNC, Connection, KeyPair
from nodes import wait_until
from reconciler import (
    DIGEST_REQUEST,
    EXTENSIONS,
    SKETCH,
    SKETCH_REQUEST,
    Answers,
    Asked,
    HostilePeer,
    Symbols,
    Told,
    check_key,
    sketch_request,
)

SEED = bytes(range(32))
OWNER = KeyPair(SEED)
OTHER_SEED = bytes(range(32, 64))
OTHER = KeyPair(OTHER_SEED)
KEY = check_key(OWNER.public)
INTERVAL = "[sync]\ninterval = 1\nretry_first = 0.2\n"
#: Tries and sequences that a node has in all, as its page says.
TRIES, SEQUENCES = 8, 32
#: Symbols of the smallest Sketch that may be followed by another one.
PIECE = 256


def values_of(count: int) -> list[bytes]:
    return [b"value %06d" % number for number in range(count)]


@pytest.fixture
def owner_of(nodes):
    """A running owner that holds so many values."""

    def made(count: int):
        owner = nodes.make("owner", seed=SEED, config=INTERVAL).start()
        values = values_of(count)
        for start in range(0, count, 5_000):
            owner.put(*values[start : start + 5_000])
        return owner

    return made


def processor_seconds(node) -> float:
    """What the node's process has used, in user and system."""
    with open(f"/proc/{node.process.pid}/stat") as figures:
        fields = figures.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def below(branch: KeyPair) -> tuple[KeyPair, list[bytes]]:
    """A new key of the branch, and its chain."""
    key = KeyPair.random()
    return key, [OWNER.link(branch.public), branch.link(key.public)]


@contextlib.contextmanager
def connected(owner, key: KeyPair, chain: list[bytes], source: str) -> Iterator[Connection]:
    with Connection.dial(("127.0.0.1", owner.port), source=source) as wire:
        wire.shake_hands(OWNER.public, key, chain, extensions=EXTENSIONS)
        yield wire


def answer(wire: Connection, kind: int, seconds: float = 30.0) -> bytes:
    """The next message of this kind; the node's questions in between are left open."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        came, body = wire.receive()
        if came == kind:
            return body
    raise AssertionError(f"no message {kind}")


def sequence_of(owner, count: int) -> tuple[Symbols, int]:
    """The owner's own symbols, which any member may ask for, and how many values they are of."""
    key = KeyPair.random()
    with connected(owner, key, [OWNER.link(key.public)], "127.0.5.1") as wire:
        symbols, values = Symbols(0), 0
        wire.send(SKETCH_REQUEST, sketch_request(1, 0, count))
        while len(symbols) < count:
            told = Told.parse(answer(wire, SKETCH))
            assert told.count, "the sequence is shorter"
            symbols.symbols += told.symbols.symbols
            values = told.values
    return symbols, values


class Bent(Answers):
    """The owner's symbols with ids that nobody has, so that more of them are always needed."""

    def __init__(self, symbols: Symbols, phantoms: int) -> None:
        bent = Symbols(0)
        bent.symbols = [list(symbol) for symbol in symbols.symbols]
        for number in range(phantoms):
            bent.add(os.urandom(16), KEY, 1 if number % 2 else -1)
        self.symbols = bent.symbols

    def part(self, asked: Asked) -> list[list[int]]:
        return self.symbols[asked.first : asked.first + asked.count]


class OneByOne(Bent):
    """Each symbol in a Sketch of its own."""

    sent = 0

    def sketch(self, peer, asked):
        for number, symbol in enumerate(self.part(asked), asked.first):
            one = Asked(asked.number, asked.salt, number, 1)
            peer.tell(one, [symbol])
            self.sent += 1


class Late(Bent):
    """Right answers, each nearly as late as the node waits, of ids that always stand together."""

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(symbols, 0)
        bent = Symbols(0)
        bent.symbols = self.symbols
        for _ in range(10):
            first = os.urandom(16)
            for identifier in (first, os.urandom(16), os.urandom(16)):
                bent.add(identifier, KEY, along=first)

    def sketch(self, peer, asked):
        peer.stopping.wait(15.0)
        peer.tell(asked, self.part(asked))


class Drawn(Bent):
    """An answer that comes piece by piece; meanwhile the node's messages are read."""

    def sketch(self, peer, asked):
        threading.Thread(target=self.draw, args=(peer, asked), daemon=True).start()

    def draw(self, peer, asked):
        part = self.part(asked)
        for first in range(0, len(part), PIECE):
            one = Asked(asked.number, asked.salt, asked.first + first, PIECE)
            with contextlib.suppress(OSError):
                peer.tell(one, part[first : first + PIECE])
            if peer.stopping.wait(8.0):
                return


def times_of(peer: HostilePeer, kind: object) -> int:
    return sum(one[kind] for one in list(peer.rounds))


@contextlib.contextmanager
def playing(*peers: HostilePeer) -> Iterator[None]:
    for peer in peers:
        peer.start()
    try:
        yield
    finally:
        for peer in peers:
            peer.stopping.set()
        for peer in peers:
            peer.stop()


def test_symbols_sent_one_by_one_cost_the_node_little(owner_of):
    """12,000 ids that nobody has: 0.4 MB in whole Sketches, 1.4 MB in such ones."""
    owner = owner_of(70_000)
    symbols, count = sequence_of(owner, 18_000)
    lies = OneByOne(symbols, 12_000)
    peer = HostilePeer(owner.port, OWNER, lies, values=count, source="127.0.5.2")
    before = processor_seconds(owner)
    with playing(peer):
        wait_until(lambda: times_of(peer, "tries"), 30, "the owner asks for symbols")
        time.sleep(20.0)
    spent = processor_seconds(owner) - before
    print(f"{lies.sent} symbols one by one, {spent:.1f} s of processor in some 20 s")
    assert spent <= 5.0


def test_an_answer_that_is_drawn_out_ends_the_try(owner_of):
    owner = owner_of(40_000)
    symbols, count = sequence_of(owner, 3_000)
    lies = Drawn(symbols, 2_000)
    peer = HostilePeer(owner.port, OWNER, lies, values=count + 1_000, source="127.0.5.3")
    with playing(peer):
        wait_until(lambda: times_of(peer, "tries"), 30, "the owner asks for symbols")
        begun = time.monotonic()
        wait_until(lambda: times_of(peer, SYNC), 120, "filters come instead")
        seconds = time.monotonic() - begun
    print(f"the try was over after {seconds:.1f} s")
    assert seconds <= 20 + 1_600 * 26 / 16_384 + 10, "the time of an answer, and some more"


def test_tries_that_a_branch_draws_out_leave_the_others_theirs(nodes):
    """As many keys of one branch as there are tries, each slow; on another feed all goes on."""
    other = nodes.make("other", seed=OTHER_SEED).start()
    node = nodes.invited(other, "node", seed=SEED, config=INTERVAL)
    other.stop()
    node.put(*values_of(10_000), feed=OWNER.public)
    node.put(*values_of(1_000), feed=OTHER.public)
    symbols, count = sequence_of(node, 2_500)
    branch = KeyPair.random()
    slow = [
        HostilePeer(
            node.port,
            OWNER,
            Late(symbols),
            values=count,
            source=f"127.0.5.{10 + number}",
            branch=branch,
        )
        for number in range(TRIES)
    ]
    honest = HostilePeer(node.port, OTHER, Answers(), values=1_001, source="127.0.5.4")
    with playing(*slow):
        wait_until(lambda: all(times_of(one, "tries") for one in slow), 90, "all tries are taken")
        with playing(honest):
            wait_until(lambda: times_of(honest, DIGEST_REQUEST), 30, "it is compared with")
            begun = time.monotonic()
            wait_until(
                lambda: times_of(honest, "tries") or times_of(honest, SYNC), 60, "it is asked"
            )
            seconds = time.monotonic() - begun
    print(f"it was asked after {seconds:.1f} s")
    assert times_of(honest, "tries"), "it was asked by filters"
    assert seconds <= 10


def test_sequences_that_a_branch_holds_leave_the_others_theirs(owner_of):
    """An honest member asks twice in one try; meanwhile a branch's new keys ask by the dozen."""
    owner, branch, honest = owner_of(300), KeyPair.random(), KeyPair.random()
    with ExitStack() as stack:
        chain = [OWNER.link(honest.public)]
        wire = stack.enter_context(connected(owner, honest, chain, "127.0.6.1"))
        wire.send(SKETCH_REQUEST, sketch_request(7, 0, 10))
        assert Told.parse(answer(wire, SKETCH)).count == 10
        for number in range(SEQUENCES + 3):
            source = f"127.0.6.{10 + number}"
            greedy = stack.enter_context(connected(owner, *below(branch), source))
            greedy.send(SKETCH_REQUEST, sketch_request(1, 0, 10))
            assert Told.parse(answer(greedy, SKETCH)).count == 10
        wire.send(SKETCH_REQUEST, sketch_request(7, 10, 10))
        told = Told.parse(answer(wire, SKETCH))
        assert (told.first, told.count) == (10, 10), "its sequence was dropped"


def test_a_branch_gets_few_tries_with_a_salt_however_many_keys_it_has(owner_of):
    """Each costs the node a pass over all values, 0.2 s of them here."""
    owner, branch, honest = owner_of(70_000), KeyPair.random(), KeyPair.random()

    def salted(key, chain, number) -> int:
        with connected(owner, key, chain, f"127.0.7.{number}") as wire:
            wire.send(SKETCH_REQUEST, sketch_request(1, 0, 10, salt=os.urandom(16)))
            return Told.parse(answer(wire, SKETCH)).count

    begun = time.monotonic()
    answered = [bool(salted(*below(branch), 10 + number)) for number in range(12)]
    seconds = time.monotonic() - begun
    most = 1 + int(seconds * 0.05 / (70_000 * 3e-6))
    print(f"{sum(answered)} of {len(answered)} were answered in {seconds:.1f} s, {most} at most")
    assert 1 <= sum(answered) <= most
    assert salted(honest, [OWNER.link(honest.public)], 5), "another branch has its own"
