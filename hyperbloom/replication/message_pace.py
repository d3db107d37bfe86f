"""How fast small messages are taken: so much of a thread's time for each branch, and no more.

Who tells ids, asks for them, or asks for digests, sends little and makes much work. By turns and
shares nobody else waits for that (`connections.shares`); but a peer that is alone would keep the
processor busy without end. So each branch runs up a debt of seconds, which is paid off at the rate
MESSAGE_PART, and each key below it one that is paid off half as fast as that of the key above.
While a debt is above MESSAGE_BURST nothing more is read from those who have it; they go on in the
order in which they came to wait.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hyperbloom.replication.limits import MAX_LEFT_BRANCHES, MESSAGE_BURST, MESSAGE_PART
from hyperbloom.trust import Path
from hyperbloom.trust.path_memory import PathAccounts

__all__ = ["MessagePace", "PacedPeer"]


#: Seconds that who waits waits at the least: a debt comes down as the clock goes on, in no time by
#: nothing.
LEAST_REST = 0.001


class _Debt:
    """The debt of one path, and who waits until it is small enough."""

    def __init__(self, clock: IReactorTime, path: Path) -> None:
        self._clock = clock
        self._part: float = MESSAGE_PART / 2 ** (len(path) - 1)
        self._seconds, self._at = 0.0, clock.seconds()
        self._waiting: dict[Callable[[], None], None] = {}
        self._call: IDelayedCall | None = None
        self._is_serving = False

    @property
    def has_row(self) -> bool:
        """Whether some wait, and none of them is having its turn: who comes now is behind them."""
        return bool(self._waiting) and not self._is_serving

    def rest(self) -> float:
        """Seconds until more may be taken; 0: now."""
        return max(0.0, (self._owed() - MESSAGE_BURST) / self._part)

    def is_owed(self) -> bool:
        """Whether it is not paid off."""
        return self._owed() > 0.0

    def _owed(self) -> float:
        now = self._clock.seconds()
        self._seconds = max(0.0, self._seconds - (now - self._at) * self._part)
        self._at = now
        return self._seconds

    def add(self, seconds: float) -> None:
        self._seconds += seconds

    def wait(self, go_on: Callable[[], None]) -> None:
        self._waiting.setdefault(go_on)
        self._call_again()

    def forget(self, go_on: Callable[[], None]) -> None:
        self._waiting.pop(go_on, None)
        if not self._waiting and self._call is not None:
            self._call.cancel()
            self._call = None

    def _wake(self) -> None:
        self._call, self._is_serving = None, True
        try:
            while self._waiting and not self.rest():
                go_on = next(iter(self._waiting))
                del self._waiting[go_on]
                go_on()
        finally:
            self._is_serving = False
            self._call_again()

    def _call_again(self) -> None:
        if self._waiting and self._call is None:
            self._call = self._clock.callLater(max(LEAST_REST, self.rest()), self._wake)


class PacedPeer:
    """The debts of one connection's path, from its branch's own down to its key's."""

    __slots__ = ("_debts", "_path")

    def __init__(self, path: Path, debts: tuple[_Debt, ...]) -> None:
        self._path, self._debts = path, debts

    @property
    def path(self) -> Path:
        """The path that it came by."""
        return self._path

    @property
    def rests(self) -> bool:
        """Whether nothing more is taken for now."""
        return self._debts[0].has_row or any(debt.rest() for debt in self._debts)

    def spend(self, seconds: float) -> None:
        """A message of it has cost so much."""
        for debt in self._debts:
            debt.add(seconds)

    def wait(self, go_on: Callable[[], None]) -> None:
        """It rests: call once it may have an end."""
        max(self._debts, key=_Debt.rest).wait(go_on)

    def forget(self, go_on: Callable[[], None]) -> None:
        """Nobody waits like this any more."""
        for debt in self._debts:
            debt.forget(go_on)


class MessagePace:
    """The debts of all branches of a node, over all feeds."""

    def __init__(self, clock: IReactorTime) -> None:
        self._debts: PathAccounts[_Debt] = PathAccounts(
            lambda path: _Debt(clock, path), is_owed=_Debt.is_owed, most=MAX_LEFT_BRANCHES
        )

    def join(self, path: Path) -> PacedPeer:
        """A connection of this path has become secure; `leave` is called when it ends."""
        return PacedPeer(path, self._debts.join(path))

    def leave(self, peer: PacedPeer) -> None:
        """It is gone; what it owes is remembered."""
        self._debts.leave(peer.path)
