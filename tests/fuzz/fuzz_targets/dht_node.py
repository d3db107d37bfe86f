"""A node of the DHT amid its work: packets that ask it, and answers to what it asked."""

from __future__ import annotations

import random

from choices import Choices, piece
from vectors import vectors

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import MutableItems, Nodes
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.krpc import decode_packet
from hyperbloom.discovery.dht.common.messages import ErrorMessage, Response
from hyperbloom.discovery.dht.limits import MAX_OPERATIONS, MAX_PACKET_BYTES
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.settings import DhtSettings

MAX_BYTES = 4_096
RUNS = 25

#: What stands here in a piece is replaced: by the transaction and the id of a node that is asked,
#: and by a token of ours.
TRANSACTION, ID, TOKEN = b"TTTT", b"I" * 20, b"OOOO"
_VECTORS = vectors("dht-rust-mainline")
_KEY = bytes.fromhex(_VECTORS["key"]["public"])
_SALT = bytes.fromhex(_VECTORS["key"]["salt"])
_NEIGHBOURS = [
    Contact(bytes([number]) * 20, Address(f"20.0.0.{number}", 6881)) for number in range(1, 20)
]
_PACKETS = 40


def fuzz(data: bytes) -> bool:
    """Packets from neighbours and strangers, with time that passes in between."""
    choices = Choices(data)
    chance = random.Random(7)
    settings = DhtSettings(packets_per_second=1e9, packet_burst=1e9)
    dht = Dht(settings, random_bytes=chance.randbytes, now=0.0)
    for contact in _NEIGHBOURS:
        dht.table.answered(contact, now=0.0)
    now, took = 0.0, False
    pending: list[tuple[bytes, Address]] = []
    token = b""
    for _ in range(_PACKETS):
        how, packet = choices.number(), choices.piece()
        if not packet:
            break
        now += 0.01 if how < 0xF0 else float(how)
        if how & 7 == 0:
            dht.find(Nodes(ID) if how & 8 else MutableItems(_KEY, _SALT), now=now)
        transaction, address = _SALT[:4], Address(f"21.0.0.{how}", 1)
        if pending and how & 4:
            transaction, address = pending.pop(how % len(pending))
        packet = packet.replace(TRANSACTION, transaction).replace(ID, _id_at(address))
        dht.receive(packet.replace(TOKEN, token), address, now=now)
        if now >= dht.deadline:
            dht.tick(now=now)
        dht.take_events()
        for sent, to in dht.take_datagrams():
            assert len(sent) <= MAX_PACKET_BYTES
            message = decode_packet(sent)
            if isinstance(message.message, Response):
                took, token = True, message.message.token or token
            elif not isinstance(message.message, ErrorMessage):
                pending.append((message.transaction_id, to))
        assert dht.operations <= MAX_OPERATIONS
        assert len(dht.table) <= len(_NEIGHBOURS) + _PACKETS
        assert dht.storage.items <= _PACKETS
        assert dht.storage.info_hashes <= _PACKETS
    return took or dht.counts["answers"] > 0


def _id_at(address: Address) -> bytes:
    return next((node_id for node_id, at in _NEIGHBOURS if at == address), ID)


def seeds() -> dict[str, bytes]:
    """The recorded packets, queries as they came and answers to what is asked here."""
    found = {}
    for name, text in _VECTORS["requests_from_rust_client"].items():
        kind = "refused" if name.startswith("put") else "asks"
        found[f"{kind}-{name.replace('+', '-')}"] = b"\x01" + piece(bytes.fromhex(text))
    nodes = b"".join(
        bytes([number]) * 20 + bytes([20, 0, 1, number]) + b"\x1a\xe1" for number in range(1, 5)
    )
    answer = (
        b"d1:rd2:id20:"
        + ID
        + b"5:nodes%d:%b5:token4:abcde1:t4:TTTT1:y1:re"
        % (
            len(nodes),
            nodes,
        )
    )
    ask = b"d1:ad2:id20:" + ID + b"e1:q4:ping1:t4:TTTT1:y1:qe"
    found["answers"] = b"".join(how + piece(packet) for how, packet in (
        (b"\x08", ask), (b"\x04", answer), (b"\x0c", answer), (b"\xf4", answer)
    ))  # fmt: skip
    announce = (
        b"d1:ad2:id20:" + ID + b"9:info_hash20:" + bytes(20)
        + b"4:porti6881e5:token4:OOOOe1:q13:announce_peer1:t4:TTTT1:y1:qe"
    )  # fmt: skip
    get_peers = (
        b"d1:ad2:id20:" + ID + b"9:info_hash20:" + bytes(20) + b"e1:q9:get_peers1:t4:TTTT1:y1:qe"
    )
    found["announces"] = b"\x01" + piece(get_peers) + b"\x01" + piece(announce)
    return found
