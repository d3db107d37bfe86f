"""Who may write to a feed, as the node acts by it: what it proves itself with, links on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from twisted.internet.defer import Deferred, succeed

from hyperbloom.keys import Identity
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.membership import IssuedLinks, Membership
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.tables.links import DropExpiredLinks, PutLinks
from hyperbloom.store.tables.pending import DropPending, PutPending
from hyperbloom.trust import Chain, Member, Path, TrustLink, path_of
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
        #: Keys that were invited by hand and have not come yet, and when they were (µs).
        self._pending = {found.key: found.invited_at for found in context.store.pending(key)}
        #: Called with each link that was issued by hand, when it is on disk.
        self.issued_by_hand: Callable[[TrustLink], None] | None = None
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

    @property
    def writes_until(self) -> float | None:
        """Until when this node may write if nothing changes; None: it may not now."""
        return self.membership.writes_until(now=self._context.now())

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

    def path_of(self, chain: Chain) -> Path:
        """The path that a peer with this chain counts by (`hyperbloom.trust.branch`)."""
        return path_of(chain, own_key=self.identity.public_key)

    def learn(self, chain: Chain, introduced_by: bytes, path: Path | None = None) -> None:
        """Store the links of a chain that a peer proved; ``path``: by which it takes its turn."""
        self._have_come(chain.keys)
        put = self.membership.learn(chain, introduced_by=introduced_by, now=self._context.now())
        if put is not None:
            self._context.write(put, path or (introduced_by,))

    def add_links(self, raw: Sequence[bytes]) -> Deferred[Chain]:
        """Store a chain handed over by hand.

        Raises `ChainError` when it does not hold, `ValueError` where there is no room for it.
        """
        now = self._context.now()
        chain = self.membership.verify(raw, now=now)
        return self._when_stored(self.membership.add(chain, now=now), chain)

    def issue_link(
        self, trustee: bytes, *, expires: float, share: float = 1.0, shortens: Chain | None = None
    ) -> Deferred[TrustLink]:
        """Sign a link for `trustee` and store it; raises `NotTrusted` or `ValueError`.

        `share` is the part of the room for links that it may fill. `shortens`: see
        `Membership.issue`.
        """
        link, put = self.membership.issue(
            trustee,
            expires=expires,
            nonce=self._context.random_bytes(32),
            now=self._context.now(),
            share=share,
            shortens=shortens,
        )
        stored = self._when_stored(put, link)
        return stored.addCallback(self._tell_issued) if shortens is None else stored

    def _tell_issued(self, link: TrustLink) -> TrustLink:
        if self.issued_by_hand is not None:
            self.issued_by_hand(link)
        return link

    def invite(self, trustee: bytes, *, expires: float) -> Deferred[TrustLink]:
        """Like `issue_link`, by hand: a key that could not write is `invited` until it comes."""
        now = self._context.now()
        is_member = bool(self.membership.writers_among((trustee,), now=now))
        issued = self.issue_link(trustee, expires=expires)
        if not is_member:
            self._pending[trustee] = at = int(now * 1e6)
            self._context.write(PutPending(self.key, trustee, at))
        return issued

    def invited(self) -> dict[bytes, float]:
        """The keys that this node has invited and not seen here yet, and when it did (seconds).

        They may write, should they come: somebody may have the invitation, or nobody.
        """
        if not self._pending:
            return {}
        holders = self.membership.holders(now=self._context.now())
        return {
            key: at / 1e6
            for key, at in self._pending.items()
            if key in holders and key not in self._context.denied
        }

    def _have_come(self, keys: Iterable[bytes]) -> None:
        """These keys are pending no more: they have proved themselves, or their links are gone."""
        came = [key for key in keys if self._pending.pop(key, None) is not None]
        if came:
            self._context.write(DropPending(self.key, came))

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

    def prune(self, *, before: float) -> None:
        """Remove the links that lead nobody anywhere since a moment, from graph and store."""
        self.membership.prune(before=before)
        dropped = self.membership.take_dropped()
        if dropped is not None:
            self._context.write(dropped)
        if self._pending:
            self._have_come(self._pending.keys() - self.membership.holders(now=before))
        self._context.write(DropExpiredLinks(feed_key=self.key, now=before))
