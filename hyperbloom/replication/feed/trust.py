"""Who may write to a feed, as the node acts by it: what it proves itself with, links on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed

from hyperbloom.keys import Identity
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.membership import IssuedLinks, Membership
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.tables.links import DropExpiredLinks, PutLinks
from hyperbloom.trust import Chain, Member, TrustLink
from hyperbloom.wire import Credentials, Dialect

__all__ = ["FeedTrust"]

T = TypeVar("T")


class FeedTrust:
    """Links, members and this node's own chain on one feed; what changes is on disk first.

    `membership` is the same without store and clock.
    """

    def __init__(self, key: bytes, dialect: Dialect, context: FeedContext) -> None:
        self.key = key
        self._dialect = dialect
        self._context = context
        self._credentials: Credentials | None = None
        self.membership = Membership(
            key,
            self.identity,
            dialect,
            context.store.links(key),
            leeway=context.leeway,
            denied=context.denied,
        )

    @property
    def identity(self) -> Identity:
        """The pair by which this node proves itself here: the feed's own where it is held."""
        return self._context.identity_on(self.key)

    @property
    def is_owned(self) -> bool:
        """Whether this node holds the feed's key."""
        return self.identity.public_key == self.key

    def identity_changed(self) -> None:
        """The feed's key has come to this node, or has left it."""
        self.membership.prove_by(self.identity)

    @property
    def chain(self) -> Chain | None:
        """The chain this node proves itself with now, or None when it has none."""
        return self.membership.chain(now=self._context.now())

    def require_chain(self) -> Chain:
        """The same; raises `NotTrusted`, with what to do about it, where there is none."""
        return self.membership.require_chain(now=self._context.now())

    def credentials(self) -> Credentials | None:
        """What this node proves itself with now, or None without a chain.

        One object for all connections, while it stays the same.
        """
        chain = self.chain
        if chain is None:
            return None
        known, identity = self._credentials, self.identity
        if known is None or known.chain != chain or known.identity is not identity:
            known = self._credentials = Credentials(
                feed_key=self.key, identity=identity, chain=chain, dialect=self._dialect
            )
        return known

    def learn(self, chain: Chain, introduced_by: bytes) -> None:
        """Store the links of a chain that a peer proved."""
        put = self.membership.learn(chain, introduced_by=introduced_by, now=self._context.now())
        if put is not None:
            self._context.write(put, introduced_by)

    def add_links(self, raw: Sequence[bytes]) -> Deferred[Chain]:
        """Store a chain handed over by hand.

        Raises `ChainError` when it does not hold, `ValueError` where there is no room for it.
        """
        now = self._context.now()
        chain = self.membership.verify(raw, now=now)
        return self._when_stored(self.membership.add(chain, now=now), chain)

    def issue_link(
        self, trustee: bytes, *, expires: float, share: float = 1.0
    ) -> Deferred[TrustLink]:
        """Sign a link for `trustee` and store it; raises `NotTrusted` or `ValueError`.

        `share` is the part of the room for links that it may fill.
        """
        link, put = self.membership.issue(
            trustee,
            expires=expires,
            nonce=self._context.random_bytes(32),
            now=self._context.now(),
            share=share,
        )
        return self._when_stored(put, link)

    def _when_stored(self, put: PutLinks | None, value: T) -> Deferred[T]:
        if put is None:
            return succeed(value)
        return self._context.written(put).addCallback(lambda _: value)

    @property
    def issued(self) -> IssuedLinks:
        """The links of this node to others that hold now."""
        return self.membership.issued(now=self._context.now())

    def members(self) -> list[Member]:
        """Who may write now, through whom and until when."""
        return self.membership.members(now=self._context.now())

    def links(self) -> list[LinkRecord]:
        """Every link stored, expired ones among them until they are removed."""
        return self._context.store.links(self.key)

    def remove_expired(self, *, before: float) -> None:
        """Remove the links that expired before a moment, from graph and store."""
        self.membership.forget_expired(now=before)
        self._context.write(DropExpiredLinks(feed_key=self.key, now=before))
