"""When the table is looked after: buckets that are refreshed, a bootstrap that is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import ID_BYTES
from hyperbloom.discovery.dht.common.messages import ErrorMessage, Response
from hyperbloom.discovery.dht.lookup import Ask
from hyperbloom.discovery.dht.routing_table import REFRESH_SECONDS, RoutingTable

__all__ = ["UPKEEP_SECONDS", "TableAsker", "Upkeep"]

UPKEEP_SECONDS: Final = 15.0
"""The table is looked after this often: due pings, buckets to refresh, a new try to bootstrap."""

_REFRESHES_AT_ONCE: Final = 2
_RETRY_LONGEST: Final = 300.0


class Upkeep:
    """Names the lookups that keep a table full. `now` is of the machine's clock."""

    def __init__(self, *, now: float) -> None:
        self.due_at = now + UPKEEP_SECONDS
        self._bootstrap: tuple[Address, ...] = ()
        self._refreshed_at = float("-inf")
        self._retry_at, self._retry_wait = now, UPKEEP_SECONDS

    def is_due(self, *, now: float) -> bool:
        """Whether the table is to be looked after now, and then again after `UPKEEP_SECONDS`."""
        if now < self.due_at:
            return False
        self.due_at = now + UPKEEP_SECONDS
        return True

    def bootstrapped(self, addresses: Sequence[Address], *, now: float) -> None:
        """A lookup of the own id was begun at these addresses, which are asked again in need."""
        self._bootstrap = tuple(addresses)
        self._refreshed_at = now

    def moved(self) -> None:
        """This node has a new id, whose neighbours are to be looked up."""
        self._refreshed_at = float("-inf")

    def lookups(
        self, table: RoutingTable, random_bytes: Callable[[int], bytes], *, now: float
    ) -> Iterator[tuple[bytes, Sequence[Address]]]:
        """The targets to look up now, each with addresses to ask beside the nodes of the table."""
        if not table.good(now=now):
            yield from self._bootstrap_again(table, now=now)
            return
        self._retry_wait = UPKEEP_SECONDS
        if now - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = now
            yield table.own_id, ()
        for index in table.to_refresh(now=now)[:_REFRESHES_AT_ONCE]:
            yield table.id_in(index, random_bytes(ID_BYTES)), ()

    def _bootstrap_again(
        self, table: RoutingTable, *, now: float
    ) -> Iterator[tuple[bytes, Sequence[Address]]]:
        """At longer and longer intervals while no node is known to be there."""
        if now < self._retry_at or not (self._bootstrap or len(table)):
            return
        self._retry_wait = min(2 * self._retry_wait, _RETRY_LONGEST)
        self._retry_at = now + self._retry_wait
        self._refreshed_at = now
        yield table.own_id, self._bootstrap


class TableAsker:
    """Who asks for the table's sake. The table learns of every answer by itself."""

    def answered(self, ask: Ask, node_id: bytes, response: Response) -> None:
        """See Asker."""

    def refused(self, ask: Ask, error: ErrorMessage) -> None:
        """See Asker."""

    def silent(self, ask: Ask) -> None:
        """See Asker."""
