"""A connection of the pool, as far as what goes over it uses it (`PoolProtocol`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import ITransport

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.peers.context import PoolContext
from hyperbloom.objects.peers.memory import PoolMemory
from hyperbloom.objects.wire.payloads import Payload
from hyperbloom.objects.wire.session import Session

__all__ = ["PeerCounters", "PoolPort"]


@dataclass(slots=True)
class PeerCounters:
    """Messages about objects that went over a connection, and what came of them."""

    messages_in: int = 0
    messages_out: int = 0
    news_in: int = 0
    clashes: int = 0
    #: Objects of another kind's INITIALIZE whose type is not known here.
    untyped: int = 0
    #: What a peer of another kind is not told, for it could not read it; and why, of the latest.
    untold: int = 0
    untold_why: str | None = None


class PoolPort(Protocol):
    """One connection. `transport` is Twisted's."""

    context: PoolContext
    session: Session
    counters: PeerCounters
    outgoing: bool
    address: str
    network: str
    memory: PoolMemory
    transport: ITransport | None

    @property
    def is_open(self) -> bool:
        """Whether objects may be sent."""
        ...

    @property
    def may_write(self) -> bool:
        """Whether it is open, and its transport takes more."""
        ...

    def now(self) -> int:
        """The time as payloads have it, in ms."""
        ...

    def send(self, payload: Payload) -> None:
        """Send a payload that is not about objects, before everything that waits."""

    def send_compressed(self, kind: type[Payload], data: bytes) -> None:
        """Send a payload of this kind that is compressed already."""

    def write(self, data: bytes) -> None:
        """Write bytes made by the session."""

    def ping(self) -> None:
        """Send a PING, unless one is on its way."""

    def later(self, seconds: float, call: Callable[..., object], *arguments: object) -> object:
        """Call after so many seconds, unless the connection is gone."""

    def look_again(self) -> None:
        """Go on taking messages, if the connection was behind and is so no longer."""

    def close(self, why: CloseReason) -> None:
        """End the connection."""

    def tell(self, kind: str, what: str) -> None:
        """Something that the peer caused, for the log."""
