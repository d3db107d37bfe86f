"""What discovery knows of the node's feeds, and what it tells about each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hyperbloom.addresses import Address
from hyperbloom.discovery.announcer import AnnouncerStatus
from hyperbloom.discovery.tracker.neighbourhood import Neighbourhood
from hyperbloom.discovery.tracker.status import TrackerStatus
from hyperbloom.keys import Identity

__all__ = ["FeedDiscoveryStatus", "SearchedFeed", "SearchedFeeds"]


class SearchedFeed(Neighbourhood, Protocol):
    """The peers of one feed. No method may block or raise."""

    @property
    def feed_key(self) -> bytes:
        """The feed's public key."""
        ...

    @property
    def identity(self) -> Identity:
        """The pair by which this node proves itself to them, and signs its records."""
        ...

    @property
    def discovery_key(self) -> bytes:
        """What its peers name it by in the clear."""
        ...

    def own_port(self) -> int | None:
        """The TCP port at which this node can be dialled, None if it does not listen."""
        ...

    def found(self, address: Address, *, source: str) -> None:
        """Somebody said that a peer is there; `source` is one word for people."""
        ...


class SearchedFeeds(Protocol):
    """The feeds that peers are to be found for at this moment, by public key."""

    def __call__(self) -> Mapping[bytes, SearchedFeed]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedDiscoveryStatus:
    """How the search for a feed's peers is doing."""

    feed: bytes
    tracker: TrackerStatus
    swarm: AnnouncerStatus | None

    def as_json(self) -> dict[str, Any]:
        """For JSON: bytes as hex."""
        return {
            "feed": self.feed.hex(),
            "tracker": self.tracker.as_json(),
            "swarm": None if self.swarm is None else self.swarm.as_json(),
        }
