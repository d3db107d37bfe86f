"""Finding out by symbols what differs from one peer: our try, and the peer's (`sketch_answers`).

When to begin a try is for the schedule to say. One try a pair is under way at a time, for it
brings both sides what they lack: while the peer's is answered here, none begins. If both begin one
at the same moment, each sees the other's first question while its own is open: the try of the
lower key (byte by byte) goes on, and the other side gives its own up and answers.

What the try gives is ids. Values that the peer lacks are sent, those that are missing here are
asked for; the peer is told with ValuesWanted, in any case, that it may drop its sequence. An id
that was offered or asked for by the try before is left out: a side that refuses a value differs
from the other for good, and would be sent it with each try.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from hyperbloom.digests import value_ids
from hyperbloom.replication.limits import RANGE_SYMBOLS
from hyperbloom.replication.schedule.sketch_try import SketchOutcome, SketchTry
from hyperbloom.replication.settings import WHOLE, KeyRange
from hyperbloom.replication.status import SyncRound
from hyperbloom.replication.sync.peer_port import PeerPort
from hyperbloom.replication.sync.reply import ValuesById
from hyperbloom.replication.sync.sketch_answers import SketchAnswers, path_of, source_of
from hyperbloom.sketches import ids_from, ids_to_bytes, sketch_key
from hyperbloom.store import StoreError
from hyperbloom.store.records import SettledSketch
from hyperbloom.wire import Range, Sketch, SketchRequest, ValuesWanted
from hyperbloom.wire.extensions.reconcile import ID_BYTES, RECONCILE, SALT_BYTES
from hyperbloom.wire.limits import MAX_WANTED_IDS

__all__ = ["SketchExchange"]


class Reconciling(Protocol):
    """Who has a try begun, and is told how it goes (`sync_driver.SyncDriver`)."""

    def sketch_moved(self, awaited: int) -> None:
        """A step of our try was made, or so many symbols were asked for."""

    def sketch_over(self, outcome: SketchOutcome, seconds: float) -> None:
        """How our try ended, and the seconds that it took here."""

    def peer_tried(self) -> None:
        """The peer's try is over; what it brings is on its way."""


def _each(ids: bytes) -> set[bytes]:
    return {ids[at : at + ID_BYTES] for at in range(0, len(ids), ID_BYTES)}


