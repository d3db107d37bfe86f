"""The node's own operations: a lookup alone, or a lookup with a put after it.

An operation is asked what is due, and whether it has ended; the node moves its packets, and tells
their askers (a lookup, or a round of puts) what became of them. A put goes through three phases:
find the closest nodes and their tokens, put to them, and read back. An acknowledgement proves
nothing, since nodes say that all is well and keep another value; only what is found is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeAlias

from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import LocalProtocolError
from hyperbloom.discovery.dht.common.messages import ErrorMessage, Query, Response
from hyperbloom.discovery.dht.limits import MAX_OPERATIONS
from hyperbloom.discovery.dht.lookup import Ask, Holder, Lookup

__all__ = ["Finding", "Found", "Operation", "Operations", "Putting", "QueryWith", "Stored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of a lookup; what the nodes brought is in its collector.

    asked, answered: nodes. holding: answers that brought something, the own store's among them.
    closest: the closest nodes that answered.
    """

    asked: int
    answered: int
    holding: int
    closest: tuple[Contact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What came of a put: of `asked` nodes, `stored` said yes and `silent` said nothing.

    refusals: error code → how many said it. looked: the lookup before. read_back: the one after, or
    None where there was none.
    """

    asked: int
    stored: int
    silent: int
    refusals: Mapping[int, int]
    looked: Found
    read_back: Found | None


class Operation(Protocol):
    """See the module's text. `outcome` is None until it has ended."""

    @property
    def outcome(self) -> Found | Stored | None: ...

    def due(self, *, now: float) -> Sequence[Ask]:
        """Queries to send now; each counts as sent."""

    def settle(self, *, now: float) -> None:
        """Go on to the next phase, or end, if it is time."""

    def deadline(self, *, now: float) -> float:
        """When to call `settle` and `due` again even if nothing happens."""


class Finding:
    """A lookup alone."""

    def __init__(self, lookup: Lookup) -> None:
        self.outcome: Found | None = None
        self.lookup = lookup

    def due(self, *, now: float) -> Sequence[Ask]:
        """See Operation."""
        return self.lookup.due(now=now)

    def settle(self, *, now: float) -> None:
        """See Operation."""
        if self.outcome is None and self.lookup.is_finished(now=now):
            self.outcome = Found(
                asked=self.lookup.asked,
                answered=self.lookup.answered_count,
                holding=self.lookup.holding,
                closest=tuple(self.lookup.closest()),
            )

    def deadline(self, *, now: float) -> float:
        """See Operation."""
        return self.lookup.deadline(now=now)


QueryWith: TypeAlias = Callable[[bytes], Query]
ReadBack: TypeAlias = Callable[[Sequence[Contact], float], Lookup]


class Putting:
    """A lookup, a put or an announcement to the closest nodes, and maybe a second lookup.

    query_with: the query for a node that gave this token. read_back: makes the second lookup, from
    the nodes put to, at a moment.
    """

    def __init__(
        self, lookup: Lookup, query_with: QueryWith, *, read_back: ReadBack | None
    ) -> None:
        self.outcome: Stored | None = None
        self._query_with, self._read_back = query_with, read_back
        self._looking = Finding(lookup)
        self._round: _Round | None = None
        self._reading: Finding | None = None

    def due(self, *, now: float) -> Sequence[Ask]:
        """See Operation."""
        return self._phase.due(now=now)

    def deadline(self, *, now: float) -> float:
        """See Operation."""
        return self._phase.deadline(now=now)

    def settle(self, *, now: float) -> None:
        """See Operation. Several phases may end at once, where nobody is there to ask."""
        self._looking.settle(now=now)
        if self._looking.outcome is None:
            return
        if self._round is None:
            self._round = _Round(self._looking.lookup.holders(), self._query_with)
        if not self._round.is_finished:
            return
        if self._reading is None and self._read_back is not None and self._round.contacts:
            self._reading = Finding(self._read_back(self._round.contacts, now))
        if self._reading is not None:
            self._reading.settle(now=now)
            if self._reading.outcome is None:
                return
        self._end(self._looking.outcome, self._round)

    @property
    def _phase(self) -> Finding | _Round:
        return self._reading or self._round or self._looking

    def _end(self, looked: Found, round_of_puts: _Round) -> None:
        self.outcome = Stored(
            asked=len(round_of_puts.contacts),
            stored=round_of_puts.stored,
            silent=round_of_puts.nothing,
            refusals=dict(round_of_puts.refusals),
            looked=looked,
            read_back=None if self._reading is None else self._reading.outcome,
        )


class _Round:
    """One query to each of some nodes, all at once. It ends when each has answered or has not."""

    def __init__(self, holders: Sequence[Holder], query_with: QueryWith) -> None:
        self.contacts = [contact for contact, _ in holders]
        self.stored = 0
        self.nothing = 0
        self.refusals: Counter[int] = Counter()
        self._asks = [
            Ask(contact.address, contact.node_id, query_with(token), self)
            for contact, token in holders
        ]

    @property
    def is_finished(self) -> bool:
        return self.stored + self.nothing + self.refusals.total() == len(self.contacts)

    def due(self, *, now: float) -> Sequence[Ask]:
        asks, self._asks = self._asks, []
        return asks

    def deadline(self, *, now: float) -> float:
        return float("inf")

    def answered(self, ask: Ask, node_id: bytes, response: Response) -> None:
        self.stored += 1

    def refused(self, ask: Ask, error: ErrorMessage) -> None:
        self.refusals[error.code] += 1

    def silent(self, ask: Ask) -> None:
        self.nothing += 1


class Operations:
    """The operations under way, by number.

    `ask` gets each query with the number of its operation and the time; `ended` gets the number and
    the outcome of each that has come to its end.
    """

    def __init__(
        self,
        *,
        ask: Callable[[Ask, int, float], None],
        ended: Callable[[int, Found | Stored], None],
    ) -> None:
        self._ask, self._ended = ask, ended
        self._under_way: dict[int, Operation] = {}
        self._deadlines: dict[int, float] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._under_way)

    @property
    def deadline(self) -> float:
        """When to call `tick`."""
        return min(self._deadlines.values(), default=float("inf"))

    def start(self, operation: Operation, *, now: float) -> int:
        """Begin an operation; its number. Raises LocalProtocolError beyond `MAX_OPERATIONS`."""
        if len(self._under_way) >= MAX_OPERATIONS:
            raise LocalProtocolError(f"{MAX_OPERATIONS} lookups and puts are under way")
        number = next(self._numbers)
        self._under_way[number] = operation
        self.advance(number, now=now)
        return number

    def advance(self, number: int, *, now: float) -> None:
        """Let an operation go on as far as it can; a number of none is let pass."""
        operation = self._under_way.get(number)
        if operation is None:
            return
        operation.settle(now=now)
        while operation.outcome is None and (asks := operation.due(now=now)):
            for ask in asks:
                self._ask(ask, number, now)
            operation.settle(now=now)
        if operation.outcome is None:
            self._deadlines[number] = operation.deadline(now=now)
        else:
            self.cancel(number)
            self._ended(number, operation.outcome)

    def tick(self, *, now: float) -> None:
        """Let those go on whose deadline has come."""
        for number in [number for number, at in self._deadlines.items() if at <= now]:
            self.advance(number, now=now)

    def cancel(self, number: int) -> None:
        """Forget an operation. What it has sent is sent."""
        self._under_way.pop(number, None)
        self._deadlines.pop(number, None)
