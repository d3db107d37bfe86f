"""A fake node with many feeds, peers and members, for the status page."""

from __future__ import annotations

import hashlib
import time

from fake_node import FakeNode, a_peer
from serving import ReactorThread, ServedOverTcp

from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import Member, issue_link

DAY = 86_400.0
ALIASES = (
    "blocklist",
    "sightings",
    "tree-heads",
    "bans",
    "field-notes",
    "domains",
    "keys",
    "mirrors",
)


class FakeDiscovery:
    """A search that has found what it looked for."""

    def status(self) -> FakeDiscovery:
        return self

    def as_json(self) -> dict[str, object]:
        return {
            "dht": {
                "nodes": 142, "good_nodes": 128, "items": 17, "operations": 2, "server": True,
                "external_address": "198.51.100.20:4365", "counts": {"asked": 4},
            },
            "lan": {"interfaces": ["192.0.2.5"], "announced": 1, "heard": 2, "problem": None},
            "feeds": [],
        }  # fmt: skip


class Crowded(ServedOverTcp):
    """A fake node with many of everything, served."""

    def __init__(self, reactor: ReactorThread, *, feeds: int, peers: int) -> None:
        super().__init__(reactor)
        fill(self.node, feeds=feeds, peers=peers)

    def shown(self) -> dict[str, object]:
        return {**super().shown(), "discovery": FakeDiscovery()}


def key(*parts: object) -> bytes:
    """A made-up key."""
    return hashlib.sha256(repr(parts).encode()).digest()


def members(node: FakeNode, feed: bytes, number: int) -> list[Member]:
    """A tree of members, five links deep at most; this node is one of them."""
    now = time.time()
    found = [
        Member(key=node.identity.public_key, depth=1, introduced_by=feed, expires=now + 90 * DAY)
    ]
    for i in range(1, number):
        parent = found[(i - 1) // 12] if i > 5 else None
        if parent is not None and parent.depth >= 5:
            parent = None
        found.append(
            Member(
                key=key(feed, i),
                depth=1 if parent is None else parent.depth + 1,
                introduced_by=feed if parent is None else parent.key,
                expires=now + (3 if i % 9 == 4 else 30 + i % 50) * DAY,
            )
        )
    return found


def fill(node: FakeNode, *, feeds: int, peers: int) -> None:
    """Fill a fake node; the first joined feed has most of the peers, all of them its members."""
    now = time.time()
    node.connected = []
    node.sizes = {
        "map_bytes": 1 << 30, "used_bytes": 412 << 20, "free_bytes": 37 << 20,
        "file_bytes": 412 << 20,
    }  # fmt: skip
    for i in range(feeds - 1):
        alias = ALIASES[i] if i < len(ALIASES) else f"feed-{i:03d}"
        owner = Identity(key("feed", i))
        feed = node.add(FeedSettings(key=owner.public_key, alias=alias))
        link = issue_link(owner, node.identity.public_key, expires=now + 90 * DAY, nonce=bytes(32))
        feed.add_links([link.to_bytes()])
        feed.ordered = [b"%08d" % n for n in range((i + 7) ** 2 % 509)]
        joined = members(node, feed.key, max(2, peers if i == 0 else 12))
        feed.members = lambda joined=joined: joined
    first = node.feeds[Identity(key("feed", 0)).public_key]
    others = [feed for feed in node.feeds.values() if feed is not first][1:]
    for i in range(peers):
        feed = first if i % 10 or not others else others[i // 10 % len(others)]
        asked = now - 5 - i % 50
        node.connected.append(
            a_peer(
                feed.key,
                address=f"198.51.{i // 250 % 250}.{i % 250}:4365",
                outgoing=i % 3 == 0,
                protected=i % 7 > 0,
                key=key(first.key, i),
                id=key("id", i),
                expires=now + (30 + i % 50) * DAY,
                since=now - 60 * i - 100,
                values_in=i * 37,
                values_out=i * 11,
                last_sync_sent=None if i % 40 == 7 else asked,
                last_new=asked + 1 if i % 25 == 3 else None,
            )
        )
