"""A node of the Mainline DHT on a reactor: what the tracker, the service and the command use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail, gatherResults, succeed
from twisted.internet.interfaces import IDelayedCall, IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.dht.collectors import ImmutableValue, MutableItems, Nodes, Peers
from hyperbloom.discovery.dht.common import bencode
from hyperbloom.discovery.dht.common.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.discovery.dht.common.items import MutableItem, immutable_target
from hyperbloom.discovery.dht.common.messages import AnnouncePeer, PutImmutable, PutMutable
from hyperbloom.discovery.dht.events import AddressSettled
from hyperbloom.discovery.dht.limits import MAX_VALUE_BYTES
from hyperbloom.discovery.dht.machine import Dht
from hyperbloom.discovery.dht.operations import Found, Stored
from hyperbloom.discovery.dht.reports import (
    AnnounceReport,
    DhtStatus,
    ImmutableLookup,
    MutableLookup,
    NodeLookup,
    PeerLookup,
    PutReport,
)
from hyperbloom.discovery.dht.saved_state import SavedState, load_state
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_protocol import DhtProtocol
from hyperbloom.discovery.resolving import resolve

__all__ = ["RESOLVE_SECONDS", "DhtNode"]

#: How long after a name could not be resolved it is tried again, in seconds.
RESOLVE_SECONDS = 30.0

log = Logger()


class DhtNode:
    """A node on one UDP socket. `reactor` gives time, UDP and names; `random_bytes` randomness.

    Lookups and puts may begin before `listen`, and then find nobody. Their Deferreds fail with
    LocalProtocolError for what the DHT does not allow, and for nothing that the network does;
    one that is cancelled ends its operation.
    """

    def __init__(
        self,
        reactor: Any,
        settings: DhtSettings,
        *,
        random_bytes: Callable[[int], bytes],
        state: bytes = b"",
    ) -> None:
        self.settings = settings
        self._reactor = reactor
        saved = load_state(state)
        self._machine = Dht(
            settings,
            random_bytes=random_bytes,
            now=reactor.seconds(),
            node_id=saved.node_id,
            known=saved.nodes,
        )
        self._protocol = DhtProtocol(self._machine, reactor, _address_settled)
        self._port: IListeningPort | None = None
        self._resolving: IDelayedCall | None = None

    # -- running

    @property
    def node_id(self) -> bytes:
        """20 bytes; taken anew when most nodes see this one at an address it does not fit."""
        return self._machine.node_id

    @property
    def address(self) -> Address | None:
        """Where it listens; None while it does not."""
        if self._port is None:
            return None
        own: Any = self._port.getHost()
        return Address(own.host, own.port)

    @property
    def external_address(self) -> Address | None:
        """Where most of the nodes asked see this one; None while too few have said so."""
        return self._machine.external_address.settled

    @property
    def reach(self) -> Scope:
        """The widest scope of the nodes that answer it: private where all of the DHT is.

        Global while none does. Nodes of a table that was saved in another network do not count.
        """
        nodes = self._machine.table.nodes()
        there = (node.contact.address.scope for node in nodes if node.is_there)
        return max(there, default=Scope.GLOBAL)

    def listen(self, port: int = 0, interface: str = "") -> Address:
        """Open the socket; port 0 lets the system choose. An IPv6 interface makes an IPv6 node.

        Raises `twisted.internet.error.CannotListenError`.
        """
        self._port = self._reactor.listenUDP(port, self._protocol, interface, maxPacketSize=4_096)
        address = self.address
        if address is None:
            raise LocalProtocolError("the node stopped while it began to listen")
        self._machine.use_family(ipv6=address.is_ipv6)
        return address

    def stop(self) -> Deferred[None]:
        """Close the socket. What is under way is cancelled; fires when the socket is closed."""
        self._protocol.cancel_all()
        self._resolve_no_more()
        port, self._port = self._port, None
        if port is None:
            return succeed(None)
        return port.stopListening() or succeed(None)

    def bootstrap(self, addresses: Sequence[Address] | None = None) -> Deferred[int]:
        """Join the network; fires with the number of nodes known when that is done.

        `addresses`, else those of the settings, are hosts (names are resolved) and ports. While no
        node is known, they are asked again by themselves, and names that could not be resolved are
        resolved again, as on a machine that is up before its network.
        """
        return Deferred.fromCoroutine(self._bootstrap(addresses))

    def save(self) -> bytes:
        """The id and the table, for `state` at the next start. Never fails there if damaged."""
        nodes = tuple(node.contact for node in self._machine.table.nodes() if not node.is_bad)
        return SavedState(node_id=self.node_id, nodes=nodes).to_bytes()

    def status(self) -> DhtStatus:
        """How the node is."""
        machine, seen = self._machine, self.external_address
        return DhtStatus(
            node_id=machine.node_id,
            server=self.settings.server,
            address=None if self.address is None else str(self.address),
            external_address=None if seen is None else str(seen),
            nodes=len(machine.table),
            good_nodes=machine.table.good(now=self._reactor.seconds()),
            items=machine.storage.items,
            info_hashes=machine.storage.info_hashes,
            operations=machine.operations,
            counts=dict(machine.counts),
        )

    # -- what it is for

    def find_node(self, target: bytes) -> Deferred[NodeLookup]:
        """The nodes closest to a target of 20 bytes."""

        def report(found: Found) -> NodeLookup:
            return NodeLookup(nodes=found.closest, asked=found.asked, answered=found.answered)

        return self._protocol.find(Nodes(target)).addCallback(report)

    def get_mutable(self, public_key: bytes, salt: bytes) -> Deferred[MutableLookup]:
        """All distinct authentic versions of a mutable item, see `ItemStore`."""
        collector = MutableItems(public_key, salt)

        def report(found: Found) -> MutableLookup:
            return MutableLookup(
                items=collector.found,
                asked=found.asked,
                answered=found.answered,
                holding=found.holding,
            )

        return self._protocol.find(collector).addCallback(report)

    def get_immutable(self, target: bytes) -> Deferred[ImmutableLookup]:
        """The bencoded value whose SHA-1 is `target`."""
        collector = ImmutableValue(target)

        def report(found: Found) -> ImmutableLookup:
            return ImmutableLookup(
                value=collector.found, asked=found.asked, answered=found.answered
            )

        return self._protocol.find(collector).addCallback(report)

    def get_peers(self, info_hash: bytes) -> Deferred[PeerLookup]:
        """The peers of an info hash of 20 bytes."""
        collector = Peers(info_hash)

        def report(found: Found) -> PeerLookup:
            return PeerLookup(peers=collector.found, asked=found.asked, answered=found.answered)

        return self._protocol.find(collector).addCallback(report)

    def put_mutable(self, item: MutableItem, *, cas: int | None = None) -> Deferred[PutReport]:
        """Put an item, see `ItemStore`. Fails with LocalProtocolError where no node may take it:
        a value longer than `MAX_VALUE_BYTES` or not bencoded, a signature that does not hold.
        """
        problem = _value_problem(item.value)
        if problem is None and not item.is_authentic():
            problem = "the item's signature does not hold"
        if problem is not None:
            return fail(LocalProtocolError(problem))
        back = MutableItems(item.public_key, item.salt)

        def query_with(token: bytes) -> PutMutable:
            return PutMutable(
                token=token,
                public_key=item.public_key,
                salt=item.salt,
                seq=item.seq,
                value=item.value,
                signature=item.signature,
                cas=cas,
                target=item.target,
            )

        def report(stored: Stored) -> PutReport:
            same = [(each.seq, each.value) == (item.seq, item.value) for each in back.found]
            others = tuple(each for each, is_it in zip(back.found, same, strict=True) if not is_it)
            return _put_report(stored, found=any(same), others=others)

        looking = MutableItems(item.public_key, item.salt)
        return self._protocol.put(looking, query_with, read_back=back).addCallback(report)

    def put_immutable(self, value: bytes) -> Deferred[PutReport]:
        """Put a bencoded value under its SHA-1, and read it back; fails as `put_mutable` does."""
        problem = _value_problem(value)
        if problem is not None:
            return fail(LocalProtocolError(problem))
        target = immutable_target(value)
        back = ImmutableValue(target)

        def query_with(token: bytes) -> PutImmutable:
            return PutImmutable(token=token, value=value, target=target)

        def report(stored: Stored) -> PutReport:
            return _put_report(stored, found=back.found is not None, others=())

        looking = ImmutableValue(target)
        return self._protocol.put(looking, query_with, read_back=back).addCallback(report)

    def announce_peer(
        self, info_hash: bytes, port: int, *, implied_port: bool = False
    ) -> Deferred[AnnounceReport]:
        """Announce that this host is a peer of an info hash at `port`.

        With `implied_port`, at the port where the nodes see this one's socket. Raises `ValueError`
        for what is no info hash or no port.
        """

        def query_with(token: bytes) -> AnnouncePeer:
            return AnnouncePeer(
                info_hash=info_hash, token=token, port=port, implied_port=implied_port
            )

        query_with(b"")  # what cannot be announced is refused now, not amid a lookup

        def report(stored: Stored) -> AnnounceReport:
            return AnnounceReport(
                asked=stored.asked,
                stored=stored.stored,
                silent=stored.silent,
                refusals=stored.refusals,
            )

        return self._protocol.put(Peers(info_hash), query_with).addCallback(report)

    # -- inside

    async def _bootstrap(self, addresses: Sequence[Address] | None) -> int:
        if addresses is None:
            addresses = [Address.parse(text) for text in self.settings.bootstrap]
        ipv6 = self.address is not None and self.address.is_ipv6
        found = await gatherResults(
            [resolve(self._reactor, address, ipv6=ipv6) for address in addresses]
        )
        resolved = [address for each in found for address in each]
        if not all(found) and self._port is not None:
            self._resolve_no_more()
            self._resolving = self._reactor.callLater(
                RESOLVE_SECONDS, self._bootstrap_again, addresses
            )
        await self._protocol.bootstrap(resolved)
        return len(self._machine.table)

    def _resolve_no_more(self) -> None:
        if self._resolving is not None and self._resolving.active():
            self._resolving.cancel()

    def _bootstrap_again(self, addresses: Sequence[Address]) -> None:
        def failed(failure: Failure) -> None:
            failure.trap(CancelledError, LocalProtocolError)

        if not len(self._machine.table):
            self.bootstrap(addresses).addErrback(failed)


def _address_settled(event: AddressSettled) -> None:
    log.info(
        "Nodes of the DHT see this one at {address}; it has a new id that fits",
        address=str(event.address),
    )


def _put_report(stored: Stored, *, found: bool, others: tuple[MutableItem, ...]) -> PutReport:
    return PutReport(
        asked=stored.asked,
        stored=stored.stored,
        refused=sum(stored.refusals.values()),
        silent=stored.silent,
        found=found,
        others=others,
        refusals=stored.refusals,
        holding=0 if stored.read_back is None else stored.read_back.holding,
        looked_asked=stored.looked.asked,
        looked_answered=stored.looked.answered,
    )


def _value_problem(value: bytes) -> str | None:
    """Why no node may take a value; None if nothing is wrong with it."""
    if len(value) > MAX_VALUE_BYTES:
        return f"a bencoded value has at most {MAX_VALUE_BYTES} bytes"
    try:
        bencode.decode(value)
    except RemoteProtocolError as error:
        return f"the value is {error}"
    return None
