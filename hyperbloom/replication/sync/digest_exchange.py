"""Comparing with one peer by digest: our question and its answer, the peer's and ours.

When to ask, and which answer is awaited, is for the schedule (sync_schedule.py) to say. A peer that
asks again before it is answered is answered once, for the last question. Adding up a range is a job
of the connection like any other, and what the peer asks for counts against its work as its Syncs
do. An answer that is not awaited is dropped.

Forgotten values count as settled: two nodes are in sync, too, where they differ only by what one of
them has forgotten, as Sync would have it (their filters hold what is forgotten, and nothing is
sent). Those of which a node kept no more than the hash are in no digest.

A node that does not know its digests yet (its store is of an older version) asks nobody, and
answers that there is nothing to compare; both go on by Sync.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hyperbloom.replication.reading.range_digests import NOTHING, QUESTION_VALUES, RangeSum
from hyperbloom.replication.reading.ranges import common
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import SyncState
from hyperbloom.replication.sync.peer_port import PeerPort
from hyperbloom.store.records import Holding, SetFigures
from hyperbloom.wire import Digest, DigestRequest, Range
from hyperbloom.wire.extensions.set_digest import SET_DIGEST

__all__ = ["DigestExchange"]


class Comparing(Protocol):
    """Who asked, and is told what came of it (`sync_driver.SyncDriver`)."""

    def digest_came(self, number: int) -> bool:
        """Whether the digest of this number is awaited."""
        ...

    def compared(self, number: int, state: SyncState | None, seconds: float) -> None:
        """What the answer to a question showed, and the seconds of adding up here.

        None: the peer holds nothing of what is kept here, or one of both knows no digest.
        """


def _to_wire(ranges: Sequence[KeyRange]) -> tuple[Range, ...]:
    return tuple(Range(start=start, end=end) for start, end in ranges)


def _from_wire(ranges: Sequence[Range]) -> list[KeyRange]:
    return [(one.start, one.end) for one in ranges]


class DigestExchange:
    """The comparisons of one connection."""

    __slots__ = (
        "_comparing",
        "_here",
        "_peer",
        "_there",
        "answer",
        "ranges",
    )

    def __init__(self, peer: PeerPort, comparing: Comparing) -> None:
        self._peer = peer
        self._comparing = comparing
        self.answer = _Answer(peer)
        #: What the peer told last, and what there was in the same ranges here.
        self._there: Holding | None = None
        self._here: Holding | None = None
        #: The ranges that this is about.
        self.ranges: Sequence[KeyRange] = ()

    @property
    def is_possible(self) -> bool:
        """Whether both sides announced the extension, and this one knows its digests by now."""
        feed = self._peer.feed
        is_spoken = SET_DIGEST in self._peer.remote.extensions and feed.speaks_set_digest
        return is_spoken and feed.values.range_digests.state() is not None

    @property
    def told(self) -> tuple[Holding, Holding] | None:
        """What the peer told last, and what there was here then; None: nothing yet."""
        there, here = self._there, self._here
        return None if there is None or here is None else (there, here)

    def ask(self, number: int) -> None:
        """Ask the peer what it holds."""
        ranges = _to_wire(self._peer.feed.kept)
        self._peer.output.send_extension(DigestRequest(number=number, ranges=ranges))

    def take_request(self, request: DigestRequest) -> None:
        """The peer asks: answer when it is this job's turn."""
        if self._peer.feed.speaks_set_digest:
            self.answer.take(request)
            self._peer.scheduler.add(self.answer)

    def take_digest(self, digest: Digest) -> None:
        """The peer answers: add up the same ranges here."""
        if not self._comparing.digest_came(digest.number):
            return
        ranges = _from_wire(digest.ranges)
        kept = self._peer.feed.kept
        if ranges == kept:
            ranges = kept  # one object for all peers
        if common(kept, ranges) != ranges:
            self._peer.connection.strike("its digest is of ranges it was not asked about")
            self._comparing.compared(digest.number, None, 0.0)
        elif not ranges:
            self._comparing.compared(digest.number, None, 0.0)
        else:
            compare = self._compare_with(digest, ranges)
            self._peer.scheduler.add(_Addition(self._peer, ranges, compare))

    def _compare_with(
        self, digest: Digest, ranges: list[KeyRange]
    ) -> Callable[[Holding | None, float], None]:
        there = Holding(
            here=SetFigures(digest.count, digest.digest),
            settled=SetFigures(digest.settled_count, digest.settled_digest),
        )

        def added(here: Holding | None, seconds: float) -> None:
            state = None
            if here is not None:
                # A thousand peers that hold the same are remembered by one object.
                self._there, self._here = here if there == here else there, here
                self.ranges = ranges
                is_same = here.agrees_with(there)
                at = self._peer.context.now()
                state = SyncState(in_sync=is_same, at=at, source="digest")
            self._comparing.compared(digest.number, state, seconds)

        return added


class _Addition:
    """Adds up ranges of the feed here, a slice a step, unless the sum is known.

    `added` gets it, or None where this node does not know its digests.
    """

    ready_at = 0.0

    def __init__(
        self, peer: PeerPort, ranges: list[KeyRange], added: Callable[[Holding | None, float], None]
    ) -> None:
        self._peer = peer
        self._ranges = ranges
        self._added = added
        self._seconds = 0.0
        self._of: Holding | None = None
        self._sum: RangeSum | None = None

    async def step(self) -> bool:
        """Add the next slice; whether there is more to add."""
        feed, clock = self._peer.feed, self._peer.context.clock
        digests = feed.values.range_digests
        if self._sum is None or self._of is None:
            known = digests.find(self._ranges)
            if known is not None:
                self.ready_at = self._charge(QUESTION_VALUES)
                self._added(known, 0.0)
                return False
            self._of = digests.state()
            if self._of is None:
                self._added(None, 0.0)
                return False
            self._sum = RangeSum(self._ranges, feed.values.slices)
        begun = clock.seconds()
        await self._peer.work(self._sum.step)
        self._seconds += clock.seconds() - begun
        self.ready_at = self._charge(self._sum.take_tested())
        if not self._sum.done:
            return True
        digests.keep(self._ranges, self._sum.holding, of=self._of)
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

    __slots__ = ("_addition", "_peer", "_request", "ready_at")

    def __init__(self, peer: PeerPort) -> None:
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
                self._peer.output.send_extension(digest)

        return added
