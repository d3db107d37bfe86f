"""What an operator sets under `[discovery]`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from hyperbloom.addresses import HIGHEST_PORT, Address
from hyperbloom.discovery.dht.settings import PUBLIC_ROUTERS, DhtSettings, EqualSeq
from hyperbloom.discovery.tracker.settings import TrackerSettings

__all__ = ["DEFAULT_DHT_PORT", "DhtLimits", "DiscoverySettings", "Lan", "SwarmSettings"]

Lan: TypeAlias = Literal["private", "on", "off"]
"""Where multicast DNS is used: on interfaces with private addresses, on all of them, on none."""

DEFAULT_DHT_PORT = 4365
"""The UDP port of the DHT node: the number of the TCP port that peers dial."""


def _seconds(default: float, text: str, least: float) -> Any:
    return field(default=default, metadata={"help": text, "unit": "seconds", "min": least})


def _limit(default: float, text: str, least: float) -> Any:
    return field(default=default, metadata={"help": text, "min": least})


@dataclass(frozen=True, slots=True, kw_only=True)
class DhtLimits:
    """The `[discovery.dht]` table: what strangers may use of this node's part in the DHT."""

    max_items: int = _limit(1_000, "mutable and immutable items stored for others, each", 1)
    packets_per_second: float = _limit(
        50.0, "packets a second taken from one address (of IPv6: one /64)", 1
    )
    packet_burst: float = _limit(
        200.0, "packets taken from one address (of IPv6: one /64) at once", 1
    )
    reply_bytes_per_second: float = _limit(
        4_096.0, "bytes a second sent to one address (of IPv6: one /64) in answers", 512
    )
    reply_burst: float = _limit(
        16_384.0, "bytes sent to one address (of IPv6: one /64) at once in answers", 2_048
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SwarmSettings:
    """The `[discovery.swarm]` table: the swarm of the npm packages (BEP-5)."""

    announce_interval: float = _seconds(
        900.0, "time between two announcements; nodes of the DHT forget one after half an hour", 60
    )
    retry_interval: float = _seconds(60.0, "time between two lookups while no peer is connected", 1)


def _setting(default: Any, text: str, **bounds: int) -> Any:
    return field(default=default, metadata={"help": text, **bounds})


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverySettings:
    """The `[discovery]` table and the tables below it. Raises `ValueError` for what cannot be."""

    enabled: bool = _setting(
        False,
        "search for the peers of the feeds; without, only addresses that are written down or come "
        "with an invitation are dialled",
    )
    bootstrap: tuple[str, ...] = _setting(
        PUBLIC_ROUTERS,
        "`HOST:PORT` of DHT nodes by which the network is entered; for a private network its own",
    )
    port: int = _setting(
        DEFAULT_DHT_PORT,
        "UDP port of the DHT node; 0 lets the system choose",
        min=0,
        max=HIGHEST_PORT,
    )
    interface: str = _setting("", "the address of this machine to use for it; empty: all")
    server: bool = _setting(
        True, "answer and store for others, as nodes of the DHT do; without, only ask (BEP-43)"
    )
    announce: bool = _setting(True, "tell others where this node is; without, only look for others")
    legacy: bool = _setting(True, "take part in the swarm of the npm packages (BEP-5), too")
    lan: Lan = field(
        default="private",
        metadata={
            "help": "multicast DNS: `private` (on interfaces with private addresses), `on` or `off`"
        },
    )
    equal_seq: EqualSeq = field(
        default=EqualSeq.OVERWRITE,
        metadata={
            "help": "what becomes of another value with the stored sequence number: `overwrite`, "
            "`keep` or `reject`"
        },
    )
    secret: Path | None = field(
        default=None,
        metadata={
            "help": "a file with a passphrase that seals this node's records in place of the "
            "feeds' keys; all nodes of a feed need the same"
        },
    )
    dht: DhtLimits = field(default_factory=DhtLimits)
    swarm: SwarmSettings = field(default_factory=SwarmSettings)
    tracker: TrackerSettings = field(default_factory=TrackerSettings)

    def __post_init__(self) -> None:
        for address in self.bootstrap:
            Address.parse(address)

    def for_dht(self) -> DhtSettings:
        """The part of the DHT node."""
        return DhtSettings(
            server=self.server,
            bootstrap=self.bootstrap,
            equal_seq=self.equal_seq,
            max_items=self.dht.max_items,
            packets_per_second=self.dht.packets_per_second,
            packet_burst=self.dht.packet_burst,
            reply_bytes_per_second=self.dht.reply_bytes_per_second,
            reply_burst=self.dht.reply_burst,
        )
