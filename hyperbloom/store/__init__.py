"""LMDB, and the only place that imports it: values in order, arrival log, links, peers, snapshots.

Durable, ordered, grouped: a Writer commits operations, a Store reads.
"""

from hyperbloom.store.backup.compaction import Compacted, compact_store
from hyperbloom.store.backup.snapshot import load_snapshot_info
from hyperbloom.store.backup.snapshot_folder import KeptSnapshot, list_snapshots, prune_snapshots
from hyperbloom.store.backup.verify import Progress, verify_path
from hyperbloom.store.condition import Condition
from hyperbloom.store.errors import (
    ForeignSnapshot,
    NoSuchFeed,
    SchemaMismatch,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreExists,
    StoreFull,
    StoreGone,
    StoreLocked,
)
from hyperbloom.store.limits import (
    FORGET_STEP,
    MAX_DENIED_KEYS,
    MAX_LINKS_PER_FEED,
    MAX_LINKS_PER_ISSUER,
    MAX_REFUSED_BYTES,
    MAX_REFUSED_VALUES,
)
from hyperbloom.store.objects.offers import Offer, OfferedChange, OfferedObject, OfferedRemoval
from hyperbloom.store.objects.records import ObjectRecord, Outcome, Verdict
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.operations import Operation, pieces_of, written_bytes
from hyperbloom.store.records import (
    Appended,
    DeniedRecord,
    FeedFigures,
    FeedRecord,
    Forgotten,
    ForgottenFigures,
    Holding,
    LinkRecord,
    LogRecord,
    LogSlice,
    ObjectFigures,
    OriginSlice,
    PeerRecord,
    RangeSlice,
    RefusedRecord,
    SetFigures,
    SnapshotInfo,
    StoreSize,
    VerifyReport,
)
from hyperbloom.store.restoring.replacement import REPLACED
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import SeededFeed, feed_key_in, seed_store
from hyperbloom.store.store import Store
from hyperbloom.store.tables.denied import AllowKey, DenyKey, TooManyDenied
from hyperbloom.store.tables.feeds import DropFeed, PutFeed
from hyperbloom.store.tables.links import DropExpiredLinks, PutLinks
from hyperbloom.store.tables.meta import NODE_ID, SEEDED_FROM, PutMeta
from hyperbloom.store.tables.peers import DropPeer, PutPeer
from hyperbloom.store.values.append import AppendValues
from hyperbloom.store.values.forgotten import DropForgottenHashes, ForgetValues, RestoreValues
from hyperbloom.store.values.refused import RememberRefused
from hyperbloom.store.writer import CommitFigures, Done, Writer, WriterInline

__all__ = [
    "FORGET_STEP",
    "MAX_DENIED_KEYS",
    "MAX_LINKS_PER_FEED",
    "MAX_LINKS_PER_ISSUER",
    "MAX_REFUSED_BYTES",
    "MAX_REFUSED_VALUES",
    "NODE_ID",
    "REPLACED",
    "SEEDED_FROM",
    "AllowKey",
    "AppendValues",
    "Appended",
    "CommitFigures",
    "Compacted",
    "Condition",
    "DeniedRecord",
    "DenyKey",
    "Done",
    "DropExpiredLinks",
    "DropFeed",
    "DropForgottenHashes",
    "DropPeer",
    "FeedFigures",
    "FeedRecord",
    "ForeignSnapshot",
    "ForgetValues",
    "Forgotten",
    "ForgottenFigures",
    "Holding",
    "KeptSnapshot",
    "LinkRecord",
    "LogRecord",
    "LogSlice",
    "NoSuchFeed",
    "ObjectFigures",
    "ObjectRecord",
    "Offer",
    "OfferObjects",
    "OfferedChange",
    "OfferedObject",
    "OfferedRemoval",
    "Operation",
    "OriginSlice",
    "Outcome",
    "PeerRecord",
    "Progress",
    "PutFeed",
    "PutLinks",
    "PutMeta",
    "PutPeer",
    "RangeSlice",
    "RefusedRecord",
    "RememberRefused",
    "RestoreValues",
    "SchemaMismatch",
    "SeededFeed",
    "SetFigures",
    "SnapshotInfo",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreExists",
    "StoreFull",
    "StoreGone",
    "StoreLocked",
    "StoreSize",
    "TooManyDenied",
    "Verdict",
    "VerifyReport",
    "Writer",
    "WriterInline",
    "compact_store",
    "feed_key_in",
    "list_snapshots",
    "load_snapshot_info",
    "pieces_of",
    "prune_snapshots",
    "restore_store",
    "seed_store",
    "verify_path",
    "written_bytes",
]
