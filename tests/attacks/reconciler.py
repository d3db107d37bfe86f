"""The extensions `set-digest` and `reconcile` spoken by an attacker, from their description alone.

Nothing here comes from the package that is attacked: symbols are lists of whole numbers, and the
walks plain Python. It is slow; for some thousand values.

    symbols = Symbols(count)
    symbols.add(id_of(b"value"), check_key(feed))
    mine, theirs = peel(symbols.minus(others), check_key(feed))

`HostilePeer` is a member that a node talks to: it answers what the node asks as its `Answers` say,
and notes what it was asked, round by round.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from attacker import DATA, SYNC, Connection, Ended, KeyPair, hashed, varint
from set_digests import keyed_blake3

DIGEST_REQUEST, DIGEST, SKETCH_REQUEST, SKETCH, VALUES_WANTED = range(4365, 4370)
EXTENSIONS = (b"split-replies", b"set-digest-1", b"reconcile-1")
WHOLE = bytes.fromhex("01000001")
"""The one range that holds everything."""

ELEMENT_KEY = b"hyperbloom set digest 1: element"
WALK_FACTOR = 0xDA942042E4DD58B5
WALK_STEPS = 128
MASK_32, MASK_64 = 2**32 - 1, 2**64 - 1

Symbol = list[int]
"""Four words of ids, two of checks, the number."""


def id_of(value: bytes) -> bytes:
    """The first 16 bytes of the value's element."""
    return keyed_blake3(ELEMENT_KEY, value, 16)


def check_key(feed: bytes) -> bytes:
    """What the checks of a feed's ids are made with."""
    return hashlib.blake2b(feed, digest_size=16, person=b"reconcile-1 keys").digest()


def mix(x: int) -> int:
    """The finaliser of SplitMix64."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK_64
    return x ^ x >> 31


def check_of(identifier: bytes, key: bytes) -> int:
    """Of an id."""
    (a, b), (k, m) = struct.unpack("<QQ", identifier), struct.unpack("<QQ", key)
    return mix(mix(a + k & MASK_64) ^ (b + m & MASK_64))


def walk(identifier: bytes) -> Iterator[int]:
    """The symbols that an id takes part in."""
    x, b = struct.unpack("<QQ", identifier)
    index = 0
    for _ in range(WALK_STEPS):
        yield index
        x = (x * WALK_FACTOR + b) & MASK_64
        p = (2**52 - (x >> 12)) / 2**52
        index = math.floor((index + 1.5) / math.sqrt(p) - 0.5)


def expected(index: int, values: int) -> int:
    """What a symbol's number is told as the distance from."""
    return 2 * values // (index + 2) & MASK_32


class Symbols:
    """Symbols `first` to `first + count` of a sequence."""

    def __init__(self, count: int, first: int = 0) -> None:
        self.first = first
        self.symbols: list[Symbol] = [[0] * 7 for _ in range(count)]

    def __len__(self) -> int:
        return len(self.symbols)

    def add(
        self, identifier: bytes, key: bytes, sign: int = 1, *, along: bytes | None = None
    ) -> None:
        """One id, or take it out; `along` the walk of another."""
        check = check_of(identifier, key)
        words = (*struct.unpack("<4I", identifier), check & MASK_32, check >> 32, 1)
        for index in walk(along or identifier):
            if index >= self.first + len(self.symbols):
                return
            if index >= self.first:
                symbol = self.symbols[index - self.first]
                symbol[:] = [a + sign * b & MASK_32 for a, b in zip(symbol, words, strict=True)]

    def minus(self, other: Symbols) -> Symbols:
        """Their difference, symbol by symbol."""
        made = Symbols(0, self.first)
        for mine, theirs in zip(self.symbols, other.symbols, strict=True):
            made.symbols.append([a - b & MASK_32 for a, b in zip(mine, theirs, strict=True)])
        return made

    def pack(self, values: int) -> bytes:
        """As a Sketch of so many values carries them."""
        sums = b"".join(struct.pack("<6I", *symbol[:6]) for symbol in self.symbols)
        numbers = b""
        for index, symbol in enumerate(self.symbols, self.first):
            distance = symbol[6] - expected(index, values) & MASK_32
            signed = distance - (distance >> 31 << 32)
            numbers += varint(2 * signed if signed >= 0 else -2 * signed - 1)
        return sums + numbers

    @classmethod
    def unpack(cls, packed: bytes, *, count: int, first: int, values: int) -> Symbols:
        """What a Sketch carried."""
        made = cls(0, first)
        at = 24 * count
        for offset in range(count):
            number = shift = 0
            while True:
                byte = packed[at]
                number |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if byte < 0x80:
                    break
            distance = number >> 1 if number % 2 == 0 else -(number + 1 >> 1)
            words = struct.unpack_from("<6I", packed, 24 * offset)
            made.symbols.append([*words, distance + expected(first + offset, values) & MASK_32])
        assert at == len(packed)
        return made


def peel(left: Symbols, key: bytes) -> tuple[set[bytes], set[bytes]] | None:
    """The ids of one set and those of the other, of their difference; None: not yet."""
    found: tuple[set[bytes], set[bytes]] = set(), set()
    goes_on = True
    while goes_on:
        goes_on = False
        for symbol in left.symbols:
            sign = {1: 1, MASK_32: -1}.get(symbol[6])
            if sign is None:
                continue
            words = [sign * word & MASK_32 for word in symbol]
            identifier = struct.pack("<4I", *words[:4])
            if check_of(identifier, key) == words[4] | words[5] << 32:
                found[sign < 0].add(identifier)
                left.add(identifier, key, -sign)
                goes_on = True
    return None if any(map(any, left.symbols)) else found


