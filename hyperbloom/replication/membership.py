"""Who may write to a feed, as this node knows it: the stored graph of links and its own chain.

Every chain that a peer proves itself with is learnt: its links go to the graph and to the store.
The chain this node proves itself with is always the shortest unexpired one from the feed's key to
its own, searched anew whenever the graph or the time has changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from hyperbloom.keys import Identity
from hyperbloom.store import (
    MAX_LINKS_PER_FEED,
    MAX_LINKS_PER_ISSUER,
    LinkRecord,
    PutLinks,
)
from hyperbloom.trust import (
    MAX_CHAIN_LINKS,
    Chain,
    LinkGraph,
    Member,
    TrustLink,
    issue_link,
    parse_link,
    verify_chain,
)
from hyperbloom.wire import Dialect

__all__ = ["Membership", "NotTrusted"]


class NotTrusted(Exception):
    """This node has no unexpired chain of links from the feed to its key; the text says so."""


class Membership:
    """The links of one feed and the chains found in them. Times are seconds since 1970."""

    def __init__(
        self,
        feed_key: bytes,
        identity: Identity,
        dialect: Dialect,
        records: Iterable[LinkRecord],
        *,
        leeway: float = 0.0,
    ) -> None:
        self.feed_key = feed_key
        self._identity = identity
        self._format = dialect.link_format
        self._leeway = leeway
        self._graph = LinkGraph(feed_key)
        self._known: set[bytes] = set()
        self._chain: Chain | None = None
        self._searched_until = -math.inf
        for record in records:
            self._graph.add(record.issuer, parse_link(record.raw, self._format))
            self._known.add(record.raw)
        self._issued = Counter(issuer for issuer, _ in self._graph.links())

    def chain(self, *, now: float) -> Chain | None:
        """The chain this node proves itself with at `now`, or None when it has none."""
        if now > self._searched_until:
            self._chain = self._graph.shortest_chain(self._identity.public_key, now=now)
            self._searched_until = math.inf if self._chain is None else self._chain.expires
        return self._chain

    def require_chain(self, *, now: float) -> Chain:
        """Like `chain`, but raises `NotTrusted` with what to do about it."""
        chain = self.chain(now=now)
        if chain is None:
            expired = any(
                link.public_key == self._identity.public_key for _, link in self._graph.links()
            )
            reason = (
                "every link to this node's key has expired"
                if expired
                else ("no chain of links leads from the feed to this node's key")
            )
            raise NotTrusted(f"{reason}; ask a member for an invitation")
        return chain

    def verify(self, raw: Sequence[bytes], *, now: float) -> Chain:
        """A chain handed over as bytes, checked; raises `ChainError`."""
        return verify_chain(self.feed_key, raw, now=now, leeway=self._leeway, format=self._format)

    def learn(self, chain: Chain, *, introduced_by: bytes, seen_at: int) -> PutLinks | None:
        """Take a verified chain in; what is to be stored of it (seen_at in µs), or None."""
        fresh = [
            (issuer, link) for issuer, link in chain.issuers() if link.to_bytes() not in self._known
        ]
        if not fresh or not self._has_room(fresh):
            return None
        return self._take(fresh, introduced_by=introduced_by, seen_at=seen_at)

    def issue(
        self, trustee: bytes, *, expires: float, nonce: bytes, now: float
    ) -> tuple[TrustLink, PutLinks]:
        """Sign a link for `trustee`, never outliving this node's own chain.

        Raises `NotTrusted` without a chain of our own, `ValueError` where the result could not be
        used: a chain would be too long, the expiry has passed, or the trustee is the feed itself.
        """
        chain = self.require_chain(now=now)
        if len(chain) >= MAX_CHAIN_LINKS:
            raise ValueError(
                f"this node is {len(chain)} links away from the feed, the most there may be: "
                "it cannot invite others"
            )
        if expires <= now:
            raise ValueError("the link would already have expired")
        if trustee in (self.feed_key, self._identity.public_key):
            raise ValueError("a link is for another node's key; this one can write already")
        link = issue_link(
            self._identity,
            trustee,
            expires=min(expires, chain.expires),
            nonce=nonce,
            format=self._format,
        )
        if not self._has_room([(self._identity.public_key, link)]):
            raise ValueError(
                f"the feed holds as many links as it may ({MAX_LINKS_PER_FEED} in all, "
                f"{MAX_LINKS_PER_ISSUER} of one issuer); wait until some have expired"
            )
        put = self._take(
            [(self._identity.public_key, link)],
            introduced_by=self._identity.public_key,
            seen_at=int(now * 1e6),
        )
        return link, put

    def shortest_chain(self, identity: bytes, *, now: float) -> Chain | None:
        """The chain by which `identity` may write at `now`, or None."""
        return self._graph.shortest_chain(identity, now=now)

    def members(self, *, now: float) -> list[Member]:
        """Who may write at `now`, through whom and until when."""
        return self._graph.members(now=now)

    def forget_expired(self, *, now: float) -> None:
        """Drop links that have expired, as the store does with its records."""
        for issuer, link in list(self._graph.links()):
            if link.expires < now:
                self._graph.discard(issuer, link)
                self._known.discard(link.to_bytes())
                self._issued[issuer] -= 1

    def _has_room(self, links: Sequence[tuple[bytes, TrustLink]]) -> bool:
        return len(self._known) + len(links) <= MAX_LINKS_PER_FEED and all(
            self._issued[issuer] < MAX_LINKS_PER_ISSUER for issuer, _ in links
        )

    def _take(
        self, links: Sequence[tuple[bytes, TrustLink]], *, introduced_by: bytes, seen_at: int
    ) -> PutLinks:
        self._searched_until = -math.inf
        records = []
        for issuer, link in links:
            self._graph.add(issuer, link)
            raw = link.to_bytes()
            self._known.add(raw)
            self._issued[issuer] += 1
            records.append(
                LinkRecord(
                    issuer=issuer,
                    trustee=link.public_key,
                    expires=link.expires,
                    first_seen=seen_at,
                    introduced_by=introduced_by,
                    raw=raw,
                )
            )
        return PutLinks(feed_key=self.feed_key, links=tuple(records))
