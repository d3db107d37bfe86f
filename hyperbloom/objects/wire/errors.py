"""Who is to blame is in the type of the error, as in `hyperbloom.wire`.

On bytes from a peer, however broken, nothing but RemoteProtocolError leaves the codec and the
session; on a call of ours that the protocol does not allow, nothing but LocalProtocolError. What
the pool refuses to its own program is an ObjectError.
"""

from __future__ import annotations

from hyperbloom.errors import (
    ErrorKind,
    HyperbloomError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)

__all__ = [
    "ClashError",
    "EarlyMessage",
    "FrameTooLong",
    "LocalProtocolError",
    "ObjectError",
    "ObjectGone",
    "PayloadTooLong",
    "PoolFull",
    "ProtocolError",
    "RemoteProtocolError",
    "WrongFlag",
    "WrongPassphrase",
]


class FrameTooLong(RemoteProtocolError):
    """The peer announced a frame longer than any may be."""


class PayloadTooLong(RemoteProtocolError):
    """A message is longer than may be taken when it is decompressed."""


class WrongFlag(RemoteProtocolError):
    """The peer processes its messages otherwise: its flag is not the one set here."""


class EarlyMessage(ProtocolError):
    """A message that the JVM sent unencrypted, for it did not wait for the handshake.

    Nobody can tell who sent it; it is passed over, and is no breach.
    """


class WrongPassphrase(RemoteProtocolError):
    """What the peer sent cannot be decrypted; its passphrase is another, or bytes were changed."""


class ObjectError(HyperbloomError):
    """The pool does not do what its program asks; one sentence says why."""

    kind = ErrorKind.CONFLICT


class ClashError(ObjectError):
    """Another object has the same hash (docs/protocol.md#clashes): it needs another hashCode."""


class ObjectGone(ObjectError):
    """The object was removed, or changed to what the program has not seen yet."""

    kind = ErrorKind.UNKNOWN_OBJECT


class PoolFull(ObjectError):
    """The pool, or one peer's part of it, takes what its settings allow."""

    kind = ErrorKind.TOO_MANY
