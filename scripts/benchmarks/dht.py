"""The cases of the DHT: its packets, a simulated network, real nodes on 127.0.0.1."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.selectreactor import SelectReactor

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import MutableItems
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.items import MAX_SEQ, sign_item
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import Get, Packet, PutMutable, Response
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.keys import Identity

# The simulated network is the tests' own.
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "discovery"))

from dht_attacker import addresses, answer, asked_in, forged, query, sites, token_in
from simnet import SimMachine, SimNetwork

__all__ = ["dht_nodes_case", "dht_packets_case", "dht_simulated_case", "hostile_prefix_case"]

OWNER = Identity(b"o" * 32)
SALT = b"s" * 32
LONGEST = sign_item(OWNER, salt=b"", seq=MAX_SEQ, value=b"996:" + b"v" * 996)
ITEM = sign_item(OWNER, salt=SALT, seq=MAX_SEQ, value=b"600:" + b"v" * 600)
#: Real nodes of one machine share it, so no rate may end a measurement.
UNBOUNDED = {
    "packets_per_second": 1e9,
    "packet_burst": 1e9,
    "reply_bytes_per_second": 1e9,
    "reply_burst": 1e9,
}


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def microseconds(call: Callable[[], object], times: int = 2_000) -> float:
    """Of one call, as the median of five rounds."""
    rounds = []
    for _ in range(5):
        begun = time.perf_counter()
        for _ in range(times):
            call()
        rounds.append((time.perf_counter() - begun) / times)
    return statistics.median(rounds) * 1e6


def dht_packets_case(folder: Path, scale: float) -> dict[str, Any]:
    """Encode and decode a get, and its largest ordinary answer: eight nodes and a record."""
    nodes = tuple(Contact(bytes([n]) * 20, Address(f"20.0.0.{n}", 6881)) for n in range(8))
    query = Packet(transaction_id=b"tttt", message=Get(target=ITEM.target), node_id=b"n" * 20)
    answer = Packet(
        transaction_id=b"tttt",
        message=Response(
            nodes=nodes,
            token=b"t" * 8,
            value=ITEM.value,
            public_key=ITEM.public_key,
            seq=ITEM.seq,
            signature=ITEM.signature,
        ),
        node_id=b"n" * 20,
        version=b"HB\x00\x01",
        observed=Address("20.0.0.9", 6881),
    )
    figures = {
        f"{name}_us": microseconds(lambda p=packet: decode_packet(encode_packet(p)))
        for name, packet in (("query", query), ("answer", answer))
    }
    return {
        **figures,
        "must": "<= 100 us to encode and decode either",
        "ok": max(figures.values()) <= 100,
    }


def _put(token: bytes) -> PutMutable:
    return PutMutable(
        token=token,
        public_key=ITEM.public_key,
        salt=ITEM.salt,
        seq=ITEM.seq,
        value=ITEM.value,
        signature=ITEM.signature,
        target=ITEM.target,
    )


def dht_simulated_case(folder: Path, scale: float) -> dict[str, Any]:
    """Lookups of an item in a simulated network of 1,000 nodes, from nodes at random."""
    count, lookups = max(50, int(1_000 * scale)), max(20, int(200 * scale))
    before = resident_bytes()
    network = SimNetwork(seed=1)
    machines = network.machines(count)
    network.run(600.0)
    memory = (resident_bytes() - before) / count
    machines[0].put(MutableItems(OWNER.public_key, SALT), _put)
    network.run(5.0)
    # At once, so that the nodes' upkeep, which goes on all the while, counts for little.
    chosen = network.chance.sample(machines, min(lookups, count))
    collectors = [MutableItems(OWNER.public_key, SALT) for _ in chosen]
    now, begun = network.clock.seconds(), time.perf_counter()
    numbers = [
        machine.dht.find(collector, now=now)
        for machine, collector in zip(chosen, collectors, strict=True)
    ]
    ended: dict[SimMachine, float] = {}
    while len(ended) < len(chosen):
        network.run(0.01)
        for machine, number in zip(chosen, numbers, strict=True):
            machine.flush()
            if number in machine.outcomes:
                ended.setdefault(machine, network.clock.seconds() - now)
    spent = time.perf_counter() - begun
    outcomes = [machine.outcomes[number] for machine, number in zip(chosen, numbers, strict=True)]
    found = sum(collector.found == (ITEM,) for collector in collectors)
    asked = [outcome.asked for outcome in outcomes]
    answered = [outcome.answered for outcome in outcomes]
    seconds = list(ended.values())
    lookups = len(chosen)
    return {
        "nodes": count,
        "lookups_per_second": lookups / spent,
        "packets_a_lookup": statistics.mean(asked) + statistics.mean(answered),
        "simulated_seconds": statistics.median(seconds),
        "found": found / lookups,
        "table": statistics.mean(len(machine.dht.table) for machine in machines),
        "kib_a_node": memory / 1024,
        "must": "every lookup finds the item, with <= 100 packets",
        "ok": found == lookups and max(asked) + max(answered) <= 100,
    }


def dht_nodes_case(folder: Path, scale: float) -> dict[str, Any]:
    """Lookups among 50 real nodes, all in this process: both sides' work is in the figure."""
    reactor = SelectReactor()
    before = resident_bytes()
    nodes = [DhtNode(reactor, DhtSettings(**UNBOUNDED), random_bytes=os.urandom) for _ in range(50)]
    for node in nodes:
        node.listen(0, "127.0.0.1")
    first = nodes[0].address
    assert first is not None
    for node in nodes[1:]:
        _wait(reactor, node.bootstrap([first]))
    memory = (resident_bytes() - before) / len(nodes)
    report = _wait(reactor, nodes[0].put_mutable(ITEM))
    rounds = max(2, int(10 * scale))
    found, asked, answered, spent = 0, 0, 0, 0.0
    for _ in range(rounds):
        # A second apart, so that what is measured is work and not the pace of queries.
        _pause(reactor, 1.0)
        begun = time.perf_counter()
        for node in nodes[1:]:
            outcome = _wait(reactor, node.get_mutable(OWNER.public_key, SALT))
            found += outcome.items == (ITEM,)
            asked, answered = asked + outcome.asked, answered + outcome.answered
        spent += time.perf_counter() - begun
    lookups = rounds * (len(nodes) - 1)
    for node in nodes:
        _wait(reactor, node.stop())
    return {
        "nodes": len(nodes),
        "stored": report.stored,
        "lookups_per_second": lookups / spent,
        "packets_a_lookup": (asked + answered) / lookups,
        "found": found / lookups,
        "kib_a_node": memory / 1024,
        "must": "every lookup finds the item, >= 20 lookups/s",
        "ok": found == lookups and lookups / spent >= 20,
    }


