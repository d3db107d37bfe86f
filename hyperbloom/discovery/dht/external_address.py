"""Where this node is, as the nodes that it asked see it (BEP-42's `ip`)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.limits import MAX_VOTERS
from hyperbloom.discovery.dht.rate_limits import counted_as

__all__ = ["LEAST_VOTES", "ExternalAddress"]

LEAST_VOTES: Final = 3
"""Voters that must agree before anything is settled."""


class ExternalAddress:
    """Where the nodes that answered see this one: the last word of each voter.

    Voters at one host are one voter, except at loopback.
    """

    def __init__(self) -> None:
        self._seen: OrderedDict[str | Address, Address] = OrderedDict()

    def told(self, voter: Address, seen: Address) -> bool:
        """A node that answered sees this node there; whether that changes anything."""
        key = counted_as(voter)
        before = self._seen.pop(key, None)
        self._seen[key] = seen
        if len(self._seen) > MAX_VOTERS:
            _, forgotten = self._seen.popitem(last=False)
            return forgotten != seen
        return before != seen

    def __len__(self) -> int:
        """How many voters are remembered."""
        return len(self._seen)

    @property
    def settled(self) -> Address | None:
        """What more than half of the voters say of the host, and most of those of the port.

        None while fewer than `LEAST_VOTES` agree.
        """
        hosts = Counter(seen.host for seen in self._seen.values())
        if not hosts:
            return None
        host, count = hosts.most_common(1)[0]
        if count < LEAST_VOTES or 2 * count <= len(self._seen):
            return None
        ports = Counter(seen.port for seen in self._seen.values() if seen.host == host)
        return Address(host, ports.most_common(1)[0][0])
