"""Who may write to a feed, as this node knows it: the stored graph of links and its own chain.

Every chain that a peer proves itself with is learnt: its links go to the graph and to the store.
The chain this node proves itself with is always the shortest unexpired one from the feed's key to
its own; it is searched again when the graph or the time has changed.

Links are as many as a member cares to sign. So where there is no room for a new chain, the branch
with most links gives some of its own (`LinkGraph.surplus`), and nobody else does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.keys import Identity, keyed_hash
from hyperbloom.replication.deny_list import DenyList
from hyperbloom.replication.limits import AUTOMATIC_LINKS, LINKS_FREED, LOOKS_FOR_ROOM_SECONDS
from hyperbloom.store.limits import MAX_LINKS_PER_FEED, MAX_LINKS_PER_ISSUER
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.trust import (
    MAX_CHAIN_LINKS,
    Chain,
    LinkGraph,
    Member,
    Path,
    TrustLink,
    automatic_nonce,
    issue_link,
    owner_chain,
    parse_link,
    path_of,
    shortened_by,
    verify_chain,
)
from hyperbloom.wire import Dialect

__all__ = ["IssuedLinks", "KeyDenied", "Membership", "NotTrusted"]

#: The part of the room for links that what peers bring may fill; the rest is for what is issued
#: or handed over by hand, so that no member can shut others out with links it makes up.
PEERS_SHARE = 0.75

#: A link that was issued by hand says so in its nonce: the last bytes are a hash of the others and
#: the trustee, keyed by the issuer's secret. To everybody else they are random.
_MARK_BYTES = 8
_MARK = b"issued by hand"

#: Chains looked at, one after the other, for the last moment at which this node may write.
_MOST_CHAINS = 8

_NO_ROOM = (
    f"the feed holds as many links as it may ({MAX_LINKS_PER_FEED} in all, "
    f"{MAX_LINKS_PER_ISSUER} of one issuer); wait until some have expired"
)

#: A link with the key of its issuer.
_Issued = tuple[bytes, TrustLink]


class NotTrusted(HyperbloomError):
    """This node has no unexpired chain of links from the feed to its key; the text says so."""

    kind = ErrorKind.NOT_TRUSTED


class KeyDenied(NotTrusted):
    """A key is on the deny list of this node; the text says what that keeps from happening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedLinks:
    """How many keys hold a link of this node that counts, and when the first of them ends.

    `first_expires` in seconds since 1970, None: none of them ever ends.
    """

    count: int
    first_expires: float | None


