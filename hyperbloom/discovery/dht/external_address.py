"""Where this node is, as the nodes that it asked see it (BEP-42's `ip`)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.groups import Group, network_key, site_key
from hyperbloom.discovery.dht.limits import MAX_VOTERS, VOTERS_PER_SITE

__all__ = ["LEAST_VOTES", "ExternalAddress"]

LEAST_VOTES: Final = 3
"""Voters that must agree before anything is settled."""


class ExternalAddress:
    """Where the nodes that answered see this one: the last word of each voter.

    Voters of one network are one voter, and those of one site `VOTERS_PER_SITE` at most.
    """

    def __init__(self) -> None:
        #: By network: its site, and the address that it saw. Who spoke last stands last.
        self._seen: OrderedDict[Group, tuple[Group, Address]] = OrderedDict()

    def told(self, voter: Address, seen: Address) -> bool:
        """A node that answered sees this node there; whether that changes anything."""
        network, site = network_key(voter), site_key(voter)
        before = self._seen.pop(network, None)
        self._seen[network] = site, seen
        if before is not None:
            return before[1] != seen
        forgotten = self._forget_surplus(site)
        return forgotten is None or forgotten != seen

    def _forget_surplus(self, site: Group) -> Address | None:
        """Forget the oldest word where there is one too many; what it was."""
        same = [network for network, (other, _) in self._seen.items() if other == site]
        if len(same) > VOTERS_PER_SITE:
            return self._seen.pop(same[0])[1]
        if len(self._seen) > MAX_VOTERS:
            return self._seen.popitem(last=False)[1][1]
        return None

    def __len__(self) -> int:
        """How many voters are remembered."""
        return len(self._seen)

    @property
    def settled(self) -> Address | None:
        """What more than half of the voters say of the host, and most of those of the port.

        None while fewer than `LEAST_VOTES` agree.
        """
        hosts = Counter(seen.host for _, seen in self._seen.values())
        if not hosts:
            return None
        host, count = hosts.most_common(1)[0]
        if count < LEAST_VOTES or 2 * count <= len(self._seen):
            return None
        ports = Counter(seen.port for _, seen in self._seen.values() if seen.host == host)
        return Address(host, ports.most_common(1)[0][0])
