"""What a record says: its publisher's neighbours, the last messages it saw, and where to dial.

The first 320 bytes are those of deployed peers, which read them and ignore what follows:

    active peers         5 slots of 32 bytes: node ids; a slot of zeros is empty
    last message hashes  5 slots of 32 bytes: SHA-512(value)[:32]; a slot of zeros is empty

Node ids alone cannot be dialled without a lookup service, so an address trailer of ours follows:

    version    1 byte: 1
    entries, each
        head     1 byte: bit 7 set: IPv6, else IPv4; bits 3 … 6: zero; bits 0 … 2: whose address,
                 0 the publisher's, 1 … 5 that of the active peer in this slot, counted from 1
        address  the compact form of BEP-5: 4 or 16 bytes of IP address, 2 bytes of port

A trailer of another version, or one that does not keep to this form, is ignored as a whole: the
node ids in front of it are still good. Single addresses that nobody can dial are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.compact import (
    ADDRESS_BYTES,
    decode_address,
    encode_address,
)
from hyperbloom.discovery.tracker.limits import MAX_ADDRESSES_PER_NODE, MAX_TRAILER_BYTES
from hyperbloom.keys import PUBLIC_KEY_BYTES

__all__ = [
    "ARRAYS_BYTES",
    "MESSAGE_HASH_BYTES",
    "SLOTS",
    "Neighbour",
    "RecordContent",
    "decode_content",
    "encode_content",
]

SLOTS: Final = 5
"""Active peers of a record, and message hashes of it (MAX_RECORD_PEERS, MAX_MESSAGE_HASHES)."""
MESSAGE_HASH_BYTES: Final = 32
ARRAYS_BYTES: Final = SLOTS * PUBLIC_KEY_BYTES + SLOTS * MESSAGE_HASH_BYTES

_EMPTY_SLOT: Final = bytes(32)
_TRAILER_VERSION: Final = 1
_IPV6: Final = 0x80
_OWNER: Final = 0x07


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A node: its 32-byte id, an Ed25519 key, and where it may be dialled, best first."""

    node_id: bytes
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordContent:
    """The content of a record; at most `SLOTS` peers and as many hashes, none of them zeros."""

    addresses: tuple[Address, ...] = ()
    active_peers: tuple[Neighbour, ...] = ()
    last_message_hashes: tuple[bytes, ...] = ()


def encode_content(content: RecordContent) -> bytes:
    """The bytes of a content: 320, and a trailer if there are addresses.

    Every node's first address goes in before any node's second, and so on, until
    `MAX_TRAILER_BYTES` are full. Raises `ValueError` for too many or malformed slots, and
    `LocalProtocolError` for an address whose host is a name.
    """
    peers = [peer.node_id for peer in content.active_peers]
    arrays = _encode_slots(peers) + _encode_slots(content.last_message_hashes)
    by_owner = [content.addresses, *(peer.addresses for peer in content.active_peers)]
    return arrays + _encode_trailer(by_owner)


def decode_content(data: bytes) -> RecordContent | None:
    """The content of these bytes, of any length; None if they are shorter than the arrays."""
    if len(data) < ARRAYS_BYTES:
        return None
    slots = [data[start : start + 32] for start in range(0, ARRAYS_BYTES, 32)]
    by_owner = _decode_trailer(data[ARRAYS_BYTES:])
    peers: dict[bytes, Neighbour] = {}
    for slot, node_id in enumerate(slots[:SLOTS], 1):
        if node_id != _EMPTY_SLOT:
            peers.setdefault(node_id, Neighbour(node_id=node_id, addresses=tuple(by_owner[slot])))
    hashes = dict.fromkeys(each for each in slots[SLOTS:] if each != _EMPTY_SLOT)
    return RecordContent(
        addresses=tuple(by_owner[0]),
        active_peers=tuple(peers.values()),
        last_message_hashes=tuple(hashes),
    )


def _encode_slots(filled: Sequence[bytes]) -> bytes:
    if len(filled) > SLOTS or any(len(each) != 32 or each == _EMPTY_SLOT for each in filled):
        raise ValueError(f"a record has {SLOTS} slots of 32 bytes, and zeros mean an empty one")
    return b"".join(filled) + _EMPTY_SLOT * (SLOTS - len(filled))


def _encode_trailer(by_owner: Sequence[Sequence[Address]]) -> bytes:
    chosen = [list(dict.fromkeys(each))[:MAX_ADDRESSES_PER_NODE] for each in by_owner]
    trailer = bytearray()
    for addresses in zip_longest(*chosen):
        for owner, address in enumerate(addresses):
            if address is None:
                continue
            entry = _encode_entry(owner, address)
            if 1 + len(trailer) + len(entry) <= MAX_TRAILER_BYTES:
                trailer += entry
    return bytes([_TRAILER_VERSION]) + trailer if trailer else b""


def _encode_entry(owner: int, address: Address) -> bytes:
    head = owner | (_IPV6 if address.is_ipv6 else 0)
    return bytes([head]) + encode_address(address)


def _decode_trailer(trailer: bytes) -> list[list[Address]]:
    by_owner: list[list[Address]] = [[] for _ in range(1 + SLOTS)]
    if not trailer or trailer[0] != _TRAILER_VERSION:
        return by_owner
    for owner, address in _entries(trailer[1:]):
        addresses = by_owner[owner]
        is_wanted = address.is_dialable and address not in addresses
        if is_wanted and len(addresses) < MAX_ADDRESSES_PER_NODE:
            addresses.append(address)
    return by_owner


def _entries(data: bytes) -> list[tuple[int, Address]]:
    """Owner and address of each entry; none at all where the form is broken."""
    entries = []
    at = 0
    while at < len(data):
        head = data[at]
        end = at + 1 + ADDRESS_BYTES[bool(head & _IPV6)]
        owner = head & _OWNER
        if head & ~(_IPV6 | _OWNER) or owner > SLOTS or end > len(data):
            return []
        entries.append((owner, decode_address(data[at + 1 : end])))
        at = end
    return entries
