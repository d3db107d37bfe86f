"""What `status` and `peers` answer; `hyperbloom.replication.status` says what it means."""

from __future__ import annotations

from typing import Any, TypedDict

from hyperbloom.api.schemas.answers import TrustWord
from hyperbloom.api.schemas.integrations import IntegrationForm

__all__ = [
    "FeedStatusForm",
    "NodeStatusForm",
    "PeerStatusForm",
    "RefusalForm",
    "StoreSizeForm",
    "SyncRoundForm",
]


class SyncRoundForm(TypedDict):
    """How a peer was last asked for what differs, `at` seconds since 1970."""

    way: str
    at: float
    symbols: int
    bytes: int
    differences: int | None


class PeerStatusForm(TypedDict):
    """One secure connection; times are seconds since 1970, null: not yet.

    `name`: what the key is called here.
    """

    feed: str
    address: str
    outgoing: bool
    protected: bool
    key: str
    id: str
    chain_links: int
    expires: float | None
    extensions: list[str]
    since: float
    values_in: int
    values_new: int
    values_out: int
    bytes_in: int
    bytes_out: int
    last_sync_sent: float | None
    last_sync_received: float | None
    last_data: float | None
    last_new: float | None
    strikes: int
    in_sync: bool | None
    in_sync_at: float | None
    in_sync_by: str | None
    expected: int | None
    last_round: SyncRoundForm | None
    name: str | None


class FeedStatusForm(TypedDict):
    """One feed; `trust`: whether this node may write, `dials`: addresses that are dialled.

    `invited`: how many keys this node has invited that have not come yet.
    """

    key: str
    discovery_key: str
    alias: str | None
    mode: str
    dialect: str
    noise: str
    data_signed: bool
    lacks: list[str]
    own: bool
    owner: bool
    count: int
    bytes: int
    digest: str | None
    digest_left: int
    top_seq: int
    peers: int
    peers_in_sync: int
    peers_unprotected: int
    last_round: SyncRoundForm | None
    chain_links: int | None
    chain_expires: float | None
    trusted: bool
    problem: str | None
    is_full: bool
    forgotten: int
    forgotten_hashes: int
    forgotten_refused: int
    retained_out: int
    invited: int
    trust: TrustWord
    dials: list[str]


class RefusalForm(TypedDict):
    """A connection that was turned away, `at` seconds since 1970; `kind` is a word for programs."""

    at: float
    address: str
    kind: str
    reason: str


class StoreSizeForm(TypedDict):
    """Bytes: of the map, of pages ever used, of those now free again, and of the file."""

    map_bytes: int
    used_bytes: int
    free_bytes: int
    file_bytes: int


class RateForm(TypedDict):
    """A direction: bytes a second in force for all peers and for each, 0: any; what they hold back.

    waiting: connections that wait for a turn; held_seconds: since the start, in which one did.
    """

    rate: float
    peer_rate: float
    waiting: int
    held_seconds: float


class NodeStatusForm(TypedDict):
    """The node as a whole; `started` in seconds since 1970.

    store_problem: why the store takes no writes, null: it does. objects: the pool, null: there is
    none. integrations: outputs, inputs and hooks. sending, receiving: the rates of `[limits]`.
    """

    version: str
    public_key: str
    started: float
    listening: list[str]
    connections: int
    feeds: list[FeedStatusForm]
    refusals: list[RefusalForm]
    store: StoreSizeForm
    queued_bytes: int
    denied: int
    store_problem: str | None
    sending: RateForm
    receiving: RateForm
    objects: dict[str, Any] | None
    integrations: list[IntegrationForm]
    addresses: list[str]
    discovery: dict[str, Any]
