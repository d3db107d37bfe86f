"""The base of the errors that this package raises, and the one table of what each kind means.

The text of an error is one sentence for a person: what happened, and what to do about it. The kind
is for programs: it becomes the problem type and the status of an answer of the API (RFC 9457), and
the exit code of a command or of a node that cannot start.
"""

from __future__ import annotations

from enum import Enum

from hyperbloom.exit_codes import ExitCode

__all__ = [
    "ErrorKind",
    "HyperbloomError",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
]

_PREFIX = "urn:hyperbloom:problem:"


class ErrorKind(Enum):
    """name: (the end of the problem type, HTTP status, exit code, title).

    Types, statuses and exit codes keep their meaning: programs rely on them.
    """

    BAD_REQUEST = ("bad-request", 400, ExitCode.FAILED, "The request is malformed")
    UNAUTHORIZED = ("unauthorized", 401, ExitCode.FAILED, "A token is needed")
    FORBIDDEN = ("forbidden", 403, ExitCode.FAILED, "This is not allowed here")
    NOT_TRUSTED = ("not-trusted", 403, ExitCode.REFUSED, "This node may not write to the feed")
    EXPIRED = ("expired", 403, ExitCode.REFUSED, "A trust link has expired")
    NOT_FOUND = ("not-found", 404, ExitCode.FAILED, "There is nothing at this path")
    UNKNOWN_OBJECT = (
        "unknown-object", 404, ExitCode.NOT_FOUND, "There is no such object in the pool",
    )  # fmt: skip
    UNKNOWN_FEED = ("unknown-feed", 404, ExitCode.NOT_FOUND, "There is no such feed on this node")
    UNKNOWN_PEER = ("unknown-peer", 404, ExitCode.NOT_FOUND, "There is no such peer")
    UNKNOWN_INTEGRATION = (
        "unknown-integration", 404, ExitCode.NOT_FOUND, "There is no such output, input or hook",
    )  # fmt: skip
    METHOD_NOT_ALLOWED = (
        "method-not-allowed", 405, ExitCode.FAILED, "The path does not know this method",
    )  # fmt: skip
    CONFLICT = ("conflict", 409, ExitCode.FAILED, "This is in the way of what is there already")
    BUSY = ("busy", 409, ExitCode.BUSY, "Another process uses this")
    TOO_LARGE = ("too-large", 413, ExitCode.FAILED, "The request is too large")
    BAD_CHAIN = ("bad-chain", 422, ExitCode.REFUSED, "The trust links do not hold")
    BAD_CONFIG = ("bad-config", 422, ExitCode.CONFIG, "The configuration cannot be used")
    BAD_INVITATION = ("bad-invitation", 422, ExitCode.CONFIG, "The invitation cannot be used")
    TOO_MANY = ("too-many", 429, ExitCode.FAILED, "Too much of this is under way")
    UNEXPECTED = ("unexpected", 500, ExitCode.UNEXPECTED, "The node met an unexpected error")
    FAILED = ("failed", 500, ExitCode.FAILED, "This could not be done")
    UNREACHABLE = ("unreachable", 502, ExitCode.UNREACHABLE, "Nothing answers")
    STORE = ("store", 503, ExitCode.STORE, "The store cannot be used")
    TIMEOUT = ("timeout", 504, ExitCode.TIMEOUT, "The peers did not answer in time")
    NOT_IN_SYNC = ("not-in-sync", 504, ExitCode.TIMEOUT, "The peers are not in sync yet")
    STORE_FULL = ("store-full", 507, ExitCode.STORE, "The disk is full")

    def __init__(self, name: str, status: int, exit_code: ExitCode, title: str) -> None:
        self.type = _PREFIX + name
        self.status = status
        self.exit_code = exit_code
        self.title = title


class HyperbloomError(Exception):
    """What went wrong, in one sentence that says what to do.

    kind: None for errors that are dealt with before they reach a person.
    """

    kind: ErrorKind | None = None


class ProtocolError(HyperbloomError):
    """A protocol was broken; the subclass says by which side."""


class LocalProtocolError(ProtocolError):
    """This program asked for what the protocol does not allow."""

    kind = ErrorKind.BAD_REQUEST


class RemoteProtocolError(ProtocolError):
    """The other side sent what the protocol does not allow."""
