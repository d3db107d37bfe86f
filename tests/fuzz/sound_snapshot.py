"""A small sound snapshot with something of everything a store keeps."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from hyperbloom.store import (
    AppendValues,
    LinkRecord,
    PeerRecord,
    PutFeed,
    PutLinks,
    PutPeer,
    RememberRefused,
    Store,
    WriterInline,
)
from hyperbloom.store.lmdb.layout import DATABASES as _LAYOUT
from hyperbloom.store.values.ordered_index import PART_BYTES

__all__ = ["DATABASES", "make_snapshot"]

DATABASES: Final = tuple(_LAYOUT)

_FEED, _OTHER, _ORIGIN = b"f" * 32, b"g" * 32, b"o" * 32
_STEM = b"s" * PART_BYTES
_VALUES = [b"a", b"b", _STEM + b"1", _STEM + b"2", _STEM * 3 + b"1", b"l" * 600]


def make_snapshot(target: Path) -> None:
    """Make a store and leave a snapshot of it in a folder that is not there yet."""
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        store = Store.open(Path(folder) / "store", durable=False)
        try:
            _fill(store)
            store.snapshot(target)
        finally:
            store.close()


def _fill(store: Store) -> None:
    writer = WriterInline(store)
    failures = []

    def run(operation: object) -> None:
        writer.submit(
            operation, lambda it: failures.append(it) if isinstance(it, BaseException) else None
        )

    run(PutFeed(_FEED, {}))
    run(PutFeed(_OTHER, {"alias": "other"}))
    run(AppendValues(_FEED, _VALUES, _ORIGIN, 7))
    run(AppendValues(_OTHER, _VALUES[:3], _ORIGIN, 7))
    link = LinkRecord(
        issuer=_FEED,
        trustee=b"t" * 32,
        expires=9.5,
        first_seen=1,
        introduced_by=_ORIGIN,
        raw=b"link",
    )
    run(PutLinks(_FEED, [link]))
    run(PutPeer(PeerRecord(address="127.0.0.1:1", feed_key=_FEED)))
    run(RememberRefused(_FEED, [(b"bad", "policy")], 5))
    if failures:
        raise failures[0]
