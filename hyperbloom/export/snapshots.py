"""Snapshots as an export takes them: found, looked at, and put in order.

A snapshot is named by its node and the moment it was taken. Of several of one node the newest is
exported: it holds what the older ones hold.
"""

from __future__ import annotations

import glob
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hyperbloom.export.errors import SnapshotUnusable
from hyperbloom.keys import keyed_hash
from hyperbloom.store import NoSuchFeed, Store, StoreError
from hyperbloom.store.backup.snapshot import load_snapshot_info, read_figures
from hyperbloom.store.lmdb.layout import LOG_HEAD
from hyperbloom.store.records import LogRecord
from hyperbloom.store.values.gone import Note
from hyperbloom.store.values.scan import (
    feed_generation,
    forgotten_digest,
    forgotten_note,
    forgotten_since,
    last_record,
)

__all__ = [
    "FeedSource",
    "Snapshot",
    "anchor_at",
    "find_snapshots",
    "forgotten_after",
    "last_record_of",
    "newest_of_each_node",
    "note_anchor",
    "open_snapshot",
    "reading",
]

_ANCHOR_BITS = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSource:
    """A feed in a snapshot. ``generation`` changes when its seqs begin anew.

    ``digest`` is None in a snapshot of an older version, or one taken before it was computed.
    """

    key: bytes
    generation: int
    alias: str | None
    count: int
    size: int
    digest: bytes | None
    top_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot's folder, whose it is (hex), when it was taken (µs), and what it holds."""

    path: Path
    node: str
    taken_at: int
    feeds: tuple[FeedSource, ...]

    @property
    def id(self) -> str:
        """One text for node and time."""
        return f"{self.node}@{self.taken_at}"


def find_snapshots(patterns: Iterable[str | Path]) -> list[Path]:
    """The folders that paths and glob patterns name, each once; SnapshotUnusable for none."""
    found: dict[Path, None] = {}
    for pattern in map(str, patterns):
        is_pattern = glob.has_magic(pattern) and not Path(pattern).exists()
        paths = sorted(glob.glob(pattern)) if is_pattern else [pattern]
        if not paths:
            raise SnapshotUnusable(f"no snapshot is there for {pattern}; look at the pattern")
        found.update(dict.fromkeys(Path(path).absolute() for path in paths))
    return list(found)


@contextmanager
def reading(path: Path) -> Iterator[Store]:
    """A snapshot's store; whatever is damaged in it is SnapshotUnusable.

    LMDB has no checksums: a damaged page may look whole, with records that are none.
    """
    try:
        with closing(Store.open_readonly(path)) as store:
            yield store
    except StoreError as error:
        raise SnapshotUnusable(str(error)) from error
    except (struct.error, ValueError, TypeError) as error:
        raise SnapshotUnusable(
            f"the snapshot {path} holds a record that is none ({error}); use another one"
        ) from error


def open_snapshot(path: Path) -> Snapshot:
    """Look at a snapshot; SnapshotUnusable with a sentence if it cannot be exported."""
    try:
        info = load_snapshot_info(path)
    except StoreError as error:
        raise SnapshotUnusable(str(error)) from error
    with reading(path) as store:
        feeds = tuple(
            FeedSource(
                key=record.key,
                generation=feed_generation(store, record.key),
                alias=_alias(record.settings.get("alias")),
                count=record.count,
                size=record.bytes,
                digest=record.digest,
                top_seq=record.top_seq,
            )
            for record in store.feeds()
        )
        figures = read_figures(store.environment)
    if {feed.key: feed for feed in info.feeds} != {feed.key: feed for feed in figures}:
        raise SnapshotUnusable(
            f"the snapshot {path} does not hold what its snapshot.json says; use another one"
        )
    if info.node_key is None:
        raise SnapshotUnusable(
            f"the snapshot {path} does not say whose it is; start its node once and take it again"
        )
    return Snapshot(path=path, node=info.node_key.hex(), taken_at=info.taken_at, feeds=feeds)


def _alias(alias: object) -> str | None:
    return alias if isinstance(alias, str) else None


def newest_of_each_node(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """One snapshot a node, in the order of the nodes' keys."""
    newest: dict[str, Snapshot] = {}
    for snapshot in snapshots:
        known = newest.setdefault(snapshot.node, snapshot)
        if snapshot.taken_at > known.taken_at:
            newest[snapshot.node] = snapshot
    return [newest[node] for node in sorted(newest)]


def anchor_at(path: Path, feed_key: bytes, seq: int) -> int:
    """63 bits that stand for the last record up to ``seq``; 0 where there is none.

    The same bits in a later snapshot mean that it goes on from the earlier one. Other bits mean
    that the store was put back to an older state and went on differently, or that values were
    forgotten or brought back.
    """
    with reading(path) as store:
        try:
            record = last_record(store, feed_key, seq)
            forgotten = forgotten_digest(store, feed_key)
        except NoSuchFeed:
            return 0
    if record is None:
        return 0
    head = LOG_HEAD.pack(record.received_at, record.origin)
    return _bits(record.seq.to_bytes(8, "big"), head, record.value, forgotten)


def _bits(*parts: bytes) -> int:
    return int.from_bytes(keyed_hash(*parts)[:8], "big") >> (64 - _ANCHOR_BITS)


def last_record_of(path: Path, feed_key: bytes, seq: int) -> LogRecord | None:
    """The last record up to ``seq``; None where there is none."""
    with reading(path) as store:
        return last_record(store, feed_key, seq)


def forgotten_after(path: Path, feed_key: bytes, number: int) -> tuple[int, list[Note] | None]:
    """The number of the last note of a forgotten value, and the notes above ``number``.

    None for these if they do not say all that was forgotten since.
    """
    with reading(path) as store:
        return forgotten_since(store, feed_key, number)


def note_anchor(path: Path, feed_key: bytes, number: int, beside: Iterable[int]) -> int:
    """63 bits that stand for the note of this number, as `anchor_at` does for a record.

    They stand for the numbers ``beside`` it, too, so that these are known to be of the same moment.
    """
    with reading(path) as store:
        note = forgotten_note(store, feed_key, number)
    return _bits(note, *(each.to_bytes(8, "big", signed=True) for each in beside))
