"""Compact forms of addresses and nodes (BEP-5; BEP-32 for IPv6).

An address is 4 or 16 bytes and a port of 2; a node is its id and an address. Which of the two it is
shows in the length alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError, RemoteProtocolError

__all__ = [
    "ADDRESS_BYTES",
    "NODE6_BYTES",
    "NODE_BYTES",
    "decode_address",
    "decode_contacts",
    "encode_address",
    "encode_contacts",
    "packed_host",
]

ADDRESS_BYTES: Final = (6, 18)
"""Lengths of a compact address, of IPv4 and IPv6."""

_NODE: Final = struct.Struct(">20s4sH")
_NODE6: Final = struct.Struct(">20s16sH")

NODE_BYTES: Final = _NODE.size
NODE6_BYTES: Final = _NODE6.size


def encode_address(address: Address) -> bytes:
    """6 bytes for IPv4, 18 for IPv6. Raises LocalProtocolError for a host that is a name."""
    try:
        return packed_host(address.host) + address.port.to_bytes(2, "big")
    except (ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{address} has no compact form") from error


def decode_address(data: bytes) -> Address:
    """The address in 6 or 18 bytes; raises RemoteProtocolError for any other length."""
    if len(data) not in ADDRESS_BYTES:
        raise RemoteProtocolError(f"a compact address of {len(data)} bytes")
    return Address(_written_host(data[:-2]), int.from_bytes(data[-2:], "big"))


def encode_contacts(contacts: Iterable[Contact], *, ipv6: bool = False) -> bytes:
    """Nodes one after the other, for `nodes` or `nodes6`.

    Raises LocalProtocolError for one of the other family: its length would shift all behind it.
    """
    size = NODE6_BYTES if ipv6 else NODE_BYTES
    nodes = [contact.node_id + encode_address(contact.address) for contact in contacts]
    if any(len(node) != size for node in nodes):
        raise LocalProtocolError(f"a node that does not have {size} bytes")
    return b"".join(nodes)


def decode_contacts(data: bytes, *, ipv6: bool = False) -> tuple[Contact, ...]:
    """The nodes of `nodes` or `nodes6`, without those that have no port.

    Raises RemoteProtocolError when the bytes are no whole number of nodes.
    """
    form = _NODE6 if ipv6 else _NODE
    if len(data) % form.size:
        raise RemoteProtocolError(f"{len(data)} bytes of nodes, of {form.size} each")
    return tuple(
        Contact(node_id, Address(_written_host(host), port))
        for node_id, host, port in form.iter_unpack(data)
        if port
    )


@lru_cache(maxsize=8_192)
def packed_host(host: str) -> bytes:
    """The 4 or 16 bytes of an address; raises ValueError for a name."""
    return (IPv6Address(host) if ":" in host else IPv4Address(host)).packed


@lru_cache(maxsize=8_192)
def _written_host(packed: bytes) -> str:
    return str(IPv6Address(packed) if len(packed) > 4 else IPv4Address(packed))
