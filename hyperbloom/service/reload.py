"""A configuration read anew while the node runs: what changes at once, and what needs a restart.

The file is read and checked whole before anything changes, so that a mistake in it changes nothing.
Then the feeds, `[limits]`, `[sync]`, `[trust]`, `advertise`, `noise`, `default_feed` and the log
level become what it says; everything else, such as the ports, is only named as needing a restart.
Any two configurations are told apart field by field, so that a setting that is new here is one that
needs a restart until it is entered among the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.config import Config, ConfigError, load_config
from hyperbloom.integrations.service import IntegrationsService
from hyperbloom.keys import KeyFileError, load_key_file
from hyperbloom.replication.node import Node
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import StoreError

__all__ = ["ConfigReload", "Reloaded", "differences"]

#: What a running node takes over; the beginnings of the names that `differences` gives.
_AT_ONCE = (
    "[limits]",
    "[sync]",
    "[trust]",
    "[node] advertise",
    "[node] log_level",
    "[node] noise",
    "[node] default_feed",
    "[[",
)
#: Fields of `Config` that are tables of the file; the other ones are keys of `[node]`.
_TABLES = ("limits", "sync", "trust", "discovery", "objects")

log = Logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What came of it: names such as `[limits] connections` or `feed blocklist`, never values."""

    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()

    def as_json(self) -> dict[str, list[str]]:
        """For JSON."""
        return {"changed": list(self.changed), "needs_restart": list(self.needs_restart)}


def differences(old: Config, new: Config) -> Iterator[str]:
    """What differs, but for the feeds: `[table] key`, in the order of the fields."""
    for field in dataclasses.fields(Config):
        if field.name in ("path", "feeds"):
            continue
        before, after = getattr(old, field.name), getattr(new, field.name)
        if dataclasses.is_dataclass(before) and dataclasses.is_dataclass(after):
            for key in _different_keys(before, after):
                is_list = field.name == "integrations"
                yield f"[[{key}]]" if is_list else f"[{field.name}] {key}"
        elif before != after:
            yield f"[{field.name}]" if field.name in _TABLES else f"[node] {field.name}"


def _different_keys(old: Any, new: Any) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(old)
        if getattr(old, field.name) != getattr(new, field.name)
    ]


def _log_unforeseen(failure: Failure) -> Failure:
    if not failure.check(ConfigError, KeyFileError, StoreError, ValueError):
        log.failure("The configuration could not be read anew", failure=failure)
    return failure


class ConfigReload:
    """Reads the configuration of a running `node` anew, as often as it is asked to."""

    def __init__(
        self,
        config: Config,
        node: Node,
        *,
        set_log_level: Callable[[str], None] | None = None,
        load: Callable[[Path], Config] = load_config,
        integrations: IntegrationsService | None = None,
    ) -> None:
        self._config = config
        self._node = node
        self._integrations = integrations
        self._set_log_level = set_log_level
        self._load = load
        self._lock = DeferredLock()

    def __call__(self) -> Deferred[Reloaded]:
        """Read and apply it; raises `ConfigError`, `KeyFileError` or `StoreError`, and logs it."""
        done = cast("Deferred[Reloaded]", self._lock.run(self._run))
        return done.addErrback(_log_unforeseen)

    async def _run(self) -> Reloaded:
        try:
            config = self._load(self._config.path)
            identity = load_key_file(config.identity)
            feeds = list(self._feeds(config))
        except (ConfigError, KeyFileError) as problem:
            log.error("The configuration is not taken, the old one holds: {why}", why=str(problem))
            raise
        changed: list[str] = []
        for settings in feeds:
            await self._join(settings)
            changed.append(f"feed {settings.log_name}")
        unpinned = self._unpinned(config)
        different = list(differences(self._config, config))
        at_once = [name for name in different if name.startswith(_AT_ONCE)]
        self._take(config)
        await self._node.in_turn(self._node.use_noise, config.noise)
        if self._set_log_level is None:
            at_once = [name for name in at_once if name != "[node] log_level"]
        needs = [name for name in different if name not in at_once]
        if identity.public_key != self._node.identity.public_key and "[node] identity" not in needs:
            needs.append("[node] identity")
        return self._told(
            Reloaded(changed=(*changed, *unpinned, *at_once), needs_restart=(*needs,))
        )

    def _feeds(self, config: Config) -> Iterator[FeedSettings]:
        """The feeds that are new or different; raises `ConfigError` for what no node could do."""
        for settings in config.feeds:
            present = self._node.feeds.get(settings.key)
            if present is not None and present.settings.dialect != settings.dialect:
                raise ConfigError(
                    f"{config.path}: feed {settings.log_name}: the dialect of a "
                    "feed that is here cannot change; take it out of the file and leave it first"
                )
            if present is None or present.settings != settings:
                yield settings

    async def _join(self, settings: FeedSettings) -> None:
        try:
            await self._node.join(settings)
        except (StoreError, ValueError) as problem:
            log.error(
                "The configuration is taken in part; {feed} cannot be joined: {why}",
                feed=settings.log_name,
                why=str(problem),
            )
            raise

    def _unpinned(self, config: Config) -> list[str]:
        """Feeds that the file names no more: they stay, values are not dropped by a file's edit."""
        named = {settings.key for settings in config.feeds}
        gone = [settings for settings in self._config.feeds if settings.key not in named]
        for settings in gone:
            log.info(
                "The configuration names {name} no more; it stays until `hyperbloom feed leave`",
                name=settings.log_name,
                feed=settings.log_name,
            )
        return [f"feed {settings.log_name}" for settings in gone]

    def _take(self, config: Config) -> None:
        self._node.use_settings(
            limits=config.limits,
            sync=config.sync,
            advertise=config.advertise,
            pinned=[feed.key for feed in config.feeds],
            default_feed=config.default_feed,
            trust=config.trust,
        )
        if self._set_log_level is not None:
            self._set_log_level(config.log_level)
        if self._integrations is not None:
            self._integrations.use(config.integrations)
        # What needs a restart stays as it was, so that the next reload names it again.
        for remark in config.remarks:
            log.warn("{path}: {remark}", path=str(config.path), remark=remark)
        self._config = dataclasses.replace(
            self._config,
            feeds=config.feeds,
            limits=config.limits,
            sync=config.sync,
            trust=config.trust,
            advertise=config.advertise,
            noise=config.noise,
            default_feed=config.default_feed,
            log_level=config.log_level,
            integrations=config.integrations,
        )

    def _told(self, done: Reloaded) -> Reloaded:
        log.info(
            "The configuration was read anew; changed: {changed}",
            changed=", ".join(done.changed) or "nothing",
        )
        if done.needs_restart:
            log.warn(
                "A restart is needed for what else has changed: {names}",
                names=", ".join(done.needs_restart),
            )
        return done
