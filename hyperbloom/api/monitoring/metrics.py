"""What a monitoring system reads: the node's figures in the text format of Prometheus.

Nothing is counted for this: the node's parts keep plain numbers, and a scrape turns them into
samples. Names and types follow the conventions of Prometheus: base units, `_total` for what only
grows, moments as seconds since 1970 under `_timestamp_seconds`. Feeds go by alias, or the first
digits of their keys. Labels hold words of our own and feeds of the operator's, never what a peer
chose; counters of known kinds are there from the start at 0, so that their first event counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from hyperbloom import __version__
from hyperbloom.connections.close_reason import FEED_KINDS

if TYPE_CHECKING:
    from pathlib import Path

    from hyperbloom.api.monitoring.reactor_lag import LagMeter
    from hyperbloom.api.served import (
        ServedDiscovery,
        ServedIntegrations,
        ServedNode,
        ServedObjects,
    )
    from hyperbloom.connections.bandwidth import RateFigures
    from hyperbloom.integrations.status import IntegrationStatus
    from hyperbloom.replication.status import FeedTraffic, NodeTraffic
    from hyperbloom.store.histogram import Histogram

__all__ = ["ExportCollector", "NodeCollector", "make_registry"]

#: How peers are asked for what differs: the ways of `SyncRound`.
ROUND_WAYS = ("sketch", "salted sketch", "filters", "empty filter")

#: Why values of peers are kept out.
REFUSED_REASONS = ("forgotten", "full", "too-long")

#: What the DHT node counts.
DHT_EVENTS = (
    "answers", "asked", "errors", "ignored", "malformed", "not_sent", "queries", "received",
    "replies_shortened", "replies_withheld", "sent", "too_many", "unanswered", "unasked",
)  # fmt: skip

#: Digits of a key that tell a feed without an alias from others.
KEY_DIGITS = 16

_FEED_COUNTERS = (
    ("values_in", "hyperbloom_values_received", "Values that peers sent."),
    ("values_new", "hyperbloom_values_stored", "Values of peers that were new and are stored."),
    ("values_out", "hyperbloom_values_sent", "Values sent to peers."),
    ("syncs_sent", "hyperbloom_syncs_sent", "Syncs sent, one for each filter."),
    ("syncs_received", "hyperbloom_syncs_received", "Syncs that peers sent."),
    ("sync_seconds", "hyperbloom_sync_seconds", "Time spent on making filters, in seconds."),
    ("values_tested", "hyperbloom_sync_tested", "Values tested against filters of peers."),
    ("sketches_asked", "hyperbloom_sketches_asked", "Tries by symbols that this node began."),
    ("sketch_symbols", "hyperbloom_sketch_symbols", "Symbols that peers sent."),
    ("sketch_bytes", "hyperbloom_sketch_bytes", "Bytes sent to ask and answer by symbols."),
    (
        "sketch_differences",
        "hyperbloom_sketch_differences",
        "Values found that one side lacked.",
    ),
    ("ids_told", "hyperbloom_ids_told", "Ids told to peers in place of values."),
    ("values_pulled", "hyperbloom_values_pulled", "Values asked of peers that told their ids."),
    ("retained_out", "hyperbloom_retention_forgotten", "Values that retention has forgotten."),
)
_FEED_GAUGES = (
    ("count", "hyperbloom_feed_values", "Values here."),
    ("bytes", "hyperbloom_feed_bytes", "Bytes of the values here."),
    ("peers", "hyperbloom_feed_peers", "Secure connections about the feed."),
    (
        "peers_in_sync",
        "hyperbloom_feed_peers_in_sync",
        "Those of them that held the same values when last compared.",
    ),
    (
        "peers_differing",
        "hyperbloom_feed_peers_differing",
        "Those of them that did not hold the same values when last compared.",
    ),
    (
        "peers_unprotected",
        "hyperbloom_feed_peers_unprotected",
        "Those of them whose streams are not protected by noise.",
    ),
    ("trusted", "hyperbloom_feed_trusted", "1 while this node may write to the feed."),
    (
        "chain_expires",
        "hyperbloom_feed_chain_expiry_timestamp_seconds",
        "When the chain of links ends by which this node may write; no sample: never.",
    ),
    ("issued_links", "hyperbloom_feed_issued_links", "Keys with a link of this node that holds."),
    (
        "issued_expire",
        "hyperbloom_feed_issued_link_expiry_timestamp_seconds",
        "When the first of these links ends; no sample: never.",
    ),
    ("forgotten", "hyperbloom_feed_forgotten_values", "Forgotten values that are kept aside."),
    (
        "forgotten_hashes",
        "hyperbloom_feed_forgotten_hashes",
        "Forgotten values that are known by their hashes alone.",
    ),
)
_STORE_GAUGES = (
    ("map_bytes", "The size of the store's map, which grows by itself while the disk has room."),
    ("used_bytes", "Pages ever used."),
    ("free_bytes", "Pages used once and free now."),
    ("file_bytes", "The size of the store's file."),
)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by_label(name: str, text: str, label: str, counts: Iterable[tuple[str, float]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for kind, count in counts:
        family.add_metric([kind], count)
    return family


def _histogram(name: str, text: str, found: Histogram) -> Metric:
    counts = found.cumulative()
    buckets = [(str(bound), n) for bound, n in zip(found.bounds, counts, strict=False)]
    return HistogramMetricFamily(
        name, text, buckets=[*buckets, ("+Inf", counts[-1])], sum_value=found.total
    )


def _by_way(counts: Mapping[str, int]) -> dict[str, int]:
    return {**dict.fromkeys(ROUND_WAYS, 0), **counts}


#: Name, text, the label beside the feed's, and the counts of a feed by that label.
_FEED_COUNTERS_BY_LABEL: tuple[
    tuple[str, str, str, Callable[[FeedTraffic], Mapping[str, int]]], ...
] = (
    (
        "hyperbloom_values_refused",
        "Values of peers kept out.",
        "reason",
        lambda feed: {**dict.fromkeys(REFUSED_REASONS, 0), **feed.kept_out},
    ),
    (
        "hyperbloom_sync_rounds",
        "How often a peer was asked for what differs.",
        "way",
        lambda feed: _by_way(feed.rounds),
    ),
    (
        "hyperbloom_sync_round_bytes",
        "Bytes of these questions, and of the symbols that answered them.",
        "way",
        lambda feed: _by_way(feed.round_bytes),
    ),
)


def _last_syncs(named: Iterable[tuple[str, FeedTraffic]]) -> Metric:
    """Of the feeds that others take part in: nobody waits for a sync of the other ones."""
    family = GaugeMetricFamily(
        "hyperbloom_feed_last_sync_timestamp_seconds",
        "When a peer was last compared with or answered; 0: not since the start.",
        labels=["feed"],
    )
    for label, feed in named:
        if feed.is_shared:
            family.add_metric([label], feed.last_sync)
    return family


class NodeCollector(Collector):
    """The node's figures at the moment of a scrape."""

    def __init__(
        self,
        node: ServedNode,
        *,
        lag: LagMeter,
        discovery: ServedDiscovery | None = None,
        objects: ServedObjects | None = None,
        integrations: ServedIntegrations | None = None,
    ) -> None:
        self._node = node
        self._lag = lag
        self._discovery = discovery
        self._objects = objects
        self._integrations = integrations

    def collect(self) -> Iterator[Metric]:
        """Every family, each with all of its samples."""
        traffic = self._node.traffic()
        yield InfoMetricFamily("hyperbloom", "The program.", {"version": __version__})
        yield from self._connections(traffic)
        yield from self._feeds(traffic.feeds)
        yield from self._store(traffic)
        yield _histogram(
            "hyperbloom_reactor_lag_seconds", "How late the reactor is.", self._lag.seconds
        )
        if self._discovery is not None:
            yield from _discovery(self._discovery.status().as_json())
        if self._objects is not None:
            yield from _objects(self._objects.status().as_json())
        if self._integrations is not None:
            yield from _integrations(self._integrations.statuses())

    @staticmethod
    def _connections(traffic: NodeTraffic) -> Iterator[Metric]:
        yield _gauge("hyperbloom_start_time_seconds", "When the node started.", traffic.started)
        open_now = GaugeMetricFamily(
            "hyperbloom_connections", "Connections that are open.", labels=["state"]
        )
        open_now.add_metric(["secure"], traffic.secure)
        open_now.add_metric(["handshake"], traffic.connections - traffic.secure)
        yield open_now
        yield _by_label(
            "hyperbloom_connections_opened",
            "Connections that came about.",
            "way",
            (("dialled", traffic.dialled), ("accepted", traffic.accepted)),
        )
        yield _by_label(
            "hyperbloom_connections_secured",
            "Connections that became secure, in a stream protected by noise or plain.",
            "stream",
            (("protected", traffic.secured_protected), ("plain", traffic.secured_plain)),
        )
        yield _by_label(
            "hyperbloom_connections_refused",
            "Connections that this node closed, by reason.",
            "reason",
            sorted({**dict.fromkeys(FEED_KINDS, 0), **traffic.closed}.items()),
        )
        yield _gauge("hyperbloom_denied_keys", "Keys on the deny list.", traffic.denied)
        yield _counter("hyperbloom_strikes", "Violations of the protocol.", traffic.strikes)
        yield _counter("hyperbloom_received_bytes", "Bytes that peers sent.", traffic.bytes_in)
        yield _counter("hyperbloom_sent_bytes", "Bytes sent to peers.", traffic.bytes_out)
        yield from _rates(("in", traffic.receiving), ("out", traffic.sending))

    @staticmethod
    def _feeds(feeds: tuple[FeedTraffic, ...]) -> Iterator[Metric]:
        named = [(feed.alias or feed.key.hex()[:KEY_DIGITS], feed) for feed in feeds]
        families: tuple[tuple[Any, tuple[tuple[str, str, str], ...]], ...] = (
            (CounterMetricFamily, _FEED_COUNTERS),
            (GaugeMetricFamily, _FEED_GAUGES),
        )
        for family_of, rows in families:
            for attribute, name, text in rows:
                family = family_of(name, text, labels=["feed"])
                for label, feed in named:
                    figure = getattr(feed, attribute)
                    if figure is not None:
                        family.add_metric([label], figure)
                yield family
        yield _last_syncs(named)
        for name, text, label, counts_of in _FEED_COUNTERS_BY_LABEL:
            family = CounterMetricFamily(name, text, labels=["feed", label])
            for alias, feed in named:
                for word, count in sorted(counts_of(feed).items()):
                    family.add_metric([alias, word], count)
            yield family

    @staticmethod
    def _store(traffic: NodeTraffic) -> Iterator[Metric]:
        for name, text in _STORE_GAUGES:
            yield _gauge(f"hyperbloom_store_{name}", text, getattr(traffic.store, name))
        if traffic.disk is not None:
            size, free = traffic.disk.size_bytes, traffic.disk.free_bytes
            yield _gauge("hyperbloom_disk_size_bytes", "The store's file system.", size)
            yield _gauge("hyperbloom_disk_free_bytes", "Room there for the node's user.", free)
        commits = traffic.commits
        yield _gauge(
            "hyperbloom_store_failing",
            "1 while nothing can be written, or once damage was found.",
            int(traffic.store_problem is not None),
        )
        yield _gauge(
            "hyperbloom_queue_bytes", "Values that wait for the disk.", traffic.queued_bytes
        )
        yield _histogram(
            "hyperbloom_commit_seconds", "Transactions of the writer, synced.", commits.seconds
        )
        yield _counter(
            "hyperbloom_operations", "Operations that the writer was given.", commits.operations
        )
        yield _counter(
            "hyperbloom_operations_failed", "Those that could not be written.", commits.failures
        )


