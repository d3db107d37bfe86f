"""The feeds of a node: which there are at the start, by what they are known, which are in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from twisted.logger import Logger

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.feed_keys import HeldKey
from hyperbloom.feed_words import FEED_DIGITS, FORMER_TOMBSTONES, OWN, feed_name, is_beginning
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.upkeep import Upkeep
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import PutFeed, Store, WriterInline
from hyperbloom.store.records import FeedRecord

__all__ = ["Feeds", "UnknownFeed", "settings_for", "settle_feeds"]

#: Digits of keys that tell what a beginning does not.
MORE_DIGITS = 6

log = Logger()


class UnknownFeed(HyperbloomError):
    """No feed of this node goes by that key or alias; the text lists what there is."""

    kind = ErrorKind.UNKNOWN_FEED


def settings_for(held: HeldKey, others: Iterable[FeedSettings]) -> FeedSettings:
    """The settings of a feed of which nothing but its key is here: the file's alias, if free."""
    taken = {one.alias for one in others}
    alias = held.alias
    return FeedSettings(
        key=held.identity.public_key, alias=None if alias in (*taken, "own", "feed") else alias
    )


def settle_feeds(
    store: Store,
    own_key: bytes,
    configured: Iterable[FeedSettings],
    held: Iterable[HeldKey] = (),
) -> list[FeedSettings]:
    """The feeds a node starts with, each known to the store from then on.

    They are the configuration's, those joined at run time (the configuration's settings win), and
    those whose keys are `held`. A feed whose key is the node's own, `own_key`, is one of them where
    the store has it from before, or the configuration names it: none is made any more, for who
    knows the node's key can read it. Called before the writer's thread runs; raises `StoreError`.
    """
    settings = {s.key: s for s in configured}
    for record in store.feeds():
        if record.key not in settings and (record.settings or record.key == own_key):
            settings[record.key] = (
                FeedSettings.from_json(record.settings)
                if record.settings
                else FeedSettings(key=own_key)
            )
            if record.settings.get("tombstones") == FORMER_TOMBSTONES:
                log.warn(
                    "The feed {feed} follows the tombstones of its owner alone now, and no more "
                    "those of members: whoever copied a value could have it forgotten",
                    feed=settings[record.key].log_name,
                )
    for pair in held:
        if pair.identity.public_key not in settings:
            settings[pair.identity.public_key] = settings_for(pair, settings.values())
    writer = WriterInline(store)
    problems: list[BaseException] = []

    def done(outcome: FeedRecord | BaseException) -> None:
        if isinstance(outcome, BaseException):
            problems.append(outcome)

    for key, one in settings.items():
        record_now = store.feed(key)
        if record_now is None or dict(record_now.settings) != one.to_json():
            writer.submit(PutFeed(feed_key=key, settings=one.to_json()), done)
    if problems:
        raise problems[0]
    return list(settings.values())


