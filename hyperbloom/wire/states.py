"""The states of a connection, and the one table of what may happen in them.

Both sides send Open, in either order: who connects knows the feed, who was connected to may wait
for the other's Open to learn it. With both Opens there are both nonces, so each side sends its
Handshake; with the peer's Handshake verified the connection is secure, and the other messages may
flow both ways.

Where both sides speak the extension `noise`, a NoiseMessage of each comes first, the dialler's
before the other's, and the connection is secure with the second.

When the peer has said its end, nothing of it is read any more; it may be sent what it is owed.

In four states nothing is read however much has arrived, because reading on needs something from us:
after the peer's Open until the feed is known and our Open is sent, from then until our Handshake
is, and while it is our NoiseMessage's turn. An input that the table lacks ends the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = ["PAUSED_STATES", "TRANSITIONS", "Input", "State"]


class State(Enum):
    """Where a connection stands."""

    IDLE = "idle"
    OPEN_SENT = "open sent"
    OPEN_RECEIVED = "open received"
    OPENED = "opened"
    HANDSHAKE_SENT = "handshake sent"
    NOISE_DUE = "noise due"
    NOISE_SENT = "noise sent"
    NOISE_AWAITED = "noise awaited"
    NOISE_RECEIVED = "noise received"
    SECURE = "secure"
    PEER_ENDED = "ended by the peer"
    CLOSED = "closed"


class Input(Enum):
    """What may happen to a connection: we send, the peer sent, it ends."""

    SEND_OPEN = "send Open"
    SEND_HANDSHAKE = "send Handshake"
    SEND_NOISE = "send NoiseMessage"
    SEND_SYNC = "send Sync"
    SEND_FILTER_OPTIONS = "send FilterOptions"
    SEND_DATA = "send Data"
    SEND_REQUEST = "send Request"
    SEND_LINK = "send Link"
    SEND_DIGEST_REQUEST = "send DigestRequest"
    SEND_DIGEST = "send Digest"
    SEND_SKETCH_REQUEST = "send SketchRequest"
    SEND_SKETCH = "send Sketch"
    SEND_VALUES_WANTED = "send ValuesWanted"
    SEND_VALUES_TOLD = "send ValuesTold"
    SEND_VALUES_PULL = "send ValuesPull"
    SEND_RENEWED_CHAIN = "send RenewedChain"
    RECEIVE_OPEN = "receive Open"
    RECEIVE_HANDSHAKE = "receive Handshake"
    RECEIVE_HANDSHAKE_THEN_SEND = "receive Handshake, send NoiseMessage next"
    RECEIVE_HANDSHAKE_THEN_AWAIT = "receive Handshake, await NoiseMessage next"
    RECEIVE_NOISE = "receive NoiseMessage"
    RECEIVE_SYNC = "receive Sync"
    RECEIVE_FILTER_OPTIONS = "receive FilterOptions"
    RECEIVE_DATA = "receive Data"
    RECEIVE_REQUEST = "receive Request"
    RECEIVE_LINK = "receive Link"
    RECEIVE_DIGEST_REQUEST = "receive DigestRequest"
    RECEIVE_DIGEST = "receive Digest"
    RECEIVE_SKETCH_REQUEST = "receive SketchRequest"
    RECEIVE_SKETCH = "receive Sketch"
    RECEIVE_VALUES_WANTED = "receive ValuesWanted"
    RECEIVE_VALUES_TOLD = "receive ValuesTold"
    RECEIVE_VALUES_PULL = "receive ValuesPull"
    RECEIVE_RENEWED_CHAIN = "receive RenewedChain"
    RECEIVE_UNKNOWN = "receive unknown id"
    RECEIVE_END = "receive the end"
    CLOSE = "close"


PAUSED_STATES: Final = frozenset(
    {State.OPEN_RECEIVED, State.OPENED, State.NOISE_DUE, State.NOISE_RECEIVED}
)
"""States in which received bytes wait for us."""

_SENT_WHEN_SECURE: Final = (
    Input.SEND_SYNC,
    Input.SEND_FILTER_OPTIONS,
    Input.SEND_DATA,
    Input.SEND_REQUEST,
    Input.SEND_LINK,
    Input.SEND_DIGEST_REQUEST,
    Input.SEND_DIGEST,
    Input.SEND_SKETCH_REQUEST,
    Input.SEND_SKETCH,
    Input.SEND_VALUES_WANTED,
    Input.SEND_VALUES_TOLD,
    Input.SEND_VALUES_PULL,
    Input.SEND_RENEWED_CHAIN,
)

_RECEIVED_WHEN_SECURE: Final = (
    Input.RECEIVE_SYNC,
    Input.RECEIVE_FILTER_OPTIONS,
    Input.RECEIVE_DATA,
    Input.RECEIVE_REQUEST,
    Input.RECEIVE_LINK,
    Input.RECEIVE_DIGEST_REQUEST,
    Input.RECEIVE_DIGEST,
    Input.RECEIVE_SKETCH_REQUEST,
    Input.RECEIVE_SKETCH,
    Input.RECEIVE_VALUES_WANTED,
    Input.RECEIVE_VALUES_TOLD,
    Input.RECEIVE_VALUES_PULL,
    Input.RECEIVE_RENEWED_CHAIN,
    Input.RECEIVE_UNKNOWN,
)

TRANSITIONS: Final[Mapping[tuple[State, Input], State]] = MappingProxyType(
    {
        (State.IDLE, Input.SEND_OPEN): State.OPEN_SENT,
        (State.IDLE, Input.RECEIVE_OPEN): State.OPEN_RECEIVED,
        (State.OPEN_SENT, Input.RECEIVE_OPEN): State.OPENED,
        (State.OPEN_RECEIVED, Input.SEND_OPEN): State.OPENED,
        (State.OPENED, Input.SEND_HANDSHAKE): State.HANDSHAKE_SENT,
        (State.HANDSHAKE_SENT, Input.RECEIVE_UNKNOWN): State.HANDSHAKE_SENT,
        (State.HANDSHAKE_SENT, Input.RECEIVE_HANDSHAKE): State.SECURE,
        (State.HANDSHAKE_SENT, Input.RECEIVE_HANDSHAKE_THEN_SEND): State.NOISE_DUE,
        (State.NOISE_DUE, Input.SEND_NOISE): State.NOISE_SENT,
        (State.NOISE_SENT, Input.RECEIVE_NOISE): State.SECURE,
        (State.HANDSHAKE_SENT, Input.RECEIVE_HANDSHAKE_THEN_AWAIT): State.NOISE_AWAITED,
        (State.NOISE_AWAITED, Input.RECEIVE_NOISE): State.NOISE_RECEIVED,
        (State.NOISE_RECEIVED, Input.SEND_NOISE): State.SECURE,
        **{
            (State.SECURE, message): State.SECURE
            for message in (*_SENT_WHEN_SECURE, *_RECEIVED_WHEN_SECURE)
        },
        (State.SECURE, Input.RECEIVE_END): State.PEER_ENDED,
        **{(State.PEER_ENDED, message): State.PEER_ENDED for message in _SENT_WHEN_SECURE},
        **{(state, Input.CLOSE): State.CLOSED for state in State},
    }
)
"""(state, input) → the state it leads to. What is not in it is an error and leads to CLOSED."""