class SketchExchange:
    """The tries of one connection."""

    __slots__ = (
        "_asking",
        "_number",
        "_offered",
        "_peer",
        "_reconciling",
        "_wanted",
        "answers",
        "last",
    )

    def __init__(self, peer: PeerPort, reconciling: Reconciling) -> None:
        self._peer = peer
        self._reconciling = reconciling
        self.answers = SketchAnswers(peer)
        self._asking: _Asking | None = None
        self._number = 0
        #: The ids that the last try offered and asked for, one behind the other.
        self._offered = self._wanted = b""
        #: What the last try came to.
        self.last: SyncRound | None = None

    @property
    def is_possible(self) -> bool:
        """Whether both sides announced the extension."""
        return self._peer.feed.speaks_reconcile and RECONCILE in self._peer.remote.extensions

    @property
    def peer_is_asking(self) -> bool:
        """Whether the peer has a try under way, or what it found is."""
        return self._is_asking or self.answers.brings_values

    @property
    def _is_asking(self) -> bool:
        return self.answers.until > self._peer.context.clock.seconds()

    def may_salt(self, ranges: Sequence[KeyRange]) -> bool:
        """Whether a try with a salt may begin."""
        peer = self._peer
        now = peer.context.clock.seconds()
        return list(ranges) == [WHOLE] and peer.feed.peers.salted_tries.may_begin(
            peer.path, now=now
        )

    def begin(self, ranges: Sequence[KeyRange], *, first: int, most: int, is_salted: bool) -> None:
        """Begin a try about ranges that both keep: `first` symbols at once, and `most` in all."""
        peer = self._peer
        if is_salted:
            now = peer.context.clock.seconds()
            count = peer.feed.values.count + peer.feed.forgetting.kept
            peer.feed.peers.salted_tries.begin(peer.path, count, now=now)
        self._number += 1
        one = SketchTry(
            number=self._number,
            salt=peer.context.random_bytes(SALT_BYTES) if is_salted else b"",
            ranges=[Range(start=start, end=end) for start, end in ranges],
            key=sketch_key(peer.feed.key),
            first=first,
            most=most if list(ranges) == [WHOLE] else min(most, RANGE_SYMBOLS),
        )
        before = self._offered, self._wanted
        self._asking = _Asking(
            peer,
            one,
            ranges,
            before=before,
            moved=self._reconciling.sketch_moved,
            ended=self._ended,
        )
        peer.scheduler.add(self._asking)

    def give_up(self) -> None:
        """End our try, if there is one; the peer may drop its sequence."""
        asking = self._asking
        if asking is not None:
            self._drop_try()
            if asking.is_asked:
                self._want(asking.number, [])

    def stop_asking(self) -> None:
        """Nothing is asked any more."""
        self._drop_try()

    def stop(self) -> None:
        """The connection is over."""
        self._drop_try()
        self.answers.drop()

    def _drop_try(self) -> None:
        if self._asking is not None:
            self._peer.context.sketch_slots.end_try(self._asking)
            self._asking.is_over = True
        self._asking = None

    # What the peer says

    def peer_sends_filters(self) -> bool:
        """The peer asks by a plan. Whether that ends a try of its own, which brought no result."""
        was_asking = self._is_asking
        self.answers.forget()
        return was_asking

    def take_request(self, request: SketchRequest) -> None:
        """The peer asks for symbols: answer when it is this job's turn."""
        asking, peer = self._asking, self._peer
        if request.first == 0 and asking is not None:
            own = peer.context.identity_on(peer.feed.key).public_key
            if asking.is_asked and own < peer.remote_key:
                peer.output.send_extension(Sketch.nothing(request.number, 0))
                return
            self._drop_try()
            self._reconciling.sketch_over(SketchOutcome.CROSSED, asking.seconds)
        self.answers.take(request)
        peer.scheduler.add(self.answers)

    def take_sketch(self, sketch: Sketch) -> None:
        """Symbols came; those of a try that is over are dropped."""
        asking = self._asking
        if asking is None or asking.number != sketch.number or not asking.is_asked:
            return
        self._peer.counters.sketch_symbols += sketch.symbols
        try:
            asking.take(sketch)
        except ValueError as error:
            self._peer.connection.strike(str(error))
            self._ended(asking, SketchOutcome.REFUSED)
            return
        if asking.is_answered:
            self._reconciling.sketch_moved(0)
            self._peer.scheduler.add(asking)

    def take_wanted(self, wanted: ValuesWanted) -> None:
        """The peer needs no more symbols, and asks for values by their ids."""
        was_answered = self.answers.end(wanted.number)
        self._send(wanted.ids)
        if was_answered:
            self._reconciling.peer_tried()

    # How our try ends

    def _ended(self, asking: _Asking, outcome: SketchOutcome) -> None:
        if asking is not self._asking:
            return
        self._drop_try()
        wanted: list[bytes] = []
        if outcome is SketchOutcome.TAKEN:
            wanted = asking.wanted
            self._offered, self._wanted = asking.mine, asking.theirs
            self._offer(asking.offered)
            if not asking.offered and not wanted:
                outcome = SketchOutcome.NOTHING
            if self._peer.tree.may_tell(wanted):
                self._peer.tree.wants(wanted)
                wanted = []
        self._want(asking.number, wanted)
        self.last = asking.round(self._peer.context.now())
        self._peer.counters.sketch_differences += asking.differences or 0
        self._reconciling.sketch_over(outcome, asking.seconds)

    def _offer(self, ids: Sequence[bytes]) -> None:
        """Tell the peer what it lacks, which others may tell it as well; or send it."""
        if self._peer.tree.may_tell(ids):
            self._peer.tree.tell(ids)
        else:
            self._send(b"".join(ids))

    def _send(self, ids: bytes) -> None:
        """Send the values of these ids that are here."""
        feed = self._peer.feed
        if ids:
            store = feed.context.store
            values = ValuesById(ids_from(ids), lambda some: store.values_of(feed.key, some))
            self._peer.answer(values)

    def _want(self, number: int, ids: Sequence[bytes]) -> None:
        """Ask for these; the peer may drop its sequence in any case."""
        for at in range(0, max(len(ids), 1), MAX_WANTED_IDS):
            some = b"".join(ids[at : at + MAX_WANTED_IDS])
            self._peer.output.send_extension(ValuesWanted(number=number, ids=some))


