"""The states of a connection, and the one table of what may happen in them.

A client sends IDENTIFY and waits; a server waits for it, decides, and answers OK or REJECTION.
After OK all that is about objects may flow both ways. PING may come at any time and is answered at
any time; we send none before the connection is open, because with the AES flag the server's first
message has a form of its own. KICK ends a connection from either side in every state.

The JVM does not wait for the handshake: what its program does meanwhile it sends at once, as server
before its OK. That is no breach (EARLY); who owns the connection keeps it until the handshake ends.
A JVM that was dialled sends its pool when an OK is sent to it, and again for each; so may we be
asked.

In IDENTIFIED nothing is read however much has arrived: the application decides first. FAILED is
where an input that the table lacks leads, and every other breach of the protocol by the peer: what
is left is to say KICK, as the text asks, and to close.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = ["EARLY", "PAUSED_STATES", "TRANSITIONS", "Input", "State"]


class State(Enum):
    """Where a connection stands."""

    IDLE = "idle"
    IDENTIFY_SENT = "identify sent"
    IDENTIFIED = "identified"
    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


class Input(Enum):
    """What may happen to a connection: we send, the peer sent, it ends."""

    SEND_IDENTIFY = "send IDENTIFY"
    SEND_OK = "send OK"
    SEND_REJECTION = "send REJECTION"
    SEND_PING = "send PING"
    SEND_PONG = "send PONG"
    SEND_KICK = "send KICK"
    SEND_INITIALIZE = "send INITIALIZE"
    SEND_CREATION = "send CREATION"
    SEND_CHANGE = "send CHANGE"
    SEND_REMOVAL = "send REMOVAL"
    RECEIVE_IDENTIFY = "receive IDENTIFY"
    RECEIVE_OK = "receive OK"
    RECEIVE_REJECTION = "receive REJECTION"
    RECEIVE_PING = "receive PING"
    RECEIVE_PONG = "receive PONG"
    RECEIVE_KICK = "receive KICK"
    RECEIVE_INITIALIZE = "receive INITIALIZE"
    RECEIVE_CREATION = "receive CREATION"
    RECEIVE_CHANGE = "receive CHANGE"
    RECEIVE_REMOVAL = "receive REMOVAL"
    RECEIVE_EOF = "receive end of stream"
    CLOSE = "close"


PAUSED_STATES: Final = frozenset({State.IDENTIFIED})
"""States in which received bytes wait for us."""

_LIVE: Final = (State.IDLE, State.IDENTIFY_SENT, State.IDENTIFIED, State.OPEN)
_READING: Final = (State.IDLE, State.IDENTIFY_SENT, State.OPEN)
#: What may come before the handshake is done.
EARLY: Final = (Input.RECEIVE_CREATION, Input.RECEIVE_CHANGE, Input.RECEIVE_REMOVAL)
_WHEN_OPEN: Final = (
    Input.SEND_OK,
    Input.RECEIVE_OK,
    Input.SEND_PING,
    Input.SEND_INITIALIZE,
    Input.SEND_CREATION,
    Input.SEND_CHANGE,
    Input.SEND_REMOVAL,
    Input.RECEIVE_PONG,
    Input.RECEIVE_INITIALIZE,
    Input.RECEIVE_CREATION,
    Input.RECEIVE_CHANGE,
    Input.RECEIVE_REMOVAL,
)

TRANSITIONS: Final[Mapping[tuple[State, Input], State]] = MappingProxyType(
    {
        (State.IDLE, Input.SEND_IDENTIFY): State.IDENTIFY_SENT,
        (State.IDLE, Input.RECEIVE_IDENTIFY): State.IDENTIFIED,
        # A server may have no room for a client, whatever that has to say.
        (State.IDLE, Input.SEND_REJECTION): State.CLOSED,
        (State.IDENTIFIED, Input.SEND_OK): State.OPEN,
        (State.IDENTIFIED, Input.SEND_REJECTION): State.CLOSED,
        (State.IDENTIFY_SENT, Input.RECEIVE_OK): State.OPEN,
        (State.IDENTIFY_SENT, Input.RECEIVE_REJECTION): State.CLOSED,
        # The JVM's client may think better of it when it has seen the OK.
        (State.OPEN, Input.RECEIVE_REJECTION): State.CLOSED,
        **{(State.OPEN, message): State.OPEN for message in _WHEN_OPEN},
        **{(state, early): state for state in (State.IDLE, State.IDENTIFY_SENT) for early in EARLY},
        **{(state, Input.RECEIVE_PING): state for state in _READING},
        **{(state, Input.SEND_PONG): state for state in _READING},
        **{(state, Input.RECEIVE_KICK): State.CLOSED for state in _READING},
        **{(state, Input.RECEIVE_EOF): State.CLOSED for state in _LIVE},
        **{(state, Input.SEND_KICK): State.CLOSED for state in (*_LIVE, State.FAILED)},
        **{(state, Input.CLOSE): State.CLOSED for state in State},
    }
)
"""(state, input) → the state it leads to. What is not in it is an error and leads to FAILED."""
