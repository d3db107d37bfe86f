"""All connections about feeds, and who is let in: room, strikes, twins, chains that run out, and
streams that are not protected.

Every `PeerProtocol` asks here when it is made, when it is secure and when it ends. Once in half a
second all are looked at: one whose chain has run out is closed within the second, whatever the
wall clock did meanwhile, and one that reads nothing is cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.connections.crowding import Crowding
from hyperbloom.connections.door import Door
from hyperbloom.connections.limits import STRIKE_SECONDS
from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.connections.registry import Registered, Registry
from hyperbloom.connections.slots import Proof, Slots
from hyperbloom.connections.strikes import Strikes
from hyperbloom.connections.tally import Tally
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import FRAMES_PER_TURN, TURN_SECONDS
from hyperbloom.replication.net.noise_memory import NoiseMemory
from hyperbloom.replication.settings import NoisePolicy
from hyperbloom.replication.status import PeerStatus
from hyperbloom.replication.sync.peer import Peering
from hyperbloom.trust import Chain, Path, path_of
from hyperbloom.wire import Session
from hyperbloom.wire.events import RemotePeer

__all__ = ["Admission", "AdmittedPeer"]

#: Closings that tell a person nothing.
_ORDINARY = frozenset({"stopped", "twin", "own", "lost", "cut", "renewed"})
#: Somebody on the path did that.
_ALARMING = frozenset({"stripped", "altered"})

#: Seconds before the end of this node's chain at which a connection is made anew by a renewed one.
RENEWED_SECONDS = 2.0

log = Logger()


class AdmittedPeer(Registered, Protocol):
    """A connection about a feed, as far as it is known here (`PeerProtocol`)."""

    session: Session

    @property
    def feed(self) -> Feed | None:
        """The feed, once it is known."""
        ...

    @property
    def peering(self) -> Peering | None:
        """What goes on with the peer once it is secure."""
        ...

    @property
    def strikes(self) -> int:
        """How often it broke the protocol."""
        ...

    @property
    def close_reason(self) -> CloseReason | None:
        """Why it is being closed."""
        ...

    def abort(self, why: CloseReason) -> None:
        """Cut at once."""

    def look_again(self) -> None:
        """Go on taking frames if there is room for them."""

    def use_rates(self) -> None:
        """Hold to the rates that are set now."""


class Admission(Registry[AdmittedPeer]):
    """All connections about feeds. `feed_of` finds the feed of a discovery key, or None.

    knows_key: whether this node has its own reasons to know a key.
    """

    def __init__(
        self,
        context: FeedContext,
        feed_of: Callable[[bytes], Feed | None],
        knows_key: Callable[[bytes], bool] = lambda key: False,
    ) -> None:
        super().__init__(
            context.clock,
            context.now,
            log,
            ordinary=_ORDINARY,
            alarming=_ALARMING,
            strangers="Connections of strangers",
            members="Connections of members",
            reactor_budget=ReactorBudget(context.clock, most=FRAMES_PER_TURN, seconds=TURN_SECONDS),
        )
        self.context = context
        self.feed_of = feed_of
        #: The settings of a connection's life, as they are at the moment.
        self.times = lambda: context.limits
        #: Violations of the protocol since the start.
        self.strikes = 0
        #: Connections that became secure since the start, by whether their streams are protected.
        self.secured: Counter[bool] = Counter()
        #: What is told of dials to addresses that were discovered.
        self.found = Tally(context.clock, log, what="Dials to addresses that were found")
        self._slots: Slots[AdmittedPeer] = Slots(lambda: context.limits)
        self._strikes = Strikes(most=context.limits.strikes, memory=context.limits.ban_seconds)
        self._crowding = Crowding()
        #: Who has spoken Noise.
        self.noise = NoiseMemory(context, knows_key)
        self.door = Door(context.shares, context.clock)

    # Called by PeerProtocol

    def admit(self, connection: AdmittedPeer) -> CloseReason | None:
        """Take a new connection in, or say why not; another one may have to go for it."""
        super().admit(connection)
        surplus = self._slots.enter(
            connection, network=connection.network, dialled=connection.outgoing
        )
        crowded = "there are as many connections as there may be"
        return self._make_room(surplus, connection, crowded)

    def knows_feed(self, peer: AdmittedPeer) -> None:
        """A peer has opened a feed that is here."""
        self._slots.open(peer)

    def check_secure(self, peer: AdmittedPeer, remote: RemotePeer) -> CloseReason | None:
        """Why a peer that has proved a key is not let in all the same: as ourselves, or a twin.

        Our own key is never a peer's: somebody passes our own Handshake of another connection
        back to us, which proves nothing of him (the id in it is not signed), or it is ourselves.
        """
        denied = None if peer.feed is None else peer.feed.trust.membership.denied_in(remote.chain)
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

    def why_unprotected(self, peer: AdmittedPeer, remote: RemotePeer) -> CloseReason | None:
        """Why a peer that has proved a key may not go on in a stream that is not protected."""
        feed = peer.feed
        if feed is None or feed.wanted_noise is NoisePolicy.OFF:
            return None
        if feed.why_shut is not None:
            return CloseReason("unprotected", feed.why_shut)
        if feed.noise is NoisePolicy.REQUIRE:
            return CloseReason("unprotected", _NOT_SPOKEN)
        if feed.noise is NoisePolicy.PREFER and remote.key in self.noise:
            return CloseReason("unprotected", _not_spoken_now(remote.key))
        return None

    def became_secure(self, peer: AdmittedPeer) -> None:
        """A peer is let in."""
        self.secured[peer.session.is_protected] += 1

    def confirmed(self, peer: AdmittedPeer, remote: RemotePeer) -> None:
        """A protected stream with this peer stands: its key is really there."""
        self.noise.met(remote.key, branch=_path_of(peer, remote.chain)[0])

    def why_unwanted(self, peer: AdmittedPeer, chain: Chain) -> str | None:
        """Why a stranger that names this chain is turned away before anything is verified."""
        now, key = self.context.clock.seconds(), _path_of(peer, chain)[-1]
        if not self._crowding.is_too_much(key, peer.network, now=now):
            return None
        wait = self._crowding.wait(key, peer.network, now=now)
        return f"its key has all its connections and took places too often; again in {wait} s"

    def _own_keys(self, peer: AdmittedPeer) -> frozenset[bytes]:
        """Every key that this node proves itself with, there or elsewhere."""
        credentials = peer.session.credentials
        here = () if credentials is None else (credentials.identity.public_key,)
        return self.context.own_keys.union(here)

    def _prove(self, peer: AdmittedPeer, remote: RemotePeer) -> CloseReason | None:
        proof = Proof(feed=remote.chain.feed_key, path=_path_of(peer, remote.chain))
        surplus = self._slots.prove(peer, proof)
        if surplus is not None and (surplus is peer or _key_of(surplus) == remote.key):
            self._crowding.took(proof.path, peer.network, now=self.context.clock.seconds())
        return self._make_room(surplus, peer, "members have as many connections as they may")

    def _make_room(
        self, surplus: AdmittedPeer | None, newcomer: AdmittedPeer, crowded: str
    ) -> CloseReason | None:
        if surplus is None:
            return None
        # It counts no more, though the system takes a moment to close it.
        self._slots.leave(surplus)
        if surplus is newcomer:
            return CloseReason("crowded", crowded)
        surplus.abort(CloseReason("crowded", "it had to make room for another connection"))
        return None

    def _twin(self, peer: AdmittedPeer, remote: RemotePeer) -> CloseReason | None:
        """Whether there is a connection with this peer already that is to be kept.

        A twin has the same id and the same key: an id is told to everyone and proves nothing. Two
        nodes that dial each other have two connections; both keep the one dialled by the
        side with the smaller peer id.
        """
        own_id = self.context.peer_id
        twins = [
            other
            for other in (peer.feed.peers if peer.feed else ())
            if (other.id, other.remote_key) == (remote.id, remote.key)
        ]
        for twin in twins:
            keep_outgoing = own_id < remote.id
            if twin.outgoing == peer.outgoing or twin.outgoing == keep_outgoing:
                return CloseReason("twin", "there is a connection with this peer already")
            twin.close(CloseReason("twin", "there is another connection with this peer"))
        return None

    def shook_hands(self, connection: AdmittedPeer) -> None:
        """The handshake is done."""
        super().shook_hands(connection)
        self.tell(connection, "connected", "connected")

    def forget(self, connection: AdmittedPeer) -> None:
        """The connection is gone."""
        self._slots.leave(connection)
        why = connection.close_reason
        if connection.peering is not None and (why is None or why.kind in _ORDINARY):
            self.tell(connection, "gone", f"gone{'' if why is None else f', {why}'}")
        super().forget(connection)

    def branch_of(self, connection: AdmittedPeer) -> bytes | None:
        """The first key of its path, once it is secure."""
        return None if connection.peering is None else connection.peering.path[0]

    def log_fields(self, connection: AdmittedPeer) -> Mapping[str, str]:
        """The feed it is about and whose key it has proved, as far as these are known."""
        fields = {}
        if connection.feed is not None:
            fields["feed"] = connection.feed.log_name
        if connection.peering is not None:
            fields["peer_key"] = key_in_log(connection.peering.remote_key)
        return fields

    def strike(self, peer: AdmittedPeer, what: str) -> None:
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
            branch=self.branch_of(peer),
            peer=peer.address,
            what=what,
            feed=peer.feed.log_name if peer.feed is not None else None,
        )
        peering = peer.peering
        self.context.shares.charge(peering.share, STRIKE_SECONDS)
        who = _struck(peer, peering.remote_key)
        if self._strikes.strike(who, peering.path, now=self.context.clock.seconds()):
            peer.close(CloseReason("banned", "it has broken the protocol too often"))

    def _is_banned(self, peer: AdmittedPeer, key: bytes) -> bool:
        return self._strikes.is_banned(_struck(peer, key), now=self.context.clock.seconds())

    # Called by Node

    def limits_changed(self) -> None:
        """Take over what was read of the limits at the start; open connections get the rates."""
        limits = self.context.limits
        if self.context.bandwidth.set_rates(limits):
            for peer in [peer for peer in self._open if peer.close_reason is None]:
                peer.use_rates()
        self._strikes.bound(most=limits.strikes, memory=limits.ban_seconds)
        self.context.shares.limits_changed()

    def close_denied(self) -> None:
        """The deny list has grown: close who takes part by a chain that holds no more."""
        for peer in list(self._open):
            if peer.peering is None:
                continue
            remote, membership = peer.peering.remote, peer.peering.feed.trust.membership
            key = membership.denied_in(remote.chain)
            if key is not None:
                peer.close(_is_denied(key, remote.key))
            elif membership.denied_in(peer.peering.own_chain) is not None:
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
            if peering.remote_until + self.context.leeway < now:
                peer.close(CloseReason("expired", "a link of its chain has expired"))
            elif peering.own_until + self.context.leeway < now:
                # What is stored from now on could not be sent: the next connection asks anew.
                peer.close(CloseReason("no-chain", "this node's own chain has expired"))
            elif peering.scheduler.stalled_since(moment) > self.context.limits.stall_seconds:
                peer.abort(CloseReason("stalled", "it reads nothing of what waits for it"))
            elif _is_renewed(peering, now):
                peer.close(CloseReason("renewed", "it is connected anew, by the renewed chain"))
            else:
                peering.feed.renewals.look(peering)
                peer.look_again()

    def close_feed(self, feed_key: bytes, why: CloseReason) -> None:
        """Close the connections about a feed."""
        for peer in list(self._open):
            if peer.feed is not None and peer.feed.key == feed_key:
                peer.close(why)

    def close_all(self, why: CloseReason) -> Deferred[None]:
        """Close all, and count nothing for the log any more; fires when they are gone."""
        self.found.stop()
        return super().close_all(why)

    def keys(self) -> set[bytes]:
        """The keys of the secure ones."""
        return {key for peer in self._open if (key := _key_of(peer)) is not None}

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


_NOT_SPOKEN = (
    'it does not speak `noise`, and this node requires it (`noise = "require"`): set `noise = '
    '"prefer"` for this feed, or have the peer run a hyperbloom that speaks it'
)


def _not_spoken_now(key: bytes) -> str:
    return (
        "its key has spoken `noise` before, and now does not: somebody may be in its place. If it "
        f"really speaks it no more: `hyperbloom peers forget-noise {key_in_log(key)}`"
    )


def _is_denied(key: bytes, remote_key: bytes) -> CloseReason:
    """Why a peer with this key in its chain is turned away; the text is logged and names none."""
    if key == remote_key:
        return CloseReason("denied", "its key is denied (`trust denied`)")
    return CloseReason("denied", "its chain leads through a key that is denied (`trust denied`)")


def _is_renewed(peering: Peering, now: float) -> bool:
    """Whether this node's chain on a connection is about to end, and there is one in its place."""
    if peering.own_until - now >= RENEWED_SECONDS:
        return False
    chain = peering.feed.trust.chain
    return chain is not None and chain.expires - RENEWED_SECONDS > max(peering.own_until, now)


def _key_of(peer: AdmittedPeer) -> bytes | None:
    return None if peer.peering is None else peer.peering.remote_key


def _path_of(peer: AdmittedPeer, chain: Chain) -> Path:
    """The path of a chain's holder, as this node sees it."""
    return path_of(chain) if peer.feed is None else peer.feed.trust.path_of(chain)


def _struck(peer: AdmittedPeer, key: bytes) -> bytes:
    """By what strikes are counted: the key, and where it came from.

    Most of what a member can do wrong is not signed, and somebody on the path, or to whom a member
    has shown its proof, can do it in the member's name. That must not shut the member out where
    it really is. And a branch may be an office behind one address: it is not shut out for what one
    of its keys does. But each strike is charged to all of the path (`STRIKE_SECONDS`), so that who
    goes on with another key each time has made its branch rest for the others.
    """
    return key + peer.network.encode()
