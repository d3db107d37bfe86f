"""What a session tells: events in the past tense, and the two reasons for having none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeAlias

from hyperbloom.trust import Chain
from hyperbloom.wire.extensions.broadcast_tree import ValuesPull, ValuesTold
from hyperbloom.wire.extensions.reconcile import Sketch, SketchRequest, ValuesWanted
from hyperbloom.wire.extensions.renew_links import RenewedChain
from hyperbloom.wire.extensions.set_digest import Digest, DigestRequest
from hyperbloom.wire.messages import Request, Sync

__all__ = [
    "NEED_DATA",
    "PAUSED",
    "ConnectionEnded",
    "DataReceived",
    "DataRefused",
    "DigestReceived",
    "DigestRequested",
    "Event",
    "FilterOptionsReceived",
    "HandshakeReceived",
    "IdsTold",
    "LinkIgnored",
    "LinkReceived",
    "NoiseReceived",
    "OpenReceived",
    "PeerEnded",
    "RemotePeer",
    "RenewalReceived",
    "RequestReceived",
    "SketchReceived",
    "SketchRequested",
    "SyncReceived",
    "UnknownIgnored",
    "ValuesAskedFor",
    "ValuesPulled",
    "Waiting",
]


class Waiting(Enum):
    """Why `next_event` has no event."""

    NEED_DATA = "need data"
    PAUSED = "paused"


NEED_DATA: Final = Waiting.NEED_DATA
"""Nothing complete is left: the next event needs more bytes from the peer."""
PAUSED: Final = Waiting.PAUSED
"""Nothing is read until we send our Open, or our Handshake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePeer:
    """Who is at the other end, as its verified Handshake proved.

    `id` (32 bytes) is what it calls itself, `key` (32 bytes) what it signs with.
    """

    id: bytes
    key: bytes
    chain: Chain
    extensions: tuple[str, ...] = ()

    @property
    def expires(self) -> float:
        """Until when it may take part, in seconds since 1970; infinite for the feed's owner."""
        return self.chain.expires


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenReceived:
    """The peer's Open came; `feed` is the discovery key it names."""

    feed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeReceived:
    """The peer proved itself. The connection is secure, unless Noise is to come first.

    `speaks_noise`: both sides speak it; a NoiseMessage of each comes next.
    """

    peer: RemotePeer
    speaks_noise: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseReceived:
    """The peer's NoiseMessage held: the stream is protected once ours has gone, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReceived:
    """The peer asks for what is not in its filter."""

    sync: Sync


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterOptionsReceived:
    """The peer would rather have filters of at most `size` bits, with `n` hash functions."""

    size: int
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReceived:
    """Values came, signed as the dialect asks. `size` is the length of their frame in bytes."""

    values: tuple[bytes, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRefused:
    """`count` values were dropped: a wrong signature, or a peer whose trust has expired."""

    reason: Literal["signature", "expired"]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestReceived:
    """The peer asks for the values in a range."""

    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReceived:
    """A link came that makes our chain shorter; `chain` is the new one, verified."""

    chain: Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkIgnored:
    """A link came that is of no use to us; `reason` says why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestRequested:
    """The peer asks what is held here of some ranges (extension `set-digest`)."""

    request: DigestRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestReceived:
    """The peer told what it holds (extension `set-digest`)."""

    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchRequested:
    """The peer asks for symbols of what is held here (extension `reconcile`)."""

    request: SketchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SketchReceived:
    """Symbols of what the peer holds came (extension `reconcile`)."""

    sketch: Sketch


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesAskedFor:
    """The peer asks for values by their ids (extension `reconcile`)."""

    wanted: ValuesWanted


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsTold:
    """The peer told the ids of values that it holds (extension `broadcast-tree`)."""

    told: ValuesTold


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesPulled:
    """The peer asks for values, or has the link push or tell (extension `broadcast-tree`)."""

    pull: ValuesPull


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalReceived:
    """The peer sent a newer chain for our key, of which nothing is verified (`renew-links`)."""

    renewal: RenewedChain


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownIgnored:
    """A message that means nothing here was skipped. `size`: the length of its frame in bytes.

    Its id is unknown, or of an extension that not both sides have announced.
    """

    message_id: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEnded:
    """The peer has said that it sends nothing more. It may still be sent what it is owed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionEnded:
    """Nothing more will come: the session is closed, or its transport ended and no end was said."""


Event: TypeAlias = (
    OpenReceived
    | HandshakeReceived
    | NoiseReceived
    | SyncReceived
    | FilterOptionsReceived
    | DataReceived
    | DataRefused
    | RequestReceived
    | LinkReceived
    | LinkIgnored
    | DigestRequested
    | DigestReceived
    | SketchRequested
    | SketchReceived
    | ValuesAskedFor
    | IdsTold
    | ValuesPulled
    | RenewalReceived
    | UnknownIgnored
    | PeerEnded
    | ConnectionEnded
)
