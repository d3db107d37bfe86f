"""Following nodes: values in the order they arrive, in batches that can be read again.

A batch is what lies between two offsets (offsets.py): of each feed the numbers above the one and
not above the other. They are settled before anything is read and kept in the query's checkpoint, so
a batch that is read again, by another process or from another snapshot, has the same rows; but for
values that were forgotten in between. The options:

    path               a folder of snapshots, or a pattern of snapshots or of such folders
    url                or a running node: http://HOST:PORT, or unix:DIR/control.sock
    tokenFile          with http: the file with the node's token (api.token in its data folder)
    feed               one feed, its key in hex
    startingOffsets    `earliest` (default): all that is there; `latest`: what comes from now on
    maxRowsPerTrigger  the most rows of a batch (500,000)
    parts              the most tasks of a batch (8)

What a feed forgets is not told of: its rows have gone into earlier batches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from hyperbloom.export.errors import ExportError
from hyperbloom.export.source.arrivals import Arrivals
from hyperbloom.export.source.node_arrivals import NodeArrivals
from hyperbloom.export.source.offsets import (
    STARTS,
    FeedName,
    Mark,
    Marks,
    Start,
    check_goes_on,
    marks_form,
    read_form,
    start_form,
)
from hyperbloom.export.source.snapshot_arrivals import SnapshotArrivals
from hyperbloom.export.tables.ranges import FeedRange, cut_by_seq
from hyperbloom.export.tables.rows import whole_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MAX_ROWS", "StreamReader", "shares"]

MAX_ROWS: Final = 500_000
"""Some seconds of work, and what has to be done again after a crash."""
_PARTS: Final = 8
_PAUSE_SECONDS: Final = 0.2
"""How long a query that has read all is held up before it asks again, which it does at once."""
_OPTIONS: Final = (
    "path", "url", "tokenFile", "feed", "startingOffsets", "maxRowsPerTrigger", "parts",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Part(InputPartition):
    """One task of a batch: what it reads, and where the batch ends for each of these feeds."""

    ranges: tuple[FeedRange, ...]
    ends: Mapping[FeedName, Mark]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans a query's batches and reads their parts; Spark calls every method.

    ExportError for an option that cannot be understood.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        unknown = given.keys() - {name.lower() for name in _OPTIONS}
        if unknown:
            raise ExportError(
                f"there is no option {min(unknown)!r} for following nodes; there are "
                f"{', '.join(_OPTIONS)}"
            )
        self._start = _start_of(given.get("startingoffsets", "earliest"))
        self._most = _number_of(given, "maxRowsPerTrigger", MAX_ROWS)
        self._parts = _number_of(given, "parts", _PARTS)
        self._arrivals = _arrivals_of(given)
        #: With a query that ends where it is today: the numbers to end at.
        self._targets: Mapping[FeedName, int] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        """No more rows in a batch than the option says."""
        return ReadMaxRows(self._most)

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins; the first batch settles what that is."""
        self._arrivals.begin()
        return start_form(self._start)

    def prepareForTriggerAvailableNow(self) -> None:
        """End at what is there now."""
        self._targets = dict(self._arrivals.tops())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; ``start`` itself where nothing has arrived since.

        Raises StreamBroken where a feed does not go on from there.
        """
        stand = read_form(start)
        if stand == "latest":
            tops = self._tops()
            return marks_form(
                {name: self._arrivals.look(name, tops[name]).mark(tops[name]) for name in tops}
            )
        marks = {} if isinstance(stand, str) else stand
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        news = self._news(marks, most)
        if not news:
            time.sleep(_PAUSE_SECONDS)
            return start
        return marks_form({**marks, **news})

    def _tops(self) -> Mapping[FeedName, int]:
        tops, targets = self._arrivals.tops(), self._targets
        if targets is None:
            return tops
        return {name: min(top, targets[name]) for name, top in tops.items() if name in targets}

    def _news(self, marks: Marks, most: int | None) -> dict[FeedName, Mark]:
        """The marks that move, so that there are ``most`` rows in between at most."""
        nexts: dict[FeedName, int] = {}
        backlogs: dict[FeedName, int] = {}
        for name, top_seq in self._tops().items():
            mark = marks.get(name)
            seq = 0 if mark is None else mark.seq
            if top_seq == seq:
                continue
            look = self._arrivals.look(name, seq)
            if mark is not None:
                check_goes_on(name, mark, look)
            if look.following is not None and look.following <= top_seq:
                nexts[name] = look.following
                backlogs[name] = top_seq - look.following + 1
        found: dict[FeedName, Mark] = {}
        for name, share in shares(backlogs, most).items():
            seq = nexts[name] + share - 1
            if share:
                found[name] = self._arrivals.look(name, seq).mark(seq)
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, none for the first one of a query that begins with the latest."""
        begin, ends = read_form(start), read_form(end)
        if begin == "latest" or isinstance(ends, str):
            return []
        marks = {} if isinstance(begin, str) else begin
        ranges = []
        for (node, feed), mark in sorted(ends.items()):
            known = marks.get((node, feed))
            after = 0 if known is None else known.seq
            ranges.append(
                FeedRange(
                    node=node,
                    feed=bytes.fromhex(feed),
                    after_seq=after,
                    last_seq=mark.seq,
                    rows=mark.seq - after,
                )
            )
        return [
            _Part(tuple(task), {name: ends[name] for name in map(_name_of, task)})
            for task in cut_by_seq(ranges, cores=self._parts)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part, in a worker."""
        if not isinstance(partition, _Part):
            return
        for piece in partition.ranges:
            for rows in self._arrivals.read(piece, partition.ends[_name_of(piece)]):
                yield whole_rows(rows, piece.node)

    def stop(self) -> None:
        """The query has ended."""
        self._arrivals.close()


def _name_of(piece: FeedRange) -> FeedName:
    return piece.node, piece.feed.hex()


def shares(backlogs: Mapping[FeedName, int], most: int | None) -> dict[FeedName, int]:
    """How much of each feed goes into a batch of ``most`` rows: small backlogs whole, then alike.

    So one feed with millions to read does not hold up those that get a few now and then.
    """
    if most is None:
        return dict(backlogs)
    found: dict[FeedName, int] = {}
    left = most
    for place, name in enumerate(sorted(backlogs, key=lambda name: (backlogs[name], name))):
        found[name] = min(backlogs[name], math.ceil(left / (len(backlogs) - place)))
        left -= found[name]
    return found


def _start_of(text: str) -> Start:
    for start in STARTS:
        if text == start:
            return start
    raise ExportError(f"startingOffsets is earliest or latest, not {text!r}")


def _number_of(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower(), str(default))
    if not text.isdecimal() or int(text) < 1:
        raise ExportError(f"{name} is a whole number above 0, not {text!r}")
    return int(text)


def _arrivals_of(given: Mapping[str, str]) -> Arrivals:
    feed, path, url = (given.get(name) for name in ("feed", "path", "url"))
    try:
        key = None if feed is None else bytes.fromhex(feed).hex()
    except ValueError as error:
        raise ExportError(f"feed is a key in hex, not {feed!r}") from error
    if path and not url:
        return SnapshotArrivals(path, key)
    if url and not path:
        return NodeArrivals(url, given.get("tokenfile"), key)
    raise ExportError('say what to follow: .option("path", FOLDER) or .option("url", URL)')
