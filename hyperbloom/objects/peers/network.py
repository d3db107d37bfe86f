"""All connections of the pool, who is let in, and the rule by which news are passed on.

What changed something here is told to every open peer but the one it came from, and nothing else
is: so every message ends, whatever circles the nodes form (hyperbloom/store/objects/rule.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Factory
from twisted.logger import Logger

from hyperbloom.addresses import network_of
from hyperbloom.connections.limits import MAX_CLOSED_SHOWN, TOLD_SINGLY
from hyperbloom.connections.tally import Tally
from hyperbloom.connections.workers import InThread
from hyperbloom.objects.peers import foreign
from hyperbloom.objects.peers.announcements import NEWS, messages
from hyperbloom.objects.peers.foreign import Made, Told
from hyperbloom.objects.peers.peer import Closing, PoolPeer
from hyperbloom.objects.pool import ObjectPool
from hyperbloom.objects.settings import ObjectsSettings
from hyperbloom.objects.status import ClosingStatus, PoolPeerStatus
from hyperbloom.objects.wire.payloads import Identify
from hyperbloom.store.objects.records import Outcome

__all__ = ["AcceptFactory", "Decide", "DialFactory", "PoolContext", "PoolNetwork", "let_in"]

#: Closings that tell a person nothing.
_ORDINARY = frozenset({"stopped", "lost", "left"})

log = Logger()

Decide = Callable[[Identify, str], "bool | Deferred[bool]"]
"""The application's decision whether a peer is let in, by what it says and its address."""


