"""The nodes a node knows: many close to its own id, few far away (Kademlia; BEP-5).

A bucket holds up to `BUCKET_NODES` nodes whose ids share a given number of leading bits with ours,
and differ in the next. Who has answered stays as long as it goes on answering, because a node that
has been up for long is likely to stay: a newcomer waits as a spare until a place is free. A node is

    good           it answered us and has been heard from within `FRESH_SECONDS`
    questionable   it has been silent for longer, or was only read from a saved table: ask it
    bad            `BAD_FAILURES` queries in a row went unanswered: told to nobody, replaced by a
                   spare at once, and forgotten after `LAST_FAILURES`, so that a network that was
                   away for some minutes does not empty the table

Nobody gets in by sending us something; a node is listed when it has answered a query of ours. Of
one network of the internet (an IPv4 address, a /64 of IPv6) only one node is listed, and one waits
for a place in a bucket, so that many ids or addresses of one machine gain nothing. Of a site (a
/24, a /48) `TABLE_NODES_PER_SITE` are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hyperbloom.discovery.dht.common.contact import ID_BITS, Contact
from hyperbloom.discovery.dht.common.groups import Group, internet_network, site_key
from hyperbloom.discovery.dht.common.node_id import is_secure
from hyperbloom.discovery.dht.limits import BUCKET_NODES, MAX_SPARES, TABLE_NODES_PER_SITE

__all__ = ["FRESH_SECONDS", "PING_SECONDS", "REFRESH_SECONDS", "KnownNode", "RoutingTable"]

FRESH_SECONDS: Final = 900.0
REFRESH_SECONDS: Final = 900.0
"""A bucket in which nothing was looked up for so long is refreshed by a lookup."""
PING_SECONDS: Final = 300.0
"""A node not heard from for so long is asked whether it is still there."""
BAD_FAILURES: Final = 2
LAST_FAILURES: Final = 5


@dataclass(slots=True, kw_only=True)
class KnownNode:
    """A node, and how it has answered so far. Times are in seconds of the caller's clock."""

    contact: Contact
    number: int
    secure: bool
    heard_at: float
    has_answered: bool
    failures: int = 0
    asked_at: float = float("-inf")

    @property
    def is_bad(self) -> bool:
        """Whether it is to be told to nobody."""
        return self.failures >= BAD_FAILURES

    @property
    def is_there(self) -> bool:
        """Whether it has answered since the start, and is not bad."""
        return self.has_answered and not self.is_bad

    def is_good(self, *, now: float) -> bool:
        """Whether it is surely there."""
        return self.has_answered and not self.failures and now - self.heard_at < FRESH_SECONDS


class _Bucket:
    __slots__ = ("looked_up_at", "nodes", "spares")

    def __init__(self) -> None:
        self.nodes: list[KnownNode] = []
        self.spares: list[Contact] = []
        self.looked_up_at = float("-inf")


