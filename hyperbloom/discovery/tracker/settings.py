"""The topic tracker's numbers: the text's defaults, each for setting.

Times are in seconds. Where the text is silent, what deployed peers do is said in the help.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "BootstrapSettings",
    "MergeSettings",
    "PublisherSettings",
    "StoreSettings",
    "TrackerSettings",
]


def _seconds(default: float, text: str, least: float = 0.0) -> Any:
    return field(default=default, metadata={"help": text, "unit": "seconds", "min": least})


def _count(default: int, text: str, least: int = 0) -> Any:
    return field(default=default, metadata={"help": text, "min": least})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """How long the DHT may take, and how often a failed put is tried again."""

    get_timeout: float = _seconds(10.0, "time a lookup of records may take", 0.1)
    put_timeout: float = _seconds(
        30.0, "time a put may take: a lookup, the put itself, and reading back", 0.1
    )
    put_retries: int = _count(3, "times that a put which failed is tried again")
    retry_base: float = _seconds(5.0, "least time before it is")
    retry_jitter: float = _seconds(10.0, "most time added to that at random")


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSettings:
    """The loop that looks for a first peer."""

    no_peers_retry: float = _seconds(
        1.5, "time to the next lookup after one without any record", 0.1
    )
    join_settle: float = _seconds(0.1, "time between two attempts to join")
    join_confirmation: float = _seconds(0.5, "time for the last of them to succeed")
    discovery_poll: float = _seconds(2.0, "time to the next lookup after joining failed", 0.1)
    publish_on_startup: bool = field(
        default=True, metadata={"help": "publish a record before the first lookup for joining"}
    )
    check_older_first: bool = field(
        default=False,
        metadata={"help": "read the two minutes before the current one in the first attempt"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSettings:
    """How often a node that has joined publishes."""

    initial_delay: float = _seconds(10.0, "time from joining to the first record")
    base_interval: float = _seconds(10.0, "least time between two records", 1.0)
    max_jitter: float = _seconds(50.0, "most time added to that at random")


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSettings:
    """How often a node that has joined looks for nodes of the topic it has no path to."""

    initial_delay: float = _seconds(30.0, "time from joining to the first look")
    base_interval: float = _seconds(60.0, "least time between two looks", 1.0)
    max_jitter: float = _seconds(120.0, "most time added to that at random")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    """All settings of the topic tracker."""

    publish: bool = field(
        default=True,
        metadata={"help": "publish records; without, this node only looks for those of others"},
    )
    max_bootstrap_records: int = _count(
        5, "records of others in a minute at which a node publishes none itself", 1
    )
    max_join_peers: int = _count(4, "nodes joined after one look for a merge", 1)
    min_neighbours: int = _count(4, "neighbours below which a node takes itself for a bubble")
    store: StoreSettings = StoreSettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    publisher: PublisherSettings = PublisherSettings()
    # The text has no first delay of the merges; deployed peers wait 30 s. Where storing nodes
    # overwrite, a lookup shows one record, and nodes that start together meet in pairs at first:
    # looking for bubbles sooner connects them all within half a minute.
    bubble_merge: MergeSettings = MergeSettings(initial_delay=10.0)
    overlap_merge: MergeSettings = MergeSettings()
