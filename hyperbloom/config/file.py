"""The configuration of a node: `hyperbloom.toml` read into one frozen `Config`.

Every key is checked for its name, type and range before anything starts; what is unknown is
refused with the nearest known name, because a mistyped key that is ignored is found out too late.
Paths are relative to the file's folder. Durations are seconds or texts such as `"30s"`, `"12h"`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from hyperbloom.addresses import Address, check_listen, check_node_listen
from hyperbloom.config.api import ApiSettings, read_api
from hyperbloom.config.discovery import read_discovery
from hyperbloom.config.feeds import feed_remarks, read_feeds
from hyperbloom.config.integrations import read_integrations
from hyperbloom.config.table import ConfigError, ConfigTable, nearest, one_of
from hyperbloom.credentials import is_credential
from hyperbloom.discovery.settings import DiscoverySettings
from hyperbloom.feed_words import Noise, check_feed_name
from hyperbloom.integrations.settings import IntegrationsSettings
from hyperbloom.objects.classes.declarations import Declaration
from hyperbloom.objects.settings import DEFAULT_OBJECTS_LISTEN, HASH_RULES, ObjectsSettings
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import FeedSettings, NoisePolicy, SyncSettings, TrustSettings

__all__ = [
    "CONFIG_NAME",
    "CONTROL_SOCKET_NAME",
    "DEFAULT_LISTEN",
    "DEFAULT_PORT",
    "FEED_KEYS_NAME",
    "IDENTITY_NAME",
    "LOG_LEVELS",
    "NODE_KEYS",
    "STORE_NAME",
    "Config",
    "load_config",
    "parse_config",
    "why_no_toml",
]

CONFIG_NAME = "hyperbloom.toml"
IDENTITY_NAME = "identity.key"
FEED_KEYS_NAME = "feed-keys"
CONTROL_SOCKET_NAME = "control.sock"
STORE_NAME = "store"
INPUTS_NAME = "inputs"
EXPORT_NOTE_NAME = "last-export"
DEFAULT_PORT = 4365
DEFAULT_LISTEN = (f"tcp:{DEFAULT_PORT}",)
LOG_LEVELS = ("debug", "info", "warn", "error", "critical")
LOG_FORMATS = ("text", "json")
#: A clock that is wrong by more is to be mended, not tolerated.
MAX_LEEWAY = 3_600.0

#: What tomllib says of a table that was appended to a file which has it.
_TWICE = re.compile(r"Cannot declare (\(.+\)) twice \(at line (\d+), column \d+\)")
#: What a node keeps in its data folder.
_OWN_NAMES = (STORE_NAME, CONTROL_SOCKET_NAME, EXPORT_NOTE_NAME, INPUTS_NAME)
_LISTS = ("feeds", "outputs", "inputs", "hooks")
_TABLES = ("node", *_LISTS, "limits", "sync", "trust", "discovery", "objects", "api")
#: A file is read as a whole; one of this length names 20,000 feeds.
MAX_CONFIG_BYTES = 4 << 20
#: Log files and their bytes. At least there is one that is written and one that is full, and each
#: has some hundred lines.
DEFAULT_LOG_FILES, LEAST_LOG_FILES = 10, 2
DEFAULT_LOG_BYTES, LEAST_LOG_BYTES = 1_000_000, 10_000
NODE_KEYS = (
    "data",
    "identity",
    "feed_keys",
    "listen",
    "advertise",
    "log_level",
    "log_format",
    "log_files",
    "log_bytes",
    "leeway",
    "noise",
    "default_feed",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A node's configuration. Paths are absolute; `leeway` is in seconds.

    `remarks`: sentences on what the file says that means something else than it did.
    """

    path: Path
    data: Path
    identity: Path
    feed_keys: Path
    listen: tuple[str, ...] = DEFAULT_LISTEN
    advertise: tuple[str, ...] = ()
    log_level: str = "info"
    log_format: str = "text"
    log_files: int = DEFAULT_LOG_FILES
    log_bytes: int = DEFAULT_LOG_BYTES
    leeway: float = 0.0
    noise: NoisePolicy = NoisePolicy.PREFER
    default_feed: str | None = None
    feeds: tuple[FeedSettings, ...] = ()
    limits: Limits
    sync: SyncSettings
    discovery: DiscoverySettings
    api: ApiSettings
    objects: ObjectsSettings = field(default_factory=ObjectsSettings)
    trust: TrustSettings = field(default_factory=TrustSettings)
    integrations: IntegrationsSettings = field(default_factory=IntegrationsSettings)
    remarks: tuple[str, ...] = ()

    @property
    def store_path(self) -> Path:
        """The folder of the node's LMDB environment."""
        return self.data / STORE_NAME

    @property
    def control_socket(self) -> Path:
        """The Unix socket on which the running node is read and told."""
        return self.data / CONTROL_SOCKET_NAME

    @property
    def export_note(self) -> Path:
        """The file that an export writes when it has succeeded, for its age among the metrics."""
        return self.data / EXPORT_NOTE_NAME

    @property
    def own_places(self) -> tuple[Path, ...]:
        """Files and folders that are the node's alone: no input may publish what they hold.

        All of the data folder is, unless the configuration file lies there, beside what the
        operator keeps.
        """
        data = self.data.resolve()
        if self.path.resolve().is_relative_to(data):
            kept = [self.data / name for name in _OWN_NAMES]
        else:
            kept = [self.data]
        secrets = (
            self.api.token,
            self.api.metrics_token,
            self.objects.passphrase_file,
            *(hook.secret for hook in self.integrations.hooks),
        )
        found = (self.path, self.identity, self.feed_keys, *kept, *secrets)
        return tuple(path for path in found if path is not None)


