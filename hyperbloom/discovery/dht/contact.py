"""Where a node is, and who it is there."""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

__all__ = ["ID_BITS", "ID_BYTES", "Address", "Contact", "Scope", "distance", "may_tell", "scope_of"]

ID_BYTES: Final = 20
ID_BITS: Final = 8 * ID_BYTES


class Address(NamedTuple):
    """A UDP address. `host` is an IPv4 or IPv6 address as the system writes it, never a name."""

    host: str
    port: int


class Contact(NamedTuple):
    """A node's id of `ID_BYTES` bytes, and its address."""

    node_id: bytes
    address: Address


class Scope(IntEnum):
    """How far away an address can be reached from."""

    UNUSABLE = 0
    """Multicast, unspecified, reserved: no node is there."""
    LOOPBACK = 1
    PRIVATE = 2
    """Of a site, a link or a provider's inner network."""
    GLOBAL = 3


def distance(one: bytes, other: bytes) -> int:
    """The XOR metric of Kademlia."""
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big")


@lru_cache(maxsize=8_192)
def scope_of(host: str) -> Scope:
    """The scope of an address; what is no address is unusable."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return Scope.UNUSABLE
    if address.is_loopback:
        return Scope.LOOPBACK
    if address.is_multicast or address.is_unspecified or host.startswith(("0.", "255.")):
        return Scope.UNUSABLE
    if address.is_global:
        return Scope.GLOBAL
    return Scope.PRIVATE


def may_tell(teller: str, told: str) -> bool:
    """Whether a node at `teller` may name one at `told`, both host addresses.

    Nobody is sent by a node further out to an address further in: a stranger on the internet has
    no business to point at our loopback or our site.
    """
    scope = scope_of(told)
    return scope is not Scope.UNUSABLE and scope >= scope_of(teller)