def hostile_prefix_case(folder: Path, scale: float) -> dict[str, Any]:
    """Bytes that go out for each byte of forged queries, whose answers are the longest there are.

    As many senders as queries: of one /64, of 1,000 /64s of a /48, of 1,000 /48s. Ten seconds each,
    but the machine's clock alone passes. `answered`: the part of honest queries answered whole
    meanwhile, of one node that has proved itself and of newcomers.
    """
    count = max(5_000, int(20_000 * scale))
    each = count // 1_000
    kinds = {
        "network": addresses("2a02:db8:1::/64", hosts=count),
        "site": addresses("2a02:db8:1::/48", networks=1_000, hosts=each),
        "sites": sites("2a02:db8::/32", 1_000, hosts=each),
    }
    proved = Address("2a06::1", 6881)
    ratios, spent, asked = {}, {}, 0
    answered = {"proved": 0, **dict.fromkeys((f"newcomers_{kind}" for kind in kinds), 0)}
    for kind, sources in kinds.items():
        dht, now = _attacked(proved)
        packets = list(forged(sources, LONGEST.target, count=count))
        begun, out = time.process_time(), 0
        for number, (data, source) in enumerate(packets, 1):
            now += 10.0 / count
            dht.receive(data, Address(*source), now=now)
            out += sum(len(sent) for sent, _ in dht.take_datagrams())
            if number % 1_000:
                continue
            asked += 1
            newcomer = Address(f"2a06:{number // 1_000:x}::1", 6881)
            for name, address in (("proved", proved), (f"newcomers_{kind}", newcomer)):
                dht.receive(_by_hand("get", target=LONGEST.target), address, now=now)
                answered[name] += any(len(sent) > 1_000 for sent, _ in dht.take_datagrams())
        spent[kind] = (time.process_time() - begun) / count * 1e6
        ratios[kind] = out / sum(len(data) for data, _ in packets)
    whole = answered.pop("proved")
    return {
        "queries": count,
        **{f"out_for_in_{kind}": ratio for kind, ratio in ratios.items()},
        **{f"{kind}_us_a_query": each for kind, each in spent.items()},
        "answered_proved": whole / asked,
        **{f"answered_{name}": len(kinds) * times / asked for name, times in answered.items()},
        "must": "<= 1.5 bytes out for a byte in; who has proved itself is always answered whole",
        "ok": max(ratios.values()) <= 1.5 and whole == asked,
    }


def _attacked(proved: Address) -> tuple[Dht, float]:
    """A node that knows eight others, holds `LONGEST`, and got an answer from one; and the time."""
    network = SimNetwork(seed=1)
    dht, now = network.machine(Address("2a01:1::1", 6881)).dht, network.clock.seconds()
    for number in range(1, 9):
        contact = Contact(bytes([number]) * 20, Address(f"2a04:{number}::1", 6881))
        dht.table.answered(contact, now=now)
    writer = Address("2a03:1::1", 6881)
    dht.receive(_by_hand("get", target=LONGEST.target), writer, now=now)
    ((got, _),) = dht.take_datagrams()
    put = _by_hand(
        "put", token=token_in(got), k=LONGEST.public_key, seq=LONGEST.seq, sig=LONGEST.signature,
        v=b"v" * 996,
    )  # fmt: skip
    dht.receive(put, writer, now=now)
    dht.ping(Contact(b"p" * 20, proved), now=now)
    ping = next(data for data, to in dht.take_datagrams() if to == proved)
    dht.receive(answer(asked_in(ping) or b"", b"p" * 20), proved, now=now)
    return dht, now


def _by_hand(name: str, **arguments: Any) -> bytes:
    return query(name, t=b"tttt", node_id=b"n" * 20, read_only=True, **arguments)


def _wait(reactor: Any, deferred: Deferred[Any]) -> Any:
    """Turn the reactor until it fires."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    ends = time.monotonic() + 60
    while not results and time.monotonic() < ends:
        reactor.iterate(0.01)
    return results[0]


def _pause(reactor: Any, seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        reactor.iterate(0.01)
