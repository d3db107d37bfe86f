"""Branches: whom a key answers to, so that nobody gains by making more keys.

A member makes keys as he likes: each link he signs is one more key that may write. So whatever is
scarce is shared out by *branch*, the first key of a chain below the feed's, and within a branch by
the next key, and so on down to the holder. The way down is a *path*. A share of a path belongs to
all paths that begin with it: ten thousand keys below one link have one link's share.

A node sees the tree from where it stands. Below its own key it has given the links itself, so there
its own trustees are the branches.

A node may give a peer a link that shortens the peer's chain (docs/protocol.md#5-link), without
asking anybody. Such an *automatic* link must not lead out of the branch that the longer chain was
in, nor outlive a denial of a key that it leaves out. So its nonce names those keys:

======= ============ ====================================================
marks   4 × 7 bytes  of the keys left out, from the feed's end; zeros: none
check   4 bytes      of a hash over the marks and the trustee
======= ============ ====================================================

A mark is the beginning of a key's hash. To peers of other kinds the nonce is as good as any other.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from hyperbloom.keys import keyed_hash
from hyperbloom.trust.chain import Chain
from hyperbloom.trust.link import TrustLink

__all__ = [
    "MARK_BYTES",
    "MAX_SHORTENED",
    "Path",
    "automatic_nonce",
    "is_shortened_by",
    "mark_of",
    "path_of",
    "shortened_by",
]

Path = tuple[bytes, ...]
"""The marks of the keys from a branch's own down to the holder's; never empty."""

MAX_SHORTENED: Final = 4
"""Most keys that an automatic link leaves out: what lies between the ends of the longest chain."""

MARK_BYTES: Final = 7

_MARKS_BYTES: Final = MAX_SHORTENED * MARK_BYTES
_CHECK_BYTES: Final = 4
_NO_MARK: Final = bytes(MARK_BYTES)


def mark_of(key: bytes) -> bytes:
    """The 7 bytes that stand for a public key in paths and nonces."""
    return keyed_hash(b"mark of a key", key)[:MARK_BYTES]


def path_of(chain: Chain, *, own_key: bytes | None = None) -> Path:
    """The path of a chain's holder, as the node with ``own_key`` sees it.

    It has the chain's keys below the feed's, and those that automatic links have left out; of a
    chain through ``own_key`` those below that. The feed's owner is a branch of its own.
    """
    path: Path = ()
    for link in chain.links:
        path += (*shortened_by(link), mark_of(link.public_key))
        if link.public_key == own_key and link is not chain.links[-1]:
            path = ()
    return path or (mark_of(chain.feed_key),)


def automatic_nonce(left_out: Path, trustee: bytes) -> bytes:
    """The nonce of a link that shortens a way to ``trustee`` by these marks.

    Raises ValueError for more than :data:`MAX_SHORTENED` of them, or none.
    """
    if not 0 < len(left_out) <= MAX_SHORTENED:
        raise ValueError(
            f"an automatic link leaves out 1 to {MAX_SHORTENED} keys, not {len(left_out)}"
        )
    marks = b"".join(left_out).ljust(_MARKS_BYTES, b"\0")
    return marks + _check(marks, trustee)


def shortened_by(link: TrustLink) -> Path:
    """The marks of the keys that a link leaves out, from the feed's end; empty for most links."""
    marks = link.nonce[:_MARKS_BYTES]
    if link.nonce[_MARKS_BYTES:] != _check(marks, link.public_key):
        return ()
    return tuple(mark for mark in _marks_in(marks) if mark != _NO_MARK)


def is_shortened_by(nonce: bytes, trustee: bytes, marks: Set[bytes]) -> bool:
    """Whether the link with this nonce leaves out a key with one of these marks."""
    if not any(mark in marks for mark in _marks_in(nonce)):
        return False
    # Most nonces are random: what looks like a mark is looked at twice.
    return nonce[_MARKS_BYTES:] == _check(nonce[:_MARKS_BYTES], trustee)


def _marks_in(nonce: bytes) -> list[bytes]:
    return [nonce[at : at + MARK_BYTES] for at in range(0, _MARKS_BYTES, MARK_BYTES)]


def _check(marks: bytes, trustee: bytes) -> bytes:
    return keyed_hash(b"left out", marks, trustee)[:_CHECK_BYTES]
