"""What is told about a node: frozen pictures of its state, with a JSON form (keys as hex)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from hyperbloom.connections.bandwidth import NO_RATE, RateFigures
from hyperbloom.connections.close_reason import ClosedConnection
from hyperbloom.store.records import DiskSize, StoreSize
from hyperbloom.store.writer import CommitFigures

__all__ = [
    "FeedStatus",
    "FeedTraffic",
    "FoundStatus",
    "NodeStatus",
    "NodeTraffic",
    "PeerStatus",
    "SyncRound",
    "SyncSource",
    "SyncState",
]

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


SyncSource: TypeAlias = Literal["digest", "sync"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncState:
    """Whether both held the same `at` a moment (seconds since 1970), as `source` showed."""

    in_sync: bool
    at: float
    source: SyncSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRound(_Picture):
    """How a peer was last asked for what differs, `at` a moment (seconds since 1970).

    way: sketch, salted sketch, filters or empty filter. symbols: that came. bytes: of the questions
    and symbols, or of the filters; values are not counted. differences: values that one of both
    lacked, None: that is not known.
    """

    way: str
    at: float
    symbols: int
    bytes: int
    differences: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus(_Picture):
    """One secure connection. Times are seconds since 1970, None: not yet.

    `protected`: nobody between both nodes can read or alter the stream (`noise`).
    `last_round`: how this node last asked the peer for what differs. `in_sync`: whether the peer
    held the same at `in_sync_at`, as a digest or Sync showed (`in_sync_by`); None while nothing is
    known. `expected`: how many values there will be here once everything has come that the peer
    told of last; None: it tells no digests, or this node keeps a part of the feed. `name`: what the
    operator calls the key.
    """

    feed: bytes
    address: str
    outgoing: bool
    protected: bool
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
    last_new: float | None = None
    strikes: int
    in_sync: bool | None = None
    in_sync_at: float | None = None
    in_sync_by: str | None = None
    expected: int | None = None
    last_round: SyncRound | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStatus(_Picture):
    """One feed: what is here and whether this node may write.

    `own`: its key is the node's own, so that who knows that can read it; `owner`: this node holds
    its key. `lacks`: what its dialect does not protect, in sentences; empty for dialect 2.
    `digest` is None while `digest_left` values are still to be added up (an older store).
    `peers` are connected; of these `peers_in_sync` held the same values when last compared, and the
    streams of `peers_unprotected` can be read and altered by who knows the feed's key. `noise`:
    with whom streams are protected: prefer, require or off.
    `invited`: keys that this node has invited and that have not come yet.
    `last_round`: how one of them was last asked for what differs.
    `forgotten` values are remembered whole and `forgotten_hashes` by their hashes;
    `forgotten_refused` came again since the start and were kept out; `retained_out` were forgotten
    by retention since then.
    """

    key: Octets
    discovery_key: Octets
    alias: str | None
    mode: str
    dialect: str
    noise: str
    data_signed: bool
    lacks: tuple[str, ...]
    own: bool
    owner: bool
    count: int
    bytes: int
    digest: Octets | None
    digest_left: int
    top_seq: int
    peers: int
    peers_in_sync: int
    peers_unprotected: int
    last_round: SyncRound | None
    chain_links: int | None
    chain_expires: float | None
    trusted: bool
    problem: str | None
    is_full: bool
    forgotten: int
    forgotten_hashes: int
    forgotten_refused: int
    retained_out: int
    invited: int = 0


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
class NodeStatus(_Picture):
    """The node as a whole. Sizes in bytes, `started` seconds since 1970.

    store_problem: why the store takes no writes, or what is damaged in it; None: all is well.
    sending, receiving: the rates of `[limits]`.
    """

    version: str
    public_key: bytes
    started: float
    listening: tuple[str, ...]
    connections: int
    feeds: tuple[FeedStatus, ...]
    refusals: tuple[ClosedConnection, ...]
    store: dict[str, int]
    queued_bytes: int
    denied: int
    store_problem: str | None = None
    sending: RateFigures = NO_RATE
    receiving: RateFigures = NO_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedTraffic:
    """What a feed holds and has moved since the start; counts only, so that it costs little.

    Times are seconds since 1970. is_shared: others take part, or once did. trusted: this node may
    write, until chain_expires; issued_links of its own hold, and the first of them ends at
    issued_expire. None: never.
    peers: secure connections; of these peers_in_sync held the same values when last compared,
    peers_differing others, and the streams of peers_unprotected are not protected. last_sync: when
    a peer was last compared with or answered, 0: not since the start. rounds: how often peers were
    asked for what differs, by way, with round_bytes.
    forgotten values are remembered whole, forgotten_hashes by their hashes, None: the store cannot
    be read; retained_out were forgotten by retention.
    kept_out: values that policy refused, by reason. sync_seconds: spent on making filters;
    values_tested: against filters of peers. sketches_asked: tries by symbols that this node began;
    sketch_symbols came for them, sketch_bytes were sent to ask and to answer by them, and
    sketch_differences are the values found that one of both lacked. ids_told: instead of values;
    values_pulled: asked of peers that told their ids.
    """

    key: Octets
    alias: str | None
    count: int
    bytes: int
    is_shared: bool
    trusted: bool
    chain_expires: float | None
    issued_links: int
    issued_expire: float | None
    peers: int
    peers_in_sync: int
    peers_differing: int
    peers_unprotected: int
    last_sync: float
    rounds: dict[str, int]
    round_bytes: dict[str, int]
    forgotten: int | None
    forgotten_hashes: int | None
    retained_out: int
    kept_out: dict[str, int]
    values_in: int
    values_new: int
    values_out: int
    syncs_sent: int
    syncs_received: int
    sync_seconds: float
    values_tested: int
    sketches_asked: int
    sketch_symbols: int
    sketch_bytes: int
    sketch_differences: int
    ids_told: int
    values_pulled: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTraffic:
    """What the node has moved since the start, and how its store does.

    closed: connections that this node closed, by the kind of `CloseReason`. dialled, accepted:
    connections that came about. secure: those that are past the handshake now. secured: those that
    ever were, in a protected stream and without. denied: keys. disk: the store's file system.
    """

    started: float
    connections: int
    secure: int
    dialled: int
    accepted: int
    closed: dict[str, int]
    secured_protected: int
    secured_plain: int
    denied: int
    strikes: int
    bytes_in: int
    bytes_out: int
    feeds: tuple[FeedTraffic, ...]
    store: StoreSize
    disk: DiskSize | None
    queued_bytes: int
    commits: CommitFigures
    store_problem: str | None = None
    sending: RateFigures = NO_RATE
    receiving: RateFigures = NO_RATE
