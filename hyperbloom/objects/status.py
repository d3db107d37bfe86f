"""What is told about the pool: frozen pictures of its state, with a JSON form (digest as hex)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from hyperbloom.connections.close_reason import ClosedConnection

__all__ = ["PoolPeerStatus", "PoolStatus"]

#: A field called `bytes` hides the type of that name inside its class.
Octets: TypeAlias = bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPeerStatus:
    """One open connection. `latency` in seconds, None before the first PONG.

    Of a peer of another kind (`kin` is false): `untyped` objects came without a hash and fit no
    declared type; `untold` ones it is not told of, for it could not read them, and why, of the
    latest.
    """

    address: str
    outgoing: bool
    kin: bool
    version: int | None
    since: float
    latency: float | None
    bytes_in: int
    bytes_out: int
    messages_in: int
    messages_out: int
    news_in: int
    clashes: int
    untyped: int
    untold: int
    untold_why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatus:
    """The pool of a node.

    `disk_bytes` is what it takes on disk at the most, `clashes` and `full` count objects that were
    refused: for another's hash, and for want of room. `types` are the declared ones, `problems`
    sentences about parents that are not connected.
    """

    encrypted: bool
    listening: tuple[str, ...]
    count: int
    bytes: int
    digest: Octets
    past: int
    disk_bytes: int
    clashes: int
    full: int
    types: tuple[str, ...]
    peers: tuple[PoolPeerStatus, ...]
    closings: tuple[ClosedConnection, ...]
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same as a dict that `json` takes."""
        form = asdict(self)
        form["digest"] = self.digest.hex()
        return form
