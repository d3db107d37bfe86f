"""What the tables hold that follow a store: their rows, and what `changes` adds up to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from deltalake import DeltaTable

from hyperbloom.export.places.folder import Folder
from hyperbloom.export.tables.delta import OpenTable

LIMITS = {"limit": 1 << 20, "max_bytes": 1 << 30}


def rows(target: Path, name: str) -> list[dict]:
    """All rows of a table."""
    return DeltaTable((target / name).as_uri()).to_pyarrow_dataset().to_table().to_pylist()


def held(target: Path) -> Counter:
    """The rows of `values`, with how often each is there."""
    return Counter(
        (row["node"], row["feed"], row["seq"], row["value"]) for row in rows(target, "values")
    )


def folded(target: Path) -> Counter:
    """What was added, less what was forgotten."""
    found: Counter = Counter()
    for row in rows(target, "changes"):
        key = row["node"], row["feed"], row["seq"], row["value"]
        found[key] += 1 if row["kind"] == "added" else -1
    assert min(found.values(), default=0) >= 0
    return +found


def stored(*nodes) -> Counter:
    """What the stores themselves hold; each is a node's key and its SourceNode."""
    return Counter(
        (key.hex(), feed.key, record.seq, record.value)
        for key, node in nodes
        for feed in node.store.feeds()
        for record in node.store.log_slice(feed.key, 0, **LIMITS).records
    )


def paths(target: Path, name: str = "values") -> set[str]:
    """The files that the newest commit names."""
    return {file.path for file in OpenTable.find(Folder(target), name).files()}
