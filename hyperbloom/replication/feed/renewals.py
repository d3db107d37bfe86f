"""Trust links renewed over a connection: what peers are offered, and what is taken of them.

Two kinds of chains are offered to a peer whose chain ends soon. One is a link that was issued here
by hand and that the peer does not have yet. The other is a new link in place of one that was issued
by hand and still holds: only where `[trust] renew_links` allows it, and no longer than
`renew_for`. What this node issued by itself (`issue_links`) only shortens a way that somebody else
has opened, and is never renewed.

A peer is asked nothing and owes no answer; it is offered a chain once. What comes is verified like
any chain, and taken if it ends with a link of the peer's own to this node and lasts longer than
what is here. (docs/extensions/renew-links.md)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.feed_words import LINK_ENDS_SOON
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.membership import PEERS_SHARE, KeyDenied, NotTrusted
from hyperbloom.replication.feed.trust import FeedTrust
from hyperbloom.replication.limits import MAX_RENEWERS, RENEWAL_SECONDS
from hyperbloom.store import StoreError
from hyperbloom.trust import Chain, ChainError, ChainForged, ChainMalformed, Path, TrustLink
from hyperbloom.trust.path_memory import PathMemory
from hyperbloom.units import format_moment

__all__ = ["RenewalPeer", "Renewals"]

#: Seconds after which a peer whose chain ends soon is looked at again.
AGAIN_SECONDS = 1.0
#: A new link lasts longer than what the peer has by this part of `renew_for`, or as long as the
#: chain of this node itself: so links are not renewed again and again.
LEAST_GAIN = 1 / 4
#: Clocks and floats: what lasts longer by less than this does not.
_NOTHING = 0.001

log = Logger()


class RenewalPeer(Protocol):
    """A secure peer, as far as it is known here (`sync.peer.Peering`)."""

    @property
    def remote_key(self) -> bytes: ...
    @property
    def path(self) -> Path: ...
    @property
    def remote_until(self) -> float: ...
    @property
    def takes_renewals(self) -> bool: ...

    def send_renewal(self, chain: Chain) -> None:
        """Send a chain to the peer's key."""

    def has_new_chain(self, chain: Chain) -> None:
        """The peer has brought this node the chain that it proves itself with from now on."""

    def say(self, kind: str, what: str) -> None:
        """Something of the peer's, for the log."""

    def broke_a_rule(self, what: str) -> None:
        """The peer broke a rule, in words."""


