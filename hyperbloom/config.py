"""The configuration of a node: `hyperbloom.toml` read into one frozen `Config`.

Every key is checked for its name, type and range before anything starts; what is unknown is
refused with the nearest known name, because a mistyped key that is ignored is found out too late.
Paths are relative to the file's folder. Durations are seconds or texts such as `"30s"`, `"12h"`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from hyperbloom.addresses import check_listen, check_node_listen, parse_host_port
from hyperbloom.config_api import ApiSettings, read_api
from hyperbloom.config_discovery import read_discovery
from hyperbloom.config_table import ConfigError, ConfigTable, nearest
from hyperbloom.discovery.settings import DiscoverySettings
from hyperbloom.keys import parse_public_key
from hyperbloom.objects.settings import DEFAULT_OBJECTS_LISTEN, HASH_RULES, ObjectsSettings
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import (
    DEFAULT_DIALECT,
    FeedSettings,
    KeyRange,
    Mode,
    SyncSettings,
    Tombstones,
)

__all__ = [
    "CONFIG_NAME",
    "CONTROL_SOCKET_NAME",
    "DEFAULT_DIALECT",
    "DEFAULT_LISTEN",
    "DEFAULT_PORT",
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
    "check_alias",
    "load_config",
    "parse_config",
]

CONFIG_NAME = "hyperbloom.toml"
IDENTITY_NAME = "identity.key"
CONTROL_SOCKET_NAME = "control.sock"
STORE_NAME = "store"
DEFAULT_PORT = 4365
DEFAULT_LISTEN = (f"tcp:{DEFAULT_PORT}",)
LOG_LEVELS = ("debug", "info", "warn", "error", "critical")
#: Dialects that this version speaks, see `hyperbloom.wire.DIALECTS`; repeated here because reading
#: a configuration should not cost the loading of the wire; a test compares the two.
KNOWN_DIALECTS = ("2", "1", "draft")
#: A clock that is wrong by more is to be mended, not tolerated.
MAX_LEEWAY = 3_600.0

_TABLES = ("node", "feeds", "limits", "sync", "discovery", "objects", "api")
_NODE_KEYS = ("data", "identity", "listen", "advertise", "log_level", "leeway")
_FEED_KEYS = (
    "key", "alias", "mode", "ranges", "dialect", "peers", "issue_links",
    "retain_age", "retain_values", "retain_bytes", "tombstones",
)  # fmt: skip
_RANGE_KEYS = ("start", "end", "start_hex", "end_hex")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HEX_KEY = re.compile(r"[0-9A-Fa-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A node's configuration. Paths are absolute; `leeway` is in seconds."""

    path: Path
    data: Path
    identity: Path
    listen: tuple[str, ...] = DEFAULT_LISTEN
    advertise: tuple[str, ...] = ()
    log_level: str = "info"
    leeway: float = 0.0
    feeds: tuple[FeedSettings, ...] = ()
    limits: Limits
    sync: SyncSettings
    discovery: DiscoverySettings
    api: ApiSettings
    objects: ObjectsSettings = field(default_factory=ObjectsSettings)

    @property
    def store_path(self) -> Path:
        """The folder of the node's LMDB environment."""
        return self.data / STORE_NAME

    @property
    def control_socket(self) -> Path:
        """The Unix socket on which the running node is read and told."""
        return self.data / CONTROL_SOCKET_NAME


def check_alias(alias: str) -> str:
    """The alias itself, or `ValueError` with what is wrong with it."""
    if not _ALIAS.fullmatch(alias) or _HEX_KEY.fullmatch(alias):
        raise ValueError(
            f"{alias!r} is no alias: it has 1 to 63 letters, digits, '.', '_' or '-', begins with "
            "a letter or digit and does not look like a key"
        )
    return alias


def _one_of(known: Iterable[str], what: str) -> Any:
    names = tuple(known)

    def check(found: str) -> str:
        if found not in names:
            raise ValueError(f"{found!r} is not a known {what}; {nearest(found, names)}")
        return found

    return check


def _bound(table: ConfigTable, name: str) -> bytes | None:
    """One end of a range: `name` holds text (UTF-8), `name`_hex holds bytes as hex digits."""
    hex_name = f"{name}_hex"
    if name in table and hex_name in table:
        raise table.error(name, f"give {name} or {hex_name}, not both")
    if name in table:
        return table.value(name, str, "").encode()
    if hex_name in table:
        try:
            return bytes.fromhex(table.value(hex_name, str, ""))
        except ValueError:
            raise table.error(hex_name, "must be pairs of hex digits") from None
    return None


def _range(table: ConfigTable) -> KeyRange:
    table.refuse_unknown(_RANGE_KEYS)
    start, end = _bound(table, "start"), _bound(table, "end")
    if start is None and end is None:
        raise table.error("start", 'give start, end or both; for all values use mode = "full"')
    if end is not None and end <= (start or b""):
        raise table.error("end", "must be greater than the start, in the order of bytes")
    return start or b"", end


