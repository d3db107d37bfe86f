"""Chains of trust links, from a feed's key to a writer's.

The first link is signed by the feed's key, each further one by the trustee of the link before it.
The last trustee holds the chain and signs with its own key. The owner's chain is empty, or, in a
form that wants it so, one link of the feed's key to itself; either way members' chains begin with
the link to the first of them. A chain counts as long as all of its links do, so it expires with the
first of them.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.keys import PUBLIC_KEY_BYTES, Identity, keyed_hash
from hyperbloom.trust.format import LINK_FORMAT_2, LinkFormat
from hyperbloom.trust.link import TrustLink, issue_link, parse_link

__all__ = [
    "MAX_CHAIN_LINKS",
    "Chain",
    "ChainError",
    "ChainExpired",
    "ChainForged",
    "ChainMalformed",
    "ChainTooLong",
    "owner_chain",
    "verify_chain",
]

MAX_CHAIN_LINKS: Final = 5
"""Most links in a chain (docs/protocol.md#signature-chain)."""


class ChainError(HyperbloomError):
    """A chain does not prove the right to write.

    ``index`` is the first bad link, counted from 0 at the feed's end. The message is for people and
    counts from 1.
    """

    kind = ErrorKind.BAD_CHAIN

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"trust link {index + 1}: {problem}")
        self.index = index


class ChainMalformed(ChainError):
    """A link is not in the form of its dialect."""


class ChainExpired(ChainError):
    """A link no longer counts."""

    kind = ErrorKind.EXPIRED


class ChainForged(ChainError):
    """A link is not signed by the key before it."""


class ChainTooLong(ChainError):
    """There are more links than :data:`MAX_CHAIN_LINKS`; ``index`` is the first beyond."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Links that lead from ``feed_key`` (32 bytes) to :attr:`holder`.

    Making one checks nothing but the lengths: verified chains come from :func:`verify_chain` and,
    if only verified links went in, from a ``LinkGraph``. Raises ValueError for a feed key of
    another length or too many links.
    """

    feed_key: bytes
    links: tuple[TrustLink, ...] = ()

    def __post_init__(self) -> None:
        if len(self.feed_key) != PUBLIC_KEY_BYTES:
            raise ValueError(f"a feed key has {PUBLIC_KEY_BYTES} bytes, not {len(self.feed_key)}")
        if len(self.links) > MAX_CHAIN_LINKS:
            raise ValueError(f"a chain has at most {MAX_CHAIN_LINKS} links, not {len(self.links)}")

    def __len__(self) -> int:
        """How many links there are: 0 for the owner, 1 where owners link themselves."""
        return len(self.links)

    def __bool__(self) -> bool:
        """True: an empty chain is the owner's, not the lack of one."""
        return True

    @property
    def holder(self) -> bytes:
        """The key that may write: the last trustee, or the feed's own key."""
        return self.links[-1].public_key if self.links else self.feed_key

    @property
    def is_owners(self) -> bool:
        """Whether it is held by the feed's own key."""
        return self.holder == self.feed_key

    @property
    def expires(self) -> float:
        """The earliest expiry of a link in seconds since 1970; infinite if nothing does."""
        return min((link.expires for link in self.links), default=math.inf)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """Every key of the chain: the feed's own, then each trustee, the holder last."""
        return (self.feed_key, *(link.public_key for link in self.links))

    def issuers(self) -> Iterator[tuple[bytes, TrustLink]]:
        """Each link with the key that issued it, from the feed's end."""
        issuer = self.feed_key
        for link in self.links:
            yield issuer, link
            issuer = link.public_key

    def extended(self, link: TrustLink) -> Chain:
        """The chain of the trustee of ``link``, which the holder of this one has issued.

        A link of the owner to itself is the owner's own proof, and left out. Raises ValueError for
        a chain that would be too long.
        """
        return Chain(self.feed_key, (link,) if self.is_owners else (*self.links, link))

    def to_wire(self) -> tuple[bytes, ...]:
        """The links as a Handshake carries them."""
        return tuple(link.to_bytes() for link in self.links)


def owner_chain(
    owner: Identity,
    *,
    format: LinkFormat = LINK_FORMAT_2,  # noqa: A002
) -> Chain:
    """The chain by which ``owner`` proves itself to its own feed (draft, "Signature Chain").

    Where that is a link, its nonce is the feed's discovery key: the owner makes the same link
    every time, and nobody has to keep it.
    """
    feed_key = owner.public_key
    if not format.owner_links_itself:
        return Chain(feed_key)
    nonce = keyed_hash(feed_key, key=format.hash_key)
    return Chain(
        feed_key, (issue_link(owner, feed_key, expires=math.inf, nonce=nonce, format=format),)
    )


def _date(seconds: float) -> str:
    """Seconds since 1970 as a date in UTC; as they are where no calendar reaches."""
    try:
        return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s since 1970"


def verify_chain(
    feed_key: bytes,
    raw_links: Sequence[bytes],
    *,
    now: float,
    leeway: float = 0.0,
    format: LinkFormat = LINK_FORMAT_2,  # noqa: A002
) -> Chain:
    """Read and verify a chain as a peer sent it.

    ``now`` is in seconds since 1970; ``leeway`` seconds are granted past each expiry for clocks
    that differ. A link that expires at ``now`` still counts (the text: less than the current
    time is refused). Raises ChainTooLong, ChainMalformed, ChainExpired or ChainForged for the
    first bad link, ValueError for a feed key of the wrong length.
    """
    if len(raw_links) > MAX_CHAIN_LINKS:
        raise ChainTooLong(
            MAX_CHAIN_LINKS, f"a chain has at most {MAX_CHAIN_LINKS} links, not {len(raw_links)}"
        )
    chain = Chain(feed_key)
    for index, raw in enumerate(raw_links):
        try:
            link = parse_link(raw, format)
        except ValueError as error:
            raise ChainMalformed(index, str(error)) from error
        if link.is_expired(now=now, leeway=leeway):
            raise ChainExpired(
                index, f"it expired on {_date(link.expires)}; the time here is {_date(now)}"
            )
        if not link.is_signed_by(chain.holder):
            raise ChainForged(index, f"it is not signed by {chain.holder.hex()[:12]}…")
        chain = Chain(feed_key, (*chain.links, link))
    return chain