# Messages


@dataclass(frozen=True)
class Asked:
    """A SketchRequest."""

    number: int
    salt: bytes
    first: int
    count: int

    @classmethod
    def parse(cls, body: bytes) -> Asked:
        """From a body."""
        size = body[4]
        first, count = struct.unpack_from(">II", body, 5 + size)
        return cls(int.from_bytes(body[:4], "big"), body[5 : 5 + size], first, count)


@dataclass(frozen=True)
class Told:
    """A Sketch."""

    number: int
    first: int
    count: int
    values: int
    digest: bytes
    packed: bytes

    @classmethod
    def parse(cls, body: bytes) -> Told:
        """From a body."""
        number, first, count, values = struct.unpack_from(">IIIQ", body)
        return cls(number, first, count, values, body[20:52], body[52:])

    @property
    def symbols(self) -> Symbols:
        """Unpacked."""
        return Symbols.unpack(self.packed, count=self.count, first=self.first, values=self.values)

    @property
    def body(self) -> bytes:
        """As bytes."""
        head = struct.pack(">IIIQ", self.number, self.first, self.count, self.values)
        return head + self.digest + self.packed


def digest_request(number: int) -> bytes:
    """A DigestRequest about everything."""
    return struct.pack(">I", number) + WHOLE


def digest(number: int, count: int, said: bytes) -> bytes:
    """A Digest about everything, with nothing forgotten."""
    both = struct.pack(">Q", count) + said
    return struct.pack(">I", number) + both + both + WHOLE


def sketch_request(
    number: int, first: int, count: int, *, salt: bytes = b"", ranges: bytes = WHOLE
) -> bytes:
    """A SketchRequest."""
    salted = struct.pack(">IB", number, len(salt)) + salt
    return salted + struct.pack(">II", first, count) + ranges


def values_wanted(number: int, ids: list[bytes]) -> bytes:
    """A ValuesWanted."""
    return struct.pack(">I", number) + b"".join(ids)


# Somebody who answers


class Answers:
    """How a hostile peer answers; this one says that it differs, and has no symbols."""

    def sketch(self, peer: HostilePeer, asked: Asked) -> None:
        """The node asks for symbols."""
        peer.tell(asked, [])

    def other(self, peer: HostilePeer, kind: int, body: bytes) -> None:
        """The node says something else."""


class HostilePeer(threading.Thread):
    """A member whose Digest never fits, from one address, until `stop`; dials again when cut.

    Its key is one of a branch, if one is given.

    `rounds`: what the node has asked since each of its DigestRequests, by message id; the symbols
    that it asked for are under "plain" and "salted", and under "tries" the SketchRequests from 0.
    """

    def __init__(
        self,
        port: int,
        owner: KeyPair,
        answers: Answers,
        *,
        values: int,
        source: str,
        branch: KeyPair | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.key = KeyPair.random()
        self.values = values
        self.rounds: list[Counter[object]] = []
        self.connections = 0
        self.wire: Connection | None = None
        self.stopping = threading.Event()
        self._port, self._owner, self._branch = port, owner, branch
        self._answers, self._source = answers, source

    def run(self) -> None:
        chain = [self._owner.link(self.key.public)]
        if self._branch is not None:
            chain = [self._owner.link(self._branch.public), self._branch.link(self.key.public)]
        while not self.stopping.is_set():
            with contextlib.suppress(Ended, OSError, AssertionError):
                wire = Connection.dial(("127.0.0.1", self._port), source=self._source)
                with wire:
                    wire.shake_hands(self._owner.public, self.key, chain, extensions=EXTENSIONS)
                    self.wire = wire
                    self.connections += 1
                    wire.socket.settimeout(2.0)
                    self._talk()
            self.stopping.wait(0.5)

    def _talk(self) -> None:
        while not self.stopping.is_set():
            try:
                kind, body = self.wire.receive()
            except TimeoutError:
                continue
            if kind == DIGEST_REQUEST:
                self.rounds.append(Counter())
                number = int.from_bytes(body[:4], "big")
                self.wire.send(DIGEST, digest(number, self.values, os.urandom(32)))
            if not self.rounds:
                self.rounds.append(Counter())
            self.rounds[-1][kind] += 1
            if kind == SKETCH_REQUEST:
                asked = Asked.parse(body)
                self.rounds[-1]["salted" if asked.salt else "plain"] += asked.count
                self.rounds[-1]["tries"] += asked.first == 0
                self.rounds[-1]["salted tries"] += asked.first == 0 and bool(asked.salt)
                self._answers.sketch(self, asked)
            elif kind not in (DIGEST_REQUEST, SYNC, DATA):
                self._answers.other(self, kind, body)

    def stop(self) -> None:
        """Go away, at once."""
        self.stopping.set()
        if self.wire is not None:
            with contextlib.suppress(OSError):
                self.wire.socket.shutdown(socket.SHUT_RDWR)
        self.join(60)
        assert not self.is_alive()

    # What it says

    def tell(self, asked: Asked, symbols: list[Symbol], *, values: int | None = None) -> None:
        """Answer with symbols of so many values (as in the Digest, if nothing else is said)."""
        said = self.values if values is None else values
        made = Symbols(0, asked.first)
        made.symbols = symbols
        self.say(asked, made.pack(said), len(symbols), said if symbols else 0)

    def say(self, asked: Asked, packed: bytes, count: int, values: int) -> None:
        """The same of packed symbols."""
        # One try is about one set; that of another try is another one.
        of = hashed(self.key.public + asked.number.to_bytes(4, "big")) if values else bytes(32)
        told = Told(asked.number, asked.first, count, values, of, packed)
        self.wire.send(SKETCH, told.body)
