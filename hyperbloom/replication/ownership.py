"""The feeds that a node owns: made with keys of their own, taken from files, handed over.

On a feed whose pair is held (`hyperbloom.feed_keys`) the node proves itself by it and by the
owner's chain, as the protocol has it; everywhere else by its own pair. A key comes to disk before
the feed does, so that a node which was ended in between owns the feed at its next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from hyperbloom.feed_keys import HeldKey
from hyperbloom.keys import SEED_BYTES, Identity
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.tombstones import parse_tombstone
from hyperbloom.replication.feeds import settings_for
from hyperbloom.replication.limits import SLICE_BYTES, SLICE_VALUES
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import TrustLink

__all__ = ["FeedChanges", "Ownership"]


class FeedChanges(Protocol):
    """What a node offers to who changes its feeds (`hyperbloom.replication.node.Node`)."""

    @property
    def feeds(self) -> Mapping[bytes, Feed]: ...

    def in_turn(self, change: Callable[..., Any], *arguments: Any) -> Deferred[Any]: ...

    async def take_feed(self, settings: FeedSettings) -> Feed: ...

    async def connect_anew(self, feed: Feed, why: str) -> None: ...


class Ownership:
    """Makes feeds that this node owns, takes keys over, hands them over; one change at a time."""

    def __init__(self, node: FeedChanges, context: FeedContext) -> None:
        self._node = node
        self._context = context

    def create(self, *, alias: str, dialect: str) -> Deferred[Feed]:
        """Make a feed with a key pair of its own; fires when both are on disk.

        Raises `KeyFileError` where the key cannot be written, `StoreError`.
        """
        return self._node.in_turn(self._create, alias, dialect)

    async def _create(self, alias: str, dialect: str) -> Feed:
        pair = Identity(self._context.random_bytes(SEED_BYTES))
        keys = self._context.feed_keys
        await self._context.own_work(lambda: keys.write(pair, alias))
        return await self._node.take_feed(
            FeedSettings(key=pair.public_key, alias=alias, dialect=dialect)
        )

    def read_keys(self) -> Deferred[list[Feed]]:
        """Own the feeds whose key files were put into the folder; those that are new.

        Raises `KeyFileError` for a file that is no key, `StoreError`.
        """
        return self._node.in_turn(self._read_keys)

    async def _read_keys(self) -> list[Feed]:
        keys = self._context.feed_keys
        before = {held.identity.public_key for held in keys}
        await self._context.own_work(keys.load)
        after = {held.identity.public_key: held for held in keys}
        for key in before - after.keys():
            await self._changed(key)
        return [await self._own(held) for key, held in after.items() if key not in before]

    async def _own(self, held: HeldKey) -> Feed:
        feed = self._node.feeds.get(held.identity.public_key)
        if feed is None:
            others = (one.settings for one in self._node.feeds.values())
            return await self._node.take_feed(settings_for(held, others))
        await self._changed(feed.key)
        return feed

    async def _changed(self, key: bytes) -> None:
        feed = self._node.feeds.get(key)
        if feed is not None:
            feed.trust.identity_changed()
            await self._node.connect_anew(feed, "the feed's key has come or gone")

    def release(self, feed: Feed, *, expires: float) -> Deferred[TrustLink]:
        """Take a feed's key off this node, which goes on as a member until `expires`.

        The link to the node is on disk before the key's file goes. Raises `ValueError` where the
        key is not held, or is the node's own, `KeyFileError`, `StoreError`.
        """
        return self._node.in_turn(self._release, feed, expires)

    async def _release(self, feed: Feed, expires: float) -> TrustLink:
        """See `release`; raises what it does."""
        context = self._context
        if feed.key == context.identity.public_key:
            raise ValueError("this feed's key is the node's own: it cannot be taken off the node")
        if feed.key not in context.feed_keys:
            raise ValueError("this node does not hold the feed's key")
        link = await feed.trust.issue_link(context.identity.public_key, expires=expires)
        await context.own_work(lambda: context.feed_keys.remove(feed.key))
        await self._changed(feed.key)
        return link

    async def copy_step(self, source: Feed, target: Feed, after: int) -> tuple[int, int | None]:
        """Insert a slice of what arrived behind `after` in one feed into another, in that order.

        How many values were looked at, and behind which to go on (None: at the end). Asked again
        for a slice, it does nothing new, so that a copy goes on where it was ended. Tombstones
        name the feed they are for, and are left out. Raises what `Feed.insert` raises.
        """
        piece = await source.values.log_after(after, limit=SLICE_VALUES, max_bytes=SLICE_BYTES)
        values = await self._context.own_work(
            lambda: [
                record.value
                for record in piece.records
                if parse_tombstone(source.key, record.value) is None
            ]
        )
        if values:
            await target.insert(values)
        at_end = not piece.records or piece.last_seq >= source.values.top_seq
        return len(values), None if at_end else piece.last_seq
