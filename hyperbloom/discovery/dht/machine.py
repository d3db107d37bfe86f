"""A node of the Mainline DHT as a machine without I/O (BEP-5, BEP-42, BEP-43, BEP-44).

    datagram ─> receive ─┬─ query ──> Responder (table, storage, tokens) ─┐
                         └─ answer ─> who asked: lookup, round of puts    ├─> datagrams
    command ──> operation ──> queries, at the pace of each address ───────┘
    time ─────> tick: answers that did not come, upkeep of the table

Whoever runs it hands in datagrams with the time, takes out datagrams and events after each call,
and calls `tick` at `deadline`. `now` is in seconds of any clock that does not go back; chance comes
from `random_bytes`.

Who asks us is listed only after it has answered a ping of ours, and is pinged once in
`COURT_SECONDS` at most: so nobody gets others into our table or has us hit them with pings.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final, NamedTuple

from hyperbloom.addresses import Address, Scope
from hyperbloom.discovery.dht.collectors import Collector, Nodes
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import (
    ErrorMessage,
    Message,
    Packet,
    Ping,
    Query,
    Response,
)
from hyperbloom.discovery.dht.common.node_id import is_secure, make_node_id
from hyperbloom.discovery.dht.events import AddressSettled, Event, OperationEnded
from hyperbloom.discovery.dht.external_address import AddressVotes
from hyperbloom.discovery.dht.limits import (
    BUCKET_NODES,
    MAX_ADDRESSES_WATCHED,
    MAX_DELAYED,
    MAX_OPERATIONS,
)
from hyperbloom.discovery.dht.lookup import Ask, Lookup
from hyperbloom.discovery.dht.operations import Finding, Operation, Putting, QueryWith
from hyperbloom.discovery.dht.rate_limits import Allowance, Pace
from hyperbloom.discovery.dht.responder import Responder
from hyperbloom.discovery.dht.routing_table import REFRESH_SECONDS, RoutingTable
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht.storage import Storage
from hyperbloom.discovery.dht.tokens import Tokens
from hyperbloom.discovery.dht.transactions import Transactions

__all__ = ["COURT_SECONDS", "UPKEEP_SECONDS", "VERSION", "Dht"]

VERSION: Final = b"HB\x00\x01"
"""`v` of our packets: the program and its version, 4 bytes as mainline (Rust) wants them."""

UPKEEP_SECONDS: Final = 15.0
"""The table is looked after this often: due pings, buckets to refresh, a new try to bootstrap."""

COURT_SECONDS: Final = 60.0

_PINGS_AT_ONCE: Final = 16
_REFRESHES_AT_ONCE: Final = 2
_RETRY_LONGEST: Final = 300.0

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
        self.node_id = node_id or random_bytes(20)
        self.counts: Counter[str] = Counter()
        self.votes = AddressVotes()
        self.storage = Storage(equal_seq=settings.equal_seq, max_items=settings.max_items)
        self._random_bytes = random_bytes
        self._table = RoutingTable(self.node_id, exempt_local=settings.exempt_local)
        self._responder = Responder(self._table, self.storage, Tokens(random_bytes, now=now))
        self._waiting: Transactions[_Sent] = Transactions(
            random_bytes, seconds=settings.query_seconds
        )
        self._inbound = Allowance(rate=settings.packets_per_second, burst=settings.packet_burst)
        self._replies = Allowance(rate=settings.reply_bytes_per_second, burst=settings.reply_burst)
        self._pace = Pace()
        self._delayed: list[tuple[float, int, _Sent]] = []
        self._courted: OrderedDict[Address, float] = OrderedDict()
        self._operations: dict[int, Operation] = {}
        self._deadlines: dict[int, float] = {}
        self._numbers = count(1)
        self._datagrams: list[tuple[bytes, Address]] = []
        self._events: list[Event] = []
        self._bootstrap: tuple[Address, ...] = ()
        self._upkeep_at = now + UPKEEP_SECONDS
        self._refreshed_at = float("-inf")
        self._retry_at, self._retry_wait = now, UPKEEP_SECONDS
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
            self._query(packet, message, address, now=now)
            return
        sent = self._waiting.take(packet.transaction_id, address)
        if sent is None:
            self.counts["unasked"] += 1
            return
        ask, number = sent
        if isinstance(message, ErrorMessage):
            self.counts["errors"] += 1
            ask.asker.refused(ask, message)
        elif packet.node_id is not None:
            self._answer(packet, packet.node_id, message, ask, now=now)
        self._advance(number, now=now)

    def tick(self, *, now: float) -> None:
        """Time has come to `deadline`, or just passed."""
        for ask, number in self._waiting.expire(now=now):
            self.counts["unanswered"] += 1
            self._silent_in_table(ask)
            ask.asker.silent(ask)
            self._advance(number, now=now)
        while self._delayed and self._delayed[0][0] <= now:
            sent = heapq.heappop(self._delayed)[2]
            if self._waiting.is_full:
                self._do_without(sent)
                self._advance(sent.number, now=now)
            else:
                self._send_query(sent, now=now)
        if now >= self._upkeep_at:
            self._upkeep_at = now + UPKEEP_SECONDS
            self._look_after_table(now=now)
        for number in [number for number, at in self._deadlines.items() if at <= now]:
            self._advance(number, now=now)

    @property
    def deadline(self) -> float:
        """When to call `tick`, unless something else comes before."""
        moments = [self._upkeep_at, *self._deadlines.values()]
        if self._waiting.deadline is not None:
            moments.append(self._waiting.deadline)
        if self._delayed:
            moments.append(self._delayed[0][0])
        return min(moments)

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
        self._bootstrap = tuple(addresses)
        self._refreshed_at = now
        return self.find(Nodes(self.node_id), addresses=addresses, now=now)

    def find(self, collector: Collector, *, now: float, addresses: Sequence[Address] = ()) -> int:
        """Look up a collector's target, here first; the number of the operation.

        Raises LocalProtocolError when `MAX_OPERATIONS` are under way.
        """
        return self._start(Finding(self._lookup(collector, addresses=addresses, now=now)), now=now)

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
        return self._start(putting, now=now)

    def ping(self, contact: Contact, *, now: float) -> None:
        """Ask a node whether it is there; if it answers, it is listed."""
        self._ask(_Sent(Ask(contact.address, contact.node_id, Ping(), _Upkeep()), 0), now=now)

    def cancel(self, number: int) -> None:
        """Forget an operation. What it has sent is sent."""
        self._operations.pop(number, None)
        self._deadlines.pop(number, None)

    # -- queries of others

    def _query(self, packet: Packet, query: Query, address: Address, *, now: float) -> None:
        if not self.settings.server or packet.node_id is None:
            self.counts["ignored"] += 1
            return
        self.counts["queries"] += 1
        answer = self._responder.answer(query, address, now=now)
        self._reply(packet.transaction_id, answer, address, now=now)
        if not packet.read_only:
            self._court(Contact(packet.node_id, address), now=now)

    def _reply(
        self, transaction_id: bytes, answer: Message, address: Address, *, now: float
    ) -> None:
        data = encode_packet(
            Packet(
                transaction_id=transaction_id,
                message=answer,
                node_id=self.node_id,
                version=VERSION,
                observed=address,
            )
        )
        if not self._replies.take(address, len(data), now=now):
            self.counts["replies_withheld"] += 1
            return
        self._pace.note(address, at=now, now=now)
        self._send(data, address)

    def _court(self, contact: Contact, *, now: float) -> None:
        """Ping a node that asked us, if it would find a place in the table."""
        self._table.heard(contact, now=now)
        if not self._table.wants(contact):
            return
        courted = self._courted
        if now - courted.get(contact.address, float("-inf")) < COURT_SECONDS:
            return
        courted.pop(contact.address, None)
        courted[contact.address] = now
        while len(courted) > MAX_ADDRESSES_WATCHED or _first(courted) <= now - COURT_SECONDS:
            courted.popitem(last=False)
        self.ping(contact, now=now)

    # -- our queries

    def _ask(self, sent: _Sent, *, now: float) -> None:
        """Send a query, or hold it back until its address may get one."""
        ask = sent.ask
        at = self._pace.next_time(ask.address, now=now)
        if self._waiting.is_full or len(self._delayed) >= MAX_DELAYED:
            self._do_without(sent)
            return
        self._pace.note(ask.address, at=at, now=now)
        if at > now:
            heapq.heappush(self._delayed, (at, next(self._numbers), sent))
        else:
            self._send_query(sent, now=now)

    def _do_without(self, sent: _Sent) -> None:
        """There is no room for this query: to who asks, its answer did not come."""
        self.counts["not_sent"] += 1
        sent.ask.asker.silent(sent.ask)

    def _send_query(self, sent: _Sent, *, now: float) -> None:
        ask = sent.ask
        packet = Packet(
            transaction_id=self._waiting.begin(ask.address, sent, now=now),
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
        return voter.may_name(seen) and self.votes.vote(voter, seen)

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

    def _start(self, operation: Operation, *, now: float) -> int:
        if len(self._operations) >= MAX_OPERATIONS:
            raise LocalProtocolError(f"{MAX_OPERATIONS} lookups and puts are under way")
        number = next(self._numbers)
        self._operations[number] = operation
        self._advance(number, now=now)
        return number

    def _advance(self, number: int, *, now: float) -> None:
        """Let an operation go on as far as it can."""
        operation = self._operations.get(number)
        if operation is None:
            return
        operation.settle(now=now)
        while operation.outcome is None and (asks := operation.due(now=now)):
            for ask in asks:
                self._ask(_Sent(ask, number), now=now)
            operation.settle(now=now)
        if operation.outcome is None:
            self._deadlines[number] = operation.deadline(now=now)
        else:
            self.cancel(number)
            self._events.append(OperationEnded(number=number, outcome=operation.outcome))

    # -- upkeep

    def _look_after_table(self, *, now: float) -> None:
        for contact in self._table.to_ping(now=now, count=_PINGS_AT_ONCE):
            self.ping(contact, now=now)
        if len(self._operations) > MAX_OPERATIONS // 2:
            return
        if not self._table.good(now=now):
            self._bootstrap_again(now=now)
            return
        self._retry_wait = UPKEEP_SECONDS
        if now - self._refreshed_at >= REFRESH_SECONDS:
            self._refreshed_at = now
            self.find(Nodes(self.node_id), now=now)
        for index in self._table.to_refresh(now=now)[:_REFRESHES_AT_ONCE]:
            target = self._table.id_in(index, self._random_bytes(20))
            self.find(Nodes(target), now=now)

    def _bootstrap_again(self, *, now: float) -> None:
        if now < self._retry_at or not (self._bootstrap or len(self._table)):
            return
        self._retry_wait = min(2 * self._retry_wait, _RETRY_LONGEST)
        self._retry_at = now + self._retry_wait
        self.bootstrap(self._bootstrap, now=now)

    def _settle_address(self) -> None:
        """Take a new id where the one we have does not fit the address that others see."""
        seen = self.votes.settled
        if seen is None or seen.scope is not Scope.GLOBAL:
            return
        if is_secure(self.node_id, seen.host):
            return
        self.node_id = make_node_id(seen.host, self._random_bytes)
        self._table = self._responder.table = self._table.moved_to(self.node_id)
        self._events.append(AddressSettled(address=seen, node_id=self.node_id))
        self._refreshed_at = float("-inf")


def _first(courted: OrderedDict[Address, float]) -> float:
    """When the one courted longest ago was."""
    return next(iter(courted.values()))


class _Sent(NamedTuple):
    """A query, and the operation it belongs to; 0 where it is the table's own."""

    ask: Ask
    number: int


class _Upkeep:
    """Who asks for the table's sake: it learns of the answer by itself."""

    def answered(self, ask: Ask, node_id: bytes, response: Response) -> None:
        pass

    def refused(self, ask: Ask, error: ErrorMessage) -> None:
        pass

    def silent(self, ask: Ask) -> None:
        pass
