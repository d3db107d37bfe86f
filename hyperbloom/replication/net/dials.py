"""Whom a node dials about each feed: the addresses of its settings, and those that were found."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from hyperbloom.addresses import Address
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.net.admission import Admission
from hyperbloom.replication.net.dialer import Dialer
from hyperbloom.replication.net.discovered_peers import DiscoveredPeers
from hyperbloom.replication.sync.peer import Peering

__all__ = ["Dials"]


class Dials:
    """The dialers of all feeds that take part, from `begin` to `end` of each."""

    def __init__(self, connections: Admission) -> None:
        self._connections = connections
        #: The dialers of each feed, by the address as its settings write it.
        self._dialers: dict[bytes, dict[str, Dialer]] = {}
        #: The found peers of each feed, by the feed's key.
        self.discovered: dict[bytes, DiscoveredPeers] = {}

    def begin(self, feed: Feed) -> None:
        """Dial whom the feed's settings name, and who was found."""
        dialers = {
            text: Dialer(self._connections, feed, Address.parse(text))
            for text in feed.settings.peers
        }
        self._dialers[feed.key] = dialers
        for dialer in dialers.values():
            dialer.start()
        found = DiscoveredPeers(
            self._connections,
            feed,
            skip=frozenset(dialer.address for dialer in dialers.values()),
            configured=lambda: {dialer.answered for dialer in dialers.values()},
        )
        self.discovered[feed.key] = found
        found.start()

    def end(self, feed_key: bytes) -> Deferred[list[Any]]:
        """Dial nobody about a feed any more; fires when what was dialled is closed."""
        dialers = self._dialers.pop(feed_key, {})
        stopping: list[Deferred[Any]] = [one.stop() for one in dialers.values()]
        if feed_key in self.discovered:
            stopping.append(self.discovered.pop(feed_key).stop())
        return gatherResults(stopping)

    def end_all(self) -> Deferred[list[Any]]:
        """The same for all feeds."""
        return gatherResults([self.end(key) for key in list(self._dialers)])

    def forget_denied(self) -> None:
        """The deny list has grown: dial those no more that led to a denied key."""
        for found in self.discovered.values():
            found.forget_denied()

    def answering(self, feed_key: bytes) -> dict[str, Peering | None]:
        """The addresses of a feed's settings, and who answers there now."""
        dialers = self._dialers.get(feed_key, {})
        return {text: dialer.peering for text, dialer in dialers.items()}

    def has_met(self, key: bytes) -> bool:
        """Whether a key has answered at an address of the settings."""
        return any(one.answered == key for some in self._dialers.values() for one in some.values())

    def problem(self, feed_key: bytes) -> str | None:
        """Why addresses of a feed's settings do not answer; None: all do, or there are none."""
        problems = [
            f"{one.address}: {one.last_problem}"
            for one in self._dialers.get(feed_key, {}).values()
            if one.last_problem
        ]
        return "; ".join(problems) or None
