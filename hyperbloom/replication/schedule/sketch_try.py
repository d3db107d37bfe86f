"""One try to find what two sets differ by: symbols of the peer in, questions and ids out.

A machine without I/O. The side that asks gets a first block of the peer's symbols, for which
`first_question` asks. It subtracts them from the same symbols of its own set and gives the result
to a decoder (sketches.py), block by block, until the difference is known or the try fails. Each
further question asks for as many symbols as the decoder thinks are missing.

What comes out are ids to ask for and to offer. A member can write values whose symbols do not peel,
or peel to something false, so that nothing here shows that two sets are equal: digests do that.
Where numbers contradict what was decoded, the try has failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

from hyperbloom.sketches import Decoder, Ids, Symbols, Undecodable, symbols_for, unpack, unsalted
from hyperbloom.store.records import SetFigures
from hyperbloom.wire import Range, Sketch, SketchRequest

__all__ = ["SYMBOL_BYTES", "SketchOutcome", "SketchTry", "first_symbols"]

#: What a symbol takes in a Sketch, about: 24 bytes of sums, and its number.
SYMBOL_BYTES = 26

#: Symbols of the first block beside those for the values by which the counts differ: some 80 values
#: more are found in one round trip, and of any number of them it can be told how many they are.
_FIRST_SYMBOLS = 128


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
        self._asked = min(first, most)
        self._came = self._used = 0
        #: How many symbols the try takes in all, estimated from the first block.
        self._estimate: int | None = None
        self._of: SetFigures | None = None
        self._blocks: deque[Sketch] = deque()
        self._decoder = Decoder(key, most_ids=most)

    @property
    def first_question(self) -> SketchRequest:
        """What to send first."""
        return self._question(0, self._asked)

    @property
    def symbols(self) -> int:
        """How many symbols came."""
        return self._came

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
    def has_blocks(self) -> bool:
        """Whether symbols wait for `step`."""
        return bool(self._blocks)

    def take(self, sketch: Sketch) -> None:
        """Symbols came. Raises ValueError where they are not what was asked for."""
        if sketch.first != self._came or sketch.symbols > self._asked - self._came:
            raise ValueError("its symbols are not those that it was asked for")
        if sketch.symbols:
            figures = SetFigures(sketch.values, sketch.digest)
            if self._of not in (None, figures):
                raise ValueError("its symbols are of two different sets")
            self._of = figures
        self._came += sketch.symbols
        self._blocks.append(sketch)

    def step(self, symbols: Symbols, figures: SetFigures) -> SketchRequest | None:
        """Decode the next block with our own sequence: the next question, if there is one.

        `figures`: of the set that `symbols` are of. Takes some time: run it in a thread. Raises
        ValueError for symbols that were packed wrongly.
        """
        sketch = self._blocks.popleft()
        try:
            self.outcome = self._use(sketch, symbols, figures)
        except Undecodable:
            self.outcome = SketchOutcome.UNDECODED
        if self.outcome is not None or self._used < self._asked:
            return None
        return self._ask_on(min(self._most, symbols.shape[1]))

    def _use(self, sketch: Sketch, symbols: Symbols, figures: SetFigures) -> SketchOutcome | None:
        if not sketch.symbols:
            return SketchOutcome.REFUSED
        theirs = SetFigures(sketch.values, sketch.digest)
        if theirs == figures:
            return SketchOutcome.EQUAL
        block = unpack(
            sketch.packed, first=sketch.first, symbols=sketch.symbols, count=sketch.values
        )
        mine = symbols[:, sketch.first : sketch.first + sketch.symbols]
        self._used += sketch.symbols
        if self._decoder.feed(mine - block[:, : mine.shape[1]]):
            fits = len(self._decoder.mine) - len(self._decoder.theirs)
            is_right = self.differences and fits == figures.count - theirs.count
            return SketchOutcome.TAKEN if is_right else SketchOutcome.UNDECODED
        return None

    def _ask_on(self, most: int) -> SketchRequest | None:
        """The next question, unless that would be more than `most` symbols in all."""
        wanted = self._decoder.wanted()
        if self._estimate is None:
            self._estimate = self._used + wanted
        count = min(wanted, most - self._used)
        if self._estimate > most:
            self.outcome = SketchOutcome.REFUSED
        elif count <= 0:
            self.outcome = SketchOutcome.UNDECODED
        if self.outcome is not None:
            return None
        self._asked += count
        return self._question(self._used, count)

    def _question(self, first: int, count: int) -> SketchRequest:
        return SketchRequest(
            number=self.number, salt=self.salt, first=first, count=count, ranges=self._ranges
        )

    def _plain(self, ids: Ids) -> Ids:
        return unsalted(ids, self.salt) if self.salt else ids
