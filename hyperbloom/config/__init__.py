"""The configuration of a node: `hyperbloom.toml`, checked key by key, as one frozen `Config`.

`file` reads the whole of it, and each of `feeds`, `discovery` and `api` the tables of that name;
`table` is one table of any name. To add a key: a field of the settings it belongs to, with its
bounds and help in the metadata, or a line in the reader here; `scripts/config-docs` wants the rest.
"""

from __future__ import annotations

from hyperbloom.config.api import ApiSettings
from hyperbloom.config.file import (
    CONFIG_NAME,
    CONTROL_SOCKET_NAME,
    DEFAULT_LISTEN,
    DEFAULT_PORT,
    FEED_KEYS_NAME,
    IDENTITY_NAME,
    LOG_LEVELS,
    STORE_NAME,
    Config,
    load_config,
    parse_config,
)
from hyperbloom.config.table import ConfigError
from hyperbloom.discovery.settings import DiscoverySettings
from hyperbloom.objects.settings import ObjectsSettings
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import SyncSettings, TrustSettings

__all__ = [
    "CONFIG_NAME",
    "CONTROL_SOCKET_NAME",
    "DEFAULT_LISTEN",
    "DEFAULT_PORT",
    "FEED_KEYS_NAME",
    "IDENTITY_NAME",
    "LOG_LEVELS",
    "STORE_NAME",
    "ApiSettings",
    "Config",
    "ConfigError",
    "DiscoverySettings",
    "Limits",
    "ObjectsSettings",
    "SyncSettings",
    "TrustSettings",
    "load_config",
    "parse_config",
]
