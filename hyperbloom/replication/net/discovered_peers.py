"""Peers that were found: addresses that discovery names become dials, a few at a time.

Anyone can announce an address, so none is trusted for being named: the handshake proves who
answers. An address that fails is backed off from and makes room for the next one; one that led to
a peer is kept in the store and dialled first at the next start, before anything is looked up.

A handshake does not prove that the peer answers there itself: somebody to whom it has shown its
proof can pass it on, and discovery puts anybody on that path. So an address is kept for a key, and
told to others as its, only once the peer has shown that it is there (`PeerIntake.when_shown`): by a
protected stream, or by a value that is new and signed by it. And not while the configuration names
another address where the same key answers.

    waiting ── room ──> dialling ── secure ──> joined ── lost ──> dialling
                           │
                           └── gave up ──> resting ── found again, after its rest ──> waiting

What once led to a peer need not be found again after its rest.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from hyperbloom.addresses import Address
from hyperbloom.replication.limits import (
    FOUND_ATTEMPTS,
    FOUND_FAILURES,
    FOUND_REST_FIRST,
    FOUND_REST_LONGEST,
    MAX_FOUND,
)
from hyperbloom.replication.net.dialer import Dialer
from hyperbloom.replication.status import FoundStatus
from hyperbloom.store import Operation
from hyperbloom.store.records import PeerRecord
from hyperbloom.store.tables.peers import DropPeer, PutPeer
from hyperbloom.trust import Path

if TYPE_CHECKING:
    from hyperbloom.replication.feed.feed import Feed
    from hyperbloom.replication.net.admission import Admission
    from hyperbloom.replication.net.protocol import PeerProtocol

__all__ = ["DiscoveredPeers", "FoundState"]

FoundState: TypeAlias = Literal["waiting", "dialling", "joined", "resting", "own"]

_ORDER: tuple[FoundState, ...] = ("joined", "dialling", "waiting", "resting", "own")

log = Logger()


@dataclass(slots=True)
class _Found:
    """What is known of an address. `rest_until` is in seconds of the reactor's clock.

    `record` is as in the store, where it is `stored`; its key is the one that was shown there, else
    one that somebody named. `answered`: the key that was proved there last, with its `path`,
    `shown`: that showed itself.
    """

    address: Address
    record: PeerRecord
    answered: bytes | None = None
    shown: bytes | None = None
    path: Path = ()
    dialer: Dialer | None = None
    waiting: bool = True
    own: bool = False
    stored: bool = False
    problem: str | None = None
    rests: int = 0
    rest_until: float = 0.0
    retry: IDelayedCall | None = None

    @property
    def kinds(self) -> tuple[str, str]:
        """What bounds count it by: who names it (a word), and its network.

        Each way of finding peers has other people who can lie in it, and an address costs nothing
        to name. So the liars of one way leave the other ways their share, and one machine with a
        /64 or many ports is as good as one address.
        """
        return self.record.source, self.address.network

    @property
    def state(self) -> FoundState:
        if self.dialer is not None:
            return "joined" if self.dialer.is_connected else "dialling"
        if self.own:
            return "own"
        return "waiting" if self.waiting else "resting"


class DiscoveredPeers:
    """The found addresses of one feed, between `start` and `stop`.

    `skip` holds the addresses that somebody else dials: the configuration's; `configured` gives
    the keys that answered at those.
    """

    def __init__(
        self,
        connections: Admission,
        feed: Feed,
        *,
        skip: Container[Address] = (),
        configured: Callable[[], Container[bytes | None]] = tuple,
    ) -> None:
        self._connections = connections
        self._context = connections.context
        self._feed = feed
        self._skip = skip
        self._configured = configured
        self._found: OrderedDict[Address, _Found] = OrderedDict()
        self._running = False

    def start(self) -> None:
        """Dial those that led to a peer before, the latest first."""
        self._running = True
        known = [r for r in self._context.store.peers() if r.feed_key == self._feed.key]
        for record in sorted(known, key=lambda one: one.last_seen, reverse=True):
            address = Address.parse(record.address)
            if address not in self._skip:
                self._found[address] = _Found(address, record, shown=record.key, stored=True)
        self._dial_waiting()

    def stop(self) -> Deferred[object]:
        """Stop dialling and close what is open; fires when that is done."""
        self._running = False
        dialers = [one.dialer for one in self._found.values() if one.dialer is not None]
        for one in self._found.values():
            if one.retry is not None and one.retry.active():
                one.retry.cancel()
        self._found.clear()
        return DeferredList([dialer.stop() for dialer in dialers]).addCallback(lambda _: None)

    def add(self, address: Address, *, key: bytes | None = None, source: str = "") -> bool:
        """Take an address at which a peer is said to be; whether it will be dialled.

        `key` is the one that the peer is said to have, `source` one word for people.
        """
        if not self._running or address in self._skip or self._is_connected(key):
            return False
        if key in self._context.denied:
            return False
        found = self._found.get(address)
        if found is None:
            record = PeerRecord(
                address=str(address), feed_key=self._feed.key, key=key, source=source
            )
            found = self._found[address] = _Found(address, record)
            self._forget_beyond_bound()
        self._found.move_to_end(address)
        self._wait_for_room(found)
        return found.waiting or found.dialer is not None

    def status(self) -> list[FoundStatus]:
        """What is known of each address, those with a connection first."""
        found = sorted(self._found.values(), key=lambda one: _ORDER.index(one.state))
        return [
            FoundStatus(
                address=str(one.address),
                key=one.answered or one.record.key,
                source=one.record.source,
                state=one.state,
                problem=one.problem if one.dialer is None else one.dialer.last_problem,
            )
            for one in found
        ]

    def addresses_of(self, key: bytes) -> list[Address]:
        """Where the peer with this key has shown that it listens."""
        return [
            one.address
            for one in self._found.values()
            if one.shown == one.answered == key and one.state == "joined"
        ]

    def _now(self) -> float:
        return self._context.clock.seconds()

    def _is_connected(self, key: bytes | None) -> bool:
        return key is not None and key in self._feed.peers.keys

    def _forget_beyond_bound(self) -> None:
        """Strangers go before those that led to a peer, but for half of the room.

        Of those that led to a peer the branch with the most gives one first, of strangers the kind.
        What is dialled stays.
        """
        idle = [address for address, one in self._found.items() if one.dialer is None]
        sizes = Counter(self._branch(one) for one in self._found.values() if one.stored)
        weights = Counter(kind for one in self._found.values() for kind in one.kinds)
        most_are_stored = sizes.total() > MAX_FOUND // 2

        def order(address: Address) -> tuple[bool, int, int, int]:
            one = self._found[address]
            source, network = one.kinds
            in_branch = sizes[self._branch(one)] if one.stored else 0
            return (
                one.stored is not most_are_stored,
                -in_branch,
                -weights[source],
                -weights[network],
            )

        idle.sort(key=order)
        for address in idle[: max(0, len(self._found) - MAX_FOUND)]:
            forgotten = self._found.pop(address)
            if forgotten.stored:
                self._write(DropPeer(self._feed.key, forgotten.record.address))
            if forgotten.retry is not None and forgotten.retry.active():
                forgotten.retry.cancel()

    @staticmethod
    def _branch(found: _Found) -> bytes | None:
        """What an address counts by: the branch of who showed itself there, else its key."""
        return found.path[0] if found.path else found.shown

    def _wait_for_room(self, found: _Found) -> None:
        if self._running and found.dialer is None and not found.own:
            found.waiting = found.waiting or self._now() >= found.rest_until
            self._dial_waiting()

    def _dial_waiting(self) -> None:
        """Dial while there is room: what led to a peer before, then who was found last, for these
        are the likeliest. Of strangers, first those of whose kinds fewest are being dialled.
        """
        dialled = [one for one in self._found.values() if one.dialer is not None]
        free = self._context.limits.found_peers - len(dialled)
        busy = Counter(kind for one in dialled if one.state == "dialling" for kind in one.kinds)
        # What the store knew comes in the order in which it is to be dialled.
        waiting = [one for one in self._found.values() if one.waiting and self._may_dial(one)]
        stored = [one for one in waiting if one.stored]
        others = [one for one in reversed(waiting) if not one.stored]
        branches = Counter(self._branch(one) for one in dialled)
        for _ in range(free):
            if stored:
                found = min(stored, key=lambda one: branches[self._branch(one)])
                stored.remove(found)
            elif others:
                found = min(others, key=lambda one: [busy[kind] for kind in one.kinds])
                others.remove(found)
            else:
                return
            branches[self._branch(found)] += 1
            busy.update(found.kinds)
            self._dial(found)

    def _may_dial(self, found: _Found) -> bool:
        denied = self._context.denied
        return found.record.key not in denied and found.answered not in denied

    def forget_denied(self) -> None:
        """The deny list has grown: dial those no more that led to a denied key."""
        for address, one in list(self._found.items()):
            if self._may_dial(one):
                continue
            del self._found[address]
            if one.retry is not None and one.retry.active():
                one.retry.cancel()
            if one.dialer is not None:
                one.dialer.stop()
        if self._running:
            self._dial_waiting()

    def _dial(self, found: _Found) -> None:
        found.waiting = False
        dialer = Dialer(
            self._connections,
            self._feed,
            found.address,
            attempts=FOUND_ATTEMPTS,
            secure=self._joined(found),
            gave_up=lambda: self._gave_up(found, dialer),
        )
        found.dialer = dialer
        dialer.start()

    def _joined(self, found: _Found) -> Callable[[PeerProtocol], None]:
        def joined(peer: PeerProtocol) -> None:
            if peer.peering is None:
                return
            key = peer.peering.remote_key
            if (found.answered or found.record.key) not in (None, key):
                self._connections.found.tell(
                    "another-peer",
                    peer.network,
                    "Another peer than was found answers at {address}",
                    address=peer.address,
                )
            found.answered, found.path, found.rests = key, peer.peering.path, 0
            if found.shown == key:
                self._keep(found, key)
            else:
                peer.peering.intake.when_shown(lambda: self._keep(found, key))

        return joined

    def _keep(self, found: _Found, key: bytes) -> None:
        """Write the address down for the key that has shown itself there."""
        found.shown = key
        if not self._running or key in self._configured():
            return
        found.stored = True
        found.record = replace(
            found.record, key=key, last_seen=int(self._context.now() * 1_000_000), failures=0
        )
        self._write(PutPeer(found.record))

    def _gave_up(self, found: _Found, dialer: Dialer) -> None:
        found.dialer, found.problem = None, dialer.last_problem
        if dialer.last_close_kind in ("own", "own-key"):
            found.own = True
        elif dialer.last_close_kind != "twin":
            self._rest(found)
        if self._running:
            self._dial_waiting()

    def _rest(self, found: _Found) -> None:
        rest = min(FOUND_REST_FIRST * 2**found.rests, FOUND_REST_LONGEST)
        rest = self._context.jittered(rest)
        found.rests += 1
        found.rest_until = self._now() + rest
        if not found.stored:
            return
        found.record = replace(found.record, failures=found.record.failures + 1)
        if found.record.failures >= FOUND_FAILURES:
            found.stored = False
            self._write(DropPeer(self._feed.key, found.record.address))
        else:
            self._write(PutPeer(found.record))
            found.retry = self._context.clock.callLater(rest, self._wait_for_room, found)

    def _write(self, op: Operation) -> None:
        def written(outcome: object) -> None:
            if isinstance(outcome, BaseException):
                log.warn("A found address was not stored: {why}", why=str(outcome))

        self._context.writer.submit(op, written)
