"""How many bytes a second go out and come in: of all connections together, and of each peer.

Each direction has a token bucket for all and one for each peer (`RateLimit`). A piece may be moved
while nothing is owed, and may then owe a little, so the mean holds for pieces of any size. Who may
not move a piece waits for a turn: peers take turns, a piece each and level by level of their paths
(`hyperbloom.turns`), however many connections or keys a peer has. A peer that owes by its own rate
waits for that first and holds nobody up.

What one connection does about it is in `pacing`. Without a rate there is no bucket, no timer and
nothing for a connection.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from twisted.internet.interfaces import IReactorTime

from hyperbloom.connections.limits import (
    BURST_SECONDS,
    LARGEST_PIECE,
    LEAST_PIECE,
    PIECE_SECONDS,
)
from hyperbloom.connections.timer import Alarm, Alarms, Timer
from hyperbloom.turns import Turns

__all__ = [
    "NO_RATE",
    "Bandwidth",
    "RateFigures",
    "RateLimit",
    "Rates",
    "Row",
    "TokenBucket",
    "piece_of",
]

Who = tuple[Hashable, ...]
"""The path of a peer."""

#: Seconds that are none: what clocks round.
_NOTHING = 1e-6


class Rates(Protocol):
    """The settings, in bytes a second; 0: as many as there are."""

    @property
    def send_rate(self) -> float:
        """What all peers together are sent."""
        ...

    @property
    def receive_rate(self) -> float:
        """What is read of all peers together."""
        ...

    @property
    def peer_send_rate(self) -> float:
        """What one peer is sent, over all its connections."""
        ...

    @property
    def peer_receive_rate(self) -> float:
        """What is read of one peer, over all its connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RateFigures:
    """One direction: the rates in force (bytes a second, 0: none) and what they hold back.

    waiting: connections that wait for a turn now; held_seconds: since the start, in which one did.
    """

    rate: float = 0.0
    peer_rate: float = 0.0
    waiting: int = 0
    held_seconds: float = 0.0


NO_RATE = RateFigures()


def piece_of(rate: float) -> int:
    """Bytes moved at once under a rate (0: none is set)."""
    if not rate:
        return LARGEST_PIECE
    return max(LEAST_PIECE, min(LARGEST_PIECE, int(rate * PIECE_SECONDS)))


class TokenBucket:
    """Bytes that may be moved: `rate` a second; what `BURST_SECONDS` bring is saved up at most."""

    __slots__ = ("_at", "_rate", "_saved")

    def __init__(self, rate: float, *, now: float) -> None:
        self._rate = rate
        self._at = now
        self._saved = rate * BURST_SECONDS

    def take(self, amount: int, *, now: float) -> None:
        """So many bytes are moved; more than was saved are owed."""
        self._saved = self._at_moment(now) - amount
        self._at = now

    def owes_for(self, now: float) -> float:
        """Seconds until nothing is owed; 0: a piece may be moved."""
        seconds = -self._at_moment(now) / self._rate
        return seconds if seconds > _NOTHING else 0.0

    def _at_moment(self, now: float) -> float:
        return min(self._rate * BURST_SECONDS, self._saved + (now - self._at) * self._rate)


class Row:
    """A peer in one direction: its bucket, and those of its connections that wait for a turn."""

    __slots__ = ("_limit", "alarm", "bucket", "connections", "is_lined_up", "waiting", "who")

    def __init__(self, limit: RateLimit, who: Who) -> None:
        self._limit = limit
        self.who = who
        self.connections = 0
        self.bucket: TokenBucket | None = None
        self.waiting: deque[Callable[[], None]] = deque()
        #: Set while the peer owes by its own rate.
        self.alarm = Alarm(self)
        #: Whether the row waits, for its own rate or for its turn.
        self.is_lined_up = False

    def wake(self) -> None:
        """The peer owes nothing more by its own rate."""
        self._limit.line_up(self)


