"""The `[discovery]` table of the configuration and the tables below it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hyperbloom.addresses import Address, check_interface
from hyperbloom.config.table import ConfigTable, one_of
from hyperbloom.discovery.dht.settings import EqualSeq
from hyperbloom.discovery.settings import (
    DhtLimits,
    DiscoverySettings,
    SwarmSettings,
)
from hyperbloom.discovery.tracker.settings import TrackerSettings

__all__ = ["read_discovery"]

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
    policies = tuple(policy.value for policy in EqualSeq)
    policy = table.text("equal_seq", _DEFAULTS.equal_seq.value, one_of(policies, "policy"))
    return table.dataclass(
        DiscoverySettings,
        read={
            "bootstrap": table.texts("bootstrap", _DEFAULTS.bootstrap, Address.parse),
            "interface": table.text("interface", _DEFAULTS.interface, check_interface),
            "equal_seq": EqualSeq(policy),
            "secret": table.secret_path("secret", base, "") if table.text("secret", "") else None,
            "dht": _below(table, "dht").dataclass(DhtLimits),
            "swarm": _below(table, "swarm").dataclass(SwarmSettings),
            "tracker": _tracker(_below(table, "tracker")),
        },
    )
