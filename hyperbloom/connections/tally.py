"""Events that strangers can cause as often as they like: counted, and told once a minute.

Who is told of every one of them can be drowned by whoever connects, so that the log says nothing
else and fills the disk. The first of a kind in a minute (or the first few) is told as it comes,
with all that is known; the others are counted, and one line at the end of the minute says how many
there were of each kind, and from how many addresses. So a tally writes a few lines a minute,
whatever happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger, LogLevel

from hyperbloom.connections.limits import MAX_SOURCES, TALLY_SECONDS, TOLD_OF_BRANCH

__all__ = ["Tally"]


class Tally:
    """Tells the first `singly` events of each kind in a minute, and counts the others.

    Of one branch it tells TOLD_OF_BRANCH of them, so that no member takes all. `what` begins the
    line with the counts. Kinds are words of our own, never a peer's.
    """

    def __init__(self, clock: IReactorTime, log: Logger, *, what: str, singly: int = 1) -> None:
        self._clock = clock
        self._log = log
        self._what = what
        self._singly = singly
        self._seen: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_of: Counter[tuple[str, Hashable]] = Counter()
        self._sources: set[str] = set()
        self._call: IDelayedCall | None = None
        self._stopped = False

    def tell(
        self,
        kind: str,
        source: str,
        text: str,
        *,
        branch: Hashable = None,
        level: LogLevel = LogLevel.info,
        **fields: Any,
    ) -> None:
        """One event of a kind, from an address (`source`); `text` and `fields` as for the log."""
        if self._stopped:
            return
        if self._call is None:
            self._call = self._clock.callLater(TALLY_SECONDS, self._sum_up)
        self._seen[kind] += 1
        of_branch = (kind, branch)
        is_first = branch is None or self._told_of[of_branch] < TOLD_OF_BRANCH
        if self._told[kind] < self._singly and is_first:
            self._told[kind] += 1
            if branch is not None:
                self._told_of[of_branch] += 1
            self._log.emit(level, text, kind=kind, **fields)
        elif len(self._sources) <= MAX_SOURCES:
            self._sources.add(source)

    def stop(self) -> None:
        """Say what was counted so far; nothing is told any more."""
        self._stopped = True
        if self._call is not None and self._call.active():
            self._call.cancel()
            self._sum_up()

    def _sum_up(self) -> None:
        self._call = None
        seen, self._seen = self._seen, Counter()
        sources, self._sources = len(self._sources), set()
        told, self._told, self._told_of = self._told, Counter(), Counter()
        untold = {kind: n - told[kind] for kind, n in seen.items() if n > told[kind]}
        if not untold:
            return
        kinds = sorted(untold, key=lambda kind: (-untold[kind], kind))
        self._log.info(
            "{what} in the last minute, not told one by one: {kinds}; from {addresses}",
            what=self._what,
            kinds=", ".join(f"{kind} {untold[kind]:,}" for kind in kinds),
            addresses=_addresses(sources),
            count=sum(untold.values()),
        )


def _addresses(count: int) -> str:
    if count > MAX_SOURCES:
        return f"more than {MAX_SOURCES:,} addresses"
    return f"{count:,} address" + ("" if count == 1 else "es")
