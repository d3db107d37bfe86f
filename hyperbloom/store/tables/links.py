"""Trust links as a node has seen them: who trusts whom, until when, and who showed it first.

Key: feed id, issuer, hash of the link's bytes. Links of one issuer lie together, so their number is
counted where they lie; the number of all is kept in the feed's record, with a time before which no
stored link expires, so that a full feed is not searched again and again for expired ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hyperbloom.keys import keyed_hash
from hyperbloom.store.limits import MAX_LINK_BYTES, MAX_LINKS_PER_FEED, MAX_LINKS_PER_ISSUER
from hyperbloom.store.lmdb.layout import KEY_BYTES, LINK, NO_EXPIRY, U32, FeedState
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import OVERHEAD_BYTES, check_key, check_time
from hyperbloom.store.records import LinkRecord

__all__ = ["DropExpiredLinks", "PutLinks", "link_key", "parse_link_record"]

_MICROSECONDS = 1_000_000


def link_key(prefix: bytes, issuer: bytes, raw: bytes) -> bytes:
    """The key of a link in a feed with this prefix."""
    return prefix + issuer + keyed_hash(raw)


def parse_link_record(key: bytes, data: bytes) -> LinkRecord:
    """A record of the links database; struct.error if it is too short."""
    trustee, expires, first_seen, introduced_by = LINK.unpack_from(data)
    return LinkRecord(
        issuer=key[U32.size : U32.size + KEY_BYTES],
        trustee=trustee,
        expires=expires,
        first_seen=first_seen,
        introduced_by=introduced_by,
        raw=data[LINK.size :],
    )


@dataclass(frozen=True, slots=True)
class PutLinks:
    """Drop the links ``gone`` of a feed (issuer and bytes of each), then keep others.

    One that is there stays as it was first seen. With MAX_LINKS_PER_FEED there, those expired at
    the newest ``first_seen`` are dropped first; then new ones are refused, as are those of an
    issuer beyond MAX_LINKS_PER_ISSUER. Result: the number of new ones. Fails with NoSuchFeed.
    """

    feed_key: bytes
    links: Sequence[LinkRecord] = ()
    gone: Sequence[tuple[bytes, bytes]] = ()

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        object.__setattr__(self, "links", tuple(self.links))
        object.__setattr__(self, "gone", tuple(self.gone))
        for link in self.links:
            check_key("issuer", link.issuer)
            check_key("trustee", link.trustee)
            check_key("introduced_by", link.introduced_by)
            check_time("first_seen", link.first_seen)
            if math.isnan(link.expires):
                raise ValueError("a link's expiry must be a number")
            if not 0 < len(link.raw) <= MAX_LINK_BYTES:
                raise ValueError(f"a link has 1 to {MAX_LINK_BYTES} bytes, not {len(link.raw)}")

    @property
    def size(self) -> int:
        return (len(self.links) + len(self.gone) + 1) * OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> int:
        feed = transaction.feed(self.feed_key)
        for issuer, raw in self.gone:
            feed.links -= transaction.delete("links", link_key(feed.prefix, issuer, raw))
        now = max((link.first_seen for link in self.links), default=0) / _MICROSECONDS
        new = 0
        for link in self.links:
            key = link_key(feed.prefix, link.issuer, link.raw)
            if transaction.get("links", key) is not None:
                continue
            if feed.links >= MAX_LINKS_PER_FEED:
                _drop_expired(transaction, feed, now)
            if feed.links >= MAX_LINKS_PER_FEED or _issuer_is_full(transaction, feed, link, now):
                continue
            head = LINK.pack(link.trustee, link.expires, link.first_seen, link.introduced_by)
            transaction.put("links", key, head + link.raw)
            feed.links += 1
            feed.link_expiry = min(feed.link_expiry, link.expires)
            new += 1
        return new


@dataclass(frozen=True, slots=True)
class DropExpiredLinks:
    """Drop the links that are expired at ``now`` (s). Result: how many. Fails with NoSuchFeed."""

    feed_key: bytes
    now: float

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        if math.isnan(self.now):
            raise ValueError("now must be a number")

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> int:
        return _drop_expired(transaction, transaction.feed(self.feed_key), self.now)


def _issuer_is_full(
    transaction: WriteTransaction, feed: FeedState, link: LinkRecord, now: float
) -> bool:
    if feed.links < MAX_LINKS_PER_ISSUER:
        return False
    if _count_of(transaction, feed, link.issuer) < MAX_LINKS_PER_ISSUER:
        return False
    _drop_expired(transaction, feed, now)
    return _count_of(transaction, feed, link.issuer) >= MAX_LINKS_PER_ISSUER


def _count_of(transaction: WriteTransaction, feed: FeedState, issuer: bytes) -> int:
    return sum(1 for _ in transaction.scan("links", feed.prefix + issuer))


def _drop_expired(transaction: WriteTransaction, feed: FeedState, now: float) -> int:
    if now <= feed.link_expiry:
        return 0
    expired = []
    feed.link_expiry = NO_EXPIRY
    for key, data in transaction.scan("links", feed.prefix):
        link = parse_link_record(key, data)
        if link.expires < now:
            expired.append(key)
        else:
            feed.link_expiry = min(feed.link_expiry, link.expires)
    for key in expired:
        transaction.delete("links", key)
    feed.links -= len(expired)
    return len(expired)