class RateLimit:
    """One direction. `rate` and `peer_rate` are in force, in bytes a second; 0: no limit."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self.rate = self.peer_rate = 0.0
        #: Connections that wait for a turn.
        self.waiting = 0
        self._bucket: TokenBucket | None = None
        self._rows: dict[Who, Row] = {}
        self._turns: Turns[Row] = Turns()
        self._timer = Timer(clock, self._serve)
        self._alarms = Alarms(clock)
        self._held_seconds, self._held_since = 0.0, 0.0

    @property
    def is_on(self) -> bool:
        """Whether there is a rate, of either kind."""
        return bool(self.rate or self.peer_rate)

    @property
    def piece(self) -> int:
        """Bytes moved at once."""
        return piece_of(min((rate for rate in (self.rate, self.peer_rate) if rate), default=0.0))

    def figures(self) -> RateFigures:
        """What is in force, and what it holds back."""
        now = self._clock.seconds() - self._held_since if self.waiting else 0.0
        return RateFigures(
            rate=self.rate,
            peer_rate=self.peer_rate,
            waiting=self.waiting,
            held_seconds=self._held_seconds + now,
        )

    def set_rates(self, rate: float, peer_rate: float) -> bool:
        """Hold to other rates from now on; 0: to none. Whether they are other ones."""
        if (rate, peer_rate) == (self.rate, self.peer_rate):
            return False
        self.rate, self.peer_rate = rate, peer_rate
        self._bucket = self._new_bucket(rate)
        for row in self._rows.values():
            row.bucket = self._new_bucket(peer_rate)
            if row.alarm.moment < math.inf:
                self._alarms.set(row.alarm, self._clock.seconds())
        self._set_timer()
        return True

    def _new_bucket(self, rate: float) -> TokenBucket | None:
        return TokenBucket(rate, now=self._clock.seconds()) if rate else None

    # Called by connections

    def join(self, who: Who) -> Row:
        """A connection of a peer takes part; `leave` is called when it ends."""
        row = self._rows.get(who)
        if row is None:
            row = self._rows[who] = Row(self, who)
            row.bucket = self._new_bucket(self.peer_rate)
        row.connections += 1
        return row

    def leave(self, row: Row, go_on: Callable[[], None]) -> None:
        """A connection is gone; `go_on` is what it may wait with."""
        if go_on in row.waiting:
            row.waiting.remove(go_on)
            self._count_waiting(-1)
        row.connections -= 1
        if not row.connections:
            del self._rows[row.who]
            self._alarms.set(row.alarm, None)

    def take(self, row: Row, amount: int) -> None:
        """So many bytes of a peer are moved."""
        now = self._clock.seconds()
        for bucket in (self._bucket, row.bucket):
            if bucket is not None:
                bucket.take(amount, now=now)

    def is_free(self, row: Row) -> bool:
        """Whether a piece of a peer may be moved before anybody else's."""
        if row.is_lined_up or self._turns:
            return False
        now = self._clock.seconds()
        return not any(
            bucket is not None and bucket.owes_for(now) for bucket in (self._bucket, row.bucket)
        )

    def wait(self, row: Row, go_on: Callable[[], None]) -> None:
        """Call `go_on` once, when it is the peer's turn: it may then move a piece."""
        row.waiting.append(go_on)
        self._count_waiting(1)
        if not row.is_lined_up:
            self.line_up(row)

    # Turns

    def line_up(self, row: Row) -> None:
        """Have a peer wait for its turn, and before that for its own rate."""
        row.is_lined_up = True
        now = self._clock.seconds()
        owes = row.bucket.owes_for(now) if row.bucket is not None else 0.0
        if owes:
            self._alarms.set(row.alarm, now + owes)
            return
        self._turns.add(row.who, row)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._turns:
            self._timer.set(None)
            return
        now = self._clock.seconds()
        self._timer.set(now + (self._bucket.owes_for(now) if self._bucket is not None else 0.0))

    def _serve(self) -> None:
        """Give turns while nothing is owed; no more in one turn of the reactor than wait now."""
        for _ in range(len(self._turns)):
            if self._bucket is not None and self._bucket.owes_for(self._clock.seconds()):
                break
            row = self._turns.pop()
            row.is_lined_up = False
            if not row.waiting:
                continue
            self._count_waiting(-1)
            row.waiting.popleft()()
            if row.waiting and not row.is_lined_up:
                self.line_up(row)
        self._set_timer()

    def _count_waiting(self, change: int) -> None:
        now = self._clock.seconds()
        if self.waiting:
            self._held_seconds += now - self._held_since
        self._held_since = now
        self.waiting += change


class Bandwidth:
    """Both directions."""

    def __init__(self, clock: IReactorTime, rates: Rates) -> None:
        self.sending, self.receiving = RateLimit(clock), RateLimit(clock)
        self.set_rates(rates)

    @property
    def is_on(self) -> bool:
        """Whether there is any rate to hold to."""
        return self.sending.is_on or self.receiving.is_on

    def set_rates(self, rates: Rates) -> bool:
        """Hold to other rates from now on; whether they are other ones."""
        sending = self.sending.set_rates(rates.send_rate, rates.peer_send_rate)
        receiving = self.receiving.set_rates(rates.receive_rate, rates.peer_receive_rate)
        return sending or receiving
