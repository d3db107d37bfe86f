"""What is told about a node: frozen pictures of its state, with a JSON form (keys as hex)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

__all__ = ["FeedStatus", "FoundStatus", "NodeStatus", "PeerStatus", "RefusalStatus"]

#: A field called `bytes` hides the type of that name inside its class.
Octets: TypeAlias = bytes


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return value


class _Picture:
    __slots__ = ()

    def as_json(self) -> dict[str, Any]:
        """The same as a dict that `json` takes: bytes as hex, tuples as lists."""
        picture: dict[str, Any] = _json(asdict(self))  # type: ignore[call-overload]
        return picture


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus(_Picture):
    """One secure connection. Times are seconds since 1970, None: not yet."""

    feed: bytes
    address: str
    outgoing: bool
    key: bytes
    id: bytes
    chain_links: int
    expires: float | None
    extensions: tuple[str, ...]
    since: float
    values_in: int
    values_new: int
    values_out: int
    bytes_in: int
    bytes_out: int
    last_sync_sent: float | None
    last_sync_received: float | None
    last_data: float | None
    strikes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStatus(_Picture):
    """One feed: what is here and whether this node may write.

    `forgotten` values are remembered whole and `forgotten_hashes` by their hashes;
    `forgotten_refused` came again since the start and were kept out; `retained_out` were forgotten
    by retention since then.
    """

    key: Octets
    discovery_key: Octets
    alias: str | None
    mode: str
    dialect: str
    data_signed: bool
    own: bool
    count: int
    bytes: int
    digest: Octets
    top_seq: int
    peers: int
    chain_links: int | None
    chain_expires: float | None
    trusted: bool
    problem: str | None
    is_full: bool
    forgotten: int = 0
    forgotten_hashes: int = 0
    forgotten_refused: int = 0
    retained_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStatus(_Picture):
    """An address at which discovery found a peer, and what became of it.

    `state` is waiting, dialling, joined, resting (it failed) or own (this node answers there).
    """

    address: str
    key: bytes | None
    source: str
    state: str
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalStatus(_Picture):
    """A connection that was turned away. `reason` is a sentence, `kind` one word for programs."""

    at: float
    address: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus(_Picture):
    """The node as a whole. Sizes in bytes, `started` seconds since 1970."""

    version: str
    public_key: bytes
    started: float
    listening: tuple[str, ...]
    connections: int
    feeds: tuple[FeedStatus, ...]
    refusals: tuple[RefusalStatus, ...]
    store: dict[str, int]
    queued_bytes: int
    denied: int = 0
