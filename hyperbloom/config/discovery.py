"""The `[discovery]` table of the configuration and the tables below it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args

from hyperbloom.addresses import HIGHEST_PORT, Address, check_interface
from hyperbloom.config.table import ConfigTable, one_of
from hyperbloom.discovery.dht.settings import EqualSeq
from hyperbloom.discovery.settings import (
    DhtLimits,
    DiscoverySettings,
    Lan,
    SwarmSettings,
)
from hyperbloom.discovery.tracker.settings import TrackerSettings

__all__ = ["DISCOVERY_KEYS", "DISCOVERY_TABLES", "read_discovery"]

DISCOVERY_KEYS = (
    "enabled", "bootstrap", "port", "interface", "server", "announce", "legacy", "lan",
    "equal_seq", "secret",
)  # fmt: skip
DISCOVERY_TABLES = ("dht", "swarm", "tracker")

_DEFAULTS = DiscoverySettings()


def _below(table: ConfigTable, name: str) -> ConfigTable:
    title = f"{table.title.removesuffix(']')}.{name}]"
    return ConfigTable(table.file, title, table.value(name, dict, {}))


def _tracker(table: ConfigTable) -> TrackerSettings:
    """The tracker's numbers; what is `[discovery] announce` is no setting of its own here."""
    default = TrackerSettings()
    parts = {
        field.name: getattr(default, field.name)
        for field in dataclasses.fields(default)
        if dataclasses.is_dataclass(getattr(default, field.name))
    }
    numbers = [
        field
        for field in dataclasses.fields(default)
        if field.name not in parts and field.name != "publish"
    ]
    table.refuse_unknown([*(field.name for field in numbers), *parts])
    settings: dict[str, Any] = {
        field.name: table.bounded(
            field.name,
            table.value(field.name, int, getattr(default, field.name)),
            field.metadata["min"],
        )
        for field in numbers
    }
    for name, part in parts.items():
        settings[name] = _below(table, name).dataclass(type(part), part)
    return TrackerSettings(**settings)


def read_discovery(table: ConfigTable, base: Path) -> DiscoverySettings:
    """The settings of `[discovery]`; paths are relative to `base`. Raises `ConfigError`."""
    table.refuse_unknown((*DISCOVERY_KEYS, *DISCOVERY_TABLES))
    lan: Any = table.text("lan", _DEFAULTS.lan, one_of(get_args(Lan), "choice"))
    policies = tuple(policy.value for policy in EqualSeq)
    return DiscoverySettings(
        enabled=table.value("enabled", bool, _DEFAULTS.enabled),
        bootstrap=table.texts("bootstrap", _DEFAULTS.bootstrap, Address.parse),
        port=table.bounded("port", table.value("port", int, _DEFAULTS.port), 0, HIGHEST_PORT),
        interface=table.text("interface", _DEFAULTS.interface, check_interface),
        server=table.value("server", bool, _DEFAULTS.server),
        announce=table.value("announce", bool, _DEFAULTS.announce),
        legacy=table.value("legacy", bool, _DEFAULTS.legacy),
        lan=lan,
        equal_seq=EqualSeq(
            table.text("equal_seq", _DEFAULTS.equal_seq.value, one_of(policies, "policy"))
        ),
        secret=table.path("secret", base, "") if table.text("secret", "") else None,
        dht=_below(table, "dht").dataclass(DhtLimits),
        swarm=_below(table, "swarm").dataclass(SwarmSettings),
        tracker=_tracker(_below(table, "tracker")),
    )
