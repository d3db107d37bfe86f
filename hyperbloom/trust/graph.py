"""The graph of all trust links known for a feed.

Nodes are public keys, edges are links from issuer to trustee. A key may write if the feed's key
reaches it by at most five edges that have not expired. Of the chains to a key the shortest is the
best (it leaves the most room to hand trust on), and among the shortest the one that lasts longest.

Both are found in one walk, layer by layer from the feed's key. Every shortest chain to a key of
layer d runs through one key of each layer before, so the latest expiry by which such a chain can
reach it is the maximum, over its issuers in layer d - 1, of the lesser of the issuer's own best
and the link's expiry. Once a layer is complete its figures are final. A walk looks at each link
once.

Links are kept as bytes, all of one issuer in one piece: that takes a fifth of what objects take.
And members who have come and gone leave no small objects all over the memory of the process, each
of which would keep Python from giving back the megabyte that it lies in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice

from hyperbloom.trust.branch import MARK_BYTES, is_shortened_by, mark_of
from hyperbloom.trust.chain import MAX_CHAIN_LINKS, Chain
from hyperbloom.trust.format import LINK_FORMAT_2, LinkFormat
from hyperbloom.trust.link import TrustLink, has_expired, parse_link

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
    """The best way to a key: issuer and place of its last link, and when the whole way expires."""

    expires: float
    issuer: bytes
    place: int

    def beats(self, other: _Reach) -> bool:
        # Below equal expiries the lower issuer wins, so that the order of adding does not matter.
        return (-self.expires, self.issuer) < (-other.expires, other.issuer)


class LinkGraph:
    """Trust links of the feed ``feed_key``; holds any number, bounded by who adds them.

    Only verified links may go in (from :func:`verify_chain`, or checked with
    ``TrustLink.is_signed_by``); signatures are not looked at again here. All have one form,
    ``format``: a link of another one raises ValueError.
    """

    def __init__(
        self,
        feed_key: bytes,
        format: LinkFormat = LINK_FORMAT_2,  # noqa: A002
    ) -> None:
        self._root = Chain(feed_key)
        self._format = format
        # issuer -> its links as bytes, one behind the other in the order in which they came.
        self._issued: dict[bytes, bytearray] = {}

    @property
    def feed_key(self) -> bytes:
        """The key all trust starts from."""
        return self._root.feed_key

    def __len__(self) -> int:
        """How many links there are."""
        return sum(map(len, self._issued.values())) // self._format.link_bytes

    def count_of(self, issuer_key: bytes) -> int:
        """How many links of this issuer there are."""
        return len(self._issued.get(issuer_key, b"")) // self._format.link_bytes

    def has(self, issuer_key: bytes, link: TrustLink) -> bool:
        """Whether a link is there."""
        return self._find(issuer_key, link) is not None

    def add(self, issuer_key: bytes, link: TrustLink) -> bool:
        """Add a verified link; whether it was new."""
        if self.has(issuer_key, link):
            return False
        self._issued.setdefault(issuer_key, bytearray()).extend(link.to_bytes())
        return True

    def discard(self, issuer_key: bytes, link: TrustLink) -> bool:
        """Remove a link; whether it was there."""
        start = self._find(issuer_key, link)
        if start is None:
            return False
        del self._issued[issuer_key][start : start + self._format.link_bytes]
        if not self._issued[issuer_key]:
            del self._issued[issuer_key]
        return True

    def prune(
        self, *, before: float, without: Set[bytes] = frozenset(), keep: Set[bytes] = frozenset()
    ) -> list[tuple[bytes, TrustLink]]:
        """Remove the links that lead nobody anywhere; each with its issuer's key.

        They expired before a moment (seconds since 1970), shorten a way through ``without``, or the
        feed's key did not reach their issuers then. What keys of ``keep`` have issued needs no
        reach, and what they hold may be shortened. A link to a key of ``without`` stays: the key
        may be let in again.
        """
        reached = {self.feed_key}
        for layer in self._layers(before, 0.0, without):
            reached |= layer.keys()
        gone = []
        for issuer, rows in list(self._issued.items()):
            is_reached = issuer in reached or issuer in keep
            kept = bytearray()
            for raw, (trustee, expires, nonce, _) in zip(
                self._raw_of(rows), self._format.read_all(bytes(rows)), strict=True
            ):
                is_out = trustee not in keep and is_shortened_by(nonce, trustee, without)
                if expires < before or not is_reached or is_out:
                    gone.append((issuer, parse_link(raw, self._format)))
                else:
                    kept += raw
            if not kept:
                del self._issued[issuer]
            elif len(kept) < len(rows):
                self._issued[issuer] = kept
        return gone

    def surplus(
        self, newcomer: Sequence[bytes], *, most: int, now: float, keep: Set[bytes]
    ) -> list[tuple[bytes, TrustLink]]:
        """The links that go for a new chain of these keys, where there is no room for it.

        From the feed's key on, the way goes down to the trustee below whom there are most links;
        whoever issued the last of them gives up to ``most``, the newest first. Nothing is given
        where the newcomer comes from there itself, or from where there are as many: then it is the
        surplus. So a member who makes keys pushes out his own alone. Links between keys of
        ``keep`` stay.
        """
        parents, weights = self._weigh(now)
        line = {*newcomer, *(parents[key] for key in newcomer if key in parents)}
        heirs: dict[bytes, list[bytes]] = {}
        for key, parent in parents.items():
            heirs.setdefault(parent, []).append(key)
        giver, spare = self.feed_key, 0
        while heaviest := max(heirs.get(giver, ()), key=weights.__getitem__, default=None):
            if not weights[heaviest]:
                break
            if not spare and heaviest not in line:
                spare = weights[heaviest] - sum(weights[one] for one in heirs[giver] if one in line)
                if spare <= 1:
                    break
            giver = heaviest
        rows = reversed(list(self._raw_of(self._issued.get(giver, b""))))
        links = (parse_link(raw, self._format) for raw in rows)
        movable = (link for link in links if not {giver, link.public_key} <= keep)
        return [(giver, link) for link in islice(movable, min(most, spare // 2))]

    def _weigh(self, now: float) -> tuple[dict[bytes, bytes], dict[bytes, int]]:
        """Below whom each key comes, and how many links it and those below it have issued."""
        layers = [layer for layer in self._layers(now, 0.0, frozenset()) if layer]
        parents = {key: reach.issuer for layer in layers for key, reach in layer.items()}
        # What the feed's owner has shortened stays in the branch that it was in.
        known = {mark_of(key): key for key in (layers[0] if layers else ())}
        rows = bytes(self._issued.get(self.feed_key, b""))
        for trustee, _, nonce, _ in self._format.read_all(rows):
            parent = known.get(nonce[:MARK_BYTES], trustee)
            if trustee in parents and parent != trustee and parents[parent] == self.feed_key:
                parents[trustee] = parent
        weights = {key: self.count_of(key) for key in parents}
        for key in reversed(parents):
            if parents[key] != self.feed_key:
                weights[parents[key]] += weights[key]
        return parents, weights

    def links(self) -> list[tuple[bytes, TrustLink]]:
        """All links, expired and unreachable ones too, each with its issuer's key."""
        return [
            (issuer, parse_link(raw, self._format))
            for issuer, rows in self._issued.items()
            for raw in self._raw_of(rows)
        ]

    def links_of(self, issuer_key: bytes) -> Iterator[TrustLink]:
        """All links of an issuer, expired ones too, the oldest first."""
        rows = bytes(self._issued.get(issuer_key, b""))
        return (parse_link(raw, self._format) for raw in self._raw_of(rows))

    def between(self, issuer_key: bytes, trustee: bytes) -> list[TrustLink]:
        """All links from one key to another, expired ones too."""
        rows = bytes(self._issued.get(issuer_key, b""))
        return [
            parse_link(raw, self._format)
            for raw, (key, *_) in zip(self._raw_of(rows), self._format.read_all(rows), strict=True)
            if key == trustee
        ]

    def expiries_of(self, issuer_key: bytes) -> dict[bytes, float]:
        """Until when the links of an issuer last, by trustee, each the one that lasts longest.

        In seconds since 1970; expired ones are among them. Reads all links of the issuer.
        """
        return {key: latest[0] for key, latest in self._latest(issuer_key, frozenset()).items()}

    def names(self, key: bytes) -> bool:
        """Whether any link is for this key, be it expired or out of reach."""
        return any(
            key == trustee
            for rows in self._issued.values()
            for trustee, *_ in self._format.read_all(bytes(rows))
        )

    def issuers_of(self, key: bytes) -> set[bytes]:
        """Who has issued a link for a key, be it expired or out of reach; reads all links."""
        return {
            issuer
            for issuer, rows in self._issued.items()
            if any(key == trustee for trustee, *_ in self._format.read_all(bytes(rows)))
        }

    def _find(self, issuer_key: bytes, link: TrustLink) -> int | None:
        """Where a link begins in the bytes of its issuer."""
        if link.format != self._format:
            raise ValueError(
                f"a link of the form {link.format.name} is no link of a feed whose links have "
                f"the form {self._format.name}"
            )
        rows, raw = self._issued.get(issuer_key, b""), link.to_bytes()
        start = rows.find(raw)
        while start % self._format.link_bytes and start >= 0:
            # Bytes that somebody has chosen may look like a link in the middle of two.
            start = rows.find(raw, start + 1)
        return start if start >= 0 else None

    def _raw_of(self, rows: bytes | bytearray) -> Iterator[bytes]:
        size = self._format.link_bytes
        return (bytes(rows[start : start + size]) for start in range(0, len(rows), size))

    def shortest_chain(
        self, identity: bytes, *, now: float, leeway: float = 0.0, without: Set[bytes] = frozenset()
    ) -> Chain | None:
        """The best chain for a key at ``now``, or None if it may not write.

        ``now`` is in seconds since 1970; ``leeway`` seconds are granted past each expiry. The
        feed's own key has the empty chain. No chain leads to or through a key of ``without``, nor
        over a link that shortens a way through a key whose mark (`branch.mark_of`) is in it.
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
        self, keys: Iterable[bytes], *, now: float, without: Set[bytes] = frozenset()
    ) -> set[bytes]:
        """Those of these keys that may write at ``now``: one search for all of them."""
        wanted = set(keys)
        found = {key for key in wanted if key == self.feed_key and key not in without}
        for layer in self._layers(now, 0.0, without):
            found |= wanted & layer.keys()
        return found

    def members(
        self, *, now: float, leeway: float = 0.0, without: Set[bytes] = frozenset()
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
        self, now: float, leeway: float, without: Set[bytes]
    ) -> Iterator[dict[bytes, _Reach]]:
        """The keys first reached by 1, 2, ... links, and the best way to each."""
        if self.feed_key in without:
            return
        seen = {self.feed_key}
        border = {self.feed_key: math.inf}
        for _ in range(MAX_CHAIN_LINKS):
            layer: dict[bytes, _Reach] = {}
            for issuer, lasts in border.items():
                for trustee, (expires, _, place) in self._latest(issuer, without).items():
                    if trustee in seen:
                        continue
                    if has_expired(expires, now=now, leeway=leeway):
                        continue
                    reach = _Reach(min(lasts, expires), issuer, place)
                    if trustee not in layer or reach.beats(layer[trustee]):
                        layer[trustee] = reach
            yield layer
            seen.update(layer)
            border = {key: reach.expires for key, reach in layer.items()}

    def _latest(self, issuer: bytes, without: Set[bytes]) -> dict[bytes, tuple[float, bytes, int]]:
        """Expiry, signature and place of the link to each trustee that lasts longest.

        Of links between the same two keys it is all that matters.
        """
        latest: dict[bytes, tuple[float, bytes, int]] = {}
        excludes = bool(without)
        rows = bytes(self._issued.get(issuer, b""))
        for place, (trustee, expires, nonce, signature) in enumerate(self._format.read_all(rows)):
            if excludes and (trustee in without or is_shortened_by(nonce, trustee, without)):
                continue
            known = latest.get(trustee)
            if known is None or (expires, signature) > known[:2]:
                latest[trustee] = (expires, signature, place)
        return latest

    def _trace(self, key: bytes, layers: list[dict[bytes, _Reach]]) -> Chain:
        """The chain behind a key of the last layer, read back to the feed's key."""
        links: list[TrustLink] = []
        size = self._format.link_bytes
        for layer in reversed(layers):
            reach = layer[key]
            start = reach.place * size
            raw = bytes(self._issued[reach.issuer][start : start + size])
            links.append(parse_link(raw, self._format))
            key = reach.issuer
        return Chain(self.feed_key, tuple(reversed(links)))
