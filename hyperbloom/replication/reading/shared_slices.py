"""Slices of answers that several peers are sent alike: read, signed and encoded once.

Who asks for everything in a range is sent what was there when it asked. Those that asked the same
at the same state of the feed are sent the same frames; so a slice that one of them was sent is kept
while another one asks as well. One that asks alone costs no memory.

Each peer has its own turn in the threads, by what it has used. So nobody waits for a slice that is
for a peer which has to rest: whose turn comes first makes the slice, and that ends the waiting of
the others.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred

from hyperbloom.replication.limits import MAX_SHARED_BYTES

__all__ = ["AnswerSlice", "Question", "SharedSlices", "SignedValues", "Work"]

#: Nothing, or the slice.
_Given = list["AnswerSlice"]

#: Memory of a slice beside its frames.
_SLICE_WEIGHT = 1_024


class Work(Protocol):
    """Does something in a thread, for a peer, when it is its turn."""

    def __call__(self, call: Callable[[], Any], /) -> Deferred[Any]: ...


@dataclass(frozen=True, slots=True)
class Question:
    """What everything of a range is, for whoever asks.

    asked_at: the seq of the last value that is part of the answer. signer: the key that answers.
    """

    start: bytes
    end: bytes | None
    asked_at: int
    signer: bytes


@dataclass(frozen=True, slots=True)
class SignedValues:
    """Values as signed Data in the clear (`signed_frames`): how many, and their bytes."""

    frames: list[bytes]
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class AnswerSlice:
    """The values from one place on, and where to go on (None: it is the last slice).

    `tested`: the work of reading it, in values of 64 bytes.
    """

    signed: SignedValues
    next_start: bytes | None
    tested: int

    @property
    def weight(self) -> int:
        """Bytes of memory."""
        return sum(map(len, self.signed.frames)) + _SLICE_WEIGHT


class SharedSlices:
    """The slices of one feed that somebody else may be sent soon."""

    def __init__(self) -> None:
        self._askers: Counter[Question] = Counter()
        self._kept: OrderedDict[tuple[Question, bytes], AnswerSlice] = OrderedDict()
        #: Those that wait for a turn, with what they are given when another's came first.
        self._waiting: dict[tuple[Question, bytes], dict[Deferred[AnswerSlice], _Given]] = {}
        #: Grows when values are removed: what was read before is not sent any more.
        self._generation = 0
        #: Memory of what is kept.
        self.weight = 0

    def __len__(self) -> int:
        return len(self._kept)

    def join(self, question: Question) -> None:
        """One more peer is being answered; `leave` is called when that is over."""
        self._askers[question] += 1

    def leave(self, question: Question) -> None:
        """It has its answer, or is gone; what nobody else asks for is kept no longer."""
        self._askers[question] -= 1
        if not self._askers[question]:
            del self._askers[question]
            for key in [key for key in self._kept if key[0] == question]:
                self._drop(key)

    def clear(self) -> None:
        """Values were removed: nothing that was read before is sent from now on."""
        self._generation += 1
        self._kept.clear()
        self.weight = 0

    async def get(
        self, question: Question, start: bytes, make: Callable[[], AnswerSlice], work: Work
    ) -> AnswerSlice:
        """The slice of an answer that begins at `start`; where it is not kept, `make` makes it."""
        key = (question, start)
        found = self._find(key)
        if found is not None:
            return found
        generation = self._generation
        made = work(lambda: self._kept.get(key) or make())
        waiting = self._waiting.setdefault(key, {})
        given = waiting[made] = []
        try:
            slice_: AnswerSlice = await made
        except CancelledError:
            if not given:
                raise
            return given[0]
        finally:
            waiting.pop(made, None)
            if not waiting:
                self._waiting.pop(key, None)
        if generation == self._generation and self._askers[question] > 1:
            self._keep(key, slice_)
            for other, box in list(waiting.items()):
                box.append(slice_)
                other.cancel()
        return slice_

    def _find(self, key: tuple[Question, bytes]) -> AnswerSlice | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def _keep(self, key: tuple[Question, bytes], slice_: AnswerSlice) -> None:
        if key not in self._kept:
            self._kept[key] = slice_
            self.weight += slice_.weight
        while self.weight > MAX_SHARED_BYTES and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[Question, bytes]) -> None:
        self.weight -= self._kept.pop(key).weight
