"""The extension `renew-links`: a newer chain for the peer, before its own has ended.

A chain ends with the first of its links. Who issued the last of them may sign that link anew, and
sends the peer the whole chain that leads to it: its own, which may have been renewed, too, and the
new link. The peer verifies it like any chain. docs/extensions/renew-links.md has it byte by byte;
who is sent one, and what is taken, is decided in replication/feed/renewals.py.

The id means something only to a node that announced the extension in its Handshake, as with
`set-digest` (set_digest.py).

    RenewedChain  4373   links (137 bytes each), 1 to 5, the feed's end first
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hyperbloom.trust import LINK_FORMAT_2, MAX_CHAIN_LINKS
from hyperbloom.wire.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.wire.fixed_form import check

__all__ = ["RENEW_LINKS", "RenewedChain"]

RENEW_LINKS: Final = "renew-links-1"
"""What a Handshake announces."""

_LINK_BYTES: Final = LINK_FORMAT_2.link_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedChain:
    """A chain to the receiver's key that lasts longer than the one it has.

    `links`: as a Handshake carries them, from the feed's end; 1 to 5 of 137 bytes each. Nothing of
    them is verified here.
    """

    message_id: ClassVar[int] = 4373

    links: tuple[bytes, ...]

    def __post_init__(self) -> None:
        check(
            1 <= len(self.links) <= MAX_CHAIN_LINKS,
            f"a RenewedChain has 1 to {MAX_CHAIN_LINKS} links",
        )
        sizes = {len(link) for link in self.links}
        check(sizes == {_LINK_BYTES}, f"a link in RenewedChain has {_LINK_BYTES} bytes")

    def encode(self) -> bytes:
        """The body."""
        return b"".join(self.links)

    @classmethod
    def decode(cls, body: bytes) -> RenewedChain:
        """Read a body; raises RemoteProtocolError for one that breaks a rule."""
        if len(body) > MAX_CHAIN_LINKS * _LINK_BYTES:
            raise RemoteProtocolError(f"a RenewedChain has at most {MAX_CHAIN_LINKS} links")
        try:
            return cls(
                links=tuple(body[at : at + _LINK_BYTES] for at in range(0, len(body), _LINK_BYTES))
            )
        except LocalProtocolError as error:
            raise RemoteProtocolError(f"the peer breaks a rule: {error}") from None
