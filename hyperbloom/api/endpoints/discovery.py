"""Endpoints about finding peers: the DHT node, and the search for each feed's peers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyperbloom.api.http.request import Answer, Call
from hyperbloom.api.schemas.flat import flat_json
from hyperbloom.api.served import ServedDiscovery

__all__ = ["discovery_of", "show_discovery", "show_feed_discovery"]


def discovery_of(discovery: ServedDiscovery | None) -> dict[str, Any]:
    """Discovery as it stands; `enabled` false and nothing else where it is off."""
    if discovery is None:
        return {"enabled": False}
    return {"enabled": True, **flat_json(discovery.status().as_json())}


def show_discovery(call: Call) -> Answer:
    """The DHT node, multicast DNS, and the search for each feed's peers."""
    return discovery_of(call.context.discovery)


def show_feed_discovery(call: Call) -> Answer:
    """The search for one feed's peers, and what became of each address that was found."""
    feed = call.feed()
    form = discovery_of(call.context.discovery)
    searches = {search["feed"]: search for search in form.pop("feeds", ())}
    found = call.node.discovered.get(feed.key)
    search: Mapping[str, Any] = searches.get(feed.key.hex(), {"tracker": None, "swarm": None})
    return {
        **form,
        **search,
        "feed": feed.key.hex(),
        "found": [flat_json(one.as_json()) for one in (found.status() if found else ())],
    }