class Membership:
    """The links of one feed and the chains found in them. Times are seconds since 1970."""

    def __init__(
        self,
        feed_key: bytes,
        identity: Identity,
        dialect: Dialect,
        records: Iterable[LinkRecord],
        *,
        leeway: float,
        denied: DenyList,
    ) -> None:
        self.feed_key = feed_key
        self._denied = denied
        self._identity = identity
        self._format = dialect.link_format
        self._leeway = leeway
        self._graph = LinkGraph(feed_key, self._format)
        #: Stored links in the form of a dialect that the feed was configured with before.
        self.unreadable = 0
        self._chain: Chain | None = None
        self._searched_at, self._searched_until = math.inf, -math.inf
        self._lasts: float | None = None
        self._issued = IssuedLinks(count=0, first_expires=None)
        self._counted_at, self._counted_until = math.inf, -math.inf
        #: What is gone here and not on disk yet.
        self._dropped: list[_Issued] = []
        #: No room was found for a chain of a branch, and is not looked for again until then.
        self._full: tuple[Path, float] = ((), -math.inf)
        for record in records:
            if len(record.raw) != self._format.link_bytes:
                self.unreadable += 1
                continue
            self._graph.add(record.issuer, parse_link(record.raw, self._format))

    def chain(self, *, now: float) -> Chain | None:
        """The chain this node proves itself with at `now`, or None when it has none."""
        # A clock that was wrong and has been set back counts as well.
        if not self._searched_at <= now <= self._searched_until:
            self._searched_at = now
            self._chain = self._search(now)
            self._searched_until = math.inf if self._chain is None else self._chain.expires
            self._lasts = None
        return self._chain

    def writes_until(self, *, now: float) -> float | None:
        """Until when this node may write if nothing changes; None: it may not at `now`.

        Where the chain of now ends, another one may go on: a longer one, or one renewed.
        """
        chain = self.chain(now=now)
        if chain is None:
            return None
        if self._lasts is None:
            lasts = chain.expires
            for _ in range(_MOST_CHAINS if math.isfinite(lasts) else 0):
                later = self.shortest_chain(chain.holder, now=math.nextafter(lasts, math.inf))
                if later is None:
                    break
                lasts = later.expires
            self._lasts = lasts
        return self._lasts

    def _search(self, now: float) -> Chain | None:
        if self._identity.public_key == self.feed_key:
            return owner_chain(self._identity, format=self._format)
        return self.shortest_chain(self._identity.public_key, now=now)

    @property
    def was_member(self) -> bool:
        """Whether a link to this node's key is known, though it may hold no more."""
        return self._graph.names(self._identity.public_key)

    def require_chain(self, *, now: float) -> Chain:
        """Like `chain`, but raises `NotTrusted` with what to do about it."""
        chain = self.chain(now=now)
        if chain is None:
            own = self._identity.public_key
            if self._graph.shortest_chain(own, now=now) is not None:
                raise KeyDenied(
                    "every chain to this node's key leads through a key that this node denies; "
                    "ask another member for an invitation, or allow the key (`trust allow`)"
                )
            reason = (
                "every link to this node's key has expired"
                if self.was_member
                else ("no chain of links leads from the feed to this node's key")
            )
            raise NotTrusted(f"{reason}; ask a member for an invitation")
        return chain

    def verify(self, raw: Sequence[bytes], *, now: float) -> Chain:
        """A chain handed over as bytes, checked; raises `ChainError`, `KeyDenied`."""
        chain = verify_chain(self.feed_key, raw, now=now, leeway=self._leeway, format=self._format)
        denied = self.denied_in(chain)
        if denied is not None:
            raise KeyDenied(
                f"the chain leads to or through {denied.hex()}, which this node denies; "
                "see `trust denied`"
            )
        return chain

    def denied_in(self, chain: Chain) -> bytes | None:
        """The denied key that a chain leads to or through, be it left out since; or None."""
        denied = self._denied.first_of(chain)
        if denied is not None or not self._denied:
            return denied
        own = self._identity.public_key
        links = (link for issuer, link in chain.issuers() if issuer == own)
        return next(filter(None, map(self._unmarked_by, links)), None)

    def _unmarked_by(self, link: TrustLink) -> bytes | None:
        """The denied key whose way a link of ours may have shortened before links said so.

        Who has a link by hand since is not asked. Others have the link for the way that they came
        by: if every other way to them is denied by now, so is this one.
        """
        own = self._identity.public_key
        given = self._graph.between(own, link.public_key)
        if shortened_by(link) or any(map(self._is_by_hand, given)):
            return None
        ways = [
            self._graph.shortest_chain(issuer, now=-math.inf)
            for issuer in self._graph.issuers_of(link.public_key) - {own}
        ]
        denied = [None if way is None else self._denied.first_of(way) for way in ways]
        return denied[0] if all(denied) and denied else None

    def prove_by(self, identity: Identity) -> None:
        """This node proves itself on the feed by another pair from now on."""
        self._identity = identity
        self.look_anew()

    def look_anew(self) -> None:
        """Search for chains again: this node's key, its links or the deny list have changed."""
        self._searched_until = self._counted_until = -math.inf

    def issued(self, *, now: float) -> IssuedLinks:
        """The links that this node has issued and that hold at `now`, but those to denied keys.

        Counted again only when one of them was added or has ended: a peer cannot have it done.
        """
        if not self._counted_at <= now <= self._counted_until:
            links = self._graph.expiries_of(self._identity.public_key)
            lasting = [
                expires
                for key, expires in links.items()
                if expires >= now and key not in self._denied
            ]
            first = min(lasting, default=math.inf)
            self._counted_at, self._counted_until = now, first
            self._issued = IssuedLinks(
                count=len(lasting), first_expires=first if math.isfinite(first) else None
            )
        return self._issued

    def learn(self, chain: Chain, *, introduced_by: bytes, now: float) -> PutLinks | None:
        """Take in a verified chain that a peer brought; what is to be stored of it, or None."""
        if self.denied_in(chain) is not None:
            return None
        fresh = self._fresh(chain)
        if not fresh or not self._make_room(fresh, chain, now=now, share=PEERS_SHARE):
            return None
        return self._take(fresh, chain, by=introduced_by, now=now)

    def add(self, chain: Chain, *, now: float) -> PutLinks | None:
        """Take in a verified chain handed over by hand; what is to be stored of it, or None.

        Raises `ValueError` where there is no room for it.
        """
        fresh = self._fresh(chain)
        if not fresh:
            return None
        if not self._make_room(fresh, chain, now=now, share=1.0):
            raise ValueError(_NO_ROOM)
        return self._take(fresh, chain, by=self._identity.public_key, now=now)

    def issue(
        self,
        trustee: bytes,
        *,
        expires: float,
        nonce: bytes,
        now: float,
        share: float,
        shortens: Chain | None = None,
    ) -> tuple[TrustLink, PutLinks]:
        """Sign a link for `trustee`, never outliving this node's own chain.

        The same link is given again to who comes again. `share` is the part of the room for links
        that it may fill. `shortens`: the trustee's chain, of which the link is a shorter form; it
        holds as long as the chain does, and a branch has AUTOMATIC_LINKS of them. Without one a
        person wants the trustee to write: the link may be renewed, and takes the place of those
        that end no later. `nonce`: 32 fresh random bytes. Raises
        `NotTrusted` without a chain of our own, `ValueError` where there is no room or the result
        could not be used: a chain would be too long, the expiry has passed, the trustee is the feed
        itself, or an end is asked of links that have none.
        """
        chain = self.require_chain(now=now)
        if len(chain) >= MAX_CHAIN_LINKS:
            raise ValueError(
                f"this node is {len(chain)} links away from the feed, the most there may be: "
                "it cannot invite others"
            )
        if not self._format.has_expiry and math.isfinite(expires):
            raise ValueError(
                "links of this feed's dialect never expire: whoever gets one may write for good; "
                "if that is what you want, say so (--expires never)"
            )
        if trustee in self._denied:
            raise KeyDenied("this node denies that key; allow it first (`trust allow`)")
        if expires <= now:
            raise ValueError("the link would already have expired")
        if trustee in (self.feed_key, self._identity.public_key):
            raise ValueError("a link is for another node's key; this one can write already")
        own = self._identity.public_key
        lasting = min(expires, chain.expires)
        if self._format.has_expiry and math.isinf(lasting):
            raise ValueError("links of this feed's dialect have to expire: say when")
        if shortens is None:
            nonce = self._marked(nonce, trustee)
        else:
            left_out = path_of(shortens, own_key=own)[:-1]
            nonce = automatic_nonce(left_out, trustee)
        known = self._graph.between(own, trustee)
        for link in known:
            if link.expires == lasting and (link.nonce == nonce or self._is_by_hand(link)):
                return link, self._records([(own, link)], chain, by=own, now=now)
        if shortens is not None and self._automatic(left_out[0], now) >= AUTOMATIC_LINKS:
            raise ValueError(f"its branch has {AUTOMATIC_LINKS} shorter chains, as many as it may")
        link = issue_link(
            self._identity, trustee, expires=lasting, nonce=nonce, format=self._format
        )
        replaced = [(own, old) for old in known if shortens is None and old.expires <= lasting]
        room = self._make_room([(own, link)], shortens, now=now, share=share, spare=len(replaced))
        if not room:
            raise ValueError(_NO_ROOM)
        self._drop(replaced)
        return link, self._take([(own, link)], chain, by=own, now=now)

    def _automatic(self, branch: bytes, now: float) -> int:
        """How many links of ours that hold shorten a way in a branch."""
        links = self._graph.links_of(self._identity.public_key)
        return sum(link.nonce.startswith(branch) and link.expires >= now for link in links)

    def _marked(self, nonce: bytes, trustee: bytes) -> bytes:
        front = nonce[:-_MARK_BYTES]
        return front + keyed_hash(_MARK, trustee, front, key=self._identity.seed)[:_MARK_BYTES]

    def _is_by_hand(self, link: TrustLink) -> bool:
        return link.nonce == self._marked(link.nonce, link.public_key)

    def renewable(self, trustee: bytes) -> TrustLink | None:
        """The longest link to a key that this node has issued by hand; None also to one denied."""
        if trustee in self._denied or not self._format.has_expiry:
            return None
        links = self._graph.between(self._identity.public_key, trustee)
        by_hand = [link for link in links if self._is_by_hand(link)]
        return max(by_hand, key=lambda link: link.expires, default=None)

    def holders(self, *, now: float) -> set[bytes]:
        """The keys that hold a link of this node at `now`; reads all its links."""
        expiries = self._graph.expiries_of(self._identity.public_key)
        return {key for key, expires in expiries.items() if expires >= now}

    def shortest_chain(self, identity: bytes, *, now: float) -> Chain | None:
        """The chain by which `identity` may write at `now`, or None."""
        return self._graph.shortest_chain(identity, now=now, without=self._denied.excluded)

    def writers_among(self, keys: Iterable[bytes], *, now: float) -> set[bytes]:
        """Those of these keys that may write at `now`."""
        return self._graph.writers_among(keys, now=now, without=self._denied.excluded)

    @property
    def has_links(self) -> bool:
        """Whether anybody was ever invited, as far as this node knows."""
        return len(self._graph) > 0

    def members(self, *, now: float) -> list[Member]:
        """Who may write at `now`, through whom and until when."""
        return self._graph.members(now=now, without=self._denied.excluded)

    def prune(self, *, before: float) -> None:
        """Drop the links that lead nobody anywhere since a moment (`take_dropped`).

        Those that have expired, and all below a key that is denied or not reached any more. The
        chain of this node, and what it has issued, stay while they last: the key may be let in
        again.
        """
        own = self._identity.public_key
        chain = self._graph.shortest_chain(own, now=before)
        keep = {own, *(() if chain is None else chain.keys)}
        self._dropped += self._graph.prune(before=before, without=self._denied.excluded, keep=keep)

    def _drop(self, links: Iterable[_Issued]) -> None:
        self._dropped += [one for one in links if self._graph.discard(*one)]

    def take_dropped(self) -> PutLinks | None:
        """What is to be removed from the store, or None; it counts as removed from now on."""
        return (
            self._records([], Chain(self.feed_key), by=self.feed_key, now=0)
            if self._dropped
            else None
        )

    def _fresh(self, chain: Chain) -> list[_Issued]:
        # A link to the feed's own key, as owners show in the draft, says nothing about members.
        return [
            (issuer, link)
            for issuer, link in chain.issuers()
            if link.public_key != self.feed_key and not self._graph.has(issuer, link)
        ]

    def _make_room(
        self,
        links: Sequence[_Issued],
        chain: Chain | None,
        *,
        now: float,
        share: float,
        spare: int = 0,
    ) -> bool:
        """Whether there is room for new links; others may have to go for it.

        `chain`: of which they are, None: this node's own. `spare`: links that go anyway.
        """
        if self._fits(links, share, spare):
            return True
        path = () if chain is None else path_of(chain, own_key=self._identity.public_key)
        full, until = self._full
        if path and full == path[: len(full)] and now < until:
            return False
        self.prune(before=now)
        if not self._fits(links, share, spare) and self._fits(links, share, spare, in_all=False):
            own = self.shortest_chain(self._identity.public_key, now=now)
            keep = {self._identity.public_key, *(() if own is None else own.keys)}
            newcomer = () if chain is None else chain.keys
            surplus = self._graph.surplus(newcomer, most=LINKS_FREED, now=now, keep=keep)
            self._drop(one for one in surplus if not self._is_by_hand(one[1]))
        if self._fits(links, share, spare):
            return True
        if path:
            self._full = path[:1], now + LOOKS_FOR_ROOM_SECONDS
        return False

    def _fits(
        self, links: Sequence[_Issued], share: float, spare: int, *, in_all: bool = True
    ) -> bool:
        is_in_all = len(self._graph) + len(links) - spare <= share * MAX_LINKS_PER_FEED
        return (is_in_all or not in_all) and all(
            self._graph.count_of(issuer) - spare < share * MAX_LINKS_PER_ISSUER
            for issuer, _ in links
        )

    def _take(self, links: Sequence[_Issued], chain: Chain, *, by: bytes, now: float) -> PutLinks:
        self._searched_until = -math.inf
        for issuer, link in links:
            self._graph.add(issuer, link)
            if issuer == self._identity.public_key:
                self._counted_until = -math.inf
        return self._records(links, chain, by=by, now=now)

    def _records(
        self, links: Sequence[_Issued], chain: Chain, *, by: bytes, now: float
    ) -> PutLinks:
        """Links as they are stored, each until the chain that it came with ends, and what is gone.

        A member may say of a link that it never ends; it is of no use beyond those before it.
        """
        ends, until = {}, math.inf
        for _, link in chain.issuers():
            ends[link] = until = min(until, link.expires)
        records = [
            LinkRecord(
                issuer=issuer,
                trustee=link.public_key,
                expires=ends.get(link, link.expires),
                first_seen=int(now * 1e6),
                introduced_by=by,
                raw=link.to_bytes(),
            )
            for issuer, link in links
        ]
        dropped = tuple((issuer, link.to_bytes()) for issuer, link in self._dropped)
        self._dropped = []
        return PutLinks(feed_key=self.feed_key, links=tuple(records), gone=dropped)
