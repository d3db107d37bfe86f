"""One try to find what two sets differ by: symbols of the peer in, questions and ids out.

A machine without I/O. The side that asks gets a first block of the peer's symbols, for which
`first_question` asks. It subtracts them from the same symbols of its own set and gives the result
to a decoder (sketches.py), block by block, until the difference is known or the try fails. Each
further question asks for as many symbols as the decoder thinks are missing. An answer may come in
several Sketches; it is decoded when it is whole, so that a peer does not choose how often.

Up to the release before this one a node had OLDER_SYMBOLS symbols of a set of at most OLDER_VALUES
values. Where more are needed of such a set, one symbol behind these is asked for before the others:
a sequence that is too short costs a question then, and not all its symbols.

What comes out are ids to ask for and to offer. A member can write values whose symbols do not peel,
or peel to something false, so that nothing here shows that two sets are equal: digests do that.
Where numbers contradict what was decoded, the try has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from hyperbloom.replication.limits import MOST_QUESTIONS
from hyperbloom.sketches import (
    Decoder,
    Ids,
    Symbols,
    Undecodable,
    joined,
    symbols_for,
    unpack,
    unsalted,
)
from hyperbloom.store.records import SetFigures
from hyperbloom.wire import Range, Sketch, SketchRequest
from hyperbloom.wire.limits import LEAST_SKETCH_SYMBOLS

__all__ = [
    "OLDER_SYMBOLS",
    "OLDER_VALUES",
    "SYMBOL_BYTES",
    "SketchOutcome",
    "SketchTry",
    "first_block",
    "first_symbols",
]

#: What a symbol takes in a Sketch, about: 24 bytes of sums, and its number.
SYMBOL_BYTES = 26

#: Symbols of the first block beside those for the values by which the counts differ: some 80 values
#: more are found in one round trip, and of any number of them it can be told how many they are.
_FIRST_SYMBOLS = 128

OLDER_SYMBOLS = 4_096
OLDER_VALUES = 65_536


class SketchOutcome(Enum):
    """How a try ended."""

    #: What differs is known, and values are on their way.
    TAKEN = "taken"
    #: What differs is known, and nothing of it can be moved.
    NOTHING = "nothing to move"
    #: Both sets were the same by now.
    EQUAL = "equal"
    #: The symbols do not decode, or contradict themselves.
    UNDECODED = "undecoded"
    #: The sets differ by too much, or the peer has no symbols, or the time is up.
    REFUSED = "refused"
    #: Both sides began a try at the same moment, and the peer's goes on.
    CROSSED = "crossed"


def first_symbols(here: int, there: int) -> int | None:
    """How many symbols to ask for at first, by how many values both sets have.

    None: one is empty or has less than half of the other's; then symbols gain nothing.
    """
    if 2 * min(here, there) < max(here, there) or not min(here, there):
        return None
    return symbols_for(abs(here - there)) + _FIRST_SYMBOLS


def first_block(first: int, there: int) -> int:
    """How many of these symbols to ask for at once of a peer that has so many values.

    Few, where they may be more than its sequence has: then it is asked for its length next.
    """
    return _FIRST_SYMBOLS if first > OLDER_SYMBOLS and there <= OLDER_VALUES else first


class SketchTry:
    """The side that asks. `outcome` is None until it is over.

    number, salt, ranges: of its questions. `first` symbols are asked for at first, and `most` in
    all. `key`: what the checks of symbols are made with (`sketches.sketch_key`).
    """

    def __init__(
        self,
        *,
        number: int,
        salt: bytes,
        ranges: Sequence[Range],
        key: bytes,
        first: int,
        most: int,
    ) -> None:
        self.number = number
        self.salt = salt
        self.outcome: SketchOutcome | None = None
        self._ranges = tuple(ranges)
        self._most = most
        #: How many symbols were decoded, and how many questions were asked.
        self._used, self._questions = 0, 1
        self._of: SetFigures | None = None
        #: Of the last question: the next symbol that is to come, the end, what came, and whether
        #: that is all.
        self._next, self._end = 0, min(first, most)
        self._answer: list[Sketch] = []
        self._is_whole = False
        #: Whether the last question was whether the sequence is a long one.
        self._is_probe = self._is_probed = False
        self._decoder = Decoder(key, most_ids=most)

    @property
    def first_question(self) -> SketchRequest:
        """What to send first."""
        return self._request(0, self._end)

    @property
    def symbols(self) -> int:
        """How many symbols came."""
        return self._used + sum(sketch.symbols for sketch in self._answer)

    @property
    def differences(self) -> int:
        """By how many values the sets differ, as far as that is known."""
        return len(self._decoder.mine) + len(self._decoder.theirs)

    @property
    def mine(self) -> Ids:
        """The ids of what the peer lacks."""
        return self._plain(self._decoder.mine)

    @property
    def theirs(self) -> Ids:
        """The ids of what is missing here."""
        return self._plain(self._decoder.theirs)

    @property
    def is_answered(self) -> bool:
        """Whether the last answer is whole, so that it is time for `step`."""
        return self._is_whole and bool(self._answer)

    def take(self, sketch: Sketch) -> None:
        """Symbols came. Raises ValueError where they are not what was asked for."""
        left = self._end - self._next
        if self._is_whole or sketch.first != self._next or sketch.symbols > left:
            raise ValueError("its symbols are not those that it was asked for")
        if sketch.symbols:
            figures = SetFigures(sketch.values, sketch.digest)
            if self._of not in (None, figures):
                raise ValueError("its symbols are of two different sets")
            self._of = figures
            if self._answer and self._answer[-1].symbols < LEAST_SKETCH_SYMBOLS:
                raise ValueError(f"it sends fewer than {LEAST_SKETCH_SYMBOLS} symbols at a time")
        self._next += sketch.symbols
        self._answer.append(sketch)
        self._is_whole = sketch.symbols in (0, left)

    def step(self, symbols: Symbols, figures: SetFigures) -> SketchRequest | None:
        """Decode the answer with our own sequence: the next question, if there is one.

        `figures`: of the set that `symbols` are of. Takes some time: run it in a thread. Raises
        ValueError for symbols that were packed wrongly.
        """
        answer, self._answer = self._answer, []
        if not self._is_probe:
            try:
                self.outcome = self._use(answer, symbols, figures)
            except Undecodable:
                self.outcome = SketchOutcome.UNDECODED
        if self.outcome is None and not answer[-1].symbols:
            self.outcome = SketchOutcome.REFUSED
        if self.outcome is not None:
            return None
        return self._ask_on(min(self._most, symbols.shape[1]))

    def _use(
        self, answer: Sequence[Sketch], symbols: Symbols, figures: SetFigures
    ) -> SketchOutcome | None:
        blocks = [
            unpack(sketch.packed, first=sketch.first, symbols=sketch.symbols, count=sketch.values)
            for sketch in answer
            if sketch.symbols
        ]
        if not blocks or self._of is None:
            return None
        if self._of == figures:
            return SketchOutcome.EQUAL
        block = joined(blocks)
        mine = symbols[:, self._used : self._used + block.shape[1]]
        self._used += block.shape[1]
        if self._decoder.feed(mine - block[:, : mine.shape[1]]):
            fits = len(self._decoder.mine) - len(self._decoder.theirs)
            is_right = self.differences and fits == figures.count - self._of.count
            return SketchOutcome.TAKEN if is_right else SketchOutcome.UNDECODED
        return None

    def _ask_on(self, most: int) -> SketchRequest | None:
        """The next question, unless that would be more than `most` symbols in all."""
        count = min(self._decoder.wanted(), most - self._used)
        if self._decoder.needed() > most:
            self.outcome = SketchOutcome.REFUSED
        elif count <= 0 or self._questions >= MOST_QUESTIONS:
            self.outcome = SketchOutcome.UNDECODED
        if self.outcome is not None:
            return None
        self._is_probe = self._may_be_short(self._used + count)
        first = self._used
        if self._is_probe:
            self._is_probed = True
            first, count = OLDER_SYMBOLS, 1
        self._questions += 1
        self._next, self._end, self._is_whole = first, first + count, False
        return self._request(first, count)

    def _may_be_short(self, end: int) -> bool:
        """Whether the peer may have no symbol before this one, and was not asked for it yet."""
        values = 0 if self._of is None else self._of.count
        return not self._is_probed and values <= OLDER_VALUES and end > OLDER_SYMBOLS

    def _request(self, first: int, count: int) -> SketchRequest:
        return SketchRequest(
            number=self.number, salt=self.salt, first=first, count=count, ranges=self._ranges
        )

    def _plain(self, ids: Ids) -> Ids:
        return unsalted(ids, self.salt) if self.salt else ids
