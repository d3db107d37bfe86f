"""Nodes' arrival logs in their snapshots: of each node the newest, for it holds what older ones do.

Snapshots come and go while a query runs. A new one has its name once it is whole. One that a
rotation takes away, maybe while it is read, has a newer one of the same node beside it, and reading
goes on there. So a task is told which numbers to read, and looks for a snapshot itself.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hyperbloom.export.errors import SnapshotUnusable, StreamBroken
from hyperbloom.export.snapshots import open_snapshot, reading
from hyperbloom.export.source.offsets import FeedName, Look, Mark, anchor_of, check_goes_on
from hyperbloom.export.tables.ranges import FeedRange
from hyperbloom.export.tables.rows import Rows, read_log_rows
from hyperbloom.store import StoreError
from hyperbloom.store.backup.snapshot import SNAPSHOT_FILE, load_snapshot_info
from hyperbloom.store.records import LogRecord
from hyperbloom.store.values.scan import feed_life, last_record

__all__ = ["SnapshotArrivals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A snapshot, and what it says of itself: ``tops`` are the feeds' highest numbers.

    ``written_at`` (ns) tells it from another one that has its place later.
    """

    path: Path
    written_at: int
    node: str
    taken_at: int
    tops: Mapping[str, int]


class SnapshotArrivals:
    """Those of the snapshots in a folder, or in what a pattern names; ``feed`` (hex): only of it.

    A pattern may name snapshots, or folders of them, such as one for each node.
    """

    def __init__(self, pattern: str, feed: str | None = None) -> None:
        self._pattern = str(Path(pattern.removeprefix("file://")).absolute())
        self._feed = feed
        self._listed: dict[Path, _Listed] = {}
        #: Those that hold what they say.
        self._whole: set[Path] = set()

    def begin(self) -> None:
        """Raise SnapshotUnusable if the folder is missing, or something in it is no use."""
        self._newest_first()

    def tops(self) -> Mapping[FeedName, int]:
        """The highest numbers in the newest snapshot of each node."""
        found: dict[FeedName, int] = {}
        seen: set[str] = set()
        for listed in self._newest_first():
            if listed.node not in seen:
                found |= {
                    (listed.node, feed): top_seq
                    for feed, top_seq in listed.tops.items()
                    if self._feed in (None, feed)
                }
            seen.add(listed.node)
        return found

    def look(self, name: FeedName, seq: int) -> Look:
        """What the newest snapshot of the node says."""
        seen: set[Path] = set()
        while True:
            path = self._next_with(name, seen)
            if path is None:
                raise self._none_with(name, seq)
            try:
                if path not in self._whole:
                    open_snapshot(path)
                    self._whole.add(path)
                return _look(path, name, seq)
            except SnapshotUnusable:
                if _is_there(path):
                    raise

    def read(self, piece: FeedRange, end: Mark) -> Iterator[Rows]:
        """Read a range from the newest snapshot that has it; if it goes meanwhile, from another."""
        after, name = piece.after_seq, (piece.node, piece.feed.hex())
        for path in self._holding(name, end):
            try:
                for rows in read_log_rows(path, piece.feed, after, piece.last_seq):
                    yield rows
                    after = rows.batch.column("seq")[-1].as_py()
                return
            except StoreError as error:
                if _is_there(path):
                    raise SnapshotUnusable(str(error)) from error
        raise self._none_with(name, end.seq)

    def close(self) -> None:
        """Nothing is open."""

    def _holding(self, name: FeedName, end: Mark) -> Iterator[Path]:
        """Snapshots that hold a feed up to a mark, each once, as long as there are any."""
        seen: set[Path] = set()
        while (path := self._next_with(name, seen)) is not None:
            try:
                check_goes_on(name, end, _look(path, name, end.seq))
            except StreamBroken:
                continue
            except SnapshotUnusable:
                if _is_there(path):
                    raise
                continue
            yield path

    def _next_with(self, name: FeedName, seen: set[Path]) -> Path | None:
        """The newest snapshot with the feed that is not among those seen, which it joins then."""
        node, feed = name
        for listed in self._newest_first():
            if listed.node == node and feed in listed.tops and listed.path not in seen:
                seen.add(listed.path)
                return listed.path
        return None

    def _none_with(self, name: FeedName, seq: int) -> SnapshotUnusable:
        node, feed = name
        return SnapshotUnusable(
            f"no snapshot in {self._pattern} holds feed {feed} of node {node} up to arrival number "
            f"{seq} any more; bring one back, any later one of the node does, and start the query "
            "again"
        )

    def _newest_first(self) -> list[_Listed]:
        """Every snapshot that is there."""
        known, self._listed = self._listed, {}
        for path in self._paths():
            try:
                written_at = (path / SNAPSHOT_FILE).stat().st_mtime_ns
                listed = known.get(path)
                if listed is None or listed.written_at != written_at:
                    listed = _list(path, written_at)
            except (OSError, StoreError):
                continue
            self._listed[path] = listed
        self._whole &= self._listed.keys()
        return sorted(self._listed.values(), key=lambda one: (-one.taken_at, one.path))

    def _paths(self) -> Iterator[Path]:
        is_pattern = glob.has_magic(self._pattern) and not Path(self._pattern).exists()
        if not is_pattern and not Path(self._pattern).is_dir():
            raise SnapshotUnusable(f"there is no folder {self._pattern}; name one of snapshots")
        for name in sorted(glob.glob(self._pattern)) if is_pattern else [self._pattern]:
            path = Path(name)
            if (path / SNAPSHOT_FILE).exists():
                yield path
            elif path.is_dir():
                yield from _inside(path)


def _list(path: Path, written_at: int) -> _Listed:
    info = load_snapshot_info(path)
    return _Listed(
        path=path,
        written_at=written_at,
        # Which says why a snapshot without a node's key is no use.
        node=open_snapshot(path).node if info.node_key is None else info.node_key.hex(),
        taken_at=info.taken_at,
        tops={feed.key.hex(): feed.top_seq for feed in info.feeds},
    )


def _inside(folder: Path) -> list[Path]:
    """The folders inside one that may be snapshots; what begins with a dot is none yet, or gone."""
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []


def _is_there(path: Path) -> bool:
    return (path / SNAPSHOT_FILE).exists()


def _look(path: Path, name: FeedName, seq: int) -> Look:
    key = bytes.fromhex(name[1])
    with reading(path) as store:
        life, forgotten = feed_life(store, key)
        here = last_record(store, key, seq)
        behind: list[LogRecord] = store.log_slice(key, seq, limit=1, max_bytes=1).records
        record = store.feed(key)
    anchor = ""
    if here is not None and here.seq == seq:
        anchor = anchor_of(here.seq, here.received_at, here.origin, here.value)
    return Look(
        top_seq=0 if record is None else record.top_seq,
        life=life,
        forgotten=forgotten,
        anchor=anchor,
        following=behind[0].seq if behind else None,
    )