def _rates(*ways: tuple[str, RateFigures]) -> Iterator[Metric]:
    """The rates of `[limits]`; one that is not set has no sample."""
    limits = GaugeMetricFamily(
        "hyperbloom_rate_limit_bytes",
        "Bytes a second that may be moved: by all peers, by each.",
        labels=["direction", "whose"],
    )
    for way, found in ways:
        for whose, rate in (("node", found.rate), ("peer", found.peer_rate)):
            if rate:
                limits.add_metric([way, whose], rate)
    yield limits
    yield _by_label(
        "hyperbloom_rate_held_seconds",
        "Time in which a rate held some connection back.",
        "direction",
        [(way, found.held_seconds) for way, found in ways],
    )


def _discovery(form: dict[str, Any]) -> Iterator[Metric]:
    dht = form["dht"]
    yield _gauge("hyperbloom_dht_nodes", "Nodes of the DHT that are known.", dht["nodes"])
    yield _gauge("hyperbloom_dht_good_nodes", "Those that answered lately.", dht["good_nodes"])
    yield _gauge("hyperbloom_dht_items", "Items stored for others.", dht["items"])
    yield _gauge("hyperbloom_dht_operations", "Lookups and puts under way.", dht["operations"])
    yield _by_label(
        "hyperbloom_dht_events",
        "What happened on the DHT.",
        "event",
        sorted({**dict.fromkeys(DHT_EVENTS, 0), **dht["counts"]}.items()),
    )


