"""Fetching: a node that does not keep a range asks its peers for it and waits for the answers.

The protocol says nothing at the end of an answer, so a fetch is over when nothing has come for a
while (`settle` seconds) or its time is up.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import MAX_FETCHES
from hyperbloom.replication.reading.ranges import contains
from hyperbloom.store.records import Appended

__all__ = ["Fetch", "TooManyFetches", "fetch"]

#: Seconds within which the first answer has to come: a round trip and the peer's other work.
FIRST_SECONDS = 2.0

#: Seconds of silence after which the answers are taken to be complete.
SETTLE_SECONDS = 0.7


class TooManyFetches(HyperbloomError):
    """There are as many fetches under way as there may be; try again later."""

    kind = ErrorKind.TOO_MANY


def fetch(
    feed: Feed,
    start: bytes = b"",
    end: bytes | None = None,
    *,
    limit: int | None = None,
    timeout: float,
    settle: float = SETTLE_SECONDS,
) -> Deferred[int]:
    """Ask the feed's peers for start ≤ value < end, `limit` values of each.

    Fires with the number of new values; at once with 0 where this node keeps the feed in full or
    has no peer. Fails with `TooManyFetches`.
    """
    if feed.settings.mode == "full" or not feed.peers:
        return succeed(0)
    if len(feed.interests) >= MAX_FETCHES:
        return fail(TooManyFetches(f"{MAX_FETCHES} fetches are under way; try again later"))
    return Fetch(feed, start, end, limit=limit, timeout=timeout, settle=settle).result


class Fetch:
    """One fetch under way; `result` fires with the number of new values in its range."""

    def __init__(
        self,
        feed: Feed,
        start: bytes,
        end: bytes | None,
        *,
        limit: int | None,
        timeout: float,
        settle: float,
    ) -> None:
        self.result: Deferred[int] = Deferred(lambda _: self._finish(answer=False))
        self._bounds = (start, end)
        self._new = 0
        self._settle = settle
        clock = feed.context.clock
        self._unsubscribe = feed.values.subscribe(self._stored)
        self._lose_interest = feed.take_interest(start, end, limit=limit)
        self._settled: IDelayedCall = clock.callLater(min(FIRST_SECONDS, timeout), self._finish)
        self._timeout: IDelayedCall = clock.callLater(timeout, self._finish)

    def _stored(self, appended: Appended, origin: bytes) -> None:
        new = sum(1 for value in appended.values if contains(self._bounds, value))
        if new:
            self._new += new
            self._settled.reset(self._settle)

    def _finish(self, *, answer: bool = True) -> None:
        for call in (self._settled, self._timeout):
            if call.active():
                call.cancel()
        self._unsubscribe()
        self._lose_interest()
        if answer:
            self.result.callback(self._new)
