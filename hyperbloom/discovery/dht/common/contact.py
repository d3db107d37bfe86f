"""Who a node is, and where."""

from __future__ import annotations

from typing import Final, NamedTuple

from hyperbloom.addresses import Address

__all__ = ["ID_BITS", "ID_BYTES", "Contact", "distance"]

ID_BYTES: Final = 20
ID_BITS: Final = 8 * ID_BYTES


class Contact(NamedTuple):
    """A node's id of `ID_BYTES` bytes, and its UDP address, whose host is never a name."""

    node_id: bytes
    address: Address


def distance(one: bytes, other: bytes) -> int:
    """The XOR metric of Kademlia."""
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
