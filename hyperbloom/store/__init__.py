"""LMDB, and the only place that imports it: values in order, arrival log, links, peers, snapshots.

Durable, ordered, grouped: a Writer commits operations, a Store reads.
"""

from hyperbloom.store.errors import (
    NoSuchFeed,
    SchemaMismatch,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
)
from hyperbloom.store.operations import AppendValues, DropFeed, Operation, PutFeed, PutMeta
from hyperbloom.store.records import (
    Appended,
    FeedFigures,
    FeedRecord,
    LinkRecord,
    LogRecord,
    LogSlice,
    PeerRecord,
    RangeSlice,
    RefusedRecord,
    SnapshotInfo,
    StoreSize,
    VerifyReport,
)
from hyperbloom.store.store import Store
from hyperbloom.store.writer import Done, Writer, WriterInline

__all__ = [
    "AppendValues",
    "Appended",
    "Done",
    "DropFeed",
    "FeedFigures",
    "FeedRecord",
    "LinkRecord",
    "LogRecord",
    "LogSlice",
    "NoSuchFeed",
    "Operation",
    "PeerRecord",
    "PutFeed",
    "PutMeta",
    "RangeSlice",
    "RefusedRecord",
    "SchemaMismatch",
    "SnapshotInfo",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreLocked",
    "StoreSize",
    "VerifyReport",
    "Writer",
    "WriterInline",
]
