"""All connections of the pool, who is let in, and the rule by which changes are passed on.

What changed something here is told to every open peer but the one it came from, and nothing else
is: so every message ends, whatever circles the nodes form (hyperbloom/store/objects/rule.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.connections.registry import Registered, Registry
from hyperbloom.objects.announcements import ANNOUNCED
from hyperbloom.objects.limits import PIECES_PER_TURN, TURN_SECONDS
from hyperbloom.objects.peers.context import PoolContext
from hyperbloom.objects.peers.foreign import Made
from hyperbloom.objects.peers.memory import PoolMemory
from hyperbloom.objects.peers.outgoing_objects import OutgoingObjects
from hyperbloom.objects.peers.parent_selection import Latency
from hyperbloom.objects.peers.port import PeerCounters
from hyperbloom.objects.status import PoolPeerStatus
from hyperbloom.objects.wire.session import Session
from hyperbloom.store.objects.records import Outcome

__all__ = ["NetworkPeer", "PoolNetwork"]

#: Closings that tell a person nothing.
_ORDINARY = frozenset({"stopped", "lost", "left"})

log = Logger()


class NetworkPeer(Registered, Protocol):
    """A connection of the pool, as far as it is known here (`PoolProtocol`)."""

    session: Session
    counters: PeerCounters
    latency: Latency
    version: int | None
    since: float

    @property
    def outgoing_objects(self) -> OutgoingObjects | None:
        """What it is told; None until it is open."""
        ...

    @property
    def close_reason(self) -> CloseReason | None:
        """Why it is being closed."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether objects may be sent."""
        ...

    def look(self) -> None:
        """Look whether its peer is there."""


class PoolNetwork(Registry[NetworkPeer]):
    """The connections of one node's pool."""

    def __init__(self, context: PoolContext) -> None:
        super().__init__(
            context.clock,
            context.now,
            log,
            ordinary=_ORDINARY,
            strangers="Connections of strangers to the pool",
            members="Connections of the pool's peers",
            reactor_budget=ReactorBudget(context.clock, most=PIECES_PER_TURN, seconds=TURN_SECONDS),
        )
        self.context = context
        self.memory = PoolMemory()
        #: Addresses that we dialled and that closed when they were asked for their pool.
        self._unanswered: set[str] = set()
        self._unsubscribe = context.pool.subscribe(self._pass_on)

    # Called by PoolProtocol

    def admit(self, connection: NetworkPeer) -> CloseReason | None:
        """Take a new connection in, or say why not."""
        super().admit(connection)
        if connection.outgoing:
            return None
        settings = self.context.settings
        came = [one for one in self._open if not one.outgoing and one.close_reason is None]
        neighbours = [one for one in came if one.network == connection.network]
        if len(neighbours) > settings.connections_per_address:
            crowded = CloseReason("crowded", "its address has as many connections as it may")
            return self._make_room(neighbours, connection, crowded)
        if len(came) > settings.connections:
            crowded = CloseReason("crowded", "there are as many connections as there may be")
            return self._make_room(came, connection, crowded)
        return None

    def _make_room(
        self, some: Sequence[NetworkPeer], newcomer: NetworkPeer, crowded: CloseReason
    ) -> CloseReason | None:
        """The oldest that was not let in yet goes; where all were, the newcomer."""
        for one in some:
            if one is not newcomer and not one.is_open:
                one.close(CloseReason("crowded", "it had to make room for another connection"))
                return None
        return crowded

    def may_ask(self, address: str) -> bool:
        """Whether to ask a peer of another kind for its pool.

        A JVM that has an object which it cannot write closes when it is asked, each time; so every
        other time it is left in peace for a while, and told and heard of what is new.
        """
        return address not in self._unanswered

    def forget(self, connection: NetworkPeer) -> None:
        """The connection is gone."""
        if connection.outgoing:
            self._unanswered.discard(connection.address)
            objects = connection.outgoing_objects
            if objects is not None and objects.is_unanswered:
                self._unanswered.add(connection.address)
        super().forget(connection)

    # Called by the pool

    def _pass_on(self, outcome: Outcome, source: object) -> None:
        """Tell every peer but the source; each form of the messages is made once."""
        if outcome.verdict not in ANNOUNCED:
            return
        made: dict[bool, Made] = {}
        for peer in list(self._open):
            objects = peer.outgoing_objects
            if peer is source or not peer.is_open or objects is None:
                continue
            kin = peer.session.is_kin
            if kin not in made:
                made[kin] = Made.of(objects.announcement(outcome))
            objects.announce(outcome, made[kin])

    # Called by the service

    def look(self) -> None:
        """Have every connection look whether its peer is there."""
        for peer in list(self._open):
            peer.look()

    def close_all(self, why: CloseReason) -> Deferred[None]:
        """Close all; fires when they are gone. Nothing is passed on any more."""
        self._unsubscribe()
        return super().close_all(why)

    def peers(self) -> list[PoolPeerStatus]:
        """The open ones."""
        return [_status(peer) for peer in self._open if peer.is_open]


def _status(peer: NetworkPeer) -> PoolPeerStatus:
    counters = peer.counters
    return PoolPeerStatus(
        address=peer.address,
        outgoing=peer.outgoing,
        kin=peer.session.is_kin,
        version=peer.version,
        since=peer.since,
        latency=peer.latency.latest,
        bytes_in=peer.bytes_in,
        bytes_out=peer.bytes_out,
        messages_in=counters.messages_in,
        messages_out=counters.messages_out,
        news_in=counters.news_in,
        clashes=counters.clashes,
        untyped=counters.untyped,
        untold=counters.untold,
        untold_why=counters.untold_why,
    )
