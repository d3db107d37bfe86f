"""Comparing with one peer by digest: our question and its answer, the peer's and ours.

One question of each side is open at a time; a peer that asks again before it is answered is
answered once, for the last. Adding up a range is a job of the connection like any other and counts
against the peer's work as its Syncs do. An answer nobody asked for, or a second one, is dropped.

Forgotten values count as settled: two nodes are in sync, too, where they differ only by what one of
them has forgotten, as Sync would have it (their filters hold what is forgotten, and nothing is
sent). Those of which a node kept no more than the hash are in no sum.

A node that does not know its digests yet (its store is of an older version) asks nobody, and
answers that there is nothing to compare; both go on by Sync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall

from hyperbloom.replication.limits import DIGEST_SECONDS
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.sync.range_digests import NOTHING, Sum
from hyperbloom.replication.sync.reply import QUESTION_VALUES
from hyperbloom.replication.sync.sync_state import Agreement, common
from hyperbloom.store.records import Holding, SetFigures
from hyperbloom.wire import Digest, DigestRequest, Range
from hyperbloom.wire.set_digest import SET_DIGEST

if TYPE_CHECKING:
    from hyperbloom.replication.sync.peer import Peering

__all__ = ["Comparing"]

_MAX_NUMBER = 0xFFFF_FFFF


def _to_wire(ranges: Sequence[KeyRange]) -> tuple[Range, ...]:
    return tuple(Range(start=start, end=end) for start, end in ranges)


def _from_wire(ranges: Sequence[Range]) -> list[KeyRange]:
    return [(one.start, one.end) for one in ranges]


class Comparing:
    """The comparisons of one connection.

    `compared` is called at the end of each that `ask` began: with what it showed, or None where
    the peer did not answer or both keep nothing in common; and the seconds the addition here took.
    """

    def __init__(self, peer: Peering, compared: Callable[[Agreement | None, float], None]) -> None:
        self._peer = peer
        self._compared = compared
        self._number = 0
        self._timeout: IDelayedCall | None = None
        self._answer = _Answer(self._peer)
        #: What the peer told last, and what there was in the same ranges here.
        self.told: tuple[Holding, Holding] | None = None
        self._is_answered = False

    @property
    def is_possible(self) -> bool:
        """Whether both sides announced the extension, and this one knows its digests by now."""
        feed = self._peer.feed
        is_spoken = SET_DIGEST in self._peer.remote.extensions and feed.speaks_set_digest
        return is_spoken and feed.sums.state() is not None

    @property
    def is_asking(self) -> bool:
        """Whether an answer is awaited, or being looked at."""
        return self._timeout is not None

    def ask(self) -> None:
        """Ask the peer; to be called where it `is_possible` and not while one is open."""
        peer = self._peer
        self._number = (self._number + 1) & _MAX_NUMBER
        self._is_answered = False
        request = DigestRequest(number=self._number, ranges=_to_wire(peer.feed.kept))
        self._timeout = peer.context.clock.callLater(DIGEST_SECONDS, self._end, None)
        peer.send_digest_request(request)

    def stop(self) -> None:
        """The connection is gone."""
        if self._timeout is not None and self._timeout.active():
            self._timeout.cancel()
        self._timeout = None

    def take_request(self, request: DigestRequest) -> None:
        """The peer asks: answer when it is this job's turn."""
        if self._peer.feed.speaks_set_digest:
            self._answer.take(request)
            self._peer.outflow.add(self._answer)

    def take_digest(self, digest: Digest) -> None:
        """The peer answers: add up the same ranges here."""
        if self._timeout is None or digest.number != self._number or self._is_answered:
            return
        self._is_answered = True
        ranges = _from_wire(digest.ranges)
        if common(self._peer.feed.kept, ranges) != ranges:
            self._peer.connection.strike("its digest is of ranges it was not asked about")
            self._end(None)
        elif not ranges:
            self._end(None)
        else:
            self._timeout.reset(DIGEST_SECONDS)
            self._peer.outflow.add(_Addition(self._peer, ranges, self._compare_with(digest)))

    def _compare_with(self, digest: Digest) -> Callable[[Holding | None, float], None]:
        there = Holding(
            here=SetFigures(digest.count, digest.digest),
            settled=SetFigures(digest.settled_count, digest.settled_digest),
        )

        def added(here: Holding | None, seconds: float) -> None:
            if self._timeout is None or digest.number != self._number:
                return
            if here is None:
                self._end(None)
                return
            self.told = (there, here)
            same = here.agrees_with(there)
            now = self._peer.context.now()
            self._end(Agreement(in_sync=same, at=now, source="digest"), seconds)

        return added

    def _end(self, agreement: Agreement | None, seconds: float = 0.0) -> None:
        self.stop()
        self._compared(agreement, seconds)


