"""Who is to blame is in the type of the error (as in h11).

On bytes from a peer, however broken, nothing but RemoteProtocolError leaves this package; on a
call of ours that the protocol does not allow, nothing but LocalProtocolError.
"""

from __future__ import annotations

from hyperbloom.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from hyperbloom.trust import ChainError

__all__ = [
    "AnnouncementStripped",
    "FrameTooLong",
    "LocalProtocolError",
    "PeerTurnedAway",
    "ProtocolError",
    "RemoteProtocolError",
    "StreamAltered",
    "UntrustedPeer",
]


class AnnouncementStripped(RemoteProtocolError):
    """The peer says in its nonce that it speaks `noise`, and its Handshake does not announce it.

    Somebody on the path has struck the announcement out.
    """


class FrameTooLong(RemoteProtocolError):
    """The peer announced a frame longer than any may be."""


class PeerTurnedAway(RemoteProtocolError):
    """The caller does not want the key that the Handshake names; nothing of it was verified."""


class StreamAltered(RemoteProtocolError):
    """What came on a protected stream, or in its handshake, is not what the peer has sent."""


class UntrustedPeer(RemoteProtocolError):
    """The peer's handshake does not prove that it may take part in the feed.

    `reason` is the ChainError of its chain (ChainExpired, ChainForged, ChainMalformed or
    ChainTooLong), or None when the chain is sound and the handshake is not signed by its holder.
    """

    def __init__(self, message: str, *, reason: ChainError | None = None) -> None:
        super().__init__(message)
        self.reason = reason
