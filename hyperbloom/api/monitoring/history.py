"""What the node was like lately: figures of each minute, and of each ten minutes of a week.

They are numbers in rows as long as the time they cover, so their memory is bounded: 8 bytes a
figure, 77 KB for the node and 33 KB for a feed once a week is full. One look a minute costs what a
scrape of the metrics costs, some milliseconds. The figures survive a restart: they are given to
`save` once an hour and at the end, and a node that was killed has lost an hour at the most.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from hyperbloom.api.limits import HISTORY_FEEDS, HISTORY_MINUTES, HISTORY_TENS

if TYPE_CHECKING:
    from hyperbloom.api.monitoring.reactor_lag import LagMeter
    from hyperbloom.api.schemas.answers import HistoryForm, HistorySpan
    from hyperbloom.api.served import ServedNode

__all__ = ["FEED_FIGURES", "MINUTE", "NODE_FIGURES", "History"]

MINUTE: Final = 60.0
#: Minutes of a row of the week.
_TEN: Final = 10
#: How many minutes pass between two calls of `save`.
_SAVE_MINUTES: Final = 60
#: What comes of another version is not read.
_VERSION: Final = 1

NODE_FIGURES: Final = (
    "peers",
    "received_bytes",
    "sent_bytes",
    "lag_seconds",
    "used_bytes",
    "disk_free_bytes",
)
FEED_FIGURES: Final = ("values", "arrived", "peers")
#: What is added up over ten minutes, and what is as bad as its worst; else the last one counts.
_SUMS: Final = ("received_bytes", "sent_bytes", "arrived")
_WORST: Final = ("lag_seconds",)

#: The name of a figure: the feed's key (b"" for the node's own) and what it is.
_Name = tuple[bytes, str]
_Sample = dict[_Name, float]


class _Rows:
    """The newest `most` samples; what a sample does not have is NaN."""

    def __init__(self, *, step: float, most: int) -> None:
        self.step, self._most = step, most
        self.at = array("d")
        self.columns: dict[_Name, array[float]] = {}

    def add(self, at: float, sample: Mapping[_Name, float]) -> None:
        """A sample at a moment, in seconds since 1970; rows from after it go: a clock went back."""
        while self.at and self.at[-1] >= at:
            for column in (self.at, *self.columns.values()):
                column.pop()
        feeds = {feed for feed, _ in sample}
        self.columns = {name: column for name, column in self.columns.items() if name[0] in feeds}
        for name in sample:
            if name not in self.columns:
                self.columns[name] = array("d", [math.nan]) * len(self.at)
        for name, column in self.columns.items():
            column.append(sample.get(name, math.nan))
        self.at.append(at)
        for column in (self.at, *self.columns.values()):
            del column[: -self._most]

    def figures(self, feed: bytes, what: str) -> list[float | None]:
        """A figure of all samples; None where it is not known."""
        column = self.columns.get((feed, what))
        if column is None:
            return [None] * len(self.at)
        return [None if math.isnan(one) else one for one in column]

    def head(self) -> list[Any]:
        """What `dump` holds, for `load`."""
        return [len(self.at), [[feed.hex(), what] for feed, what in self.columns]]

    def dump(self) -> bytes:
        """The figures as they lie in memory."""
        return b"".join(column.tobytes() for column in (self.at, *self.columns.values()))

    def load(self, head: list[Any], data: memoryview) -> memoryview:
        """Takes the figures of `dump` and gives the rest; raises ValueError for anything else."""
        length, names = head
        size = length * self.at.itemsize
        columns = []
        for _ in range(1 + len(names)):
            column = array("d", bytes(data[:size]))
            if len(column) != length:
                raise ValueError("it is cut off")
            columns.append(column)
            data = data[size:]
        self.at = columns[0]
        self.columns = {
            (bytes.fromhex(feed), what): column
            for (feed, what), column in zip(names, columns[1:], strict=True)
        }
        return data


def _merged(minutes: Iterable[_Sample]) -> _Sample:
    """Minutes as one sample."""
    merged: _Sample = {}
    for sample in minutes:
        for name, found in sample.items():
            before = merged.get(name, math.nan)
            merged[name] = _joined(name[1], before, found)
    return merged


def _joined(what: str, before: float, found: float) -> float:
    """A figure of two moments; NaN where neither is known."""
    if math.isnan(before) or math.isnan(found):
        return before if math.isnan(found) else found
    if what in _SUMS:
        return before + found
    return max(before, found) if what in _WORST else found


class History:
    """Looks at a node once a minute, from `start` to `stop`.

    state: what `save` was given last, b"" at first; what cannot be read is left. Counts begin anew
    with the node, so the first look only begins them.
    """

    def __init__(
        self,
        node: ServedNode,
        lag: LagMeter,
        *,
        clock: Any,
        state: bytes = b"",
        save: Callable[[bytes], object] = lambda _: None,
    ) -> None:
        self._node, self._lag, self._clock, self._save = node, lag, clock, save
        self._rows: dict[HistorySpan, _Rows] = {
            "hours": _Rows(step=MINUTE, most=HISTORY_MINUTES),
            "week": _Rows(step=_TEN * MINUTE, most=HISTORY_TENS),
        }
        #: Samples that are not in a row of the week yet.
        self._waiting: list[_Sample] = []
        self._before: _Sample = {}
        self._minutes = 0
        self._call: Any = None
        if state:
            self._load(state)

    def start(self) -> None:
        """Begin to look."""
        self.look()

    def stop(self) -> None:
        """Look no more, and save."""
        if self._call is not None and self._call.active():
            self._call.cancel()
            self._save(self.dump())

    def _on_minute(self) -> None:
        self.look()
        self._minutes += 1
        if self._minutes % _SAVE_MINUTES == 0:
            self._save(self.dump())

    def look(self) -> None:
        """Keep the figures of this moment, and look again in a minute."""
        self._call = self._clock.callLater(MINUTE, self._on_minute)
        at, sample = self._node.context.now(), self._sample()
        self._rows["hours"].add(at, sample)
        self._waiting.append(sample)
        if len(self._waiting) >= _TEN or not self._rows["week"].at:
            self._rows["week"].add(at, _merged(self._waiting))
            self._waiting = []

    def _sample(self) -> _Sample:
        traffic = self._node.traffic()
        counts: _Sample = {
            (b"", "received_bytes"): traffic.bytes_in,
            (b"", "sent_bytes"): traffic.bytes_out,
        }
        sample: _Sample = {
            (b"", "peers"): traffic.secure,
            (b"", "lag_seconds"): self._lag.take_worst(),
            (b"", "used_bytes"): traffic.store.used_bytes - traffic.store.free_bytes,
            (b"", "disk_free_bytes"): math.nan if traffic.disk is None else traffic.disk.free_bytes,
        }
        for feed in traffic.feeds[:HISTORY_FEEDS]:
            sample[feed.key, "values"] = feed.count
            sample[feed.key, "peers"] = feed.peers
            counts[feed.key, "arrived"] = self._node.feeds[feed.key].values.top_seq
        for name, count in counts.items():
            before = self._before.get(name)
            sample[name] = math.nan if before is None else max(0.0, count - before)
        self._before = counts
        return sample

    # What is asked

    def arrived(self) -> dict[bytes, int]:
        """How many values came to each feed within the last hour, as far as they were counted."""
        rows = self._rows["hours"]
        return {
            feed: int(sum(one for one in column[-_SAVE_MINUTES:] if not math.isnan(one)))
            for (feed, what), column in rows.columns.items()
            if what == "arrived"
        }

    def form(self, span: HistorySpan, feed: bytes | None) -> HistoryForm:
        """The figures of a span, the oldest first; of a feed, too, if it is named by its key."""
        rows = self._rows[span]
        shown = {what: rows.figures(b"", what) for what in NODE_FIGURES}
        of_feed = None
        if feed is not None:
            of_feed = {what: rows.figures(feed, what) for what in FEED_FIGURES}
        return {"step": rows.step, "at": rows.at.tolist(), **shown, "feed": of_feed}  # type: ignore[typeddict-item]

    # What is kept

    def dump(self) -> bytes:
        """Everything, for `state`: a line of JSON, and the rows behind it."""
        head = {span: rows.head() for span, rows in self._rows.items()}
        line = json.dumps({"version": _VERSION, "order": sys.byteorder, "rows": head})
        parts = [line.encode("ascii"), b"\n", *(rows.dump() for rows in self._rows.values())]
        return zlib.compress(b"".join(parts), 1)

    def _load(self, state: bytes) -> None:
        try:
            line, _, data = zlib.decompress(state).partition(b"\n")
            head = json.loads(line)
            if (head["version"], head["order"]) != (_VERSION, sys.byteorder):
                return
            rest = memoryview(data)
            for span, rows in self._rows.items():
                rest = rows.load(head["rows"][span], rest)
        except (ValueError, KeyError, TypeError, zlib.error):
            for rows in self._rows.values():
                rows.at, rows.columns = array("d"), {}
