"""LMDB, and the only place that imports it: values in order, arrival log, links, peers, objects.

Durable, ordered, grouped: a Writer commits operations, a Store reads. What most callers need is
here; the other operations, what is read (records.py) and snapshots are imported from their modules.

Imports point down: errors, limits, records < lmdb < operations < values, tables, objects <
sketches < migrations < backup < store < writer < restoring.
"""

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
from hyperbloom.store.operations import Operation
from hyperbloom.store.store import Store
from hyperbloom.store.tables.feeds import DropFeed, PutFeed
from hyperbloom.store.tables.meta import PutMeta
from hyperbloom.store.values.append import AppendValues
from hyperbloom.store.values.forgotten import ForgetValues, RestoreValues
from hyperbloom.store.writer import Writer, WriterInline

__all__ = [
    "AppendValues",
    "DropFeed",
    "ForeignSnapshot",
    "ForgetValues",
    "NoSuchFeed",
    "Operation",
    "PutFeed",
    "PutMeta",
    "RestoreValues",
    "SchemaMismatch",
    "Store",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreExists",
    "StoreFull",
    "StoreGone",
    "StoreLocked",
    "Writer",
    "WriterInline",
]
