"""The iterative lookup of Kademlia, as a machine without I/O.

Nodes are asked, the closest to the target first, for the target and for closer nodes, until all of
the closest have answered. The closest are two sets of `CLOSEST_NODES`: of all nodes by distance,
and of those whose id fits their address (BEP-42). Who picks ids around a target can fill the first
with his nodes but hardly the second; older nodes without such ids are in the first.

A lookup never ends at the first value, because nodes hold different ones. A node that does not
answer leaves the sets, so that the next closest is asked in its stead, and holds up nobody: after
`SLOW_SECONDS` it no longer counts among the `ASKED_AT_ONCE`. At `lookup_seconds` the lookup ends
with what it has.

Contacts told by others are taken with the rule of `Address.may_name`. Of one network of the
internet (an IPv4 address, a /64 of IPv6) one is asked, and another one only when that one was not
there; of a site (a /24, a /48) `CLOSEST_PER_SITE` are among the closest.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Final, NamedTuple, Protocol

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.collectors import Collector
from hyperbloom.discovery.dht.common.contact import Contact, distance
from hyperbloom.discovery.dht.common.groups import Group, internet_network, site_key
from hyperbloom.discovery.dht.common.messages import ErrorMessage, Query, Response
from hyperbloom.discovery.dht.limits import (
    ASKED_AT_ONCE,
    CLOSEST_NODES,
    CLOSEST_PER_SITE,
    MAX_BOOTSTRAP_ADDRESSES,
    MAX_CANDIDATES,
    MAX_LOOKUP_ASKED,
    MAX_PUT_NODES,
    MAX_TOKEN_BYTES,
    TRIES_PER_NETWORK,
)

__all__ = ["SLOW_SECONDS", "Ask", "Asker", "Holder", "Lookup"]

SLOW_SECONDS: Final = 0.5


class Asker(Protocol):
    """Who is told what became of a query."""

    def answered(self, ask: Ask, node_id: bytes, response: Response) -> None:
        """The answer came; `node_id` is what its sender calls itself."""

    def refused(self, ask: Ask, error: ErrorMessage) -> None:
        """An error came instead."""

    def silent(self, ask: Ask) -> None:
        """Nothing came in time."""


class Ask(NamedTuple):
    """A query to a node; `node_id` is None where only the address is known."""

    address: Address
    node_id: bytes | None
    query: Query
    asker: Asker


class Holder(NamedTuple):
    """A node close to the target that gave a token, so that it can be put to."""

    contact: Contact
    token: bytes


class _State(Enum):
    NEW = auto()
    ASKED = auto()
    ANSWERED = auto()
    GONE = auto()


@dataclass(slots=True, kw_only=True)
class _Candidate:
    contact: Contact
    distance: int
    secure: bool
    network: Group | None
    site: Group | None
    state: _State = _State.NEW
    token: bytes | None = None


class Lookup:
    """One lookup of `collector.target`, from `now` on.

    seeds: nodes to begin with. addresses: of nodes whose ids are unknown, as at the bootstrap.
    own_id: never asked. is_secure: BEP-42's verdict on a contact. holding: what brought something
    before anybody is asked, the own store.
    """

    def __init__(
        self,
        collector: Collector,
        *,
        own_id: bytes,
        is_secure: Callable[[Contact], bool],
        seconds: float,
        now: float,
        seeds: Iterable[Contact] = (),
        addresses: Iterable[Address] = (),
        holding: int = 0,
    ) -> None:
        self.collector = collector
        self.asked = 0
        self.answered_count = 0
        self.holding = holding
        self._own_id = own_id
        self._is_secure = is_secure
        self._ends_at = now + seconds
        # By id and address: a node that gives an id a false address does not hide the true one.
        self._candidates: dict[Contact, _Candidate] = {}
        self._sorted: list[_Candidate] = []
        #: Candidates of each network of the internet, gone ones too.
        self._networks: Counter[Group] = Counter()
        #: Those of them that were asked, and are not gone.
        self._taken: Counter[Group] = Counter()
        self._unnamed = list(dict.fromkeys(addresses))[MAX_BOOTSTRAP_ADDRESSES - 1 :: -1]
        self._in_flight: dict[Address, float] = {}
        for contact in seeds:
            self._add(contact)

    # -- what to do

    def due(self, *, now: float) -> list[Ask]:
        """The queries to send now; each counts as sent."""
        room = ASKED_AT_ONCE - sum(at + SLOW_SECONDS > now for at in self._in_flight.values())
        room = min(room, MAX_LOOKUP_ASKED - self.asked)
        asks = list(islice(self._asks(), max(room, 0)))
        for ask in asks:
            self.asked += 1
            self._in_flight[ask.address] = now
            if ask.node_id is not None:
                self._become(Contact(ask.node_id, ask.address), _State.ASKED)
        return asks

    def _asks(self) -> Iterator[Ask]:
        query = self.collector.query
        while self._unnamed:
            yield Ask(self._unnamed.pop(), None, query, self)
        for candidate in self._closest():
            if candidate.state is _State.NEW and candidate.contact.address not in self._in_flight:
                yield Ask(candidate.contact.address, candidate.contact.node_id, query, self)

    def is_finished(self, *, now: float) -> bool:
        """Whether nothing more comes of it: all closest have answered, or time is up."""
        if now >= self._ends_at:
            return True
        if self._in_flight:
            return False
        return self.asked >= MAX_LOOKUP_ASKED or not (self._unnamed or self._has_new())

    def deadline(self, *, now: float) -> float:
        """When `due` or `is_finished` may say something else without an answer coming in."""
        slow = (at + SLOW_SECONDS for at in self._in_flight.values())
        return min(self._ends_at, *(at for at in slow if at > now), float("inf"))

    # -- what happened

    def answered(self, ask: Ask, node_id: bytes, response: Response) -> None:
        """A node has answered; `node_id` is what it calls itself."""
        self._in_flight.pop(ask.address, None)
        self.answered_count += 1
        self.holding += self.collector.collect(response, ask.address)
        if ask.node_id is None:
            self._add(Contact(node_id, ask.address))
        elif ask.node_id != node_id:
            # Not who was asked. What it brought has proved itself; its word counts for no more.
            self._become(Contact(ask.node_id, ask.address), _State.GONE)
            return
        candidate = self._candidates.get(Contact(node_id, ask.address))
        if candidate is not None:
            self._become(candidate.contact, _State.ANSWERED)
            if response.token is not None and len(response.token) <= MAX_TOKEN_BYTES:
                candidate.token = response.token
        # Who was reached over one family names nodes for that one; the other has no socket of ours.
        named = response.nodes6 if ask.address.is_ipv6 else response.nodes
        for contact in named or ():
            if ask.address.may_name(contact.address):
                self._add(contact)

    def refused(self, ask: Ask, error: ErrorMessage) -> None:
        """A node does not grant the query; to the lookup it is not there."""
        self.silent(ask)

    def silent(self, ask: Ask) -> None:
        """A node did not answer."""
        self._in_flight.pop(ask.address, None)
        if ask.node_id is not None:
            self._become(Contact(ask.node_id, ask.address), _State.GONE)

    # -- what came of it

    def closest(self) -> list[Contact]:
        """The closest nodes that answered, at most `CLOSEST_NODES`."""
        answered = _spread(c for c in self._sorted if c.state is _State.ANSWERED)
        return [candidate.contact for candidate in islice(answered, CLOSEST_NODES)]

    def holders(self) -> list[Holder]:
        """Nodes to put to: the closest of both kinds that answered with a token."""
        able = list(_spread(c for c in self._sorted if c.token is not None))
        wanted = able[:CLOSEST_NODES]
        lacking = CLOSEST_NODES - sum(c.secure for c in wanted)
        wanted += [c for c in able[CLOSEST_NODES:] if c.secure][:lacking]
        return [Holder(c.contact, c.token) for c in wanted[:MAX_PUT_NODES] if c.token is not None]

    # -- candidates

    def _add(self, contact: Contact) -> None:
        network = internet_network(contact.address)
        if contact in self._candidates or contact.node_id == self._own_id:
            return
        if network is not None:
            if self._networks[network] >= TRIES_PER_NETWORK:
                return
            self._networks[network] += 1
        candidate = _Candidate(
            contact=contact,
            distance=distance(contact.node_id, self.collector.target),
            secure=self._is_secure(contact),
            network=network,
            site=None if network is None else site_key(contact.address),
        )
        self._candidates[contact] = candidate
        insort(self._sorted, candidate, key=lambda each: each.distance)
        if len(self._sorted) > MAX_CANDIDATES:
            self._forget_farthest()

    def _become(self, contact: Contact, state: _State) -> None:
        candidate = self._candidates[contact]
        if candidate.network is not None:
            heard = (_State.ASKED, _State.ANSWERED)
            self._taken[candidate.network] += (state in heard) - (candidate.state in heard)
        candidate.state = state

    def _forget_farthest(self) -> None:
        for index in reversed(range(len(self._sorted))):
            if self._sorted[index].state is _State.NEW:
                gone = self._sorted.pop(index)
                del self._candidates[gone.contact]
                if gone.network is not None:
                    self._networks[gone.network] -= 1
                return

    def _closest(self) -> Iterator[_Candidate]:
        """The union of the closest of all, and of the closest that are secure."""
        secure = 0
        for plain, candidate in enumerate(_spread(self._there())):
            if plain < CLOSEST_NODES or candidate.secure:
                yield candidate
            secure += candidate.secure
            if secure == CLOSEST_NODES:
                return

    def _there(self) -> Iterator[_Candidate]:
        """Those that may be there, without second ones of a network that was asked."""
        for candidate in self._sorted:
            if candidate.state is _State.NEW:
                if candidate.network is None or not self._taken[candidate.network]:
                    yield candidate
            elif candidate.state is not _State.GONE:
                yield candidate

    def _has_new(self) -> bool:
        return any(candidate.state is _State.NEW for candidate in self._closest())


def _spread(candidates: Iterable[_Candidate]) -> Iterator[_Candidate]:
    """One of each network, and `CLOSEST_PER_SITE` of each site: the closest of them."""
    networks: set[Group] = set()
    sites: Counter[Group] = Counter()
    for candidate in candidates:
        network, site = candidate.network, candidate.site
        if network is None or site is None:
            yield candidate
        elif network not in networks and sites[site] < CLOSEST_PER_SITE:
            networks.add(network)
            sites[site] += 1
            yield candidate
