"""The binary forms of trust links.

Protocol 2 (and 1) writes a link in 137 bytes, in the order of the structure that is signed, as
deployed peers do (docs/wire.md#bytes):

========= ===== ===================================
version       1 always 1
key          32 public key of the trustee
expiry        8 seconds since 1970, f64 big endian
nonce        32
signature    64 by the issuer, over Hash(all above)
========= ===== ===================================

The draft leaves the expiry out, which makes 129 bytes and a link that counts for ever, hashes under
another key, and has a feed's owner sign a link to itself where later protocols have an empty chain.

A :class:`LinkFormat` says what a dialect does otherwise; nothing else in this package asks.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hyperbloom.keys import DRAFT_HASH_KEY, HASH_KEY, PUBLIC_KEY_BYTES, SIGNATURE_BYTES

__all__ = ["LINK_FORMAT_2", "LINK_FORMAT_DRAFT", "NONCE_BYTES", "LinkFormat"]

NONCE_BYTES: Final = 32

_WITH_EXPIRY: Final = struct.Struct(f">B{PUBLIC_KEY_BYTES}sd{NONCE_BYTES}s")
_WITHOUT_EXPIRY: Final = struct.Struct(f">B{PUBLIC_KEY_BYTES}s{NONCE_BYTES}s")

#: What a search among many links looks at: all but the version.
_READ: Final = struct.Struct(f">x{PUBLIC_KEY_BYTES}sd{NONCE_BYTES}s{SIGNATURE_BYTES}s")
_READ_WITHOUT_EXPIRY: Final = struct.Struct(
    f">x{PUBLIC_KEY_BYTES}s{NONCE_BYTES}s{SIGNATURE_BYTES}s"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFormat:
    """How a dialect writes, hashes and roots its trust links.

    ``hash_key`` is the key of the hash that is signed. ``has_expiry`` says whether a link carries
    an expiry; one that does not has an infinite one here. ``owner_links_itself`` says whether an
    owner proves itself by a link of the feed's key to itself, rather than by an empty chain.
    """

    name: str
    hash_key: bytes
    has_expiry: bool
    owner_links_itself: bool

    @property
    def signed_bytes(self) -> int:
        """Length of the signed part, which is all but the signature."""
        return (_WITH_EXPIRY if self.has_expiry else _WITHOUT_EXPIRY).size

    @property
    def link_bytes(self) -> int:
        """Length of a link."""
        return self.signed_bytes + SIGNATURE_BYTES

    def pack(self, version: int, public_key: bytes, expires: float, nonce: bytes) -> bytes:
        """The signed part of a link; ``expires`` is left out where the form has none."""
        if self.has_expiry:
            return _WITH_EXPIRY.pack(version, public_key, expires, nonce)
        return _WITHOUT_EXPIRY.pack(version, public_key, nonce)

    def unpack(self, signed: bytes) -> tuple[int, bytes, float, bytes]:
        """Version, public key, expiry (infinite where the form has none) and nonce."""
        if self.has_expiry:
            version, public_key, expires, nonce = _WITH_EXPIRY.unpack(signed)
            return version, public_key, expires, nonce
        version, public_key, nonce = _WITHOUT_EXPIRY.unpack(signed)
        return version, public_key, math.inf, nonce

    def read_all(self, links: bytes) -> Iterator[tuple[bytes, float, bytes, bytes]]:
        """Public key, expiry (as above), nonce and signature of links, one behind the other."""
        if self.has_expiry:
            return _READ.iter_unpack(links)
        return (
            (public_key, math.inf, nonce, signature)
            for public_key, nonce, signature in _READ_WITHOUT_EXPIRY.iter_unpack(links)
        )


LINK_FORMAT_2: Final = LinkFormat(
    name="2", hash_key=HASH_KEY, has_expiry=True, owner_links_itself=False
)
"""The 137-byte links of protocols 1 and 2."""

LINK_FORMAT_DRAFT: Final = LinkFormat(
    name="draft", hash_key=DRAFT_HASH_KEY, has_expiry=False, owner_links_itself=True
)
"""The 129-byte links of the draft."""
