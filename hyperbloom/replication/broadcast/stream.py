"""New values of a feed on their way to its peers: one stream, in which each peer stands somewhere.

The stream is cut into slices. A slice is packed, signed and encoded once, for all peers that stand
where it begins; only encrypting it is each peer's own. It is made of what was just stored, or read
from the arrival log where a peer is further behind.

Peers are told in rounds, a part of them in each turn of the reactor, and a round tells what was
stored until it began. The next one begins as long after it as it has taken: values that come while
many peers are being told go out together, and half of the time is left for everything else. With
few peers a round takes no time, and neither does the wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.reactor_budget import ReactorBudget
from hyperbloom.replication.broadcast.broadcast_tree import ids_of
from hyperbloom.replication.limits import (
    BROADCAST_SECONDS,
    BROADCASTS_PER_TURN,
    LEAST_SLICE_BYTES,
    MAX_JOIN_SECONDS,
    MAX_STREAM_BYTES,
    ROUND_BYTES,
    SLICE_BYTES,
    SLICE_VALUES,
    STREAM_SECONDS,
)
from hyperbloom.store.records import Appended, LogRecord, LogSlice
from hyperbloom.trust import Path
from hyperbloom.wire import Credentials
from hyperbloom.wire.credentials import signed_frames

__all__ = ["FeedStream", "Reader", "StreamSlice"]

log = Logger()

#: Memory of a value in a slice beside its bytes.
_VALUE_BYTES = 64


class Reader(Protocol):
    """A peer, as the stream sees it."""

    @property
    def name(self) -> str: ...

    def tell(self) -> None:
        """There is more in the stream: send it now, or when it is its turn."""
        ...


class Readers(Sized, Iterable[Reader], Protocol):
    """The peers that are there now."""


class StreamSlice:
    """The values that were stored behind the seq `after`, up to `last_seq`, oldest first.

    `origins` has for each value the key of the peer that brought it. `seconds`: of reading it, for
    each of those that waited for that.
    """

    def __init__(
        self,
        after: int,
        last_seq: int,
        values: Sequence[bytes],
        origins: Sequence[bytes],
        encode: Callable[[Sequence[bytes]], list[bytes]],
    ) -> None:
        self.after, self.last_seq = after, last_seq
        self.values, self.origins = values, origins
        self.of = frozenset(origins)
        self.size = size_of(values)
        self.seconds = 0.0
        self._encode = encode
        self._frames: list[bytes] | None = None
        self._ids: list[bytes] | None = None

    @property
    def ids(self) -> list[bytes]:
        """The ids of the values, for peers that are told these; made when asked for first."""
        if self._ids is None:
            self._ids = ids_of(self.values)
        return self._ids

    @property
    def frames(self) -> list[bytes]:
        """The values as signed Data in the clear; made when they are asked for first."""
        if self._frames is None:
            self._frames = self._encode(self.values)
        return self._frames


#: (behind this seq, most values, most bytes) → what the arrival log holds there, and the seconds of
#: work that reading took.
ReadLog = Callable[[int, int, int], Deferred[tuple[LogSlice, float]]]


def size_of(values: Sequence[bytes]) -> int:
    """The memory of values in a slice."""
    return sum(map(len, values)) + _VALUE_BYTES * len(values)


class FeedStream:
    """The stream of one feed, which begins behind the seq `top`.

    `readers` are the peers that are there, `credentials` gives what this node signs with (None
    where it may not write: then nothing is told), `read_log` a piece of the arrival log,
    `most_bytes` what a slice may have.
    """

    def __init__(
        self,
        top: int,
        readers: Readers,
        credentials: Callable[[], Credentials | None],
        read_log: ReadLog,
        clock: IReactorTime,
        *,
        most_bytes: Callable[[], int] = lambda: SLICE_BYTES,
    ) -> None:
        #: What peers are told up to, by seq.
        self.top = top
        self._readers = readers
        self._credentials = credentials
        self._read_log = read_log
        self._clock = clock
        self._most_bytes = most_bytes
        self._turns = ReactorBudget(clock, most=BROADCASTS_PER_TURN, seconds=BROADCAST_SECONDS)
        #: What was stored since the last round began, and the bytes of it; None: too many.
        self._news: list[tuple[Appended, bytes]] | None = []
        self._news_bytes = 0
        self._stored = top
        #: Slices in the order of `after`, which is kept beside them.
        self._slices: list[StreamSlice] = []
        self._starts: list[int] = []
        self._kept_bytes = 0
        self._reads: dict[int, list[Deferred[StreamSlice]]] = {}
        #: The round under way, when it began, when the last one ended and how long that took.
        self._round: deque[Reader] = deque()
        self._began = self._ended = self._took = 0.0
        self._call: IDelayedCall | None = None
        self._drop_call: IDelayedCall | None = None

    def offer(self, appended: Appended, origin: bytes) -> None:
        """Values are on disk: the next round tells them to everyone."""
        self._stored = max(self._stored, appended.top_seq)
        if not self._readers:
            self.top, self._news, self._news_bytes = self._stored, [], 0
            return
        if self._news is not None:
            self._news.append((appended, origin))
            self._news_bytes += size_of(appended.values)
            if self._news_bytes > MAX_STREAM_BYTES:
                self._news = None
        self._plan_round()

    def forget(self) -> None:
        """Values were removed from disk: what is told from now on is what the log still holds."""
        self._drop_slices()
        if self._news:
            self._news = None

    def turn(self, who: Path) -> Deferred[None]:
        """Fires when a peer, by its path, may be told more in a turn of the reactor."""
        return self._turns.turn(who)

    # Slices

    def slice_after(self, seq: int) -> StreamSlice | None:
        """The slice behind a seq if it is at hand; None: it has to be read (`read_after`)."""
        at = bisect_right(self._starts, seq) - 1
        return self._slices[at] if at >= 0 and self._starts[at] == seq else None

    def read_after(self, seq: int) -> Deferred[StreamSlice]:
        """The slice behind a seq, from the log; read once for all that wait for it."""
        result: Deferred[StreamSlice] = Deferred()
        waiting = self._reads.get(seq)
        if waiting is not None:
            waiting.append(result)
            return result
        self._reads[seq] = [result]
        top = self.top

        def read(outcome: tuple[LogSlice, float]) -> None:
            piece, seconds = outcome
            made = self._of_log(seq, top, piece)
            self._keep(made)
            waiting = self._reads.pop(seq)
            made.seconds = seconds / len(waiting)
            for one in waiting:
                one.callback(made)

        def failed(failure: Failure) -> None:
            for one in self._reads.pop(seq, []):
                one.errback(failure)

        self._read_log(seq, SLICE_VALUES, self._slice_bytes).addCallback(read).addErrback(failed)
        return result

    @property
    def _slice_bytes(self) -> int:
        """What a slice may have: all peers of a round may have one each in their buffers."""
        each = ROUND_BYTES // max(1, len(self._readers))
        return max(LEAST_SLICE_BYTES, min(self._most_bytes(), each))

    def _of_log(self, seq: int, top: int, piece: LogSlice) -> StreamSlice:
        """A slice of what was read; it ends where the round does, for all to go on from there."""
        records: Sequence[LogRecord] = [one for one in piece.records if one.seq <= top]
        # What arrived behind the last record has been forgotten meanwhile.
        is_end = not piece.records or piece.last_seq > top
        return StreamSlice(
            seq,
            max(seq, top if is_end else piece.last_seq),
            [one.value for one in records],
            [one.origin for one in records],
            self._encoded,
        )

    def _encoded(self, values: Sequence[bytes]) -> list[bytes]:
        credentials = self._credentials()
        return [] if credentials is None else signed_frames(credentials, values)

    def _keep(self, made: StreamSlice) -> None:
        at = bisect_right(self._starts, made.after)
        if at and self._starts[at - 1] == made.after:
            return
        self._starts.insert(at, made.after)
        self._slices.insert(at, made)
        self._kept_bytes += made.size
        while len(self._slices) > 1 and self._kept_bytes > MAX_STREAM_BYTES:
            self._kept_bytes -= self._slices[0].size
            del self._starts[0], self._slices[0]
        if self._drop_call is None or not self._drop_call.active():
            self._drop_call = self._clock.callLater(STREAM_SECONDS, self._drop_old)

    def _drop_old(self) -> None:
        """Keep what was new within the last STREAM_SECONDS or so, for peers that were busy."""
        if self._clock.seconds() - self._ended < STREAM_SECONDS or self._round:
            self._drop_call = self._clock.callLater(STREAM_SECONDS, self._drop_old)
        else:
            self._drop_slices()

    def _drop_slices(self) -> None:
        self._slices.clear()
        self._starts.clear()
        self._kept_bytes = 0

    # Rounds

    def _plan_round(self) -> None:
        if self._round or (self._call is not None and self._call.active()):
            return
        due = self._ended + min(self._took, MAX_JOIN_SECONDS) - self._clock.seconds()
        self._call = self._clock.callLater(max(0.0, due), self._begin_round)

    def _begin_round(self) -> None:
        self._cut_news()
        self.top = self._stored
        self._round = deque(self._readers)
        self._began = self._clock.seconds()
        self._go_on()

    def _go_on(self) -> None:
        while self._round:
            if not self._turns.take((self,)):
                self._turns.wait((self,), self._go_on)
                return
            reader = self._round.popleft()
            try:
                reader.tell()
            except Exception:
                log.failure("{peer} was not told of new values", peer=reader.name)
        self._ended = self._clock.seconds()
        self._took = self._ended - self._began
        if self._stored > self.top:
            self._plan_round()

    def _cut_news(self) -> None:
        """Make slices of what was stored since the last round began."""
        news, self._news, self._news_bytes = self._news, [], 0
        values: list[bytes] = []
        origins: list[bytes] = []
        size, after, last = 0, self.top, self.top
        for appended, origin in news or ():
            more = sum(map(len, appended.values))
            count = len(values) + len(appended.values)
            is_full = size + more > self._slice_bytes or count > SLICE_VALUES
            if is_full or appended.first_seq != last + 1:
                self._keep_news(after, last, values, origins)
                values, origins, size = [], [], 0
                after = appended.first_seq - 1
            values += appended.values
            origins += [origin] * len(appended.values)
            size, last = size + more, appended.top_seq
        self._keep_news(after, last, values, origins)

    def _keep_news(self, after: int, last: int, values: list[bytes], origins: list[bytes]) -> None:
        """One slice of them; what is too much for one is read from the log, piece by piece."""
        is_small = len(values) <= SLICE_VALUES and sum(map(len, values)) <= self._slice_bytes
        if values and is_small:
            self._keep(StreamSlice(after, last, values, origins, self._encoded))