class RoutingTable:
    """The nodes known to the node `own_id`; see the module's text."""

    def __init__(self, own_id: bytes, *, exempt_local: bool = True) -> None:
        self.own_id = own_id
        self._own = int.from_bytes(own_id, "big")
        self._exempt_local = exempt_local
        # By the number of bits in which ids may differ from ours; made when first needed.
        self._buckets: list[_Bucket | None] = [None] * (ID_BITS + 1)
        self._known: dict[bytes, KnownNode] = {}
        #: Nodes of the internet, by network; and how many of each site there are.
        self._networks: dict[Group, KnownNode] = {}
        self._sites: Counter[Group] = Counter()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, contact: Contact) -> bool:
        node = self._known.get(contact.node_id)
        return node is not None and node.contact == contact

    def nodes(self) -> Iterator[KnownNode]:
        """All that are listed, far ones last."""
        for bucket in filter(None, self._buckets):
            yield from bucket.nodes

    def good(self, *, now: float) -> int:
        """How many are good."""
        return sum(node.is_good(now=now) for node in self._known.values())

    def closest(self, target: bytes, count: int) -> list[Contact]:
        """Up to `count` nodes that are not bad, the closest to `target` first."""
        number = int.from_bytes(target, "big")
        found: list[KnownNode] = []
        for group in self._by_distance(number):
            fitting = [node for node in group if not node.is_bad]
            fitting.sort(key=lambda node: node.number ^ number)
            found += fitting
            if len(found) >= count:
                break
        return [node.contact for node in found[:count]]

    def _by_distance(self, target: int) -> Iterator[list[KnownNode]]:
        """Groups of nodes, each closer to the target than the next.

        Those that differ from us first where the target does are closest to it, then those that
        are closer to us than it, then bucket by bucket outwards.
        """
        index = (self._own ^ target).bit_length()
        own = self._buckets[index]
        yield [] if own is None else own.nodes
        yield [node for bucket in filter(None, self._buckets[:index]) for node in bucket.nodes]
        for bucket in filter(None, self._buckets[index + 1 :]):
            yield bucket.nodes

    # -- what happened

    def wants(self, contact: Contact) -> bool:
        """Whether a node that is not listed would get a place, if it answered."""
        if contact.node_id in self._known or not self._is_possible(contact):
            return False
        bucket = self._bucket(contact.node_id)
        return len(bucket.nodes) < BUCKET_NODES or any(node.is_bad for node in bucket.nodes)

    def answered(self, contact: Contact, *, now: float) -> None:
        """A node answered a query of ours: it is listed, or waits for a place."""
        node = self._known.get(contact.node_id)
        if node is None:
            self._enter(contact, now=now)
        elif node.contact == contact:
            node.heard_at, node.has_answered, node.failures = now, True, 0
        elif node.is_bad:
            # It has moved. While the one we know still answers, nobody takes its id.
            self._drop(node)
            self._enter(contact, now=now)

    def heard(self, contact: Contact, *, now: float) -> None:
        """A node asked us something, which keeps it good if it once answered."""
        node = self._known.get(contact.node_id)
        if node is not None and node.contact == contact:
            node.heard_at = now

    def silent(self, contact: Contact) -> None:
        """A node did not answer a query of ours."""
        node = self._known.get(contact.node_id)
        if node is None or node.contact != contact:
            return
        node.failures += 1
        if node.failures >= LAST_FAILURES or (node.is_bad and self._bucket(contact.node_id).spares):
            self._drop(node)
            self._fill(self._bucket(contact.node_id), now=node.heard_at)

    def restore(self, contact: Contact, *, now: float) -> None:
        """List a node of a saved table as questionable, if there is room."""
        if self.wants(contact):
            self._add(contact, now=now - FRESH_SECONDS, has_answered=False)

    def looked_up(self, target: bytes, *, now: float) -> None:
        """A lookup of this target is made: its bucket needs no refreshing for a while."""
        self._bucket(target).looked_up_at = now

    # -- what is to be done

    def to_ping(self, *, now: float, count: int) -> list[Contact]:
        """Up to `count` nodes to ask whether they are there; each is named once for a while."""
        due = [
            node
            for node in self._known.values()
            if now - max(node.heard_at, node.asked_at) >= PING_SECONDS
        ][:count]
        for node in due:
            node.asked_at = now
        return [node.contact for node in due]

    def to_refresh(self, *, now: float) -> list[int]:
        """Indexes of buckets that have nodes and were long not looked up."""
        return [
            index
            for index, bucket in enumerate(self._buckets)
            if bucket and bucket.nodes and now - bucket.looked_up_at >= REFRESH_SECONDS
        ]

    def id_in(self, index: int, random_id: bytes) -> bytes:
        """An id in a bucket, made from 20 random bytes."""
        low = int.from_bytes(random_id, "big") & ((1 << (index - 1)) - 1)
        return (self._own ^ (1 << (index - 1)) ^ low).to_bytes(ID_BITS // 8, "big")

    def moved_to(self, own_id: bytes) -> RoutingTable:
        """The same nodes around another id of ours, as far as they find room."""
        table = RoutingTable(own_id, exempt_local=self._exempt_local)
        for node in self._known.values():
            if table.wants(node.contact):
                table._list(node)
        return table

    def keep_family(self, *, ipv6: bool) -> None:
        """Forget the nodes of the other family of addresses, those that wait for a place too."""
        for node in list(self._known.values()):
            if node.contact.address.is_ipv6 != ipv6:
                self._drop(node)
        for bucket in filter(None, self._buckets):
            bucket.spares = [c for c in bucket.spares if c.address.is_ipv6 == ipv6]

    # -- places

    def _bucket(self, node_id: bytes) -> _Bucket:
        index = (self._own ^ int.from_bytes(node_id, "big")).bit_length()
        bucket = self._buckets[index]
        if bucket is None:
            bucket = self._buckets[index] = _Bucket()
        return bucket

    def _is_possible(self, contact: Contact) -> bool:
        """Not us, and no second node of a network of the internet, nor one too many of a site."""
        if contact.node_id == self.own_id:
            return False
        network = internet_network(contact.address)
        if network is None:
            return True
        same = self._networks.get(network)
        if same is not None:
            return same.is_bad
        return self._sites[site_key(contact.address)] < TABLE_NODES_PER_SITE

    def _enter(self, contact: Contact, *, now: float) -> None:
        if not self._is_possible(contact):
            return
        bucket = self._bucket(contact.node_id)
        if len(bucket.nodes) >= BUCKET_NODES and not self._make_room(bucket, contact):
            _put_in_front(bucket.spares, contact)
            return
        self._add(contact, now=now)

    def _make_room(self, bucket: _Bucket, newcomer: Contact) -> bool:
        """Drop a bad node, or for a node whose id fits its address one whose id does not."""
        secure = self._is_secure(newcomer)
        for node in _worst_first(bucket.nodes):
            if node.is_bad or (secure and not node.secure):
                self._drop(node)
                return True
        return False

    def _fill(self, bucket: _Bucket, *, now: float) -> None:
        """Give a free place to the newest spare. It answered once, and is questionable now."""
        while bucket.spares and len(bucket.nodes) < BUCKET_NODES:
            contact = bucket.spares.pop(0)
            if contact.node_id not in self._known and self._is_possible(contact):
                self._add(contact, now=now, has_answered=False)

    def _add(self, contact: Contact, *, now: float, has_answered: bool = True) -> None:
        self._list(
            KnownNode(
                contact=contact,
                number=int.from_bytes(contact.node_id, "big"),
                secure=self._is_secure(contact),
                heard_at=now,
                has_answered=has_answered,
            )
        )

    def _list(self, node: KnownNode) -> None:
        network = internet_network(node.contact.address)
        if network is not None:
            # One of this network that is there has come in place of one that is not any more.
            gone = self._networks.get(network)
            if gone is not None:
                self._drop(gone)
            self._networks[network] = node
            self._sites[site_key(node.contact.address)] += 1
        self._bucket(node.contact.node_id).nodes.append(node)
        self._known[node.contact.node_id] = node

    def _drop(self, node: KnownNode) -> None:
        self._bucket(node.contact.node_id).nodes.remove(node)
        del self._known[node.contact.node_id]
        network = internet_network(node.contact.address)
        if network is not None:
            del self._networks[network]
            site = site_key(node.contact.address)
            self._sites[site] -= 1
            if not self._sites[site]:
                del self._sites[site]

    def _is_secure(self, contact: Contact) -> bool:
        return is_secure(contact.node_id, contact.address.host, exempt_local=self._exempt_local)


def _put_in_front(spares: list[Contact], contact: Contact) -> None:
    """Let it wait in front of the others, in place of the one of its network."""
    network = internet_network(contact.address)
    others = [
        spare
        for spare in spares
        if spare != contact and (network is None or internet_network(spare.address) != network)
    ]
    spares[:] = [contact, *others][:MAX_SPARES]


def _worst_first(nodes: Iterable[KnownNode]) -> list[KnownNode]:
    return sorted(nodes, key=lambda node: (-node.failures, node.secure, node.heard_at))
