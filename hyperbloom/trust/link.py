"""One trust link: an issuer's signed word that a key may write until a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hyperbloom.keys import (
    PUBLIC_KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    keyed_hash,
    verify_signature,
)
from hyperbloom.trust.format import LINK_FORMAT_2, NONCE_BYTES, LinkFormat

__all__ = ["LINK_VERSION", "TrustLink", "has_expired", "issue_link", "parse_link"]

LINK_VERSION: Final = 1
"""The only version there is (docs/protocol.md#signature-chain)."""

#: Signatures that are remembered, some 400 bytes each: who comes again, and whoever comes below the
#: same key, costs a verification less. Who makes links by the thousand costs what they cost.
MAX_REMEMBERED = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustLink:
    """A trust link, well formed but not yet verified: see :meth:`is_signed_by`.

    ``public_key`` (32 bytes) is the trustee; ``expires`` is in seconds since 1970, the last moment
    at which the link counts; ``nonce`` has 32 bytes, ``signature`` 64. Who issued a link is not
    written in it. Raises ValueError for another version or length, and for an expiry that is NaN
    or infinite: compared with a clock, NaN would live for ever. In a form without an expiry it is
    infinite and nothing else.
    """

    version: int = LINK_VERSION
    public_key: bytes
    expires: float
    nonce: bytes
    signature: bytes
    format: LinkFormat = LINK_FORMAT_2

    def __post_init__(self) -> None:
        if len(self.signature) != SIGNATURE_BYTES:
            raise ValueError(f"a signature has {SIGNATURE_BYTES} bytes, not {len(self.signature)}")
        if self.version != LINK_VERSION:
            raise ValueError(f"the version of a trust link is {LINK_VERSION}, not {self.version}")
        if len(self.public_key) != PUBLIC_KEY_BYTES:
            raise ValueError(
                f"a public key has {PUBLIC_KEY_BYTES} bytes, not {len(self.public_key)}"
            )
        if len(self.nonce) != NONCE_BYTES:
            raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(self.nonce)}")
        if self.format.has_expiry and not math.isfinite(self.expires):
            raise ValueError(f"an expiry is a finite number of seconds, not {self.expires}")
        if not self.format.has_expiry and self.expires != math.inf:
            raise ValueError("a link of this form never expires: its expiry is infinite")

    def signed_part(self) -> bytes:
        """The bytes whose hash the issuer signs."""
        return self.format.pack(self.version, self.public_key, self.expires, self.nonce)

    def to_bytes(self) -> bytes:
        """The link as peers send and keep it."""
        return self.signed_part() + self.signature

    def is_signed_by(self, issuer_key: bytes) -> bool:
        """Whether the holder of ``issuer_key`` issued this link."""
        digest = keyed_hash(self.signed_part(), key=self.format.hash_key)
        return _is_signed(issuer_key, digest, self.signature)

    def is_expired(self, *, now: float, leeway: float = 0.0) -> bool:
        """Whether the link no longer counts at ``now``, both in seconds; at its expiry it does."""
        return has_expired(self.expires, now=now, leeway=leeway)


@lru_cache(maxsize=MAX_REMEMBERED)
def _is_signed(issuer_key: bytes, digest: bytes, signature: bytes) -> bool:
    return verify_signature(issuer_key, digest, signature)


def has_expired(expires: float, *, now: float, leeway: float = 0.0) -> bool:
    """Whether what counts until ``expires`` (and at that moment) no longer counts at ``now``."""
    # Said this way round, a NaN for a clock expires everything.
    return not expires + leeway >= now


def parse_link(
    data: bytes,
    format: LinkFormat = LINK_FORMAT_2,  # noqa: A002
) -> TrustLink:
    """Read a link; its signature is not looked at. Raises ValueError as :class:`TrustLink` does."""
    if len(data) != format.link_bytes:
        raise ValueError(f"a trust link has {format.link_bytes} bytes, not {len(data)}")
    version, public_key, expires, nonce = format.unpack(data[: format.signed_bytes])
    return TrustLink(
        version=version,
        public_key=public_key,
        expires=expires,
        nonce=nonce,
        signature=data[format.signed_bytes :],
        format=format,
    )


def issue_link(
    issuer: Identity,
    trustee: bytes,
    *,
    expires: float,
    nonce: bytes,
    format: LinkFormat = LINK_FORMAT_2,  # noqa: A002
) -> TrustLink:
    """Sign a link that lets the key ``trustee`` write until ``expires`` (seconds since 1970).

    ``nonce`` is 32 fresh random bytes. Raises ValueError as :class:`TrustLink` does.
    """
    signed = format.pack(LINK_VERSION, trustee, expires, nonce)
    signature = issuer.sign(keyed_hash(signed, key=format.hash_key))
    return TrustLink(
        public_key=trustee, expires=expires, nonce=nonce, signature=signature, format=format
    )
