"""By whom an address counts, wherever a bound, a vote or a place is one's own.

Whoever has one IPv6 address has the 2^64 of its /64, and many providers give a customer, or anybody
who asks for a tunnel, a /48. So nothing counts by a single IPv6 address of the internet:

    network   an IPv4 address, or a /64 of IPv6: what one machine has at no cost
    site      a /24 of IPv4, or a /48 of IPv6: what one customer may have

Nearer by, the machines of a site share a /64, so there each host is a network, and the /64 (or the
/24) a site. At loopback each port is both: several nodes of one machine are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Final, TypeAlias, TypeVar

from hyperbloom.addresses import Address, Scope, scope_of
from hyperbloom.discovery.dht.common.compact import packed_host

__all__ = ["Group", "in_turn", "internet_network", "network_key", "site_key"]

T = TypeVar("T")

Group: TypeAlias = bytes | Address
"""The first bytes of a network's or a site's addresses; an address where each port counts."""

_IPV4_BYTES: Final = 4
_SITE_BYTES: Final = 3
_NETWORK6_BYTES: Final = 8
_SITE6_BYTES: Final = 6
_MAPPED: Final = bytes(10) + b"\xff\xff"
_NOTHING: Final = object()


def network_key(address: Address) -> Group:
    """The network that an address counts as."""
    return address if address.scope is Scope.LOOPBACK else _groups(address.host)[0]


def site_key(address: Address) -> Group:
    """The site that an address counts as."""
    return address if address.scope is Scope.LOOPBACK else _groups(address.host)[1]


def internet_network(address: Address) -> Group | None:
    """The network of an address of the internet; None for nearer ones."""
    return _groups(address.host)[0] if address.scope is Scope.GLOBAL else None


def in_turn(groups: Iterable[Iterable[T]]) -> Iterator[T]:
    """The first of each group, then the second of each, and so on: no group comes before others."""
    for row in zip_longest(*groups, fillvalue=_NOTHING):
        yield from (each for each in row if each is not _NOTHING)  # type: ignore[misc]


@lru_cache(maxsize=8_192)
def _groups(host: str) -> tuple[bytes, bytes]:
    """Network and site of a host. A name, which nothing is sent from, is its own."""
    try:
        packed = packed_host(host).removeprefix(_MAPPED)
    except ValueError:
        return host.encode(), host.encode()
    if len(packed) == _IPV4_BYTES:
        return packed, packed[:_SITE_BYTES]
    if scope_of(host) in (Scope.LINK, Scope.PRIVATE):
        return packed, packed[:_NETWORK6_BYTES]
    return packed[:_NETWORK6_BYTES], packed[:_SITE6_BYTES]