class Renewals:
    """The renewals of one feed; `log_name` is the feed's in the log. Times: seconds since 1970."""

    def __init__(
        self,
        trust: FeedTrust,
        context: FeedContext,
        peers: Iterable[RenewalPeer],
        log_name: Callable[[], str],
    ) -> None:
        self._trust = trust
        self._context = context
        self._peers = peers
        self._log_name = log_name
        #: Until when the chain lasts that a peer was offered, and when to look at it again (seconds
        #: of the clock); of peers whose chain ends soon.
        self._offered: dict[RenewalPeer, tuple[float, float]] = {}
        #: When something of a key was looked at last, in seconds of the clock.
        self._came: PathMemory[bytes, float] = PathMemory(MAX_RENEWERS)
        trust.issued_by_hand = self._hand_over

    def gone(self, peer: RenewalPeer) -> None:
        """The connection is over."""
        self._offered.pop(peer, None)

    # What peers are offered

    def look(self, peer: RenewalPeer) -> None:
        """Offer the peer a chain if its own ends soon and there is a longer one; often called."""
        now, moment = self._context.now(), self._context.clock.seconds()
        soon = max(LINK_ENDS_SOON, self._context.trust.renew_within)
        if peer.remote_until - now >= soon or not peer.takes_renewals:
            return
        offered, again = self._offered.get(peer, (-math.inf, -math.inf))
        if moment >= again:
            self._offered[peer] = offered, moment + AGAIN_SECONDS
            self._offer(peer, now)

    def _offer(self, peer: RenewalPeer, now: float) -> None:
        own, link = self._trust.chain, self._trust.membership.renewable(peer.remote_key)
        if own is None or link is None:
            return
        lasts = min(link.expires, own.expires)
        has = max(peer.remote_until, self._offered.get(peer, (-math.inf, 0.0))[0])
        settings = self._context.trust
        is_due = settings.renew_links and max(lasts, has) - now < settings.renew_within
        if is_due and link.expires >= now:
            ends = min(now + settings.renew_for, own.expires)
            gain = ends - max(lasts, has)
            least = _NOTHING if ends == own.expires else settings.renew_for * LEAST_GAIN
            if gain > least:
                self._renew(peer, ends)
                return
        if lasts > has + _NOTHING:
            self._send(peer, link)

    def _renew(self, peer: RenewalPeer, ends: float) -> None:
        self._has_been_offered(peer, ends)
        try:
            issued = self._trust.issue_link(peer.remote_key, expires=ends, share=PEERS_SHARE)
        except (NotTrusted, ValueError) as error:
            peer.say("no-renewal", f"its link is not renewed: {error}")
            return
        issued.addCallback(lambda link: self._send(peer, link)).addErrback(_not_stored)

    def _hand_over(self, link: TrustLink) -> None:
        """A link was issued by hand: whoever is connected has it at once."""
        for peer in self._peers:
            if peer.remote_key == link.public_key and peer.takes_renewals:
                self._offer(peer, self._context.now())

    def _send(self, peer: RenewalPeer, link: TrustLink) -> None:
        own = self._trust.chain
        if own is None or link.public_key in self._context.denied:
            return
        try:
            chain = own.extended(link)
        except ValueError:  # this node's own chain has become too long meanwhile
            return
        self._has_been_offered(peer, chain.expires)
        peer.send_renewal(chain)
        peer.say("renewed", f"its link is renewed until {format_moment(chain.expires)}")

    def _has_been_offered(self, peer: RenewalPeer, until: float) -> None:
        again = self._context.clock.seconds() + AGAIN_SECONDS
        self._offered[peer] = max(until, self._offered.get(peer, (until, 0.0))[0]), again

    # What peers bring

    def take(self, peer: RenewalPeer, links: tuple[bytes, ...]) -> None:
        """A peer has sent a chain: verify it, and keep it if it lets this node write for longer."""
        if not self._may_come(peer.path):
            return
        now, membership = self._context.now(), self._trust.membership
        try:
            chain = membership.verify(links, now=now)
        except (ChainForged, ChainMalformed) as error:
            peer.broke_a_rule(f"it sent a renewed chain that does not hold: {error}")
            return
        except (ChainError, KeyDenied) as error:
            peer.say("no-renewal", f"a renewed chain of it is not taken: {error}")
            return
        own = self._trust.identity.public_key
        if chain.holder != own or chain.is_owners or chain.keys[-2] != peer.remote_key:
            peer.broke_a_rule(
                "it sent a renewed chain that is not for this node's key, or not its own"
            )
            return
        until = membership.writes_until(now=now)
        if until is not None and chain.expires <= until:
            return
        put = membership.learn(chain, introduced_by=peer.remote_key, now=now)
        if put is None:
            peer.say("no-renewal", "a renewed chain of it is not taken: there is no room for it")
            return
        stored = self._context.written(put, peer.path)
        stored.addCallback(lambda _: self._renewed(peer)).addErrback(_not_stored)

    def _renewed(self, peer: RenewalPeer) -> None:
        chain, now = self._trust.chain, self._context.now()
        until = self._trust.membership.writes_until(now=now)
        if chain is None or until is None:
            return
        log.info(
            "This node may write to {feed} until {until}: {peer_key} has renewed its link",
            feed=self._log_name(),
            until=format_moment(until),
            peer_key=peer.remote_key.hex()[:16],
        )
        peer.has_new_chain(chain)

    def _may_come(self, path: Path) -> bool:
        moment, came = self._context.clock.seconds(), self._came.get(path[-1])
        if came is not None and moment - came < RENEWAL_SECONDS:
            return False
        self._came.put(path, path[-1], moment)
        return True


def _not_stored(failure: Failure) -> None:
    if failure.check(StoreError):
        log.error("A renewed link could not be stored: {why}", why=failure.value)
    else:
        log.failure("A link could not be renewed", failure=failure)
