"""Where others reach this node, as far as it can tell."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from hyperbloom.addresses import Address

if TYPE_CHECKING:
    from hyperbloom.api.served import ServedNode

__all__ = ["own_addresses", "reachable"]


def _outward_address() -> str:
    """The address this machine shows to others; loopback where it has no route out.

    Connecting a datagram socket sends nothing: it only asks the system which of its own addresses
    it would use (192.0.2.0/24 is set aside for documentation).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return cast("str", probe.getsockname()[0])


def reachable(addresses: Sequence[Address]) -> list[str]:
    """Addresses that others can dial: a wildcard becomes this machine's own address."""
    found = [
        Address(_outward_address(), address.port) if address.is_wildcard else address
        for address in addresses
    ]
    return list(map(str, dict.fromkeys(found)))


def own_addresses(node: ServedNode) -> list[str]:
    """What invitations name: `[node] advertise`, else what the node listens on."""
    return reachable(node.addresses() or node.listening())
