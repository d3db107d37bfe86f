"""Where a node can be dialled: an IP address and a port.

Records come from strangers, so that only addresses that a connection can be opened to are let in.
Private and loopback addresses are: nodes of one network or one machine find each other by them.
Who may send this node to one is decided where the word comes in: by `may_tell` for what nodes of
the DHT say, by `hyperbloom.swarms` for records, by `hyperbloom.discovery.lan` for multicast DNS.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from hyperbloom.addresses import HIGHEST_PORT, format_host_port
from hyperbloom.discovery.dht.common.contact import Scope, scope_of
from hyperbloom.discovery.limits import LOW_FOUND_PORTS, LOWEST_FOUND_PORT

__all__ = ["Address"]


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address without a zone, and a TCP port of 1 … 65,535.

    Raises `ValueError` for an address that nobody can dial: unspecified, multicast, reserved, a
    link-local IPv6 address (it needs a zone, which means nothing to others), or an IPv4 address
    within an IPv6 one, which has its own form.
    """

    ip: IPv4Address | IPv6Address
    port: int

    def __post_init__(self) -> None:
        if not 1 <= self.port <= HIGHEST_PORT:
            raise ValueError(f"a port lies in 1 … {HIGHEST_PORT}")
        ip = self.ip
        needs_zone = isinstance(ip, IPv6Address) and (ip.is_link_local or ip.scope_id is not None)
        if needs_zone or self.scope is Scope.UNUSABLE:
            raise ValueError(f"{ip} is not an address to dial")

    def __str__(self) -> str:
        return format_host_port(str(self.ip), self.port)

    @property
    def scope(self) -> Scope:
        """How far away it can be reached from."""
        return scope_of(str(self.ip))

    @property
    def may_be_dialled_unproven(self) -> bool:
        """Whether a stranger's word is enough to dial this port."""
        return self.port >= LOWEST_FOUND_PORT or self.port in LOW_FOUND_PORTS

    @classmethod
    def of(cls, host: str, port: int) -> Address:
        """The address of an IP address in text form. Raises `ValueError`."""
        return cls(ip_address(host), port)
