"""The table `changes`: what came and what went, never rewritten.

What a node has, by this table, are the rows that were added, less those that were forgotten. A row
is the same as another one if feed, number and value are: a number may be given again where a feed
was joined anew or a store was put back. So rows are counted by these three (`Balance`), with the
hash of the value in its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hyperbloom.export.errors import TableUnusable
from hyperbloom.export.places.place import Place
from hyperbloom.export.tables.files import FileFact, PartWriter, read_rows
from hyperbloom.export.tables.rewriting import (
    Numbers,
    may_hold,
    rows_of_feeds,
    shaped,
)
from hyperbloom.export.tables.rows import LATEST, Rows, read_log_rows
from hyperbloom.export.tables.schema import ADDED, CHANGES, FORGOTTEN, TIMESTAMP

__all__ = [
    "Balance",
    "ChangeFile",
    "ChangeWriter",
    "SeqsOfFeeds",
    "SeqsUpTo",
    "added_rows",
    "balance_of",
    "forgotten_rows",
    "key_of",
    "unlike_snapshot",
]

Key = tuple[bytes, int, bytes]
"""Feed, number, and hash of the value."""
Balance = Counter[Key]
"""How often each is there: added, less forgotten."""
Mask = npt.NDArray[np.bool_]

_HASH_BYTES: Final = 16
_COLUMNS: Final = ("feed", "seq", "value", "at")
_FILE_SCHEMA: Final = CHANGES.file_schema


class ChangeFile(NamedTuple):
    """A file of the table: its path below the place, and its kind."""

    path: str
    kind: str


class SeqsOfFeeds(NamedTuple):
    """Rows with these numbers of these feeds."""

    numbers: Mapping[bytes, Numbers]

    def may_hold(self, least: int | None, most: int | None) -> bool:
        """Whether numbers within these bounds may be among them."""
        return any(may_hold(found, least, most) for found in self.numbers.values())

    def mask(self, feed: bytes, seqs: Numbers) -> Mask:
        """Which of a feed's numbers are."""
        found = self.numbers.get(feed)
        return np.zeros(len(seqs), np.bool_) if found is None else np.isin(seqs, found)


class SeqsUpTo(NamedTuple):
    """Rows with ``after`` < seq <= ``last`` (None: no end) of these feeds, or of all (None)."""

    after: int
    last: int | None
    feeds: frozenset[bytes] | None

    def may_hold(self, least: int | None, most: int | None) -> bool:
        """Whether numbers within these bounds may be among them."""
        return (most is None or most > self.after) and (
            least is None or self.last is None or least <= self.last
        )

    def mask(self, feed: bytes, seqs: Numbers) -> Mask:
        """Which of a feed's numbers are."""
        if self.feeds is not None and feed not in self.feeds:
            return np.zeros(len(seqs), np.bool_)
        found: Mask = seqs > self.after
        return found if self.last is None else found & (seqs <= self.last)


Choice = SeqsOfFeeds | SeqsUpTo


class ChangeWriter:
    """Rows of one node into files of their kind."""

    def __init__(self, place: Place, node: str, *, name: str, target_bytes: int) -> None:
        self._parts = {
            kind: PartWriter(
                table=CHANGES,
                place=place,
                partition={"node": node, "kind": kind},
                name=name,
                target_bytes=target_bytes,
            )
            for kind in (ADDED, FORGOTTEN)
        }

    def add(self, kind: str, batch: pa.RecordBatch) -> None:
        """Take rows of this kind; OSError if they cannot be written."""
        self._parts[kind].add(batch)

    def close(self) -> list[FileFact]:
        """Write the rest; the facts of all files."""
        return [fact for part in self._parts.values() for fact in part.close()]

    def abandon(self) -> None:
        """Close all files as they are."""
        for part in self._parts.values():
            part.abandon()


def added_rows(rows: Rows) -> pa.RecordBatch:
    """Rows of `values` as rows of this table."""
    columns = [rows.batch.column(name) for name in ("feed", "value", "seq", "received_at")]
    return pa.RecordBatch.from_arrays(columns, schema=_FILE_SCHEMA)


