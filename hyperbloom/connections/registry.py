"""All connections of one protocol: which are there, how others ended, and what the log is told."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger, LogLevel

from hyperbloom.connections.close_reason import ClosedConnection, CloseReason
from hyperbloom.connections.limits import MAX_CLOSED_SHOWN, TOLD_SINGLY
from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.connections.tally import Tally
from hyperbloom.connections.timer import Timer

__all__ = ["Registered", "Registry"]


class Registered(Protocol):
    """A connection, as far as the registry uses it."""

    @property
    def outgoing(self) -> bool:
        """Whether this node dialled."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether the handshake has been done."""
        ...

    @property
    def address(self) -> str:
        """HOST:PORT of the peer."""
        ...

    @property
    def network(self) -> str:
        """Whose the address is (`hyperbloom.addresses.network_of`)."""
        ...

    @property
    def bytes_in(self) -> int:
        """Bytes that came."""
        ...

    @property
    def bytes_out(self) -> int:
        """Bytes that were sent."""
        ...

    def close(self, why: CloseReason) -> None:
        """Flush and end."""
        ...


C = TypeVar("C", bound=Registered)


class Registry(Generic[C]):
    """The connections of one protocol, the oldest first.

    now: seconds since 1970. ordinary: kinds of `CloseReason` that tell a person nothing; alarming:
    those that are warned of.
    strangers, members: what the log calls connections before and after their handshake.
    reactor_budget: what all of them together may use of a turn of the reactor.
    """

    def __init__(
        self,
        clock: IReactorTime,
        now: Callable[[], float],
        log: Logger,
        *,
        ordinary: frozenset[str],
        alarming: frozenset[str] = frozenset(),
        strangers: str,
        members: str,
        reactor_budget: ReactorBudget,
    ) -> None:
        self.reactor_budget = reactor_budget
        #: Since the start: connections by direction (True: this node dialled), closings by kind.
        self.opened: Counter[bool] = Counter()
        self.closed: Counter[str] = Counter()
        #: The latest closings that are not ordinary, the newest first.
        self.recently_closed: deque[ClosedConnection] = deque(maxlen=MAX_CLOSED_SHOWN)
        self.strangers = Tally(clock, log, what=strangers)
        self.members = Tally(clock, log, what=members, singly=TOLD_SINGLY)
        self._now = now
        self._ordinary, self._alarming = ordinary, alarming
        self._open: dict[C, None] = {}
        #: Until when the handshakes that are awaited have to be done, and a timer for all of them:
        #: a timer each would take more memory than anything else of a connection.
        self._clock = clock
        self._awaited: dict[C, float] = {}
        self._timer = Timer(clock, self._close_slow)
        self._past_in = self._past_out = 0
        self._all_closed: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._open)

    @property
    def ended(self) -> int:
        """How many connections there have been and are no more."""
        return self.opened.total() - len(self._open)

    # Called by the connections

    def admit(self, connection: C) -> CloseReason | None:
        """Take a new connection in, or say why not; another one may have to go for it."""
        self._open[connection] = None
        self.opened[connection.outgoing] += 1
        return None

    def awaits_handshake(self, connection: C, seconds: float) -> None:
        """Close the connection unless its handshake is done, or it is gone, in so many seconds."""
        until = self._awaited[connection] = self._clock.seconds() + seconds
        if self._timer.moment is None or until < self._timer.moment:
            self._timer.set(until)

    def shook_hands(self, connection: C) -> None:
        """The handshake is done."""
        self._awaited.pop(connection, None)

    def _close_slow(self) -> None:
        now = self._clock.seconds()
        for connection in [one for one, until in self._awaited.items() if until <= now]:
            del self._awaited[connection]
            connection.close(CloseReason("slow", "the handshake did not come in time"))
        self._timer.set(min(self._awaited.values(), default=None))

    def closing(self, connection: C, why: CloseReason) -> None:
        """This node is closing a connection; what may interest a person is kept and told."""
        self.closed[why.kind] += 1
        if why.kind in self._ordinary:
            return
        self._emit(connection, why.kind, "{peer}: closed, {why}", why=str(why))
        self.recently_closed.appendleft(
            ClosedConnection(
                at=self._now(), address=connection.address, kind=why.kind, reason=str(why)
            )
        )

    def tell(self, connection: C, kind: str, what: str) -> None:
        """Something that a peer caused, for the log."""
        self._emit(connection, kind, "{peer}: {what}", what=what)

    def _emit(self, connection: C, kind: str, text: str, **words: str) -> None:
        tally = self.members if connection.is_ready else self.strangers
        fields: dict[str, Any] = {**words, **self.log_fields(connection)}
        level = LogLevel.warn if kind in self._alarming else LogLevel.info
        tally.tell(
            kind,
            connection.network,
            text,
            branch=self.branch_of(connection),
            level=level,
            peer=connection.address,
            **fields,
        )

    def branch_of(self, connection: C) -> Hashable:
        """Whose events a connection's are told singly with; None: its own."""
        return None

    def log_fields(self, connection: C) -> Mapping[str, str]:
        """What a line of the log about a connection has beside its address."""
        return {}

    def forget(self, connection: C) -> None:
        """The connection is gone."""
        self._open.pop(connection, None)
        self._awaited.pop(connection, None)
        self._past_in += connection.bytes_in
        self._past_out += connection.bytes_out
        if not self._open:
            self._timer.set(None)
            waiting, self._all_closed = self._all_closed, []
            for deferred in waiting:
                deferred.callback(None)

    # Called by the service

    def close_all(self, why: CloseReason) -> Deferred[None]:
        """Close all, and count nothing for the log any more; fires when they are gone."""
        for connection in list(self._open):
            connection.close(why)
        self.strangers.stop()
        self.members.stop()
        if not self._open:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._all_closed.append(gone)
        return gone

    def moved(self) -> tuple[int, int]:
        """Bytes that came in and went out since the start."""
        return (
            self._past_in + sum(connection.bytes_in for connection in self._open),
            self._past_out + sum(connection.bytes_out for connection in self._open),
        )
