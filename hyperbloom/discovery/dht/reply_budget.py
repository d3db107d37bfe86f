"""How many bytes go to whom in answers, so that nobody gains by asking in another's name.

The sender of a datagram can be forged, and an answer with the ping back is up to 19 times as long
as its query. Some networks have proved that they receive what we send: they sent back an
unpredictable transaction id or a token of ours. A node that asks us is pinged, so honest nodes
prove themselves at once. What an answer has beyond the length of its query, its *excess*, is paid

    by a network that has proved itself   from what all of them share
    by any other network of the internet  from its own allowance, its site's, and what all share

So a flood of forged queries uses up what the unproved share, and takes nothing from the proved.
Where the excess is not granted, an answer no longer than its query still is (`Dht` shortens it).

Beside that, a network and a site are sent so many bytes and no more, proved or not. Networks nearer
than the internet pay no excess: one site or one machine is not worth such an attack, and read-only
nodes, which never prove themselves, ask much there.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.dht.common.groups import Group, network_key, site_key
from hyperbloom.discovery.dht.limits import (
    MAX_PROVED_SITES,
    PROVED_EXCESS_BURST,
    PROVED_EXCESS_PER_SECOND,
    PROVED_PER_SITE,
    SITE_SHARES,
    UNPROVED_EXCESS_BURST,
    UNPROVED_EXCESS_PER_SECOND,
    UNPROVED_NETWORK_BURST,
    UNPROVED_NETWORK_PER_SECOND,
    UNPROVED_SITE_SHARES,
)
from hyperbloom.discovery.dht.rate_limits import Allowance

__all__ = ["PROVED_SECONDS", "ReplyBudget"]

PROVED_SECONDS: Final = 900.0
"""How long a network counts as proved. A node of the table is pinged every 5 minutes."""


def _everybody(address: Address) -> Group:
    return b""


class ReplyBudget:
    """See the module's text. rate, burst: bytes a second and at once to one network, in all."""

    def __init__(self, *, rate: float, burst: float) -> None:
        self._networks = Allowance(rate=rate, burst=burst)
        self._sites = Allowance(rate=SITE_SHARES * rate, burst=SITE_SHARES * burst, by=site_key)
        self._unproved = (
            Allowance(rate=UNPROVED_NETWORK_PER_SECOND, burst=UNPROVED_NETWORK_BURST),
            Allowance(
                rate=UNPROVED_SITE_SHARES * UNPROVED_NETWORK_PER_SECOND,
                burst=UNPROVED_SITE_SHARES * UNPROVED_NETWORK_BURST,
                by=site_key,
            ),
            Allowance(rate=UNPROVED_EXCESS_PER_SECOND, burst=UNPROVED_EXCESS_BURST, by=_everybody),
        )
        self._proved = (
            Allowance(rate=PROVED_EXCESS_PER_SECOND, burst=PROVED_EXCESS_BURST, by=_everybody),
        )
        self._proofs = _Proofs()

    def prove(self, address: Address, *, now: float) -> None:
        """Somebody at this address has received what we sent there."""
        self._proofs.note(address, now=now)

    def take(self, address: Address, size: int, *, paid: int, now: float) -> bool:
        """Grant `size` bytes to an address that sent `paid`; False, and nothing taken, if not."""
        excess = max(0, size - paid)
        whole = [(self._networks, size), (self._sites, size)]
        wanted = whole + [(one, excess) for one in self._payers(address, now) if excess]
        if not all(one.has(address, amount, now=now) for one, amount in wanted):
            return False
        for one, amount in wanted:
            one.take(address, amount, now=now)
        return True

    def _payers(self, address: Address, now: float) -> tuple[Allowance, ...]:
        if address.scope is not Scope.GLOBAL:
            return ()
        return self._proved if self._proofs.hold(address, now=now) else self._unproved


class _Proofs:
    """The networks that have proved themselves, by site; the site heard of longest ago goes."""

    def __init__(self) -> None:
        self._sites: OrderedDict[Group, dict[Group, float]] = OrderedDict()

    def note(self, address: Address, *, now: float) -> None:
        site = site_key(address)
        networks = self._sites.pop(site, {})
        self._sites[site] = networks
        networks.pop(network_key(address), None)
        networks[network_key(address)] = now
        if len(networks) > PROVED_PER_SITE:
            del networks[next(iter(networks))]
        if len(self._sites) > MAX_PROVED_SITES:
            self._sites.popitem(last=False)

    def hold(self, address: Address, *, now: float) -> bool:
        networks = self._sites.get(site_key(address))
        noted = None if networks is None else networks.get(network_key(address))
        return noted is not None and now - noted < PROVED_SECONDS
