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
from hyperbloom.store.limits import (
    MAX_LINKS_PER_FEED,
    MAX_LINKS_PER_ISSUER,
    MAX_REFUSED_BYTES,
    MAX_REFUSED_VALUES,
)
from hyperbloom.store.links import DropExpiredLinks, PutLinks
from hyperbloom.store.operations import AppendValues, DropFeed, Operation, PutFeed, PutMeta
from hyperbloom.store.peers import DropPeer, PutPeer
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
from hyperbloom.store.refusals import ForgetRefused, RememberRefused
from hyperbloom.store.snapshot import NODE_ID, load_snapshot_info
from hyperbloom.store.store import Store
from hyperbloom.store.verify import Progress, verify_path
from hyperbloom.store.writer import CommitFigures, Done, Writer, WriterInline

__all__ = [
    "MAX_LINKS_PER_FEED",
    "MAX_LINKS_PER_ISSUER",
    "MAX_REFUSED_BYTES",
    "MAX_REFUSED_VALUES",
    "NODE_ID",
    "AppendValues",
    "Appended",
    "CommitFigures",
    "Done",
    "DropExpiredLinks",
    "DropFeed",
    "DropPeer",
    "FeedFigures",
    "FeedRecord",
    "ForgetRefused",
    "LinkRecord",
    "LogRecord",
    "LogSlice",
    "NoSuchFeed",
    "Operation",
    "PeerRecord",
    "Progress",
    "PutFeed",
    "PutLinks",
    "PutMeta",
    "PutPeer",
    "RangeSlice",
    "RefusedRecord",
    "RememberRefused",
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
    "load_snapshot_info",
    "verify_path",
]
