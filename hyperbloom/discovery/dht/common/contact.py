"""Where a node is, and who it is there."""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, NamedTuple

__all__ = [
    "ID_BITS",
    "ID_BYTES",
    "Address",
    "Contact",
    "Scope",
    "distance",
    "is_ipv6",
    "may_tell",
    "scope_of",
]

ID_BYTES: Final = 20
ID_BITS: Final = 8 * ID_BYTES

_THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
_NAT64: Final = IPv6Network("64:ff9b::/96")


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
    """Multicast, unspecified, reserved, IPv4 within IPv6 (which hides its scope): nobody is there.
    """
    LOOPBACK = 1
    LINK = 2
    """Of one link, as where nobody gives addresses out, and services of a cloud to its machines."""
    PRIVATE = 3
    """Of a site or a provider's inner network."""
    GLOBAL = 4


def is_ipv6(host: str) -> bool:
    """Whether a host address is of IPv6; else it is of IPv4."""
    return ":" in host


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
    if address.is_multicast or address.is_unspecified or _is_no_place(address):
        return Scope.UNUSABLE
    if address.is_link_local:
        return Scope.LINK
    if address.is_global:
        return Scope.GLOBAL
    return Scope.PRIVATE


def _is_no_place(address: IPv4Address | IPv6Address) -> bool:
    """Reserved (0/8 and 240/4), or IPv4 within IPv6."""
    if isinstance(address, IPv4Address):
        return address.is_reserved or address in _THIS_NETWORK
    within = address.ipv4_mapped or address.sixtofour or address.teredo
    return within is not None or address in _NAT64


def may_tell(teller: str, told: str) -> bool:
    """Whether a node at `teller` may name one at `told`, both host addresses.

    Nobody is sent by a node further out to an address further in: a stranger on the internet has
    no business to point at our loopback or our site.
    """
    scope = scope_of(told)
    return scope is not Scope.UNUSABLE and scope >= scope_of(teller)