def _types(table: ConfigTable) -> tuple[str, ...]:
    """Declarations of classes, no name twice."""
    texts = table.texts("types", (), Declaration.parse)
    names = [Declaration.parse(text).name for text in texts]
    for name in names:
        if names.count(name) > 1:
            raise table.error("types", f"{name} is declared twice; leave one out")
    return texts


def _objects(table: ConfigTable, base: Path) -> ObjectsSettings:
    secret = "passphrase_file"  # noqa: S105  the key's name
    return table.dataclass(
        ObjectsSettings,
        read={
            "listen": table.texts("listen", DEFAULT_OBJECTS_LISTEN, check_listen),
            "peers": table.texts("peers", (), Address.parse),
            secret: table.secret_path(secret, base, "") if secret in table else None,
            "types": _types(table),
            "hash_rule": table.text("hash_rule", HASH_RULES[0], one_of(HASH_RULES, "rule")),
        },
    )


def _at_least(table: ConfigTable, key: str, default: int, least: int) -> int:
    return table.bounded(key, table.value(key, int, default), least)


def parse_config(text: str, *, path: Path) -> Config:
    """The configuration that `text` holds; `path` names it and is the base of relative paths.

    Raises `ConfigError`.
    """
    try:
        data = toml_of(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {why_no_toml(error)}") from None
    return config_of(data, path=path)


def toml_of(text: str) -> dict[str, Any]:
    """What a text in TOML holds; raises `tomllib.TOMLDecodeError`, whatever it holds."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise tomllib.TOMLDecodeError("too many brackets within each other") from None
    except ValueError:
        raise tomllib.TOMLDecodeError("too many digits in a number") from None


def why_no_toml(error: tomllib.TOMLDecodeError) -> str:
    """What is wrong with a text that is no TOML, and what to do about it."""
    twice = _TWICE.fullmatch(str(error))
    if twice is None:
        return f"this is not TOML: {error}; correct that line"
    name = ".".join(re.findall(r"'([^']*)'", twice[1]))
    return (
        f"[{name}] is there twice, again at line {twice[2]}; put all its keys under the first one"
    )


def config_of(data: Mapping[str, Any], *, path: Path) -> Config:
    """The configuration that the tables of a file hold, as `parse_config`; raises `ConfigError`."""
    for name, found in data.items():
        problem = _misplaced(name, found)
        if problem is not None:
            raise ConfigError(f"{path}: {problem}", table=data, key=name)
    # Not resolved: beside a link to a file lies the link's folder, not the file's.
    return _config(ConfigTable(str(path), "the file:", data), path.absolute())


def _misplaced(name: str, found: object) -> str | None:
    """What is wrong with a key at the top of the file, None: nothing."""
    if name in NODE_KEYS:
        return f"{name} belongs under [node]; move it there"
    if name not in _TABLES:
        return f"there is no table [{name}]; {nearest(name, _TABLES)}"
    expected, form = (list, f"[[{name}]]") if name in _LISTS else (dict, f"[{name}]")
    return None if isinstance(found, expected) else f"{name} must be written as {form}"


def _config(root: ConfigTable, path: Path) -> Config:
    def table(name: str) -> ConfigTable:
        return ConfigTable(root.file, f"[{name}]", root.value(name, dict, {}))

    node = table("node")
    node.refuse_unknown(NODE_KEYS)
    base = path.parent
    leeway = node.bounded("leeway", node.seconds("leeway", 0.0), 0, MAX_LEEWAY)
    data = node.path("data", base, ".")
    identity = node.secret_path("identity", base, IDENTITY_NAME)
    # A folder of credentials takes no new keys of feeds.
    beside = data if is_credential(identity) else identity.parent
    noise = NoisePolicy(node.text("noise", "prefer", one_of(get_args(Noise), "policy")))
    feed_keys = node.path("feed_keys", base, str(beside / FEED_KEYS_NAME))
    own = (path, identity, feed_keys, *(data / name for name in _OWN_NAMES))
    return Config(
        path=path,
        data=data,
        identity=identity,
        feed_keys=feed_keys,
        listen=node.texts("listen", DEFAULT_LISTEN, check_node_listen),
        advertise=node.texts("advertise", (), Address.parse),
        log_level=node.text("log_level", "info", one_of(LOG_LEVELS, "level")),
        log_format=node.text("log_format", "text", one_of(LOG_FORMATS, "format")),
        log_files=_at_least(node, "log_files", DEFAULT_LOG_FILES, LEAST_LOG_FILES),
        log_bytes=_at_least(node, "log_bytes", DEFAULT_LOG_BYTES, LEAST_LOG_BYTES),
        leeway=leeway,
        noise=noise,
        default_feed=node.text("default_feed", "", check_feed_name) or None,
        feeds=read_feeds(root, noise=noise),
        limits=table("limits").dataclass(Limits),
        sync=table("sync").dataclass(SyncSettings),
        trust=table("trust").dataclass(TrustSettings),
        discovery=read_discovery(table("discovery"), base),
        objects=_objects(table("objects"), base),
        api=read_api(table("api"), data),
        integrations=read_integrations(root, base, kept=own),
        remarks=feed_remarks(root),
    )


def load_config(path: Path) -> Config:
    """Reads a configuration file; a folder stands for the `hyperbloom.toml` in it.

    Raises `ConfigError`.
    """
    file, text = read_config(path)
    return parse_config(text, path=file)


def read_config(path: Path) -> tuple[Path, str]:
    """The file that a path stands for, and its text; raises `ConfigError`."""
    file = path / CONFIG_NAME if path.is_dir() else path
    try:
        with file.open("rb") as source:
            content = source.read(MAX_CONFIG_BYTES + 1)
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: there is no such file; make a node with `hyperbloom init DIR`, or give "
            "the right file with -c"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: this is not UTF-8 text; is it the right file?") from None
    except OSError as error:
        raise ConfigError(f"{file}: it cannot be read ({error.strerror})") from None
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"{file}: it has more than {MAX_CONFIG_BYTES:,} bytes; is it the right file?"
        )
    return file, text
