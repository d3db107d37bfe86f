"""What can go wrong, as the client sees it: RFC 9457 problem details with stable types.

A `ProblemKind` is part of the API: its type and status keep their meaning. The command line turns
kinds into exit codes.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["PROBLEM_MEDIA_TYPE", "Problem", "ProblemKind"]

PROBLEM_MEDIA_TYPE = "application/problem+json"
_PREFIX = "urn:hyperbloom:problem:"


class ProblemKind(Enum):
    """name: (the end of `type`, HTTP status, title)."""

    BAD_REQUEST = ("bad-request", 400, "The request is malformed")
    UNAUTHORIZED = ("unauthorized", 401, "A token is needed")
    FORBIDDEN = ("forbidden", 403, "This is not allowed here")
    NOT_TRUSTED = ("not-trusted", 403, "This node may not write to the feed")
    EXPIRED = ("expired", 403, "A trust link has expired")
    NOT_FOUND = ("not-found", 404, "There is nothing at this path")
    UNKNOWN_OBJECT = ("unknown-object", 404, "There is no such object in the pool")
    UNKNOWN_FEED = ("unknown-feed", 404, "There is no such feed on this node")
    UNKNOWN_PEER = ("unknown-peer", 404, "The feed has no such peer")
    METHOD_NOT_ALLOWED = ("method-not-allowed", 405, "The path does not know this method")
    CONFLICT = ("conflict", 409, "This is in the way of what is there already")
    TOO_LARGE = ("too-large", 413, "The request is too large")
    BAD_CHAIN = ("bad-chain", 422, "The trust links do not hold")
    BAD_CONFIG = ("bad-config", 422, "The configuration cannot be used")
    BAD_INVITATION = ("bad-invitation", 422, "The invitation cannot be used")
    TOO_MANY = ("too-many", 429, "Too much of this is under way")
    UNEXPECTED = ("unexpected", 500, "The node met an unexpected error")
    STORE = ("store", 503, "The store cannot be used")
    TIMEOUT = ("timeout", 504, "The peers did not answer in time")
    NOT_IN_SYNC = ("not-in-sync", 504, "The peers are not in sync yet")
    STORE_FULL = ("store-full", 507, "The disk is full")

    def __init__(self, name: str, status: int, title: str) -> None:
        self.type = _PREFIX + name
        self.status = status
        self.title = title


class Problem(Exception):
    """Raised by endpoints: `detail` is one sentence for a person."""

    def __init__(self, kind: ProblemKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail

    def as_json(self) -> dict[str, object]:
        """The members of RFC 9457, section 3.1."""
        return {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
