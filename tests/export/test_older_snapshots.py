"""Snapshots of an older version, and such as were taken before the digests were computed."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from older_stores import make_older

from hyperbloom.export.errors import SnapshotUnusable
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.snapshots import open_snapshot
from hyperbloom.export.tables.small_tables import write_feeds
from hyperbloom.store import (
    AppendValues,
    PutFeed,
    PutMeta,
    Store,
    WriterInline,
)
from hyperbloom.store.lmdb.transaction import write
from hyperbloom.store.tables.meta import NODE_ID
from hyperbloom.store.values.digest_migration import begin_sums

FEED = b"f" * 32


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store", durable=False)
    writer = WriterInline(opened)
    for operation in (
        PutMeta(NODE_ID, b"n" * 32),
        PutFeed(FEED, {}),
        AppendValues(FEED, [b"a", b"b"], b"o" * 32, 1),
    ):
        writer.submit(operation, lambda result: None)
    yield opened
    opened.close()


def older(store):
    make_older(store)


def being_computed(store):
    write(store.environment, begin_sums)


@pytest.mark.parametrize("make", [older, being_computed])
def test_an_unknown_digest_is_empty_in_the_table(store, tmp_path, make):
    make(store)
    store.snapshot(tmp_path / "snapshot")
    snapshot = open_snapshot(tmp_path / "snapshot")
    (feed,) = snapshot.feeds
    assert (feed.digest, feed.count) == (None, 2)
    (tmp_path / "feeds").mkdir()
    write_feeds([snapshot], Folder(tmp_path / "feeds"), "part")
    (file,) = (tmp_path / "feeds").rglob("*.parquet")
    (row,) = pq.read_table(file).to_pylist()
    assert (row["digest"], row["count"]) == (b"", 2)


def test_an_older_snapshot_that_is_not_what_it_says_is_refused(store, tmp_path):
    older(store)
    store.snapshot(tmp_path / "snapshot")
    file = tmp_path / "snapshot" / "snapshot.json"
    file.write_text(file.read_text().replace('"count": 2', '"count": 3'))
    with pytest.raises(SnapshotUnusable, match="does not hold what its"):
        open_snapshot(tmp_path / "snapshot")
