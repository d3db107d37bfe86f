"""The graph of all trust links known for a feed.

Nodes are public keys, edges are links from issuer to trustee. A key may write if the feed's key
reaches it by at most five edges that have not expired. Of the chains to a key the shortest is the
best (it leaves the most room to hand trust on), and among the shortest the one that lasts longest.

Both are found in one walk, layer by layer from the feed's key. Every shortest chain to a key of
layer d runs through one key of each layer before, so the latest expiry by which such a chain can
reach it is the maximum, over its issuers in layer d - 1, of the lesser of the issuer's own best
and the link's expiry. Once a layer is complete its figures are final. A walk looks at each link
once.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from hyperbloom.trust.chain import MAX_CHAIN_LINKS, Chain
from hyperbloom.trust.link import TrustLink

__all__ = ["LinkGraph", "Member"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A key that may write to a feed by links from others.

    ``depth``: links in its best chain, 1 to 5. ``introduced_by``: who issued the last of them.
    ``expires``: until when that chain lasts, in seconds since 1970.
    """

    key: bytes
    depth: int
    introduced_by: bytes
    expires: float


@dataclass(frozen=True, slots=True)
class _Reach:
    """The best way to a key: its last link and issuer, and when the whole way expires."""

    expires: float
    issuer: bytes
    link: TrustLink

    def beats(self, other: _Reach) -> bool:
        # Below equal expiries the lower issuer wins, so that the order of adding does not matter.
        return (-self.expires, self.issuer) < (-other.expires, other.issuer)


class LinkGraph:
    """Trust links of the feed ``feed_key``; holds any number, bounded by who adds them.

    Only verified links may go in (from :func:`verify_chain`, or checked with
    ``TrustLink.is_signed_by``); signatures are not looked at again here.
    """

    def __init__(self, feed_key: bytes) -> None:
        self._root = Chain(feed_key)
        # issuer -> trustee -> links, of which one pair may have many; dicts keep the order.
        self._links: dict[bytes, dict[bytes, dict[TrustLink, None]]] = {}

    @property
    def feed_key(self) -> bytes:
        """The key all trust starts from."""
        return self._root.feed_key

    def add(self, issuer_key: bytes, link: TrustLink) -> bool:
        """Add a verified link; whether it was new."""
        alike = self._links.setdefault(issuer_key, {}).setdefault(link.public_key, {})
        if link in alike:
            return False
        alike[link] = None
        return True

    def discard(self, issuer_key: bytes, link: TrustLink) -> bool:
        """Remove a link; whether it was there."""
        trustees = self._links.get(issuer_key, {})
        alike = trustees.get(link.public_key, {})
        if link not in alike:
            return False
        del alike[link]
        if not alike:
            del trustees[link.public_key]
        if not trustees:
            del self._links[issuer_key]
        return True

    def links(self) -> list[tuple[bytes, TrustLink]]:
        """All links, expired and unreachable ones too, each with its issuer's key."""
        return [
            (issuer, link)
            for issuer, trustees in self._links.items()
            for alike in trustees.values()
            for link in alike
        ]

    def shortest_chain(
        self, identity: bytes, *, now: float, leeway: float = 0.0, without: Container[bytes] = ()
    ) -> Chain | None:
        """The best chain for a key at ``now``, or None if it may not write.

        ``now`` is in seconds since 1970; ``leeway`` seconds are granted past each expiry. The
        feed's own key has the empty chain. No chain leads to or through a key of ``without``.
        """
        if identity == self.feed_key:
            return None if identity in without else self._root
        layers: list[dict[bytes, _Reach]] = []
        for layer in self._layers(now, leeway, without):
            layers.append(layer)
            if identity in layer:
                return self._trace(identity, layers)
        return None

    def writers_among(
        self, keys: Iterable[bytes], *, now: float, without: Container[bytes] = ()
    ) -> set[bytes]:
        """Those of these keys that may write at ``now``: one search for all of them."""
        wanted = set(keys)
        found = {key for key in wanted if key == self.feed_key and key not in without}
        for layer in self._layers(now, 0.0, without):
            found |= wanted & layer.keys()
        return found

    def members(
        self, *, now: float, leeway: float = 0.0, without: Container[bytes] = ()
    ) -> list[Member]:
        """All keys that may write at ``now`` but the owner's, nearest first, then by key.

        As with :meth:`shortest_chain`, not those of ``without`` or through them.
        """
        return [
            Member(key=key, depth=depth, introduced_by=reach.issuer, expires=reach.expires)
            for depth, layer in enumerate(self._layers(now, leeway, without), start=1)
            for key, reach in sorted(layer.items(), key=lambda item: item[0])
        ]

    def _layers(
        self, now: float, leeway: float, without: Container[bytes]
    ) -> Iterator[dict[bytes, _Reach]]:
        """The keys first reached by 1, 2, ... links, and the best way to each."""
        if self.feed_key in without:
            return
        seen = {self.feed_key}
        border = {self.feed_key: math.inf}
        for _ in range(MAX_CHAIN_LINKS):
            layer: dict[bytes, _Reach] = {}
            for issuer, lasts in border.items():
                for trustee, alike in self._links.get(issuer, {}).items():
                    if trustee in seen or trustee in without:
                        continue
                    link = _latest(alike)
                    if link.is_expired(now=now, leeway=leeway):
                        continue
                    reach = _Reach(min(lasts, link.expires), issuer, link)
                    if trustee not in layer or reach.beats(layer[trustee]):
                        layer[trustee] = reach
            yield layer
            seen.update(layer)
            border = {key: reach.expires for key, reach in layer.items()}

    def _trace(self, key: bytes, layers: list[dict[bytes, _Reach]]) -> Chain:
        """The chain behind a key of the last layer, read back to the feed's key."""
        links: list[TrustLink] = []
        for layer in reversed(layers):
            reach = layer[key]
            links.append(reach.link)
            key = reach.issuer
        return Chain(self.feed_key, tuple(reversed(links)))


def _latest(links: Iterable[TrustLink]) -> TrustLink:
    """Of links between the same two keys the one that lasts longest; all that matters of them."""
    return max(links, key=lambda link: (link.expires, link.signature))
