"""The type of an error says which side is to blame, as in `hyperbloom.wire.errors`.

On bytes from the network, however broken, nothing but RemoteProtocolError leaves this package; on a
call of ours that the protocol does not allow, nothing but LocalProtocolError. A query that was
understood and is not granted raises QueryRefused, which is sent as an error message.
"""

from __future__ import annotations

from enum import IntEnum

from hyperbloom.errors import (
    HyperbloomError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)

__all__ = [
    "ErrorCode",
    "LocalProtocolError",
    "ProtocolError",
    "QueryRefused",
    "RemoteProtocolError",
]


class ErrorCode(IntEnum):
    """The error codes of KRPC that this node gives (BEP-5, BEP-44)."""

    PROTOCOL = 203
    METHOD_UNKNOWN = 204
    VALUE_TOO_BIG = 205
    BAD_SIGNATURE = 206
    SALT_TOO_BIG = 207
    CAS_MISMATCH = 301
    SEQ_TOO_LOW = 302


class QueryRefused(HyperbloomError):
    """A query that is not granted; `code` and the message go to who asked."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