class Feeds:
    """The feeds of a node that runs; `pinned` are the keys that the configuration names."""

    def __init__(
        self, context: FeedContext, pinned: Iterable[bytes], default: str | None = None
    ) -> None:
        self.pinned = frozenset(pinned)
        #: The feed that is meant where none is named, as [node] default_feed names it.
        self.default = default
        self._context = context
        self._feeds: dict[bytes, Feed] = {}
        self._upkeep: dict[bytes, Upkeep] = {}
        self._by_discovery_key: dict[bytes, Feed] = {}

    @property
    def by_key(self) -> Mapping[bytes, Feed]:
        """All of them, as they come and go."""
        return MappingProxyType(self._feeds)

    def by_discovery_key(self, key: bytes) -> Feed | None:
        """The feed that peers call by this key, or None."""
        return self._by_discovery_key.get(key)

    def upkeep(self, feed: Feed) -> Upkeep:
        """What a feed does by itself; raises `KeyError` for one that was taken out."""
        return self._upkeep[feed.key]

    def take_in(self, settings: FeedSettings, record: FeedRecord) -> Feed:
        """Take a feed in that the store knows."""
        feed = Feed(settings, record, self._context)
        self._feeds[feed.key] = feed
        self._upkeep[feed.key] = Upkeep(feed)
        self._by_discovery_key[feed.discovery_key] = feed
        self._warn_of(feed)
        return feed

    def take_out(self, key: bytes) -> Feed | None:
        """Take a feed out, and end what it does by itself; None where there is none."""
        feed = self._feeds.pop(key, None)
        if feed is not None:
            self._upkeep.pop(key).stop()
            del self._by_discovery_key[feed.discovery_key]
        return feed

    def look_after_all(self) -> None:
        """Have every feed do what it does by itself."""
        for upkeep in self._upkeep.values():
            upkeep.look()

    def look_at_trust(self) -> None:
        """Say of which feeds this node may write to no more, or may again."""
        for upkeep in self._upkeep.values():
            upkeep.trust_log.look()

    def stop(self) -> None:
        """No feed does anything by itself any more."""
        for upkeep in self._upkeep.values():
            upkeep.stop()

    def _warn_of(self, feed: Feed) -> None:
        """Log what the feed's dialect does not protect, and what it makes of no use."""
        warnings = list(feed.dialect.lacks)
        unreadable = feed.trust.membership.unreadable
        if unreadable:
            warnings.append(f"{unreadable} links of another dialect do not count")
        for warning in warnings:
            log.warn(
                "{name}, dialect {dialect}: {warning}",
                name=feed.log_name,
                dialect=feed.dialect.name,
                warning=warning,
                feed=feed.log_name,
            )

    # By name

    def resolve(self, name: str | None) -> Feed:
        """The feed of an alias, of a key in hex or of its beginning; None: the default.

        The default is the feed that the configuration names, else the only feed in use
        (`is_in_use`), or the only one there is. `own` is the feed whose key is the node's, where no
        other has that alias. Raises `UnknownFeed`.
        """
        if name is None:
            return self._default_feed()
        for feed in self._feeds.values():
            if name in (feed.settings.alias, feed.key.hex()) or name.lower() == feed.key.hex():
                return feed
        own = self._feeds.get(self._context.identity.public_key)
        if name == OWN and own is not None:
            return own
        begun = [feed for key, feed in self._feeds.items() if is_beginning(name, key, FEED_DIGITS)]
        if len(begun) == 1:
            return begun[0]
        if begun:
            keys = ", ".join(f"{feed.key.hex()[: len(name) + MORE_DIGITS]}…" for feed in begun)
            raise UnknownFeed(
                f"the keys of {len(begun)} feeds begin with {name}: {keys}; give more digits"
            )
        raise UnknownFeed(f"there is no feed {name!r} on this node; {self._names()}")

    def _default_feed(self) -> Feed:
        """See `resolve`; raises `UnknownFeed`."""
        if self.default is not None:
            return self._configured_default(self.default)
        used = [feed for feed in self._feeds.values() if self.is_in_use(feed)]
        among = used or list(self._feeds.values())
        if len(among) == 1:
            return among[0]
        if not among:
            raise UnknownFeed(
                "this node has no feed yet; make one with `hyperbloom feed create NAME`, or take "
                "an invitation with `hyperbloom join -`"
            )
        raise UnknownFeed(
            f"say which feed is meant, with --feed or by default_feed under [node]: {self._names()}"
        )

    def _configured_default(self, name: str) -> Feed:
        try:
            return self.resolve(name)
        except UnknownFeed as problem:
            raise UnknownFeed(f"default_feed under [node]: {problem}") from None

    def _names(self) -> str:
        own_key = self._context.identity.public_key
        names = ", ".join(
            feed_name(feed.key, feed.settings.alias, own_key) for feed in self._feeds.values()
        )
        return f"it has {names}" if names else "it has none"

    def is_in_use(self, feed: Feed) -> bool:
        """Whether somebody wanted the feed to be here.

        One that this node owns may only have been made by `init`, or by an older version: it is in
        use once it holds a value or a link, or is named in the configuration.
        """
        if not feed.trust.is_owned:
            return True
        return bool(feed.values.count or feed.key in self.pinned or feed.trust.membership.has_links)