def _chosen(
    place: Place, files: Iterable[ChangeFile], choice: Choice
) -> Iterator[tuple[ChangeFile, pa.RecordBatch]]:
    """The rows of files that a choice is for, in batches with the file that they are in."""
    for file in files:
        for batch in _read(place, file.path, choice):
            seqs = batch.column("seq").to_numpy().astype(np.int64)
            wanted = np.zeros(batch.num_rows, np.bool_)
            for feed, where in rows_of_feeds(batch):
                wanted |= where & choice.mask(feed, seqs)
            if wanted.any():
                yield file, shaped(batch.filter(pa.array(wanted)), _FILE_SCHEMA)


def _read(place: Place, path: str, choice: Choice) -> Iterator[pa.RecordBatch]:
    try:
        yield from read_rows(place, path, _COLUMNS, is_wanted=choice.may_hold)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise TableUnusable(
            f"{place.location(path)} is missing or damaged ({error}); take the table's folder "
            "away, and an export with --tables changes begins it anew"
        ) from error


def key_of(feed: bytes, seq: int, value: bytes) -> Key:
    """What says whether a row is the same as another one."""
    return feed, seq, blake2b(value, digest_size=_HASH_BYTES).digest()


def _keys(batch: pa.RecordBatch) -> list[Key]:
    columns = (batch.column(name).to_pylist() for name in ("feed", "seq", "value"))
    return list(map(key_of, *columns))


def balance_of(place: Place, files: Iterable[ChangeFile], choice: Choice) -> Balance:
    """How often each row is there that the choice is for. Raises OSError, and TableUnusable."""
    found: Balance = Counter()
    for file, batch in _chosen(place, files, choice):
        if file.kind == ADDED:
            found.update(_keys(batch))
        else:
            found.subtract(_keys(batch))
    return found


def forgotten_rows(
    place: Place,
    files: Iterable[ChangeFile],
    choice: Choice,
    balance: Balance,
    times: Callable[[bytes, Numbers], Numbers],
) -> Iterator[pa.RecordBatch]:
    """The rows that the balance still counts, as forgotten ones; it is taken down to nothing.

    ``times`` gives for numbers of a feed when they were forgotten (µs).
    """
    added = [file for file in files if file.kind == ADDED]
    for _, batch in _chosen(place, added, choice):
        mask = np.array([_take(balance, key) for key in _keys(batch)], np.bool_)
        if mask.any():
            yield _forgotten_at(batch.filter(pa.array(mask)), times)


def _take(balance: Balance, key: Key) -> bool:
    """Count one less, if there is one."""
    if balance[key] <= 0:
        return False
    balance[key] -= 1
    return True


def _forgotten_at(
    batch: pa.RecordBatch, times: Callable[[bytes, Numbers], Numbers]
) -> pa.RecordBatch:
    seqs = batch.column("seq").to_numpy().astype(np.int64)
    at = np.zeros(batch.num_rows, np.int64)
    for feed, where in rows_of_feeds(batch):
        at[where] = np.clip(times(feed, seqs[where]), 0, LATEST)
    columns = [batch.column(name) for name in ("feed", "value", "seq")]
    return pa.RecordBatch.from_arrays([*columns, pa.array(at).cast(TIMESTAMP)], schema=_FILE_SCHEMA)


def unlike_snapshot(
    snapshot: Path,
    feeds: Sequence[tuple[bytes, int]],
    choice: SeqsUpTo,
    balance: Balance,
    seen: Counter[bytes],
) -> Iterator[pa.RecordBatch]:
    """The rows of a snapshot within the choice that the balance does not count, as added ones.

    Those that it counts are taken off it, so what is left are rows that the snapshot lacks.
    ``feeds`` are those to compare, with their top numbers; ``seen`` counts their rows.
    """
    for feed, top_seq in feeds:
        last = top_seq if choice.last is None else min(top_seq, choice.last)
        for rows in read_log_rows(snapshot, feed, choice.after, last):
            batch = added_rows(rows)
            seen[feed] += batch.num_rows
            mask = np.array([not _take(balance, key) for key in _keys(batch)], np.bool_)
            if mask.any():
                yield batch.filter(pa.array(mask))