def _feed(table: ConfigTable) -> FeedSettings:
    table.refuse_unknown(_FEED_KEYS)
    if "key" not in table:
        raise table.error("key", "is missing; it is the feed's public key, 64 hex digits")
    mode: Any = table.text("mode", "full", _one_of(get_args(Mode), "mode"))
    tombstones: Any = table.text("tombstones", "off", _one_of(get_args(Tombstones), "choice"))
    ranges = tuple(_range(item) for item in table.tables("ranges"))
    if (mode == "range") != bool(ranges):
        problem = "needs at least one range" if mode == "range" else 'is only for mode = "range"'
        raise table.error("ranges", problem)
    return FeedSettings(
        key=table.checked("key", table.value("key", str, ""), parse_public_key),
        alias=table.text("alias", "", check_alias) or None,
        mode=mode,
        ranges=ranges,
        dialect=table.text("dialect", DEFAULT_DIALECT, _one_of(KNOWN_DIALECTS, "dialect")),
        peers=table.texts("peers", (), parse_host_port),
        issue_links=table.value("issue_links", bool, True),
        retain_age=table.bounded("retain_age", table.seconds("retain_age", 0.0), 0),
        retain_values=table.bounded("retain_values", table.value("retain_values", int, 0), 0),
        retain_bytes=table.bounded("retain_bytes", table.value("retain_bytes", int, 0), 0),
        tombstones=tombstones,
    )


def _feeds(root: ConfigTable) -> tuple[FeedSettings, ...]:
    feeds: list[FeedSettings] = []
    for number, item in enumerate(root.tables("feeds"), 1):
        table = ConfigTable(item.file, f"[[feeds]] {number}", item._data)
        feed = _feed(table)
        if any(feed.key == other.key for other in feeds):
            raise table.error("key", "this feed is there twice; leave one out")
        if feed.alias is not None and any(feed.alias == other.alias for other in feeds):
            raise table.error("alias", f"{feed.alias!r} names two feeds; choose another")
        feeds.append(feed)
    return tuple(feeds)


def _objects(table: ConfigTable, base: Path) -> ObjectsSettings:
    secret = "passphrase_file"  # noqa: S105  the key's name
    return table.dataclass(
        ObjectsSettings,
        read={
            "listen": table.texts("listen", DEFAULT_OBJECTS_LISTEN, check_listen),
            "peers": table.texts("peers", (), parse_host_port),
            secret: _path(table, secret, base, "") if secret in table else None,
            "hash_rule": table.text("hash_rule", HASH_RULES[0], _one_of(HASH_RULES, "rule")),
        },
    )


def _path(table: ConfigTable, key: str, base: Path, default: str) -> Path:
    found = table.text(key, default)
    if not found or "\0" in found:
        raise table.error(key, "must be a path, not an empty text")
    try:
        return Path(os.path.abspath(base / Path(found).expanduser()))
    except (RuntimeError, OSError) as error:
        raise table.error(key, f"{found!r} is not a usable path ({error})") from None


def parse_config(text: str, *, path: Path) -> Config:
    """The configuration that `text` holds; `path` names it and is the base of relative paths.

    Raises `ConfigError`.
    """
    file = str(path)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: this is not TOML: {error}; correct that line") from None
    for name, found in data.items():
        if name in _NODE_KEYS:
            raise ConfigError(f"{file}: {name} belongs under [node]; move it there")
        if name not in _TABLES:
            raise ConfigError(f"{file}: there is no table [{name}]; {nearest(name, _TABLES)}")
        expected, form = (list, f"[[{name}]]") if name == "feeds" else (dict, f"[{name}]")
        if not isinstance(found, expected):
            raise ConfigError(f"{file}: {name} must be written as {form}")
    # Not resolved: beside a link to a file lies the link's folder, not the file's.
    return _config(ConfigTable(file, "the file:", data), path.absolute())


def _config(root: ConfigTable, path: Path) -> Config:
    def table(name: str) -> ConfigTable:
        return ConfigTable(root.file, f"[{name}]", root.value(name, dict, {}))

    node = table("node")
    node.refuse_unknown(_NODE_KEYS)
    base = path.parent
    leeway = node.bounded("leeway", node.seconds("leeway", 0.0), 0, MAX_LEEWAY)
    data = _path(node, "data", base, ".")
    return Config(
        path=path,
        data=data,
        identity=_path(node, "identity", base, IDENTITY_NAME),
        listen=node.texts("listen", DEFAULT_LISTEN, check_node_listen),
        advertise=node.texts("advertise", (), parse_host_port),
        log_level=node.text("log_level", "info", _one_of(LOG_LEVELS, "level")),
        leeway=leeway,
        feeds=_feeds(root),
        limits=table("limits").dataclass(Limits),
        sync=table("sync").dataclass(SyncSettings),
        discovery=read_discovery(table("discovery"), base),
        objects=_objects(table("objects"), base),
        api=read_api(table("api"), data),
    )


def load_config(path: Path) -> Config:
    """Reads a configuration file; a folder stands for the `hyperbloom.toml` in it.

    Raises `ConfigError`.
    """
    file = path / CONFIG_NAME if path.is_dir() else path
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: there is no such file; make a node with `hyperbloom init DIR`, or give "
            "the right file with -c"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: this is not UTF-8 text; is it the right file?") from None
    except OSError as error:
        raise ConfigError(f"{file}: it cannot be read ({error.strerror})") from None
    return parse_config(text, path=file)
