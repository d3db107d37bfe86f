"""Where a streaming query stands: an arrival number for each feed of each node, as JSON.

Spark keeps it in the query's checkpoint, before a batch is read and for as long as the query lives,
so what is written here is read by later releases:

    {"version": 1, "feeds": {NODE: {FEED: {"seq": 7, "life": 1, "forgotten": 0, "anchor": "0a…"}}}}

Node and feed are public keys in hex. A query that has not begun stands at `{"version": 1, "start":
"earliest"}`, or "latest". What "latest" is gets settled by the end of the first batch, which is
empty: Spark asks for the begin of a batch again after a crash, and the newest is another one then.

Numbers alone would not tell that a feed was left and joined anew, or that a store was put back to
an older state and has given the same numbers to other values. `life` tells the one, `anchor` the
other: a hash of the record with this number, empty where there is none (it was forgotten). It is
looked for again before the next batch. `forgotten` counts what the feed has ever forgotten; only
where that has changed may the record be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from hyperbloom.export.errors import ExportError, StreamBroken
from hyperbloom.keys import keyed_hash
from hyperbloom.store.lmdb.layout import LOG_HEAD

__all__ = [
    "STARTS",
    "FeedName",
    "Look",
    "Mark",
    "Marks",
    "Start",
    "anchor_of",
    "check_goes_on",
    "marks_form",
    "read_form",
    "start_form",
]

Start = Literal["earliest", "latest"]
STARTS: Final[tuple[Start, ...]] = get_args(Start)
_VERSION: Final = 1
_ANCHOR_BYTES: Final = 8

FeedName: TypeAlias = tuple[str, str]
"""A node and one of its feeds, both public keys in hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A feed has been read up to the arrival number ``seq``; what the others say is told above."""

    seq: int
    life: int
    forgotten: int
    anchor: str


Marks: TypeAlias = Mapping[FeedName, Mark]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a feed's log says at one number: its ``anchor``, and which number comes behind it.

    ``following`` is None where nothing does.
    """

    top_seq: int
    life: int
    forgotten: int
    anchor: str
    following: int | None

    def mark(self, seq: int) -> Mark:
        """The mark at this number, which the look was for."""
        return Mark(seq=seq, life=self.life, forgotten=self.forgotten, anchor=self.anchor)


def anchor_of(seq: int, received_at: int, origin: bytes, value: bytes) -> str:
    """What tells a record from any other with its number; ``received_at`` in µs."""
    head = LOG_HEAD.pack(received_at, origin)
    return keyed_hash(seq.to_bytes(8, "big"), head, value)[:_ANCHOR_BYTES].hex()


def check_goes_on(name: FeedName, mark: Mark, look: Look) -> None:
    """Raise StreamBroken unless a log, looked at where the mark is, goes on from there."""
    if look.life != mark.life:
        raise _broken(name, mark, "it was left and joined anew, and its numbers have begun anew")
    is_gone = look.anchor == "" and look.forgotten != mark.forgotten
    if look.top_seq < mark.seq or (mark.anchor not in ("", look.anchor) and not is_gone):
        raise _broken(
            name, mark, "the node's store was put back to an older state, and has gone on otherwise"
        )


def _broken(name: FeedName, mark: Mark, why: str) -> StreamBroken:
    node, feed = name
    return StreamBroken(
        f"feed {feed} of node {node} does not go on from arrival number {mark.seq}: {why}; start "
        "the query with a new checkpoint and a new table"
    )


def start_form(start: Start) -> dict[str, Any]:
    """Where a query stands that has not begun."""
    return {"version": _VERSION, "start": start}


def marks_form(marks: Marks) -> dict[str, Any]:
    """Marks as JSON, always in the same order: Spark compares the text."""
    feeds: dict[str, dict[str, Any]] = {}
    for (node, feed), mark in sorted(marks.items()):
        feeds.setdefault(node, {})[feed] = asdict(mark)
    return {"version": _VERSION, "feeds": feeds}


def read_form(form: Mapping[str, Any]) -> Start | dict[FeedName, Mark]:
    """The inverse of both; ExportError for what no release up to this one has written."""
    try:
        if form["version"] == _VERSION and form.get("start", "earliest") in STARTS:
            if "start" in form:
                return "latest" if form["start"] == "latest" else "earliest"
            return {
                (node, feed): Mark(**mark)
                for node, feeds in form["feeds"].items()
                for feed, mark in feeds.items()
            }
    except (AttributeError, KeyError, TypeError):
        pass
    raise ExportError(
        "the checkpoint is not of this data source, or of a newer release of it; use that release, "
        "or start the query with a new checkpoint"
    )