def let_in(identify: Identify, address: str) -> bool:
    """The decision where the application makes none: everybody is let in."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolContext:
    """What the connections share; everything that is not pure comes in here.

    now: seconds since 1970. node_id: a random word by which this process knows itself. passphrase:
    that of the AES flag, None for the flag NIL.
    """

    pool: ObjectPool
    settings: ObjectsSettings
    clock: IReactorTime
    now: Callable[[], float]
    random_bytes: Callable[[int], bytes]
    in_thread: InThread
    node_id: str
    passphrase: str | None = None
    decide: Decide = let_in


class PoolNetwork:
    """The connections of one node's pool."""

    def __init__(self, context: PoolContext) -> None:
        self.context = context
        self.closings: deque[ClosingStatus] = deque(maxlen=MAX_CLOSED_SHOWN)
        #: The oldest first.
        self._all: dict[PoolPeer, None] = {}
        self._open: list[PoolPeer] = []
        self._strangers = Tally(context.clock, log, what="Connections of strangers to the pool")
        self._peers = Tally(
            context.clock, log, what="Connections of the pool's peers", singly=TOLD_SINGLY
        )
        #: Addresses that we dialled and that closed when they were asked for their pool.
        self._unanswered: set[str] = set()
        self._all_gone: list[Deferred[None]] = []
        self._unsubscribe = context.pool.subscribe(self._pass_on)

    def __len__(self) -> int:
        return len(self._all)

    # Called by PoolPeer

    def admit(self, peer: PoolPeer) -> Closing | None:
        """Take a new connection in, or say why not."""
        settings = self.context.settings
        self._all[peer] = None
        if peer.outgoing:
            return None
        came = [one for one in self._all if not one.outgoing and one.closing is None]
        neighbours = [one for one in came if network_of(one.host) == network_of(peer.host)]
        if len(neighbours) > settings.connections_per_address:
            crowded = Closing("crowded", "its address has as many connections as it may")
            return self._make_room(neighbours, peer, crowded)
        if len(came) > settings.connections:
            crowded = Closing("crowded", "there are as many connections as there may be")
            return self._make_room(came, peer, crowded)
        return None

    def _make_room(
        self, some: Sequence[PoolPeer], newcomer: PoolPeer, crowded: Closing
    ) -> Closing | None:
        """The oldest that was not let in yet goes; where all were, the newcomer."""
        for one in some:
            if one is not newcomer and not one.is_open:
                one.close(Closing("crowded", "it had to make room for another connection"))
                return None
        return crowded

    def tell(self, peer: PoolPeer, kind: str, what: str) -> None:
        """Something that a peer caused, for the log."""
        tally = self._peers if peer in self._open else self._strangers
        tally.tell(kind, network_of(peer.host), "{peer}: {what}", peer=peer.address, what=what)

    def opened(self, peer: PoolPeer) -> None:
        """Objects may be told to the peer from now on."""
        self._open.append(peer)

    def may_ask(self, peer: PoolPeer) -> bool:
        """Whether to ask a peer of another kind for its pool.

        A JVM that has an object which it cannot write closes when it is asked, each time; so every
        other time it is left in peace for a while, and told and heard of what is new.
        """
        return peer.address not in self._unanswered

    def forget(self, peer: PoolPeer) -> None:
        """The connection is gone."""
        if peer.outgoing:
            self._unanswered.discard(peer.address)
            if peer.is_unanswered:
                self._unanswered.add(peer.address)
        self._all.pop(peer, None)
        if peer in self._open:
            self._open.remove(peer)
        why = peer.closing
        if why is not None and why.kind not in _ORDINARY:
            self.closings.appendleft(
                ClosingStatus(
                    at=self.context.now(), address=peer.address, kind=why.kind, reason=str(why)
                )
            )
        if not self._all:
            waiting, self._all_gone = self._all_gone, []
            for deferred in waiting:
                deferred.callback(None)

    # News

    def _pass_on(self, outcome: Outcome, source: object) -> None:
        """Tell every peer but the source; each form of the messages is made once."""
        if outcome.verdict not in NEWS:
            return
        made: dict[bool, Made] = {}
        for peer in list(self._open):
            if peer is source or not peer.is_open:
                continue
            kin = peer.session.is_kin
            if kin not in made:
                types = self.context.pool.types
                told = Told(messages(outcome)) if kin else foreign.messages(types, outcome)
                made[kin] = Made.of(told)
            peer.tell(outcome, made[kin])

    # Called by the service

    def look(self) -> None:
        """Have every connection look whether its peer is there."""
        for peer in list(self._open):
            peer.look()

    def close(self, why: Closing) -> Deferred[None]:
        """Close all; fires when they are gone. Nothing is passed on any more."""
        self._unsubscribe()
        for peer in list(self._all):
            peer.close(why)
        self._strangers.stop()
        self._peers.stop()
        if not self._all:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._all_gone.append(gone)
        return gone

    def peers(self) -> list[PoolPeerStatus]:
        """The open ones."""
        return [_status(peer) for peer in self._open if peer.is_open]


def _status(peer: PoolPeer) -> PoolPeerStatus:
    figures = peer.figures
    return PoolPeerStatus(
        address=peer.address,
        outgoing=peer.outgoing,
        kin=peer.session.is_kin,
        version=peer.version,
        since=peer.since,
        latency=peer.latency.latest,
        bytes_in=figures.bytes_in,
        bytes_out=figures.bytes_out,
        messages_in=figures.messages_in,
        messages_out=figures.messages_out,
        news_in=figures.news_in,
        clashes=figures.clashes,
        untyped=figures.untyped,
        untold=figures.untold,
        untold_why=figures.untold_why,
    )


class _PeerFactory(Factory):
    noisy = False
    outgoing: ClassVar[bool]

    def __init__(self, network: PoolNetwork) -> None:
        self._network = network

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """A protocol for one connection."""
        return PoolPeer(self._network, outgoing=self.outgoing)


class DialFactory(_PeerFactory):
    """Makes the protocols of the connections that we open: we are the client, and speak first."""

    outgoing = True


class AcceptFactory(_PeerFactory):
    """Makes the protocols of the connections that come in: we are the server."""

    outgoing = False
