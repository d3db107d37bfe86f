"""Packets of the DHT: bencode, compact addresses and KRPC, as a datagram brings them."""

from __future__ import annotations

from dataclasses import replace

from choices import Choices
from vectors import vectors

from hyperbloom.discovery.dht.common import bencode, compact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import UnknownQuery

MAX_BYTES = 2_100
RUNS = 110


def fuzz(data: bytes) -> bool:
    """A datagram, a bencoded value, or compact nodes; what is read is written the same."""
    choices = Choices(data)
    read = choices.one_of((_packet, _value, _nodes, _nodes6))
    try:
        return read(choices.rest())
    except RemoteProtocolError:
        return False


def _packet(data: bytes) -> bool:
    packet = decode_packet(data)
    if isinstance(packet.message, UnknownQuery):
        return True
    try:
        written = encode_packet(packet)
    except LocalProtocolError as error:
        # A text that is no UTF-8 grows when it is written.
        if "a packet of" not in str(error):
            raise
        return True
    again = decode_packet(written)
    assert replace(again, read_only=packet.read_only) == packet
    return True


def _value(data: bytes) -> bool:
    assert bencode.encode(bencode.decode(data)) == data
    return True


def _nodes(data: bytes) -> bool:
    contacts = compact.decode_contacts(data)
    assert len(compact.encode_contacts(contacts)) <= len(data)
    return True


def _nodes6(data: bytes) -> bool:
    compact.decode_contacts(data, ipv6=True)
    return True


def seeds() -> dict[str, bytes]:
    """What a Rust client and server sent."""
    found = {}
    for kind in ("requests_from_rust_client", "replies_from_rust_server"):
        for name, text in vectors("dht-rust-mainline")[kind].items():
            found[f"{kind.partition('_')[0]}-{name.replace('+', '-')}"] = b"\x00" + bytes.fromhex(
                text
            )
    found["value"] = b"\x01d1:ali-1ei0e3:abce1:bdee"
    found["nodes"] = b"\x02" + bytes(range(20)) + b"\x14\x00\x00\x01\x1a\xe1" + bytes(26)
    found["nodes6"] = b"\x03" + bytes(range(20)) + b"\x20\x01" + bytes(13) + b"\x01\x1a\xe1"
    return found