def _objects(form: dict[str, Any]) -> Iterator[Metric]:
    yield _gauge("hyperbloom_objects", "Objects in the pool.", form["count"])
    yield _gauge("hyperbloom_objects_bytes", "Their bytes.", form["bytes"])
    yield _gauge("hyperbloom_objects_peers", "Peers of the pool.", len(form["peers"]))
    yield _counter("hyperbloom_objects_clashes", "Objects refused for a clash.", form["clashes"])


#: Type, name, text and figure (None: no sample) of what all outputs, inputs and hooks have.
_OF_INTEGRATIONS: tuple[
    tuple[Callable[..., Metric], str, str, Callable[[IntegrationStatus], float | None]], ...
] = (
    (
        GaugeMetricFamily,
        "failing",
        "1 while an output, an input or a hook does not do what it should.",
        lambda one: int(one.problem is not None),
    ),
    (
        GaugeMetricFamily,
        "held",
        "1 while it waits for somebody to look.",
        lambda one: int(one.state == "held"),
    ),
    (CounterMetricFamily, "runs", "Runs that are over.", lambda one: one.runs),
    (CounterMetricFamily, "failures", "Those that failed.", lambda one: one.failures),
    (
        GaugeMetricFamily,
        "last_success_timestamp_seconds",
        "When a run last succeeded; no sample: none has since the start.",
        lambda one: one.last_success,
    ),
)


