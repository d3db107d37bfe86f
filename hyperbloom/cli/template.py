"""What `hyperbloom init` writes: a key and a configuration that explains itself."""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import textwrap
from pathlib import Path
from typing import Any

from hyperbloom.config import (
    CONFIG_NAME,
    DEFAULT_LISTEN,
    FEED_KEYS_NAME,
    IDENTITY_NAME,
    ConfigError,
    Limits,
    ObjectsSettings,
    SyncSettings,
    TrustSettings,
    parse_config,
)
from hyperbloom.discovery.dht.settings import PUBLIC_ROUTERS
from hyperbloom.discovery.settings import DEFAULT_DHT_PORT
from hyperbloom.feed_keys import FeedKeys
from hyperbloom.keys import SEED_BYTES, Identity, create_key_file

__all__ = ["config_text", "make_node"]

_NODE = """\
# The configuration of a hyperbloom node. Lines that begin with # are explanations, or settings with
# the value they have when left out. Paths are relative to this file. Times are seconds, or texts
# such as "90s", "5m" and "1h30m".

[node]
# data = "."                    # folder of the store and the control socket
# identity = "identity.key"     # the node's key; `hyperbloom key` prints its public half
# feed_keys = "feed-keys"       # folder with the keys of the feeds that this node owns
listen = {listen}
# listen = []                   # do not listen: this node only dials
{advertise}
# log_level = "info"            # debug, info, warn, error or critical
# log_format = "text"           # text, or json: one object a line (not under systemd)
# log_files = 10                # log files that are kept (not under systemd, which has the journal)
# log_bytes = 1000000           # bytes of one, after which the next is begun
# leeway = 0                    # how long an expired link still counts (clocks that differ)
# default_feed = "main"         # the feed that commands mean which name none; needed with several
# noise = "prefer"              # protect streams with peers that can (prefer), refuse those that
#                               # cannot, such as npm peers (require), or protect none (off)

# Feeds that were made with `hyperbloom feed create`, or joined with `hyperbloom join` and
# `hyperbloom feed join`, are there without being named. Others are named here:
# [[feeds]]
# key = "…"                     # the feed's public key, 64 hex digits
# alias = "blocklist"           # a short name for commands
# mode = "full"                 # full: all values; range: those of ranges; light: none
# ranges = [{{ start = "a", end = "n" }}]   # for mode range; text, or start_hex and end_hex
# dialect = "2"                 # the protocol's version that the feed speaks: 2, 1 or draft
# peers = ["example.org:4365"]  # nodes to dial
# issue_links = true            # give trust links to peers that ask for shorter chains
# retain_age = "90d"            # forget values that arrived longer ago
# noise = "require"             # another policy than that of [node]
"""


_INTEGRATIONS = """
# Files of other tools that are kept as a feed is, with a command that is run after a change.
# docs/operations.md has all keys of these three; `config check` looks at what they name.
# [[outputs]]
# name = "resolver"             # what commands, the status page and metrics call it
# feed = "blocklist"            # an alias or a key; left out, the feed that commands mean
# format = "unbound"            # as in `hyperbloom get --as`
# path = "/var/lib/hyperbloom/outputs/blocklist.conf"
# allow = "never-blocked.txt"   # entries that never come out, whoever put them in
# command = ["unbound-control", "reload"]   # a program and its arguments, without a shell

# Lists of others whose entries are put into a feed, and taken back when they go from the list:
# [[inputs]]
# name = "their-list"
# feed = "blocklist"
# url = "https://lists.example/domains.txt"   # or path, a file of this machine
# format = "lines"              # lines, hosts, csv, adblock or json
# every = "1h"

# Programs and web servers that are told of each new value, at least once:
# [[hooks]]
# name = "bell"
# feed = "blocklist"
# command = ["/usr/local/bin/tell"]   # it reads JSON lines; or url, which is sent them by POST
"""

