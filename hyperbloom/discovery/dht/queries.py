"""Our own queries: sent at the pace of each address, and awaited until time is up."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from typing import NamedTuple

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.limits import MAX_DELAYED
from hyperbloom.discovery.dht.lookup import Ask
from hyperbloom.discovery.dht.rate_limits import Pace
from hyperbloom.discovery.dht.transactions import Transactions

__all__ = ["Queries", "Sent"]


class Sent(NamedTuple):
    """A query, and the number of the operation that it belongs to; 0 where it is the table's."""

    ask: Ask
    number: int


class Queries:
    """Those that are held back, and those whose answers are awaited.

    `send` gets each query with its transaction id when its time has come. `seconds`: how long an
    answer is awaited.
    """

    def __init__(
        self,
        random_bytes: Callable[[int], bytes],
        *,
        seconds: float,
        send: Callable[[Ask, bytes], None],
    ) -> None:
        self._send = send
        self._awaited: Transactions[Sent] = Transactions(random_bytes, seconds=seconds)
        self._pace = Pace()
        self._delayed: list[tuple[float, int, Sent]] = []
        self._order = count()

    @property
    def deadline(self) -> float:
        """When `expired` or `release` has something to do, unless an answer comes before."""
        moments = [at for at, _, _ in self._delayed[:1]]
        if self._awaited.deadline is not None:
            moments.append(self._awaited.deadline)
        return min(moments, default=float("inf"))

    def ask(self, sent: Sent, *, now: float) -> bool:
        """Send a query, or hold it back until its address may get one.

        False, and nothing is sent, where `MAX_OUTSTANDING` or `MAX_DELAYED` are there already.
        """
        address = sent.ask.address
        at = self._pace.next_time(address, now=now)
        if self._awaited.is_full or len(self._delayed) >= MAX_DELAYED:
            return False
        self._pace.note(address, at=at, now=now)
        if at > now:
            heapq.heappush(self._delayed, (at, next(self._order), sent))
        else:
            self._begin(sent, now=now)
        return True

    def take(self, transaction_id: bytes, address: Address) -> Sent | None:
        """The query that an answer from this address is to; None if it is to none."""
        return self._awaited.take(transaction_id, address)

    def note_answer(self, address: Address, *, now: float) -> None:
        """We have sent an answer there, which the other side counts as a packet like a query."""
        self._pace.note(address, at=now, now=now)

    def expired(self, *, now: float) -> Iterator[Sent]:
        """Take out the queries that were not answered in time, oldest first."""
        return self._awaited.expire(now=now)

    def release(self, *, now: float) -> Iterator[Sent]:
        """Send the queries held back until now; those that there is no room for come out."""
        while self._delayed and self._delayed[0][0] <= now:
            sent = heapq.heappop(self._delayed)[2]
            if self._awaited.is_full:
                yield sent
            else:
                self._begin(sent, now=now)

    def _begin(self, sent: Sent, *, now: float) -> None:
        self._send(sent.ask, self._awaited.begin(sent.ask.address, sent, now=now))