class _Asking:
    """Our try: a job of the connection.

    `before`: the ids that the last one offered and asked for. `moved` is called when a part of our
    own sequence is made, and when symbols are asked for, with their number; `ended` once there is
    an outcome. `path`, `asked_at`: see `sketch_slots.Try`.
    """

    def __init__(
        self,
        peer: PeerPort,
        one: SketchTry,
        ranges: Sequence[KeyRange],
        *,
        before: tuple[bytes, bytes],
        moved: Callable[[int], None],
        ended: Callable[[_Asking, SketchOutcome], None],
    ) -> None:
        self._peer = peer
        self._try = one
        self._moved = moved
        self._ended = ended
        self._source = source_of(peer.feed, ranges, one.salt)
        self.path = path_of(peer)
        self.asked_at: float | None = None
        self._sequence: SettledSketch | None = None
        self.ready_at = 0.0
        self.seconds = 0.0
        self.is_asked = self.is_over = False
        self._bytes = 0
        self._before = before
        #: The ids found, one behind the other; those of them to offer, and to ask for, in order.
        self.mine = self.theirs = b""
        self.offered: list[bytes] = []
        self.wanted: list[bytes] = []

    @property
    def number(self) -> int:
        """The number that its questions have."""
        return self._try.number

    @property
    def differences(self) -> int | None:
        """How many values one of both lacks, None: that is not known."""
        is_known = self._try.outcome is SketchOutcome.TAKEN
        return self._try.differences if is_known else None

    def round(self, at: float) -> SyncRound:
        """What the try came to."""
        return SyncRound(
            way="salted sketch" if self._try.salt else "sketch",
            at=at,
            symbols=self._try.symbols,
            bytes=self._bytes,
            differences=self.differences,
        )

    def take(self, sketch: Sketch) -> None:
        """Symbols came. Raises ValueError where they are not what was asked for."""
        self._bytes += len(sketch.encode())
        self._try.take(sketch)
        if self.is_answered:
            self.asked_at = None

    @property
    def is_answered(self) -> bool:
        """Whether the last question is answered and waits for its step."""
        return self._try.is_answered

    def go_on(self) -> None:
        """There is room for it."""
        self._peer.scheduler.add(self)

    def give_way(self) -> None:
        """Another try needs its place more."""
        self._ended(self, SketchOutcome.REFUSED)

    async def step(self) -> bool:
        """Ask; make our own sequence; decode what came."""
        if self.is_over:
            return False
        peer = self._peer
        if not self.is_asked:
            if not peer.context.sketch_slots.begin_try(self):
                return False
            self.is_asked = True
            peer.counters.sketches_asked += 1
            self._ask(self._try.first_question)
        begun = peer.context.clock.seconds()
        try:
            await self._go_on()
        except StoreError:
            self._ended(self, SketchOutcome.REFUSED)
        except ValueError as error:
            peer.connection.strike(f"its symbols cannot be read: {error}")
            self._ended(self, SketchOutcome.REFUSED)
        self.seconds += peer.context.clock.seconds() - begun
        if self._try.outcome is not None and not self.is_over:
            self._ended(self, self._try.outcome)
        return not self.is_over and (self._sequence is None or self.is_answered)

    async def _go_on(self) -> None:
        sequence = self._sequence
        if sequence is None:
            self._sequence = await self._peer.work(self._source.step)
            if not self.is_over:
                self._moved(0)
        elif self.is_answered:
            refused = self._peer.feed.values.refused
            question = await self._peer.work(lambda: self._decode(sequence, refused))
            if question is not None and not self.is_over:
                self._ask(question)

    def _decode(self, sequence: SettledSketch, refused: Sequence[bytes]) -> SketchRequest | None:
        question = self._try.step(sequence.symbols, sequence.settled)
        if self._try.outcome is SketchOutcome.TAKEN:
            self.mine, self.theirs = ids_to_bytes(self._try.mine), ids_to_bytes(self._try.theirs)
            offered_before, wanted_before = map(_each, self._before)
            self.offered = sorted(_each(self.mine) - offered_before)
            kept_out = wanted_before | _each(value_ids(refused))
            self.wanted = sorted(_each(self.theirs) - kept_out)
        return question

    def _ask(self, request: SketchRequest) -> None:
        self._bytes += len(request.encode())
        self.asked_at = self._peer.context.clock.seconds()
        self._moved(request.count)
        self._peer.output.send_extension(request)