class _Addition:
    """Adds up ranges of the feed here, a slice a step, unless the sum is known.

    `added` gets it, or None where this node does not know its digests.
    """

    ready_at = 0.0

    def __init__(
        self, peer: Peering, ranges: list[KeyRange], added: Callable[[Holding | None, float], None]
    ) -> None:
        self._peer = peer
        self._ranges = ranges
        self._added = added
        self._seconds = 0.0
        self._of: Holding | None = None
        self._sum: Sum | None = None

    async def step(self) -> bool:
        """Add the next slice; whether there is more to add."""
        feed, clock = self._peer.feed, self._peer.context.clock
        sums = feed.sums
        if self._sum is None or self._of is None:
            known = sums.find(self._ranges)
            if known is not None:
                self.ready_at = self._charge(QUESTION_VALUES)
                self._added(known, 0.0)
                return False
            self._of = sums.state()
            if self._of is None:
                self._added(None, 0.0)
                return False
            self._sum = Sum(self._ranges, read=feed.read_slice, read_forgotten=feed.read_forgotten)
        begun = clock.seconds()
        await self._peer.work(self._sum.step)
        self._seconds += clock.seconds() - begun
        self.ready_at = self._charge(self._sum.take_tested())
        if not self._sum.done:
            return True
        sums.keep(self._ranges, self._sum.holding, of=self._of)
        self._added(self._sum.holding, self._seconds)
        return False

    def _charge(self, tested: int) -> float:
        """Our own additions are not the peer's work."""
        return 0.0


class _Charged(_Addition):
    """An addition that the peer asked for: it waits where the peer asks too much."""

    def _charge(self, tested: int) -> float:
        wait = self._peer.answered(tested)
        return self._peer.context.clock.seconds() + wait if wait else 0.0


class _Answer:
    """Answers the last question of the peer."""

    def __init__(self, peer: Peering) -> None:
        self._peer = peer
        self._request: DigestRequest | None = None
        self._addition: _Charged | None = None
        self.ready_at = 0.0

    def take(self, request: DigestRequest) -> None:
        """This is what to answer from now on."""
        self._request = request
        self._addition = None

    async def step(self) -> bool:
        """Send the answer, or add up the next slice of it."""
        request, peer = self._request, self._peer
        if request is None:
            return False
        addition = self._addition
        if addition is None:
            ranges = common(peer.feed.kept, _from_wire(request.ranges))
            addition = self._addition = _Charged(peer, ranges, self._send(request, ranges))
        more = await addition.step()
        self.ready_at = addition.ready_at
        if not more and self._addition is addition:
            self._request = self._addition = None
        return self._request is not None

    def _send(
        self, request: DigestRequest, ranges: list[KeyRange]
    ) -> Callable[[Holding | None, float], None]:
        def added(holding: Holding | None, _: float) -> None:
            if self._request is request:
                told = holding or NOTHING
                digest = Digest(
                    number=request.number,
                    count=told.here.count,
                    digest=told.here.digest,
                    settled_count=told.settled.count,
                    settled_digest=told.settled.digest,
                    ranges=() if holding is None else _to_wire(ranges),
                )
                self._peer.send_digest(digest)

        return added
