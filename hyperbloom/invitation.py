"""Invitations: one line that lets its holder join a feed.

An invitation is not a secret of its own: it names the feed (whoever knows a feed's key can read its
traffic, so it is passed on in private), the chain of trust links that ends at the invited identity,
and addresses of nodes to start from. Only the invited identity can use the chain.

The line is `hyperbloom:` and the URL-safe base64 (RFC 4648 section 5, no padding) of

    version (1 byte, 1) | feed key (32) | number of links (1) | links
    | number of addresses (1) | addresses | checksum (6)

where each link and each address is its length (1 byte) and its bytes, and the checksum is the
start of BLAKE2b-256 (keyed as everywhere, see `hyperbloom.keys`) over all bytes before it. The
checksum guards against a line that was cut or mistyped, nothing else; the links carry signatures,
which `hyperbloom.trust.verify_chain` checks.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.keys import PUBLIC_KEY_BYTES, keyed_hash

__all__ = [
    "INVITATION_PREFIX",
    "MAX_ADDRESSES",
    "MAX_INVITATION_CHARACTERS",
    "Invitation",
    "InvitationError",
    "decode_invitation",
    "encode_invitation",
]

INVITATION_PREFIX = "hyperbloom:"
INVITATION_VERSION = 1
CHECKSUM_BYTES = 6
#: A chain has at most 5 links (the protocol's text); a length byte bounds each of them.
MAX_LINKS = 5
#: More would only make the line unwieldy.
MAX_ADDRESSES = 8
#: Above the longest line that can be made, so that a pasted file is refused before it is decoded.
MAX_INVITATION_CHARACTERS = 8_192

_AGAIN = "ask for it again, or paste it as a whole"


class InvitationError(HyperbloomError, ValueError):
    """A line that is no usable invitation; the message is one sentence that says what to do."""

    kind = ErrorKind.BAD_INVITATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """What an invitation holds.

    `links` are trust links in their wire form, from the feed's owner to the invited identity;
    `addresses` are `HOST:PORT`. Raises `InvitationError` when the parts do not fit the format.
    """

    feed_key: bytes
    links: tuple[bytes, ...]
    addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.feed_key) != PUBLIC_KEY_BYTES:
            raise InvitationError(f"a feed key has {PUBLIC_KEY_BYTES} bytes")
        if len(self.links) > MAX_LINKS:
            raise InvitationError(f"an invitation holds at most {MAX_LINKS} links")
        if len(self.addresses) > MAX_ADDRESSES:
            raise InvitationError(f"an invitation holds at most {MAX_ADDRESSES} addresses")
        for item in (*self.links, *(address.encode() for address in self.addresses)):
            if not 1 <= len(item) <= 255:
                raise InvitationError("links and addresses have 1 to 255 bytes")


def _pack(items: tuple[bytes, ...]) -> bytes:
    return bytes([len(items)]) + b"".join(bytes([len(item)]) + item for item in items)


def encode_invitation(invitation: Invitation) -> str:
    """The invitation as one line without spaces or line end."""
    addresses = tuple(address.encode() for address in invitation.addresses)
    body = (
        bytes([INVITATION_VERSION])
        + invitation.feed_key
        + _pack(invitation.links)
        + _pack(addresses)
    )
    sealed = body + keyed_hash(body)[:CHECKSUM_BYTES]
    return INVITATION_PREFIX + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")


def _unseal(text: str) -> bytes:
    """The body of an invitation whose prefix, alphabet and checksum are right."""
    if len(text) > MAX_INVITATION_CHARACTERS:
        raise InvitationError(f"this is far longer than an invitation; {_AGAIN}")
    # Mail programs wrap long lines; the alphabet has no white space, so none can be lost.
    compact = "".join(text.split())
    if not compact.startswith(INVITATION_PREFIX):
        raise InvitationError(f"an invitation begins with {INVITATION_PREFIX}; {_AGAIN}")
    encoded = compact.removeprefix(INVITATION_PREFIX)
    try:
        padded = encoded.encode("ascii") + b"=" * (-len(encoded) % 4)
        sealed = base64.b64decode(padded, altchars=b"-_", validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise InvitationError(f"the invitation is damaged or cut short; {_AGAIN}") from None
    canonical = base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")
    body, checksum = sealed[:-CHECKSUM_BYTES], sealed[-CHECKSUM_BYTES:]
    if canonical != encoded or not body or keyed_hash(body)[:CHECKSUM_BYTES] != checksum:
        raise InvitationError(
            f"the invitation is damaged or cut short: its checksum does not match; {_AGAIN}"
        )
    return body


def _unpack(body: bytes, offset: int) -> tuple[tuple[bytes, ...], int]:
    count = body[offset]
    offset += 1
    items = []
    for _ in range(count):
        length = body[offset]
        item = body[offset + 1 : offset + 1 + length]
        if len(item) != length:
            raise IndexError
        items.append(item)
        offset += 1 + length
    return tuple(items), offset


def decode_invitation(text: str) -> Invitation:
    """The inverse of `encode_invitation`; white space is ignored.

    Raises `InvitationError` on a line that is cut, mistyped, of another version, or no invitation.
    The links are not verified here.
    """
    body = _unseal(text)
    if body[0] != INVITATION_VERSION:
        raise InvitationError(
            f"this is an invitation of version {body[0]}, which needs a newer hyperbloom"
        )
    try:
        links, offset = _unpack(body, 1 + PUBLIC_KEY_BYTES)
        raw_addresses, offset = _unpack(body, offset)
        addresses = tuple(address.decode() for address in raw_addresses)
    except (IndexError, UnicodeDecodeError):
        raise InvitationError("the invitation's parts do not fit together") from None
    if offset != len(body):
        raise InvitationError("the invitation's parts do not fit together")
    return Invitation(feed_key=body[1 : 1 + PUBLIC_KEY_BYTES], links=links, addresses=addresses)
