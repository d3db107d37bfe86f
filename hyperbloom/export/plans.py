"""What of a snapshot goes into the table `values`.

For each feed of each node the table remembers in its own log up to which number it holds the feed
(tables/delta.py). A later snapshot that goes on from there brings only the rows above. One that
does not (the feed was dropped and joined anew, the store was put back to an older state) replaces
all of the node's rows, in one commit. A snapshot no newer than the last one brings nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hyperbloom.export.engines.tasks import Answers
from hyperbloom.export.errors import SnapshotUnusable
from hyperbloom.export.snapshots import FeedSource, Snapshot, anchor_at
from hyperbloom.export.tables.delta import FeedMark, OpenTable
from hyperbloom.export.tables.ranges import SeqRange

__all__ = ["Mode", "NodePlan", "check_rows", "numbers_of", "plan_of"]

Mode = Literal["incremental", "full"]


@dataclass(slots=True)
class NodePlan:
    """What of one snapshot goes into `values`: ranges, the marks to set, and if rows give way."""

    snapshot: Snapshot
    ranges: list[SeqRange] = field(default_factory=list)
    marks: dict[bytes, FeedMark] = field(default_factory=dict)
    replaces: bool = False


def plan_of(snapshot: Snapshot, table: OpenTable, mode: Mode) -> NodePlan | None:
    """What a snapshot brings to the table; None if it is no newer than what is there."""
    last_taken = table.taken_at(snapshot.node)
    marks = {feed.key: table.mark(snapshot.node, feed.key) for feed in snapshot.feeds}
    if mode != "full" and last_taken is not None and snapshot.taken_at <= last_taken:
        return None
    plan = NodePlan(snapshot)
    plan.replaces = mode == "full" or not all(
        _goes_on(snapshot, feed, marks[feed.key]) for feed in snapshot.feeds
    )
    for feed in snapshot.feeds:
        known = None if plan.replaces else marks[feed.key]
        after, rows = (known.top_seq, known.rows) if known else (0, 0)
        plan.marks[feed.key] = FeedMark(
            top_seq=feed.top_seq,
            rows=feed.count,
            generation=feed.generation,
            anchor=anchor_at(snapshot.path, feed.key, feed.top_seq),
        )
        plan.ranges.append(
            SeqRange(
                path=snapshot.path,
                node=snapshot.node,
                feed=feed.key,
                after_seq=after,
                last_seq=feed.top_seq,
                rows=feed.count - rows,
                size=math.ceil(feed.size * (feed.count - rows) / max(1, feed.count)),
            )
        )
    plan.ranges = [piece for piece in plan.ranges if piece.last_seq > piece.after_seq]
    return plan


def _goes_on(snapshot: Snapshot, feed: FeedSource, known: FeedMark | None) -> bool:
    """Whether the feed holds what the table has of it, and more at most."""
    if known is None:
        return True
    return (
        feed.generation == known.generation
        and feed.top_seq >= known.top_seq
        and feed.count >= known.rows
        and anchor_at(snapshot.path, feed.key, known.top_seq) == known.anchor
    )


def check_rows(ranges: Sequence[SeqRange], answers: Answers) -> None:
    """Raise SnapshotUnusable unless what was written is what the snapshots count."""
    for piece in ranges:
        written = answers.rows.get((piece.node, piece.feed), 0)
        if written != piece.rows:
            raise SnapshotUnusable(
                f"the snapshot {piece.path} has {written} values of feed {piece.feed.hex()} where "
                f"it counts {piece.rows}; nothing was committed, use another snapshot"
            )


def numbers_of(plans: Sequence[NodePlan]) -> dict[str, int]:
    """What the table's log is to remember of these plans, by name."""
    numbers = {}
    for plan in plans:
        node = plan.snapshot.node
        numbers[f"{node}.taken_at"] = plan.snapshot.taken_at
        for feed, mark in plan.marks.items():
            numbers |= {
                f"{node}.{feed.hex()}.top_seq": mark.top_seq,
                f"{node}.{feed.hex()}.rows": mark.rows,
                f"{node}.{feed.hex()}.generation": mark.generation,
                f"{node}.{feed.hex()}.anchor": mark.anchor,
            }
    return numbers
