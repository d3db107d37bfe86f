"""The joint between discovery and replication: each feed as discovery sees it.

Discovery finds addresses and knows nothing of connections; replication dials addresses and does
not know where they come from. An address that is found becomes a dial here, and what replication
knows of its peers becomes what the feed's records say.

Who knows a feed's key can write records with any address in them. So that none of them has a node
of the internet dial its own machine or its neighbours, an address that a record names is dialled
only if it is no nearer than the DHT is, or than what this node itself says of where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.limits import LOW_FOUND_PORTS, LOWEST_FOUND_PORT
from hyperbloom.discovery.tracker.content import Neighbour
from hyperbloom.discovery.tracker.neighbourhood import Candidate
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.net.discovered_peers import DiscoveredPeers
from hyperbloom.replication.node import Node

__all__ = ["NodeFeed", "NodeFeeds"]

#: Values whose hashes a record names, and bytes of each hash (docs/protocol.md#record-structure).
RECENT_VALUES = 5
MESSAGE_HASH_BYTES = 32

#: Bytes read of the log for them at most: `RECENT_VALUES` of the longest values.
_RECENT_BYTES = 2_097_152


class NodeFeed:
    """The peers of one feed; a `hyperbloom.discovery.feeds.SearchedFeed`.

    `identity`: the pair by which this node proves itself to them. `seen_at` tells the host at which
    others see this node, None while nobody knows; `reach` the widest scope of the DHT nodes that
    answer.
    """

    def __init__(
        self,
        node: Node,
        feed: Feed,
        *,
        seen_at: Callable[[], str | None],
        reach: Callable[[], Scope],
    ) -> None:
        self._node = node
        self._feed = feed
        self.identity = feed.trust.identity
        self._seen_at = seen_at
        self._reach = reach

    @property
    def feed_key(self) -> bytes:
        """The feed's public key."""
        return self._feed.key

    @property
    def discovery_key(self) -> bytes:
        """What its peers name it by in the clear."""
        return self._feed.discovery_key

    @property
    def _found(self) -> DiscoveredPeers | None:
        return self._node.discovered.get(self._feed.key)

    def neighbours(self) -> Sequence[Neighbour]:
        """The peers with a secure connection, and where they are known to listen."""
        found = self._found
        return [
            Neighbour(
                node_id=key,
                addresses=_dialable(found.addresses_of(key) if found else ()),
            )
            for key in self._feed.peers.keys
        ]

    def own_addresses(self) -> Sequence[Address]:
        """Where others can dial this node: as configured, else listeners, else where it is seen."""
        named = _dialable(self._node.addresses())
        host, port = self._seen_at(), self.own_port()
        if named or host is None or port is None:
            return named
        return _dialable([Address(host, port)])

    def own_port(self) -> int | None:
        """The TCP port that others can dial, None if this node only dials."""
        for address in (*self._node.addresses(), *self._node.listening()):
            return address.port
        return None

    def recent_message_hashes(self) -> Sequence[bytes]:
        """SHA-512(value)[:32] of the last values that arrived, the oldest first."""
        store, top = self._node.store, self._feed.values.top_seq
        latest = store.log_slice(
            self._feed.key,
            max(0, top - RECENT_VALUES),
            limit=RECENT_VALUES,
            max_bytes=_RECENT_BYTES,
        )
        return [
            hashlib.sha512(record.value).digest()[:MESSAGE_HASH_BYTES] for record in latest.records
        ]

    def is_joined(self) -> bool:
        """Whether there is a peer."""
        return bool(self._feed.peers)

    def join(self, candidate: Candidate) -> None:
        """Dial a node that a record names, where the record says it is."""
        found = self._found
        if found is None or self._node.context.is_own(candidate.node_id):
            return
        nearest = min([self._reach(), *(own.scope for own in self.own_addresses())])
        for address in candidate.addresses:
            if address.scope >= nearest and _may_be_dialled(address):
                found.add(address, key=candidate.node_id, source="tracker")

    def found(self, address: Address, *, source: str) -> None:
        """Dial an address at which somebody said that a peer is."""
        found = self._found
        if found is not None and _may_be_dialled(address):
            found.add(address, source=source)

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` when the first peer has come or the last has gone."""
        was_joined = self.is_joined()

        def peers_changed() -> None:
            nonlocal was_joined
            before, was_joined = was_joined, self.is_joined()
            if before != was_joined:
                changed()

        return self._feed.peers.when_changed(peers_changed)


class NodeFeeds:
    """The feeds that peers are to be found for: those that this node may take part in.

    One that it owns is one of them once it is in use. A feed that was left and joined again is new,
    and so is one whose key has come to this node or left it.
    """

    def __init__(
        self, node: Node, *, seen_at: Callable[[], str | None], reach: Callable[[], Scope]
    ) -> None:
        self._node = node
        self._seen_at = seen_at
        self._reach = reach
        self._searched: dict[bytes, tuple[Feed, NodeFeed]] = {}

    def __call__(self) -> Mapping[bytes, NodeFeed]:
        """The feeds of this moment, by key."""
        wanted = {feed.key: feed for feed in self._node.feeds.values() if self._is_wanted(feed)}
        for key, (feed, searched) in list(self._searched.items()):
            if wanted.get(key) is not feed or searched.identity != feed.trust.identity:
                del self._searched[key]
        for key, feed in wanted.items():
            if key not in self._searched:
                searched = NodeFeed(self._node, feed, seen_at=self._seen_at, reach=self._reach)
                self._searched[key] = feed, searched
        return {key: searched for key, (_, searched) in self._searched.items()}

    def _is_wanted(self, feed: Feed) -> bool:
        if not self._node.is_in_use(feed):
            return False
        return feed.trust.chain is not None


def _dialable(addresses: Iterable[Address]) -> tuple[Address, ...]:
    """Those that a record may name: host names and what nobody can dial are left out."""
    return tuple(address for address in addresses if address.is_dialable)


def _may_be_dialled(address: Address) -> bool:
    """Whether a stranger's word is enough to dial an address: somebody can be there, at this port.

    Who may name an address this near is decided before: by `Address.may_name` for what nodes of the
    DHT say, by `discovery.lan` for multicast DNS, by `join` for records.
    """
    is_open = address.port >= LOWEST_FOUND_PORT or address.port in LOW_FOUND_PORTS
    return is_open and address.is_dialable
