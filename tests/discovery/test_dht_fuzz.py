"""Packets that were broken on the way, or made to break a node: it goes on serving.

The seed is printed when a test fails; HYPERBLOOM_FUZZ_SEED runs another one.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import MutableItems, Nodes
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import RemoteProtocolError
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import Packet, Ping, Response
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.settings import DhtSettings

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/dht-rust-mainline.json").read_text())
RECORDED = [
    bytes.fromhex(text)
    for kind in ("requests_from_rust_client", "replies_from_rust_server")
    for text in VECTORS[kind].values()
]
PIECES = [
    b"d",
    b"l",
    b"e",
    b"i",
    b"i-1e",
    b"0:",
    b"20:",
    b"99999999999:",
    b"1:t",
    b"1:y1:q",
    b"\xff",
]
SEED = int(os.environ.get("HYPERBLOOM_FUZZ_SEED", "20_261_121"))


def broken(chance: random.Random, data: bytes) -> bytes:
    """A packet with one, two or four things done to it."""
    mutable = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at = chance.randrange(len(mutable) + 1)
        match chance.randrange(6):
            case 0 if mutable:
                mutable[at % len(mutable)] ^= 1 << chance.randrange(8)
            case 1:
                mutable[at:at] = chance.choice(PIECES)
            case 2:
                del mutable[at : at + chance.randrange(1, 9)]
            case 3:
                mutable[at:at] = chance.randbytes(chance.randrange(1, 5))
            case 4:
                other = chance.choice(RECORDED)
                mutable[at:] = other[chance.randrange(len(other)) :]
            case 5:
                mutable[at:at] = mutable[at : at + chance.randrange(1, 40)]
    return bytes(mutable)


class Target:
    """A node amid its work: nodes in its table, lookups under way, answers awaited."""

    def __init__(self, chance: random.Random) -> None:
        settings = DhtSettings(packets_per_second=1e9, packet_burst=1e9)
        self.chance, self.now = chance, 0.0
        self.dht = Dht(settings, random_bytes=chance.randbytes, now=0.0)
        self.sent: list[tuple[bytes, Address]] = []
        addresses = [Address(f"20.0.0.{number}", 1) for number in range(1, 40)]
        self.ids = {address: chance.randbytes(20) for address in addresses}

    def step(self) -> None:
        """Time, now and then a lookup, and what it sends."""
        self.now += 0.01
        # Who lies or is silent falls out of the table; so that there is always somebody to ask:
        address = self.chance.choice(list(self.ids))
        self.dht.table.answered(Contact(self.ids[address], address), now=self.now)
        if self.chance.random() < 0.2 and self.dht.operations < 20:
            key = bytes.fromhex(VECTORS["key"]["public"])
            salt = bytes.fromhex(VECTORS["key"]["salt"])
            kinds = [MutableItems(key, salt), Nodes(self.chance.randbytes(20))]
            self.dht.find(self.chance.choice(kinds), now=self.now)
        if self.now >= self.dht.deadline:
            self.dht.tick(now=self.now)
        self.dht.take_events()
        queries = [each for each in self.dht.take_datagrams() if b"1:y1:q" in each[0]]
        self.sent = [*self.sent, *queries][-50:]

    def hostile(self) -> tuple[bytes, Address]:
        """A broken packet; often one that looks like the answer to a query under way."""
        chance = self.chance
        address = Address(f"20.0.0.{chance.randrange(1, 60)}", 1)
        data = chance.choice(RECORDED)
        if self.sent and chance.random() < 0.5:
            query, address = self.sent.pop(chance.randrange(len(self.sent)))
            asked = decode_packet(query)
            answer = decode_packet(data)
            if isinstance(answer.message, Response):
                data = encode_packet(
                    Packet(
                        transaction_id=asked.transaction_id,
                        message=answer.message,
                        node_id=self.ids.get(address, bytes(20)),
                    )
                )
        return broken(chance, data), address


def fuzz(count: int) -> None:
    chance = random.Random(SEED)
    target = Target(chance)
    answered = 0
    for number in range(count):
        data, address = target.hostile()
        try:
            target.dht.receive(data, address, now=target.now)
            target.step()
        except Exception:
            print(f"seed {SEED}, packet {number}: {data.hex()} from {address}")
            raise
        if number % 1_000 == 0:
            answered += is_serving(target, number)
    assert answered == (count + 999) // 1_000
    assert target.dht.counts["malformed"] > count // 10
    assert target.dht.counts["queries"] > count // 100
    assert target.dht.counts["answers"] > count // 200
    assert len(target.dht.table) <= 40
    assert target.dht.storage.items == 0


def is_serving(target: Target, number: int) -> bool:
    """Whether a node asked now answers; each time for another asker."""
    address = Address(f"21.0.{number // 1_000 >> 8}.{number // 1_000 & 255}", 1)
    query = Packet(transaction_id=b"ok", message=Ping(), node_id=b"a" * 20, read_only=True)
    target.dht.receive(encode_packet(query), address, now=target.now)
    sent = target.dht.take_datagrams()
    return any(to == address and b"2:ok" in data for data, to in sent)


def test_broken_packets() -> None:
    fuzz(20_000)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_million_broken_packets() -> None:
    fuzz(1_000_000)


def test_noise() -> None:
    chance = random.Random(SEED)
    for _ in range(5_000):
        data = chance.randbytes(chance.randrange(200))
        with pytest.raises(RemoteProtocolError):
            decode_packet(data)


def test_what_is_read_is_written_the_same() -> None:
    """Of a broken packet that is still one, the message stays what it was when written anew."""
    chance = random.Random(SEED)
    read = 0
    for _ in range(20_000):
        try:
            packet = decode_packet(broken(chance, chance.choice(RECORDED)))
        except RemoteProtocolError:
            continue
        if type(packet.message).__name__ == "UnknownQuery":
            continue
        read += 1
        # Whether an answer says ro is nothing to us.
        again = decode_packet(encode_packet(packet))
        assert replace(again, read_only=packet.read_only) == packet
    assert read > 500
