"""Replies: what a peer's Sync or Request is answered with, slice by slice.

A reply walks the asked range in byte order. Of each slice it keeps what the peer's filter does
not know, and hands the values over in portions of about one frame, so that a reply of any length
costs the memory of a slice. Only values that were here when the question came are sent
(`was_here`): later ones go to the peer by broadcast, and values that the peer itself is sending
meanwhile are not thrown back at it.

The work is counted (`tested`, in values of 64 bytes) so that the caller can slow a peer that asks
too much. A question costs something even if nothing answers it, its filter costs by its length, and
a value as many times as much as hash functions were needed to know whether it is in the filter.

Who asks for everything in a range is answered by slices that others who ask the same are sent, too
(`shared_slices`); each is charged for them as if they were made for it alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from hyperbloom.bloom import BloomFilter
from hyperbloom.replication.limits import ID_VALUES, IDS_A_STEP
from hyperbloom.replication.reading.range_digests import QUESTION_VALUES, VALUE_BYTES
from hyperbloom.replication.reading.ranges import ValueSlice
from hyperbloom.replication.reading.shared_slices import (
    AnswerSlice,
    Question,
    SharedSlices,
    SignedValues,
    Work,
)
from hyperbloom.replication.reading.slices import FeedSlices
from hyperbloom.replication.settings import KeyRange
from hyperbloom.sketches import Ids
from hyperbloom.wire import Request, Sync
from hyperbloom.wire.limits import SEND_FRAME_BYTES

__all__ = [
    "Alone",
    "Answer",
    "Reply",
    "SharedReply",
    "ValuesById",
    "WasHere",
    "asks_for_everything",
    "reply_to_request",
    "reply_to_sync",
    "shared_reply",
]

#: (start, end, most values; 0: as many as a slice holds) → the next values in byte order.
ReadUpTo = Callable[[bytes, bytes | None, int], ValueSlice]

#: Values → those of them that were here when the question came.
WasHere = Callable[[list[bytes]], list[bytes]]

#: Values → as they are sent. It is called in a thread.
Sign = Callable[[Sequence[bytes]], SignedValues]

#: A portion is handed over once it is about this many bytes.
PORTION_BYTES = SEND_FRAME_BYTES

#: Hash functions that cost as much as reading one value does, or testing it against a plain filter.
HASHES_OF_A_VALUE = 30

#: Bytes of a filter whose unpacking costs as much.
FILTER_BYTES_OF_A_VALUE = 64

#: Memory of a question beside its filter.
_WEIGHT = 1_024


class Answer(Protocol):
    """Values that a peer is sent portion by portion."""

    @property
    def weight(self) -> int:
        """Bytes that it keeps in memory until it is done."""
        ...

    @property
    def about(self) -> KeyRange | None:
        """The range of a Sync; once done, unless it `was_cut`, the peer lacks nothing there."""
        ...

    @property
    def was_cut(self) -> bool:
        """Whether it ended at its limit."""
        ...

    @property
    def done(self) -> bool: ...
    @property
    def is_unfolded(self) -> bool: ...
    @property
    def is_paced(self) -> bool:
        """Whether its work counts as that of a small message (`message_pace`)."""
        ...

    def fold(self) -> None: ...
    async def next_signed(self, work: Work, sign: Sign) -> SignedValues: ...
    def take_tested(self) -> int: ...
    def end(self) -> None: ...


class Alone(ABC):
    """What only one peer is sent: its values are read and signed in one step of a thread."""

    is_paced = False

    @abstractmethod
    def next_portion(self) -> list[bytes]:
        """The next values to send (reads the store: run it in a thread)."""

    @abstractmethod
    def fold(self) -> None:
        """Drop what can be made again."""

    async def next_signed(self, work: Work, sign: Sign) -> SignedValues:
        """The next values to send; there may be none before it is done."""
        signed: SignedValues = await work(lambda: sign(self.next_portion()))
        return signed

    def end(self) -> None:
        """Nothing more is asked of it."""
        self.fold()


class Reply(Alone):
    """An answer under way. `bloom` None answers a Request: everything in the range.

    The filter is unpacked, at eight times its size, only when the answer's turn has come.
    """

    def __init__(
        self,
        *,
        bloom: Callable[[], BloomFilter] | None,
        start: bytes,
        end: bytes | None,
        limit: int | None,
        read: ReadUpTo,
        was_here: WasHere,
        filter_bytes: int = 0,
    ) -> None:
        self._was_here = was_here
        #: What it keeps in memory until it is done.
        self.weight = filter_bytes + _WEIGHT
        self._make_bloom = bloom
        self._bloom: BloomFilter | None = None
        self._position: bytes | None = start
        self._end = end
        self._left = limit
        self._read = read
        self.tested = QUESTION_VALUES + filter_bytes // FILTER_BYTES_OF_A_VALUE
        #: The range of a Sync; when this is done the peer has what it lacked there, unless the
        #: reply `was_cut` at its limit.
        self.about: tuple[bytes, bytes | None] | None = None
        self.was_cut = False
        if end is not None and end <= start:
            self._position = None

    @property
    def done(self) -> bool:
        """Whether nothing is left to be sent."""
        return self._position is None

    def take_tested(self) -> int:
        """The work since the last time this was asked."""
        tested, self.tested = self.tested, 0
        return tested

    @property
    def is_unfolded(self) -> bool:
        """Whether its filter is unpacked, which takes a byte for each bit."""
        return self._bloom is not None

    def fold(self) -> None:
        """Drop the unpacked filter until it is needed again."""
        self._bloom = None

    def next_portion(self, *, most_slices: int = 4) -> list[bytes]:
        """The next values to send, in byte order (reads the store: run it in a thread).

        Looks at no more than `most_slices` slices, so it may come back empty before `done`.
        """
        if self._make_bloom is not None and self._bloom is None:
            self._bloom = self._make_bloom()
        portion: list[bytes] = []
        weight = 0
        for _ in range(most_slices):
            if self._position is None or weight >= PORTION_BYTES:
                break
            values = self._next_missing(self._position)
            portion += values
            weight += sum(map(len, values))
        return portion

    def _next_missing(self, start: bytes) -> list[bytes]:
        most = self._left if self._make_bloom is None and self._left is not None else 0
        piece = self._read(start, self._end, most)
        self._position = piece.next_start
        values = piece.values
        self.tested += max(len(values), sum(map(len, values)) // VALUE_BYTES)
        if self._bloom is not None:
            values = [values[index] for index in self._bloom.missing(values)]
            self.tested += self._bloom.take_hashed() // HASHES_OF_A_VALUE
        values = self._was_here(values)
        if self._left is not None:
            values = values[: self._left]
            self._left -= len(values)
            if self._left <= 0:
                self._position = None
                self.was_cut = True
        return values


class ValuesById(Alone):
    """The values of these ids, as far as they are here, in the order of the ids."""

    about: KeyRange | None = None
    was_cut = False
    is_unfolded = False

    def __init__(
        self, ids: Ids, values_of: Callable[[Ids], list[bytes]], *, is_paced: bool = False
    ) -> None:
        self.is_paced = is_paced
        self._ids = ids
        self._values_of = values_of
        self._at = 0
        self.weight = ids.nbytes + _WEIGHT
        self.tested = QUESTION_VALUES

    @property
    def done(self) -> bool:
        """Whether nothing is left to be sent."""
        return self._at >= len(self._ids)

    def fold(self) -> None:
        """There is nothing to drop."""

    def take_tested(self) -> int:
        """The work since the last time this was asked."""
        tested, self.tested = self.tested, 0
        return tested

    def next_portion(self, *, most_steps: int = 8) -> list[bytes]:
        """The next values (reads the store: run it in a thread)."""
        portion: list[bytes] = []
        weight = 0
        for _ in range(most_steps):
            if self.done or weight >= PORTION_BYTES:
                break
            ids = self._ids[self._at : self._at + IDS_A_STEP]
            self._at += len(ids)
            values = self._values_of(ids)
            size = sum(map(len, values))
            self.tested += len(ids) * ID_VALUES + size // VALUE_BYTES
            portion += values
            weight += size
        return portion


class SharedReply:
    """Everything in a range, as it stood when it was asked for: others may be sent the same.

    `about` and `filter_bytes` are those of a Sync.
    """

    was_cut = is_unfolded = is_paced = False

    def __init__(
        self,
        question: Question,
        slices: FeedSlices,
        shared: SharedSlices,
        *,
        about: KeyRange | None = None,
        filter_bytes: int = 0,
    ) -> None:
        self.about = about
        self.weight = _WEIGHT
        self.tested = QUESTION_VALUES + filter_bytes // FILTER_BYTES_OF_A_VALUE
        self._question = question
        self._slices = slices
        self._shared = shared
        self._was_here = slices.was_here(question.asked_at)
        self._joined = False
        is_empty = question.end is not None and question.end <= question.start
        self._position = None if is_empty else question.start

    @property
    def done(self) -> bool:
        """Whether nothing is left to be sent."""
        return self._position is None

    def fold(self) -> None:
        """There is nothing to drop."""

    def take_tested(self) -> int:
        """The work since the last time this was asked."""
        tested, self.tested = self.tested, 0
        return tested

    async def next_signed(self, work: Work, sign: Sign) -> SignedValues:
        """The next values to send; there may be none before it is done."""
        start = self._position
        if start is None:
            return SignedValues([], 0, 0)
        if not self._joined:
            self._joined = True
            self._shared.join(self._question)
        made = await self._shared.get(self._question, start, lambda: self._make(start, sign), work)
        self._position = made.next_start
        self.tested += made.tested
        return made.signed

    def _make(self, start: bytes, sign: Sign) -> AnswerSlice:
        piece = self._slices.portion(start, self._question.end)
        return AnswerSlice(
            signed=sign(self._was_here(piece.values)),
            next_start=piece.next_start,
            tested=max(len(piece.values), sum(map(len, piece.values)) // VALUE_BYTES),
        )

    def end(self) -> None:
        """Nothing more is asked of it."""
        self._position = None
        if self._joined:
            self._joined = False
            self._shared.leave(self._question)


def asks_for_everything(question: Sync | Request) -> bool:
    """Whether it asks for all values of a range, without a limit and with nothing in its filter."""
    if question.limit is not None:
        return False
    return isinstance(question, Request) or not question.filter.strip(b"\0")


def shared_reply(
    question: Sync | Request, asked_at: int, signer: bytes, slices: FeedSlices, shared: SharedSlices
) -> SharedReply:
    """The answer to a question that `asks_for_everything`; for the rest see `SharedReply`."""
    if isinstance(question, Request):
        asked = Question(question.start, question.end, asked_at, signer)
        return SharedReply(asked, slices, shared)
    bounds = (b"", None) if question.range is None else (question.range.start, question.range.end)
    asked = Question(*bounds, asked_at, signer)
    return SharedReply(asked, slices, shared, about=bounds, filter_bytes=len(question.filter))


def reply_to_sync(sync: Sync, read: ReadUpTo, was_here: WasHere) -> Reply:
    """The answer to a Sync, whose parameters the session has checked."""

    def bloom() -> BloomFilter:
        return BloomFilter.from_bytes(sync.filter, size=sync.size, n=sync.n, seed=sync.seed)

    start, end = (b"", None) if sync.range is None else (sync.range.start, sync.range.end)
    reply = Reply(
        bloom=bloom,
        start=start,
        end=end,
        limit=sync.limit,
        read=read,
        was_here=was_here,
        filter_bytes=len(sync.filter),
    )
    reply.about = (start, end)
    return reply


def reply_to_request(request: Request, read: ReadUpTo, was_here: WasHere) -> Reply:
    """The answer to a Request: the values of its range, smallest first."""
    return Reply(
        bloom=None,
        start=request.start,
        end=request.end,
        limit=request.limit,
        read=read,
        was_here=was_here,
    )
