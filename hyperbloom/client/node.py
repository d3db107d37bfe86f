"""What a client asks of the node itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hyperbloom.client.requests import feed_path, key_path, with_query
from hyperbloom.client.transport import Transport

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import (
        HistoryForm,
        HistorySpan,
        NoiseKeyForm,
        PingForm,
        SessionOfferForm,
        WorkForm,
    )
    from hyperbloom.api.schemas.status import NodeStatusForm, PeerStatusForm

__all__ = ["NodeRequests"]


class NodeRequests(Transport):
    """Status, peers, discovery, snapshots and the configuration of the node."""

    def ping(self) -> PingForm:
        """pid, version and identity of the node."""
        return cast("PingForm", self.ask("GET", "/v1/ping"))

    def status(self) -> NodeStatusForm:
        """The node's status, see `hyperbloom.replication.status.NodeStatus`."""
        return cast("NodeStatusForm", self.ask("GET", "/v1/status"))

    def peers(self) -> list[PeerStatusForm]:
        """Every peer, see `hyperbloom.replication.status.PeerStatus`."""
        return cast("list[PeerStatusForm]", self.ask("GET", "/v1/peers")["peers"])

    def history(self, span: HistorySpan = "hours", feed: str | None = None) -> HistoryForm:
        """What the node was like: the last hours by the minute, or a `week` by ten minutes."""
        path = with_query("/v1/history", span=span, feed=feed)
        return cast("HistoryForm", self.ask("GET", path))

    def noise_keys(self) -> list[NoiseKeyForm]:
        """The keys that have spoken `noise`, those met longest ago first."""
        return cast("list[NoiseKeyForm]", self.ask("GET", "/v1/noise")["keys"])

    def forget_noise(self, key: bytes | str) -> Mapping[str, Any]:
        """Has the node speak to a key without `noise` again; `key`, `was_remembered`."""
        return self.ask("DELETE", key_path("/v1/noise", key))

    def discovery(self, feed: str | None = None) -> Mapping[str, Any]:
        """The search for a feed's peers: `enabled`, `dht`, `tracker`, `swarm`, `lan`, `found`."""
        return self.ask("GET", feed_path(feed, "/discovery"))

    def snapshot(self, target: Path) -> Mapping[str, Any]:
        """Takes a snapshot into a new folder (an absolute path, seen from the node)."""
        return self.ask("POST", "/v1/snapshots", {"target": str(target)})

    def verify(self) -> Mapping[str, Any]:
        """Walks the node's store: `ok`, `problems`, `values`."""
        return self.ask("POST", "/v1/verify", {})

    def work(self) -> list[WorkForm]:
        """What the node does for requests that take long, and how far each is."""
        return cast("list[WorkForm]", self.ask("GET", "/v1/work")["work"])

    def reload(self) -> Mapping[str, Any]:
        """Has the node read its configuration anew: `changed` and `needs_restart`."""
        return self.ask("POST", "/v1/reload", {})

    def offer_session(self) -> SessionOfferForm:
        """A link to the status page that lets one browser in, once and soon."""
        return cast("SessionOfferForm", self.ask("POST", "/v1/sessions", {}))