_DISCOVERY = """
[discovery]
# How the peers of a feed are found without their addresses: by records on the Mainline DHT, which
# tell strangers that somebody here shares a feed, and by multicast DNS on private networks.

{enabled}
# bootstrap = {bootstrap}
# port = {port}                   # UDP; 0 lets the system choose
# interface = ""                # the address of this machine to use; empty: all
# server = true                 # answer and store for others, as nodes of the DHT do
# announce = true               # tell where this node is; false: only look for others
# legacy = true                 # the npm packages' swarm, too
# lan = "private"               # multicast DNS: private, on or off
# equal_seq = "overwrite"       # a put with the stored number: overwrite, keep or reject (with
#                               # reject, publishers of the Rust crate give up)
# secret = ""                   # a file with a passphrase that all nodes of the feeds share
"""


def _shown(default: Any) -> str:
    """A default as TOML writes it; what has none is shown by an example."""
    if default is None:
        return '"passphrase"'
    return json.dumps(list(default) if isinstance(default, tuple) else default)


_API = """
[api]
# The API over TCP, and the status page (`hyperbloom status --web`), beside the control socket.
# listen = ""                   # a loopback HOST:PORT such as "127.0.0.1:4366"; empty: off
# token = "api.token"           # the file with the token, in the data folder; made when needed
# metrics_token = "metrics.token"   # the same of one for Prometheus, which may read /metrics alone
"""


def _table(title: str, intro: str, settings: type[Any]) -> str:
    lines = ["", f"[{title}]", f"# {intro}"]
    for field in dataclasses.fields(settings):
        lines += [
            "",
            *(f"# {line}" for line in textwrap.wrap(field.metadata["help"], 98)),
            f"# {field.name} = {_shown(field.default)}",
        ]
    return "\n".join(lines) + "\n"


def _discovery(*, enabled: bool) -> str:
    bootstrap = ",\n".join(f'#     "{address}"' for address in PUBLIC_ROUTERS)
    return _DISCOVERY.format(
        enabled="enabled = true" if enabled else "# enabled = false",
        bootstrap=f"[\n{bootstrap},\n# ]",
        port=DEFAULT_DHT_PORT,
    )


def config_text(
    *, listen: tuple[str, ...] = (), advertise: tuple[str, ...] = (), discover: bool = False
) -> str:
    """A commented configuration; JSON's lists of plain texts are TOML's."""
    addresses = json.dumps(list(advertise))
    named = f"advertise = {addresses}" if advertise else "# advertise = []"
    comment = '# what invitations name, such as ["example.org:4365"]'
    return (
        _NODE.format(
            listen=json.dumps(list(listen or DEFAULT_LISTEN)),
            advertise=f"{named:<30}  {comment}",
        )
        + _INTEGRATIONS
        + _discovery(enabled=discover)
        + _table(
            "sync", "When and how precisely peers are asked for what is missing.", SyncSettings
        )
        + _table("trust", "Which links this node renews by itself.", TrustSettings)
        + _table("limits", "What peers may use of this node.", Limits)
        + _table("objects", "The object pool; docs/objects.md tells what it is.", ObjectsSettings)
        + _API
    )


def make_node(
    folder: Path,
    *,
    listen: tuple[str, ...] = (),
    advertise: tuple[str, ...] = (),
    discover: bool = False,
    feed: str | None = None,
) -> tuple[Identity, Path]:
    """Makes the folder (mode 0700), a new key and a configuration; their identity and its path.

    `feed` is the alias of a feed whose key is made, too: the node owns it from its start on. Raises
    `ConfigError` or `KeyFileError`, without a change, where any of it is there already.
    """
    config, identity = folder / CONFIG_NAME, folder / IDENTITY_NAME
    feed_keys = folder / FEED_KEYS_NAME
    text = config_text(listen=listen, advertise=advertise, discover=discover)
    parse_config(text, path=config)
    for path in (config, identity, feed_keys):
        if os.path.lexists(path):
            raise ConfigError(f"{path} exists already and is not overwritten; name another folder")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = create_key_file(identity, secrets.token_bytes(SEED_BYTES))
        if feed is not None:
            FeedKeys(feed_keys).write(Identity(secrets.token_bytes(SEED_BYTES)), feed)
        with open(config, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{folder} is in the way; name another folder") from None
    except OSError as error:
        raise ConfigError(f"{folder}: a node cannot be made there ({error.strerror})") from None
    return made, config
