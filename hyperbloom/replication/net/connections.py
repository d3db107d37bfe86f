"""Who is connected and who is let in: room, strikes, twins, chains that run out.

Every `PeerProtocol` asks here when it is made, when it is secure and when it ends. Once in half a
second all are looked at: one whose chain has run out is closed within the second, whatever the
wall clock did meanwhile, and one that reads nothing is cut.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.crowding import Crowding
from hyperbloom.connections.limits import MAX_CLOSED_SHOWN, TOLD_SINGLY
from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.connections.slots import Proof, Slots
from hyperbloom.connections.strikes import Strikes
from hyperbloom.connections.tally import Tally
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.limits import FRAMES_PER_TURN, TURN_SECONDS
from hyperbloom.replication.status import PeerStatus, RefusalStatus
from hyperbloom.trust import Chain
from hyperbloom.wire import RemotePeer

if TYPE_CHECKING:
    from hyperbloom.replication.feed.feed import Feed
    from hyperbloom.replication.net.protocol import PeerProtocol

__all__ = ["Connections"]

#: Closings that tell a person nothing.
_ORDINARY = frozenset({"stopped", "twin", "own", "lost"})

log = Logger()


class Connections:
    """All connections of a node. `feed_of` finds the feed of a discovery key, or None."""

    def __init__(self, context: FeedContext, feed_of: Callable[[bytes], Feed | None]) -> None:
        self.context = context
        self.feed_of = feed_of
        self.reactor_budget = ReactorBudget(
            context.clock, most=FRAMES_PER_TURN, seconds=TURN_SECONDS
        )
        self.refusals: deque[RefusalStatus] = deque(maxlen=MAX_CLOSED_SHOWN)
        #: Since the start: connections by way, closings by kind, violations of the protocol, and
        #: the bytes of connections that are over.
        self.opened: Counter[bool] = Counter()
        self.closed: Counter[str] = Counter()
        self.strikes = self._past_in = self._past_out = 0
        #: What is told of strangers, of members, and of dials to addresses that were found.
        self.strangers = Tally(context.clock, log, what="Connections of strangers")
        self.members = Tally(context.clock, log, what="Connections of members", singly=TOLD_SINGLY)
        self.found = Tally(context.clock, log, what="Dials to addresses that were found")
        self._open: set[PeerProtocol] = set()
        self._slots: Slots[PeerProtocol] = Slots(lambda: context.limits)
        self._strikes = Strikes(most=context.limits.strikes, memory=context.limits.ban_seconds)
        self._crowding = Crowding()
        self._all_closed: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._open)

    # Called by PeerProtocol

    def admit(self, peer: PeerProtocol) -> CloseReason | None:
        """Take a new connection in, or say why not; another one may have to go for it."""
        self._open.add(peer)
        self.opened[peer.outgoing] += 1
        surplus = self._slots.enter(peer, network=peer.network, dialled=peer.outgoing)
        return self._make_room(surplus, peer, "there are as many connections as there may be")

    def knows_feed(self, peer: PeerProtocol) -> None:
        """A peer has opened a feed that is here."""
        self._slots.open(peer)

    def check_secure(self, peer: PeerProtocol, remote: RemotePeer) -> CloseReason | None:
        """Why a peer that has proved a key is not let in all the same: as ourselves, or a twin.

        Our own key is never a peer's: somebody passes our own Handshake of another connection
        back to us, which proves nothing of him (the id in it is not signed), or it is ourselves.
        """
        denied = self.context.denied.first_of(remote.chain)
        if denied is not None:
            return _is_denied(denied, remote.key)
        if remote.key in self._own_keys(peer):
            if remote.id == self.context.peer_id:
                return CloseReason("own", "this node dialled itself")
            return CloseReason(
                "own-key",
                "it proved this node's own key: somebody passed our own proof back to us, or "
                "another node runs with the same key",
            )
        if not peer.outgoing and self._is_banned(peer, remote.key):
            return CloseReason("banned", "it has broken the protocol too often")
        return self._twin(peer, remote) or self._prove(peer, remote)

    def why_unwanted(self, peer: PeerProtocol, key: bytes) -> str | None:
        """Why a stranger that names this key is turned away before anything is verified."""
        who, now = _struck(peer, key), self.context.clock.seconds()
        if not self._crowding.is_too_much(who, now=now):
            return None
        wait = self._crowding.wait(who, now=now)
        return f"its key has all its connections and took places too often; again in {wait} s"

    def _own_keys(self, peer: PeerProtocol) -> frozenset[bytes]:
        """Every key that this node proves itself with, there or elsewhere."""
        credentials = peer.session.credentials
        here = () if credentials is None else (credentials.identity.public_key,)
        return self.context.own_keys.union(here)

    def _prove(self, peer: PeerProtocol, remote: RemotePeer) -> CloseReason | None:
        proof = Proof(feed=remote.chain.feed_key, key=remote.key, branch=_branch_of(remote.chain))
        surplus = self._slots.prove(peer, proof)
        if surplus is not None and (surplus is peer or _key_of(surplus) == remote.key):
            self._crowding.took(_struck(peer, remote.key), now=self.context.clock.seconds())
        return self._make_room(surplus, peer, "members have as many connections as they may")

    def _make_room(
        self, surplus: PeerProtocol | None, newcomer: PeerProtocol, crowded: str
    ) -> CloseReason | None:
        if surplus is None:
            return None
        # It counts no more, though the system takes a moment to close it.
        self._slots.leave(surplus)
        if surplus is newcomer:
            return CloseReason("crowded", crowded)
        surplus.abort(CloseReason("crowded", "it had to make room for another connection"))
        return None

    def _twin(self, peer: PeerProtocol, remote: RemotePeer) -> CloseReason | None:
        """Whether there is a connection with this peer already that is to be kept.

        A twin has the same id and the same key: an id is told to everyone and proves nothing. Two
        nodes that dial each other have two connections; both keep the one dialled by the
        side with the smaller peer id.
        """
        own_id = self.context.peer_id
        twins = [
            other.connection
            for other in (peer.feed.peers if peer.feed else ())
            if (other.id, other.remote_key) == (remote.id, remote.key)
        ]
        for twin in twins:
            keep_outgoing = own_id < remote.id
            if twin.outgoing == peer.outgoing or twin.outgoing == keep_outgoing:
                return CloseReason("twin", "there is a connection with this peer already")
            twin.close(CloseReason("twin", "there is another connection with this peer"))
        return None

    def forget(self, peer: PeerProtocol) -> None:
        """The connection is gone."""
        self._open.discard(peer)
        self._past_in += peer.bytes_in
        self._past_out += peer.bytes_out
        self._slots.leave(peer)
        if not self._open:
            waiting, self._all_closed = self._all_closed, []
            for deferred in waiting:
                deferred.callback(None)

    def refused(self, peer: PeerProtocol, why: CloseReason) -> None:
        """A connection is being closed by this node; what may interest a person is kept."""
        self.closed[why.kind] += 1
        if why.kind in _ORDINARY:
            return
        tally = self.strangers if peer.peering is None else self.members
        tally.tell(
            why.kind,
            peer.network,
            "{peer}: closed, {why}",
            peer=peer.address,
            why=str(why),
            feed=peer.feed.log_name if peer.feed is not None else None,
            peer_key=key_in_log(peer.peering.remote_key) if peer.peering is not None else None,
        )
        self.refusals.appendleft(
            RefusalStatus(
                at=self.context.now(), address=peer.address, kind=why.kind, reason=str(why)
            )
        )

    def tell(self, peer: PeerProtocol, kind: str, what: str) -> None:
        """Something that a member caused, for the log."""
        self.members.tell(kind, peer.network, "{peer}: {what}", peer=peer.address, what=what)

    def strike(self, peer: PeerProtocol, what: str) -> None:
        """A peer broke the protocol.

        Who has proved nothing is only closed: what comes from an address may come from anybody.
        """
        self.strikes += 1
        if peer.peering is None:
            return
        self.members.tell(
            "strike",
            peer.network,
            "{peer} broke the protocol: {what}",
            peer=peer.address,
            what=what,
            feed=peer.feed.log_name if peer.feed is not None else None,
        )
        who = _struck(peer, peer.peering.remote_key)
        if self._strikes.strike(who, now=self.context.clock.seconds()):
            peer.close(CloseReason("banned", "it has broken the protocol too often"))

    def _is_banned(self, peer: PeerProtocol, key: bytes) -> bool:
        return self._strikes.is_banned(_struck(peer, key), now=self.context.clock.seconds())

    # Called by Node

    def limits_changed(self) -> None:
        """Take over what was read of the limits at the start; open connections keep theirs."""
        limits = self.context.limits
        self._strikes.bound(most=limits.strikes, memory=limits.ban_seconds)
        self.context.shares.limits_changed()

    def close_denied(self) -> None:
        """The deny list has grown: close who takes part by a chain that holds no more."""
        denied = self.context.denied
        for peer in list(self._open):
            if peer.peering is None:
                continue
            remote = peer.peering.remote
            key = denied.first_of(remote.chain)
            if key is not None:
                peer.close(_is_denied(key, remote.key))
            elif denied.first_of(peer.peering.own_chain) is not None:
                peer.close(
                    CloseReason("no-chain", "this node's own chain leads through a denied key")
                )

    def look(self) -> None:
        """Close who may no longer take part, and cut who reads nothing for long."""
        now = self.context.now()
        moment = self.context.clock.seconds()
        for peer in list(self._open):
            peering = peer.peering
            if peering is None or peer.close_reason is not None:
                continue
            if peering.remote.expires + self.context.leeway < now:
                peer.close(CloseReason("expired", "a link of its chain has expired"))
            elif peering.own_chain.expires + self.context.leeway < now:
                # What is stored from now on could not be sent: the next connection asks anew.
                peer.close(CloseReason("no-chain", "this node's own chain has expired"))
            elif peering.outflow.stalled_since(moment) > self.context.limits.stall_seconds:
                peer.abort(CloseReason("stalled", "it reads nothing of what waits for it"))
            else:
                peer.look_again()

    def close(self, why: CloseReason, feed_key: bytes | None = None) -> Deferred[None]:
        """Close the connections of a feed, or all; fires, for all, when they are gone."""
        for peer in list(self._open):
            if feed_key is None or (peer.feed is not None and peer.feed.key == feed_key):
                peer.close(why)
        if feed_key is None:
            for tally in (self.strangers, self.members, self.found):
                tally.stop()
        if feed_key is not None or not self._open:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._all_closed.append(gone)
        return gone

    def moved(self) -> tuple[int, int]:
        """Bytes that came in and went out since the start."""
        return (
            self._past_in + sum(peer.bytes_in for peer in self._open),
            self._past_out + sum(peer.bytes_out for peer in self._open),
        )

    def peers(self) -> list[PeerStatus]:
        """The secure ones."""
        return [
            peer.peering.status(peer.bytes_in, peer.bytes_out, peer.strikes)
            for peer in self._open
            if peer.peering is not None and peer.close_reason is None
        ]


def key_in_log(key: bytes) -> str:
    """A peer's key as the log has it: an owner's is the feed's key, which who reads a log gets not.

    16 hex digits tell peers apart, and are no key.
    """
    return key.hex()[:16]


def _is_denied(key: bytes, remote_key: bytes) -> CloseReason:
    """Why a peer with this key in its chain is turned away; the text is logged and names none."""
    if key == remote_key:
        return CloseReason("denied", "its key is denied (`trust denied`)")
    return CloseReason("denied", "its chain leads through a key that is denied (`trust denied`)")


def _key_of(peer: PeerProtocol) -> bytes | None:
    return None if peer.peering is None else peer.peering.remote_key


def _branch_of(chain: Chain) -> bytes:
    """The key of a chain's first link, the feed's own for its owner."""
    return chain.keys[min(1, len(chain))]


def _struck(peer: PeerProtocol, key: bytes) -> bytes:
    """By what strikes are counted: the key, and where it came from.

    Most of what a member can do wrong is not signed, and somebody on the path, or to whom a member
    has shown its proof, can do it in the member's name. That must not shut the member out where
    it really is.
    """
    return key + peer.network.encode()
