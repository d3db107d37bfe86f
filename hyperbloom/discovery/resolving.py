"""Names of hosts to addresses, by the reactor's resolver."""

from __future__ import annotations

from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IHostResolution, IResolutionReceiver
from zope.interface import implementer

from hyperbloom.addresses import Address, Scope

__all__ = ["resolve"]


def resolve(reactor: Any, address: Address, *, ipv6: bool = False) -> Deferred[list[Address]]:
    """The IP addresses of one family that `address` stands for, whose host may be a name.

    Fires with an empty list for a name that is not known.
    """
    if address.scope is not Scope.UNUSABLE:
        return succeed([address] if address.is_ipv6 == ipv6 else [])
    found: Deferred[list[Address]] = Deferred()
    kind = IPv6Address if ipv6 else IPv4Address
    reactor.nameResolver.resolveHostName(
        _Receiver(found),
        address.host,
        address.port,
        addressTypes=[kind],
        transportSemantics="UDP",
    )
    return found


@implementer(IResolutionReceiver)
class _Receiver:
    """Collects what the resolver finds."""

    def __init__(self, found: Deferred[list[Address]]) -> None:
        self._found = found
        self._addresses: list[Address] = []

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Called by Twisted."""

    def addressResolved(self, address: IAddress) -> None:
        """Called by Twisted for each address."""
        if isinstance(address, IPv4Address | IPv6Address):
            self._addresses.append(Address(address.host, address.port))

    def resolutionComplete(self) -> None:
        """Called by Twisted; who asked may have gone."""
        if not self._found.called:
            self._found.callback(self._addresses)
