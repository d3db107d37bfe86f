"""A node of the Mainline DHT as a machine without I/O (BEP-5, BEP-42, BEP-43, BEP-44).

    datagram ─> receive ─┬─ query ──> Responder (table, storage, tokens) ─┐
                         └─ answer ─> who asked: lookup, round of puts    ├─> datagrams
    command ──> Operations ──> Queries, at the pace of each address ──────┘
    time ─────> tick: answers that did not come, Upkeep of the table

The caller hands in datagrams with the time, takes out datagrams and events after each call, and
calls `tick` at `deadline`. `now` is in seconds of any clock that does not go back.

Who asks us is listed only after it has answered a ping of ours, and its network is pinged once in
`PING_BACK_SECONDS` at most: so nobody gets others into our table or has us hit them with pings.
What goes out for a stranger's query, answer and ping, is paid from `ReplyBudget`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.dht.collectors import Collector, Nodes
from hyperbloom.discovery.dht.common.contact import ID_BYTES, Contact
from hyperbloom.discovery.dht.common.errors import RemoteProtocolError
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import (
    ErrorMessage,
    Packet,
    Ping,
    Query,
    Response,
)
from hyperbloom.discovery.dht.common.node_id import is_secure, make_node_id
from hyperbloom.discovery.dht.events import AddressSettled, Event, OperationEnded
from hyperbloom.discovery.dht.external_address import ExternalAddress
from hyperbloom.discovery.dht.limits import BUCKET_NODES, MAX_OPERATIONS
from hyperbloom.discovery.dht.lookup import Ask, Lookup
from hyperbloom.discovery.dht.operations import (
    Finding,
    Found,
    Operations,
    Putting,
    QueryWith,
    Stored,
)
from hyperbloom.discovery.dht.queries import Queries, Sent
from hyperbloom.discovery.dht.rate_limits import Allowance, Cooldown
from hyperbloom.discovery.dht.reply_budget import ReplyBudget
from hyperbloom.discovery.dht.routing_table import RoutingTable
from hyperbloom.discovery.dht.server.responder import Responder, shortened
from hyperbloom.discovery.dht.server.storage import Storage
from hyperbloom.discovery.dht.server.tokens import Tokens
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht.upkeep import TableAsker, Upkeep

__all__ = ["PING_BACK_SECONDS", "VERSION", "Dht"]

VERSION: Final = b"HB\x00\x01"
"""`v` of our packets: the program and its version, 4 bytes as mainline (Rust) wants them."""

PING_BACK_SECONDS: Final = 60.0
"""A network that asks us is pinged once in this time at most."""

_PING_BYTES: Final = 70
"""A ping of ours has 67 bytes."""

_PINGS_AT_ONCE: Final = 16

#: Who tells what is stored here: nobody is nearer, so that any address may be told.
_SELF: Final = Address("127.0.0.1", 0)


class Dht:
    """One node; see the module's text. `counts` has what happened, for the status."""

    def __init__(
        self,
        settings: DhtSettings,
        *,
        random_bytes: Callable[[int], bytes],
        now: float,
        node_id: bytes | None = None,
        known: Iterable[Contact] = (),
    ) -> None:
        self.settings = settings
        self.node_id = node_id or random_bytes(ID_BYTES)
        self.counts: Counter[str] = Counter()
        self.external_address = ExternalAddress()
        self.storage = Storage(equal_seq=settings.equal_seq, max_items=settings.max_items)
        self._random_bytes = random_bytes
        self._table = RoutingTable(self.node_id, exempt_local=settings.exempt_local)
        self._replies = ReplyBudget(
            rate=settings.reply_bytes_per_second, burst=settings.reply_burst
        )
        self._responder = Responder(
            self._table,
            self.storage,
            Tokens(random_bytes, now=now),
            proved=lambda address, at: self._replies.prove(address, now=at),
        )
        self._queries = Queries(random_bytes, seconds=settings.query_seconds, send=self._send_query)
        self._operations = Operations(ask=self._ask, ended=self._operation_ended)
        self._upkeep = Upkeep(now=now)
        self._inbound = Allowance(rate=settings.packets_per_second, burst=settings.packet_burst)
        self._pinged_back = Cooldown(PING_BACK_SECONDS)
        self._datagrams: list[tuple[bytes, Address]] = []
        self._events: list[Event] = []
        for contact in known:
            self._table.restore(contact, now=now)

    @property
    def table(self) -> RoutingTable:
        """The nodes it knows, to be looked at."""
        return self._table

    @property
    def operations(self) -> int:
        """How many are under way."""
        return len(self._operations)

    # -- what comes in

    def receive(self, data: bytes, address: Address, *, now: float) -> None:
        """A datagram. Whatever it holds, nothing is raised."""
        self.counts["received"] += 1
        if not self._inbound.take(address, 1, now=now):
            self.counts["too_many"] += 1
            return
        try:
            packet = decode_packet(data)
        except RemoteProtocolError:
            self.counts["malformed"] += 1
            return
        message = packet.message
        if not isinstance(message, Response | ErrorMessage):
            self._query(packet, message, address, paid=len(data), now=now)
            return
        sent = self._queries.take(packet.transaction_id, address)
        if sent is None:
            self.counts["unasked"] += 1
            return
        self._replies.prove(address, now=now)
        ask, number = sent
        if isinstance(message, ErrorMessage):
            self.counts["errors"] += 1
            ask.asker.refused(ask, message)
        elif packet.node_id is not None:
            self._answer(packet, packet.node_id, message, ask, now=now)
        self._operations.advance(number, now=now)

    def tick(self, *, now: float) -> None:
        """Time has come to `deadline`, or just passed."""
        for ask, number in self._queries.expired(now=now):
            self.counts["unanswered"] += 1
            self._silent_in_table(ask)
            ask.asker.silent(ask)
            self._operations.advance(number, now=now)
        for sent in self._queries.release(now=now):
            self._do_without(sent)
            self._operations.advance(sent.number, now=now)
        if self._upkeep.is_due(now=now):
            self._look_after_table(now=now)
        self._operations.tick(now=now)

    @property
    def deadline(self) -> float:
        """When to call `tick`, unless something else comes before."""
        return min(self._upkeep.due_at, self._operations.deadline, self._queries.deadline)

    # -- what goes out

    def take_datagrams(self) -> list[tuple[bytes, Address]]:
        """What to send since the last call."""
        datagrams, self._datagrams = self._datagrams, []
        return datagrams

    def take_events(self) -> list[Event]:
        """What happened since the last call."""
        events, self._events = self._events, []
        return events

    # -- commands

    def use_family(self, *, ipv6: bool) -> None:
        """The socket is of this family: nodes of the other one, as of an old table, are let go.

        Nobody reaches them from here, and nobody who asks over this socket could use them.
        """
        self._table.keep_family(ipv6=ipv6)

    def bootstrap(self, addresses: Sequence[Address], *, now: float) -> int:
        """Join the network through these nodes and those known; a lookup of the own id.

        The addresses are asked again, at longer and longer intervals, while no node is known.
        """
        self._upkeep.bootstrapped(addresses, now=now)
        return self.find(Nodes(self.node_id), addresses=addresses, now=now)

    def find(self, collector: Collector, *, now: float, addresses: Sequence[Address] = ()) -> int:
        """Look up a collector's target, here first; the number of the operation.

        Raises LocalProtocolError when `MAX_OPERATIONS` are under way.
        """
        lookup = self._lookup(collector, addresses=addresses, now=now)
        return self._operations.start(Finding(lookup), now=now)

    def put(
        self,
        collector: Collector,
        query_with: QueryWith,
        *,
        now: float,
        read_back: Collector | None = None,
    ) -> int:
        """Look up a collector's target, send the closest the query that `query_with` makes of each
        one's token, and then, with `read_back`, look up again. The number of the operation.

        Raises LocalProtocolError when `MAX_OPERATIONS` are under way.
        """
        lookup = self._lookup(collector, now=now)
        putting = Putting(
            lookup,
            query_with,
            read_back=None
            if read_back is None
            else lambda seeds, at: self._lookup(read_back, seeds=seeds, now=at),
        )
        return self._operations.start(putting, now=now)

    def ping(self, contact: Contact, *, now: float) -> None:
        """Ask a node whether it is there; if it answers, it is listed."""
        self._ask(Ask(contact.address, contact.node_id, Ping(), TableAsker()), 0, now)

    def cancel(self, number: int) -> None:
        """Forget an operation. What it has sent is sent."""
        self._operations.cancel(number)

    # -- queries of others

    def _query(
        self, packet: Packet, query: Query, address: Address, *, paid: int, now: float
    ) -> None:
        if not self.settings.server or packet.node_id is None:
            self.counts["ignored"] += 1
            return
        self.counts["queries"] += 1
        answer = self._responder.answer(query, address, now=now)
        reply = Packet(
            transaction_id=packet.transaction_id,
            message=answer,
            node_id=self.node_id,
            version=VERSION,
            observed=address,
        )
        self._reply(reply, address, paid=paid, now=now)
        if not packet.read_only:
            self._ping_back(Contact(packet.node_id, address), now=now)

    def _reply(self, packet: Packet, address: Address, *, paid: int, now: float) -> None:
        """Send an answer, or what of it is no longer than the query, or nothing."""
        data = encode_packet(packet)
        if not self._replies.take(address, len(data), paid=paid, now=now):
            short = shortened(packet, paid)
            if short is None or not self._replies.take(address, len(short), paid=paid, now=now):
                self.counts["replies_withheld"] += 1
                return
            self.counts["replies_shortened"] += 1
            data = short
        self._queries.note_answer(address, now=now)
        self._send(data, address)

    def _ping_back(self, contact: Contact, *, now: float) -> None:
        """Ping a node that asked us, if it would find a place in the table."""
        self._table.heard(contact, now=now)
        if not self._table.wants(contact) or not self._pinged_back.take(contact.address, now=now):
            return
        if self._replies.take(contact.address, _PING_BYTES, paid=0, now=now):
            self.ping(contact, now=now)

    # -- our queries

    def _ask(self, ask: Ask, number: int, now: float) -> None:
        sent = Sent(ask, number)
        if not self._queries.ask(sent, now=now):
            self._do_without(sent)

    def _do_without(self, sent: Sent) -> None:
        """There is no room for this query: to who asks, its answer did not come."""
        self.counts["not_sent"] += 1
        sent.ask.asker.silent(sent.ask)

    def _send_query(self, ask: Ask, transaction_id: bytes) -> None:
        packet = Packet(
            transaction_id=transaction_id,
            message=ask.query,
            node_id=self.node_id,
            read_only=not self.settings.server,
            version=VERSION,
        )
        self.counts["asked"] += 1
        self._send(encode_packet(packet), ask.address)

    def _send(self, data: bytes, address: Address) -> None:
        self.counts["sent"] += 1
        self._datagrams.append((data, address))

    def _answer(
        self, packet: Packet, node_id: bytes, response: Response, ask: Ask, *, now: float
    ) -> None:
        self.counts["answers"] += 1
        if ask.node_id in (None, node_id):
            self._table.answered(Contact(node_id, ask.address), now=now)
        else:
            self._silent_in_table(ask)
        if packet.observed is not None and self._is_news(packet.observed, ask.address):
            self._settle_address()
        ask.asker.answered(ask, node_id, response)

    def _is_news(self, seen: Address, voter: Address) -> bool:
        return voter.may_name(seen) and self.external_address.told(voter, seen)

    def _silent_in_table(self, ask: Ask) -> None:
        if ask.node_id is not None:
            self._table.silent(Contact(ask.node_id, ask.address))

    # -- operations

    def _lookup(
        self,
        collector: Collector,
        *,
        now: float,
        addresses: Sequence[Address] = (),
        seeds: Sequence[Contact] = (),
    ) -> Lookup:
        target = collector.target
        self._table.looked_up(target, now=now)
        # What others stored here counts like what others hold, and nobody else may have it: in a
        # DHT of two, each holds what the other one put.
        own = self._responder.own_answer(collector.query, now=now)
        own_holding = collector.collect(own, _SELF)
        return Lookup(
            collector,
            own_id=self.node_id,
            is_secure=self._is_secure,
            seconds=self.settings.lookup_seconds,
            now=now,
            seeds=[*seeds, *self._table.closest(target, BUCKET_NODES)],
            addresses=addresses,
            holding=int(own_holding),
        )

    def _is_secure(self, contact: Contact) -> bool:
        host = contact.address.host
        return is_secure(contact.node_id, host, exempt_local=self.settings.exempt_local)

    def _operation_ended(self, number: int, outcome: Found | Stored) -> None:
        self._events.append(OperationEnded(number=number, outcome=outcome))

    # -- upkeep

    def _look_after_table(self, *, now: float) -> None:
        for contact in self._table.to_ping(now=now, count=_PINGS_AT_ONCE):
            self.ping(contact, now=now)
        if len(self._operations) > MAX_OPERATIONS // 2:
            return
        for target, addresses in self._upkeep.lookups(self._table, self._random_bytes, now=now):
            self.find(Nodes(target), addresses=addresses, now=now)

    def _settle_address(self) -> None:
        """Take a new id where the one we have does not fit the address that others see."""
        seen = self.external_address.settled
        if seen is None or seen.scope is not Scope.GLOBAL:
            return
        if is_secure(self.node_id, seen.host):
            return
        self.node_id = make_node_id(seen.host, self._random_bytes)
        self._table = self._responder.table = self._table.moved_to(self.node_id)
        self._events.append(AddressSettled(address=seen, node_id=self.node_id))
        self._upkeep.moved()
