"""What a task is to take out of a table, or to find out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from hyperbloom.export.tables.changes import ChangeFile, SeqsOfFeeds, SeqsUpTo
from hyperbloom.export.tables.rewriting import Numbers

__all__ = ["Changing", "Rewriting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """A file of `values`, below the table's folder, and what of its rows may be gone.

    ``gone`` are numbers by feed; feeds that are ``compared`` lose what the snapshot has not.
    ``columns`` are the table's. ``rows`` and ``size`` (bytes) are the file's.
    """

    node: str
    path: str
    partition: Mapping[str, str]
    columns: pa.Schema
    gone: Mapping[bytes, Numbers]
    compared: frozenset[bytes]
    snapshot: Path
    rows: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing:
    """Rows of a node in `changes` that are gone (numbers of feeds), or are to be compared.

    ``files`` may hold such rows. Compared are ``feeds``, with their top numbers, of the snapshot.
    ``forgotten_at`` are times (µs) of numbers by feed; ``taken_at`` is the snapshot's, for others.
    """

    node: str
    snapshot: Path
    taken_at: int
    files: tuple[ChangeFile, ...]
    choice: SeqsOfFeeds | SeqsUpTo
    feeds: tuple[tuple[bytes, int], ...] = ()
    forgotten_at: Mapping[bytes, Mapping[int, int]] = field(default_factory=dict)

    def times(self, feed: bytes, seqs: Numbers) -> Numbers:
        """When values with these numbers were forgotten, as far as that is known."""
        known = self.forgotten_at.get(feed, {})
        return np.array([known.get(seq) or self.taken_at for seq in seqs.tolist()], np.int64)
