"""LMDB, and the only place that imports it: values in order, arrival log, links, peers, snapshots.

Durable, ordered, grouped: a Writer commits operations, a Store reads.
"""

from hyperbloom.store.compaction import Compacted, compact_store
from hyperbloom.store.condition import Condition
from hyperbloom.store.denied import AllowKey, DenyKey, TooManyDenied
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
from hyperbloom.store.forgetting import DropForgottenHashes, ForgetValues, RestoreValues
from hyperbloom.store.limits import (
    FORGET_STEP,
    MAX_DENIED_KEYS,
    MAX_LINKS_PER_FEED,
    MAX_LINKS_PER_ISSUER,
    MAX_REFUSED_BYTES,
    MAX_REFUSED_VALUES,
)
from hyperbloom.store.links import DropExpiredLinks, PutLinks
from hyperbloom.store.object_records import ObjectRecord, Outcome, Verdict
from hyperbloom.store.objects import (
    Offer,
    OfferedChange,
    OfferedObject,
    OfferedRemoval,
    OfferObjects,
)
from hyperbloom.store.operations import (
    AppendValues,
    DropFeed,
    Operation,
    PutFeed,
    PutMeta,
    pieces_of,
    written_bytes,
)
from hyperbloom.store.peers import DropPeer, PutPeer
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
from hyperbloom.store.refusals import ForgetRefused, RememberRefused
from hyperbloom.store.restore import (
    REPLACED,
    SEEDED_FROM,
    SeededFeed,
    feed_key_in,
    restore_store,
    seed_store,
)
from hyperbloom.store.shelf import KeptSnapshot, list_snapshots, prune_snapshots
from hyperbloom.store.snapshot import NODE_ID, load_snapshot_info
from hyperbloom.store.store import Store
from hyperbloom.store.verify import Progress, verify_path
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
    "ForgetRefused",
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
