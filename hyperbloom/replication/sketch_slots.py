"""What all tries by symbols of a node share: how many are under way, and how many are answered.

A try of this node holds up to 2 MB of symbols, and a sequence that a peer is answered from up to
917 KB. Those of one set at one moment are one array, but a peer can have values come and go between
its questions. So both are few, of all feeds and peers together, and they are given out by *path*:
the feed, and on it the keys from a branch's first down to the holder's (trust/branch.py). Who makes
more keys gets no more. A path that holds fewer is served first: counted are those of its feed, then
those of its branch, and so on, the first count that differs decides. Among equals it is who came
first. A path that nobody contends with may hold everything.

A try waits until there is room. It does not wait for a peer that draws out its answers: a try that
has waited for an answer for SLOW_TRY_SECONDS gives way to one of a path that holds fewer by two or
more. A sequence that is held gives way at once, the oldest of the path that holds most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from hyperbloom.replication.limits import MAX_HELD_SKETCHES, MAX_TRIES, SLOW_TRY_SECONDS
from hyperbloom.trust import MAX_CHAIN_LINKS, Path

__all__ = ["SketchSlots", "Try"]

#: Seconds after which is looked again whether a try that is waited for has become a slow one.
_LOOK_SECONDS = 0.5

#: Keys of the longest path: the feed's, and those of a chain.
_DEPTH = 1 + MAX_CHAIN_LINKS


class Try(Protocol):
    """A try of this node with a peer."""

    @property
    def path(self) -> Path:
        """The feed's key, and the keys from the peer's branch down to its own."""
        ...

    @property
    def asked_at(self) -> float | None:
        """Since when the peer owes an answer, in seconds of the clock; None: it does not."""
        ...

    def go_on(self) -> None:
        """There is room: it counts as under way from now on."""
        ...

    def give_way(self) -> None:
        """Another one needs its place, which is its no more: it is over."""
        ...


class _Counts:
    """How many of some paths begin as a path does."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._counts = Counter(path[:end] for path in paths for end in range(1, len(path) + 1))

    def of(self, path: Path) -> tuple[int, ...]:
        """For its feed, its branch, and so on: how many are held there, _DEPTH numbers."""
        counts = [self._counts[path[:end]] for end in range(1, len(path) + 1)]
        return (*counts, *counts[-1:] * (_DEPTH - len(counts)))

    def is_fairer(self, newcomer: Path, holder: Path) -> bool:
        """Whether the newcomer's side would still hold fewer if the holder gave way to it."""
        for end in range(1, min(len(newcomer), len(holder)) + 1):
            if newcomer[:end] != holder[:end]:
                return self._counts[holder[:end]] > self._counts[newcomer[:end]] + 1
        return False


class SketchSlots:
    """The tries of this node that are under way, and the sequences that peers are answered from."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._tries: dict[Try, None] = {}
        self._waiting: dict[Try, None] = {}
        self._held: dict[Callable[[], None], Path] = {}
        self._call: IDelayedCall | None = None

    def begin_try(self, one: Try) -> bool:
        """Whether this try may go on; if not, it is called once it may."""
        if one in self._tries:
            return True
        self._waiting[one] = None
        self._serve(but=one)
        return one in self._tries

    def end_try(self, one: Try) -> None:
        """This try is over; it may not have begun."""
        self._waiting.pop(one, None)
        if self._tries.pop(one, one) is None:
            self._serve()

    def _serve(self, but: Try | None = None) -> None:
        """Give out what is free; have slow ones give way. `but` is told by `begin_try`."""
        while self._waiting and (len(self._tries) < MAX_TRIES or self._slow()):
            counts = _Counts(one.path for one in self._tries)
            first = min(self._waiting, key=lambda one: counts.of(one.path))
            if len(self._tries) >= MAX_TRIES:
                slow = self._slow_one(counts, first)
                if slow is None:
                    break
                del self._tries[slow]
                slow.give_way()
            del self._waiting[first]
            self._tries[first] = None
            if first is not but:
                first.go_on()
        if self._waiting and self._call is None:
            self._call = self._clock.callLater(_LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._call = None
        self._serve()

    def _slow_one(self, counts: _Counts, newcomer: Try) -> Try | None:
        """Who gives way to the newcomer, if anybody does."""
        slow = [one for one in self._slow() if counts.is_fairer(newcomer.path, one.path)]
        return max(slow, key=lambda one: counts.of(one.path), default=None)

    def _slow(self) -> list[Try]:
        latest = self._clock.seconds() - SLOW_TRY_SECONDS
        return [one for one in self._tries if one.asked_at is not None and one.asked_at <= latest]

    def hold(self, path: Path, drop: Callable[[], None]) -> None:
        """A peer is answered from a sequence; `drop` is called when others need its place."""
        self._held.pop(drop, None)
        self._held[drop] = path
        if len(self._held) > MAX_HELD_SKETCHES:
            counts = _Counts(self._held.values())
            surplus = max(self._held, key=lambda one: counts.of(self._held[one]))
            del self._held[surplus]
            surplus()

    def release(self, drop: Callable[[], None]) -> None:
        """The peer needs its sequence no more; there may have been none."""
        self._held.pop(drop, None)