def _integrations(found: Sequence[IntegrationStatus]) -> Iterator[Metric]:
    """What all have in common under one name, and figures of a kind under names of their own.

    So a figure is one thing in one unit wherever it stands, and sums and units make sense.
    """
    if not found:
        return
    for family_of, name, text, figure_of in _OF_INTEGRATIONS:
        family: Any = family_of(f"hyperbloom_integration_{name}", text, labels=["kind", "name"])
        for one in found:
            figure = figure_of(one)
            if figure is not None:
                family.add_metric([one.kind, one.name], figure)
        yield family
    for kind in dict.fromkeys(one.kind for one in found):
        those = [one for one in found if one.kind == kind]
        for figure_name in dict.fromkeys(name for one in those for name in one.figures):
            words = figure_name.replace("_", " ")
            text = f"The figure `{words}` of each {kind}, see docs/{kind}s.md."
            gauge = GaugeMetricFamily(f"hyperbloom_{kind}_{figure_name}", text, labels=["name"])
            for one in those:
                if figure_name in one.figures:
                    gauge.add_metric([one.name], one.figures[figure_name])
            yield gauge


class ExportCollector(Collector):
    """When the last export of this node succeeded: the age of the file that `--note` writes.

    No sample where none was noted: a node that is not exported has nothing to be late with.
    """

    def __init__(self, note: Path) -> None:
        self._note = note

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape: one look at the file."""
        try:
            noted = self._note.stat().st_mtime
        except OSError:
            return
        yield _gauge(
            "hyperbloom_export_success_timestamp_seconds",
            "When the last export succeeded that noted it; no sample: none has.",
            noted,
        )


def make_registry(collectors: Iterable[Collector]) -> CollectorRegistry:
    """A registry of this node's own, with the figures of the process."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)
    return registry
