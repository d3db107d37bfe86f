"""A snapshot whose pages are sound and whose records are somebody else's.

The changes are written with LMDB itself, so that the walk over all records is measured; for broken
pages there is `snapshot_pages`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import lmdb
from choices import Choices, piece
from sound_snapshot import DATABASES, make_snapshot

from hyperbloom.store import StoreError
from hyperbloom.store.backup.verify import verify_path

MAX_BYTES = 2_048
RUNS = 8

_FOLDER = Path(tempfile.mkdtemp(prefix="hb-"))
_SOUND = _FOLDER / "sound"
_MAP_BYTES = 1 << 22
make_snapshot(_SOUND)


def fuzz(data: bytes) -> bool:
    """Records put and deleted, named by database and key, or by the place of one that is there."""
    choices = Choices(data)
    changed = _FOLDER / "changed"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(_SOUND, changed)
    engine = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}
    environment = lmdb.open(
        str(changed), map_size=_MAP_BYTES, max_dbs=len(DATABASES), lock=False, **engine
    )
    try:
        opened = {name: environment.open_db(name.encode()) for name in DATABASES}
        with environment.begin(write=True) as txn:
            for _ in range(16):
                how, name, at = choices.number(), choices.one_of(DATABASES), choices.number()
                key, value = choices.piece(), choices.piece()
                if not how:
                    break
                _change(txn, opened[name], how, at, key, value)
    finally:
        environment.close()
    try:
        report = verify_path(changed)
    except StoreError:
        return False
    assert report.ok or report.problems
    return True


def _change(
    txn: lmdb.Transaction, database: object, how: int, at: int, key: bytes, value: bytes
) -> None:
    if how & 1:  # of a record that is there
        cursor = txn.cursor(database)
        found = [item for item, _ in zip(cursor, range(64), strict=False)]
        if not found:
            return
        key = bytes(found[at % len(found)][0])
    if not 0 < len(key) <= 511:
        return
    if how & 2:
        old = txn.get(key, db=database)
        if old is not None and value and len(value) <= len(old):
            start = at % (len(old) - len(value) + 1)
            value = old[:start] + value + old[start + len(value) :]
    if how & 4:
        txn.delete(key, db=database)
    else:
        txn.put(key, value, db=database)


def seeds() -> dict[str, bytes]:
    """Nothing changed; and a small change in each database."""
    found = {"sound": b""}
    for number, name in enumerate(DATABASES):
        found[f"deleted-{name}"] = bytes([5, number, 0]) + piece(b"") + piece(b"")
        found[f"changed-{name}"] = bytes([3, number, 1]) + piece(b"") + piece(b"\xff\xfe")
        found[f"added-{name}"] = (
            bytes([2, number, 1]) + piece(bytes(4) + b"k" * 8) + piece(b"v" * 44)
        )
    return found
