"""Answering a peer that asks for symbols, and where both sides take their sequences from.

The questions of one try are answered from the sequence that was there when it began, whatever
comes meanwhile, so that the blocks fit each other. A connection has one of them, which goes when
the peer needs no more symbols or begins another try; `SketchSlots` bounds them in all. Making
one, and each block, counts as the peer's work, as answering its Syncs does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.limits import (
    DOUBT_SECONDS,
    MAX_TRY_SYMBOLS,
    RANGE_SYMBOLS,
    SKETCH_SECONDS,
)
from hyperbloom.replication.reading.range_digests import QUESTION_VALUES
from hyperbloom.replication.reading.ranges import common
from hyperbloom.replication.settings import WHOLE, KeyRange
from hyperbloom.replication.sync.peer_port import PeerPort
from hyperbloom.replication.sync.send_jobs import FULL_SECONDS
from hyperbloom.sketches import pack
from hyperbloom.store import StoreError
from hyperbloom.store.records import SettledSketch
from hyperbloom.trust import Path
from hyperbloom.wire import Sketch, SketchRequest
from hyperbloom.wire.limits import MAX_SKETCH_SYMBOLS

__all__ = ["SketchAnswers", "SketchSource", "path_of", "source_of"]


class SketchSource(Protocol):
    """Makes a sequence step by step. `looked_at`: how many values it has read for that."""

    @property
    def looked_at(self) -> int: ...

    def step(self) -> SettledSketch | None:
        """The sequence, or None: call again (reads the store: in a thread). Raises StoreError."""
        ...


class _Kept:
    """The sequence that the store keeps of all that is settled."""

    looked_at = 0

    def __init__(self, feed: Feed) -> None:
        self._store, self._key = feed.context.store, feed.key

    def step(self) -> SettledSketch | None:
        return self._store.sketch_step(self._key)


def path_of(peer: PeerPort) -> Path:
    """By what symbols are shared out: the feed, and there the keys down to the peer's own."""
    return (peer.feed.key, *peer.path)


def source_of(feed: Feed, ranges: Sequence[KeyRange], salt: bytes) -> SketchSource:
    """Where the sequence of these ranges comes from; only the whole feed has one with a salt."""
    if list(ranges) != [WHOLE]:
        return feed.context.store.range_sketch(feed.key, list(ranges), RANGE_SYMBOLS)
    if salt:
        return feed.context.store.salted_sketch(feed.key, salt, MAX_TRY_SYMBOLS)
    return _Kept(feed)


class SketchAnswers:
    """Answers the last question of the peer; a job of its connection."""

    __slots__ = (
        "_ended_at",
        "_next",
        "_number",
        "_peer",
        "_request",
        "_sequence",
        "_source",
        "ready_at",
        "until",
    )

    def __init__(self, peer: PeerPort) -> None:
        self._peer = peer
        self.ready_at = 0.0
        #: Until when the peer's try counts as being under way.
        self.until = 0.0
        self._ended_at = -math.inf
        self._number: int | None = None
        self._source: SketchSource | None = None
        self._sequence: SettledSketch | None = None
        self._request: SketchRequest | None = None
        self._next = 0

    @property
    def brings_values(self) -> bool:
        """Whether values of the peer's last try are still on their way, to it or to here."""
        peer = self._peer
        now = peer.context.clock.seconds()
        if now >= self._ended_at + SKETCH_SECONDS:
            return False
        return peer.is_receiving or now < peer.counters.moved_at + DOUBT_SECONDS

    def take(self, request: SketchRequest) -> None:
        """Answer this question from now on; the first one of a try has a new sequence made."""
        self.until = self._peer.context.clock.seconds() + SKETCH_SECONDS
        if request.first == 0:
            self.drop()
            if self._may_ask(request):
                ranges = [(one.start, one.end) for one in request.ranges]
                self._number = request.number
                self._source = source_of(self._peer.feed, ranges, request.salt)
        self._request, self._next = request, request.first

    def end(self, number: int) -> bool:
        """The peer needs no more symbols for this try; whether it is the one that was answered."""
        if number != self._number:
            return False
        self.drop()
        # What it found is still on its way.
        self._ended_at = self._peer.context.clock.seconds()
        self.until = self._ended_at + DOUBT_SECONDS
        return True

    def forget(self) -> None:
        """The peer's try came to nothing: none is under way, and it brings nothing."""
        self.until, self._ended_at = 0.0, -math.inf

    def drop(self) -> None:
        """Hold no sequence any more; whoever asks for more of it is told so."""
        self._number = self._source = self._sequence = None
        self._peer.context.sketch_slots.release(self.drop)

    def _may_ask(self, request: SketchRequest) -> bool:
        """Whether a sequence is made for it: a pass over values has to be affordable."""
        peer = self._peer
        feed, now = peer.feed, peer.context.clock.seconds()
        digests = feed.values.range_digests
        ranges = [(one.start, one.end) for one in request.ranges]
        if digests.state() is None or common(feed.kept, ranges) != ranges:
            return False
        if ranges == [WHOLE] and not request.salt:
            return True
        known = digests.find(ranges)
        count = feed.values.count + feed.forgetting.kept if known is None else known.settled.count
        if not peer.share.budget.affords(count, now=now):
            return False
        if request.salt:
            tries = feed.peers.salted_tries
            if ranges != [WHOLE] or not tries.may_begin(peer.path, now=now):
                return False
            tries.begin(peer.path, count, now=now)
        return True

    async def step(self) -> bool:
        """Make the next part of the sequence, or send the next symbols of it."""
        request, peer = self._request, self._peer
        if request is None:
            return False
        if not peer.output.has_room:
            self.ready_at = peer.context.clock.seconds() + FULL_SECONDS
            return True
        if request.number != self._number or self._source is None:
            self._send(Sketch.nothing(request.number, self._next))
        elif self._sequence is None:
            await self._make(self._source)
        else:
            await self._answer(request, self._sequence)
        return self._request is not None

    async def _make(self, source: SketchSource) -> None:
        before = source.looked_at
        try:
            sequence = await self._peer.work(source.step)
        except StoreError:
            if source is self._source:
                self.drop()
            return
        self._charge(QUESTION_VALUES + source.looked_at - before)
        if sequence is not None and source is self._source:
            self._sequence = sequence
            self._peer.context.sketch_slots.hold(path_of(self._peer), self.drop)

    async def _answer(self, request: SketchRequest, sequence: SettledSketch) -> None:
        first = self._next
        left = request.first + request.count - first
        part = sequence.symbols[:, first : first + min(left, MAX_SKETCH_SYMBOLS)]
        count = part.shape[1]
        if not count:
            self._send(Sketch.nothing(request.number, first))
            return
        figures = sequence.settled
        packed = await self._peer.work(lambda: pack(part, first=first, count=figures.count))
        self._charge(QUESTION_VALUES + count)
        if request is not self._request:
            return
        self._next += count
        sketch = Sketch(
            number=request.number,
            first=first,
            symbols=count,
            values=figures.count,
            digest=figures.digest,
            packed=packed,
        )
        self._send(sketch, is_last=count == left)

    def _send(self, sketch: Sketch, *, is_last: bool = True) -> None:
        if is_last:
            self._request = None
        self._peer.output.send_extension(sketch)

    def _charge(self, tested: int) -> None:
        wait = self._peer.answered(tested)
        self.ready_at = self._peer.context.clock.seconds() + wait if wait else 0.0
