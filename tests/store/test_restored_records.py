"""A restored store has every record of its snapshot, byte for byte, and nothing of its pages."""

from __future__ import annotations

import os
import shutil
import struct
from contextlib import closing

import lmdb
import pytest
from older_stores import make_older
from sound_store import FEED, ORIGIN, VALUES, fill

from hyperbloom.store import (
    AppendValues,
    ForgetValues,
    PutMeta,
    Store,
    StoreCorrupt,
    StoreFull,
    WriterInline,
)
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.limits import RUN_VALUES
from hyperbloom.store.lmdb.layout import DATABASES
from hyperbloom.store.objects.offers import OfferedChange, OfferedObject, OfferedRemoval
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.restoring import restore as restoring
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.values.digest_migration import SumUp

PAGE = 4_096
HEADER, NODE = struct.Struct("=QHHHH"), struct.Struct("=HHHH")
BRANCH, LEAF = 1, 2
ENGINE = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}

pytestmark = pytest.mark.usefixtures("full")


def records_of(folder) -> dict[bytes, list[tuple[bytes, bytes]]]:
    """All that is in a data file, by LMDB alone: the databases, and the records of each."""
    opened = lmdb.open(str(folder), readonly=True, lock=False, max_dbs=64, **ENGINE)
    with closing(opened), opened.begin() as txn:
        names = list(txn.cursor().iternext(values=False))
        return {name: list(txn.cursor(opened.open_db(name, txn))) for name in names}


def submit(store: Store, operation: object) -> object:
    results: list[object] = []
    WriterInline(store).submit(operation, results.append)
    assert not isinstance(results[0], BaseException), results[0]
    return results[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with something of everything, gaps where values were forgotten; its snapshot."""
    folder = tmp_path_factory.mktemp("made")
    with closing(Store.open(folder / "node", durable=False)) as store:
        fill(lambda operation: submit(store, operation))
        many = [b"%07d" % n + b"v" * (n % 40) for n in range(RUN_VALUES + 2_000)]
        many += [b"%07d" % n + b"v" * (500 + n) for n in range(900)]
        for start in range(0, len(many), 5_000):
            piece = many[start : start + 5_000]
            submit(store, AppendValues(FEED, piece, ORIGIN, 1_000 + start))
        for erase in (False, True):
            chosen = many[1_000 + erase : 3_000 : 7]
            submit(store, ForgetValues(FEED, [*chosen, VALUES[erase]], erase=erase, at=77))
        submit(store, PutMeta("node_id", b"n" * 32))
        submit(store, PutMeta("output.one", b"seen"))
        sketch = store.begin_piece(FEED)
        while (kept := sketch.step()) is None:
            pass
        assert submit(store, kept)
        objects = [
            *(OfferedObject(hash=n, stamp=9, fields={"name": f"one {n}"}) for n in range(1, 40)),
            OfferedChange(old=7, hash=70, stamp=10, fields={"name": "seven"}),
            OfferedRemoval(hash=8, stamp=11),
        ]
        submit(store, OfferObjects(objects, 12, 1_000))
        store.snapshot(folder / "snapshot")
    return folder


@pytest.fixture
def full(made, tmp_path):
    """A copy of it, in the folder of the test."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def test_every_record_is_there_byte_for_byte(tmp_path):
    restore_store(tmp_path / "snapshot", tmp_path / "new", node_key=b"n" * 32)
    before, after = records_of(tmp_path / "snapshot"), records_of(tmp_path / "new")
    assert set(before) == {name.encode() for name in DATABASES}
    empty = [name for name, records in before.items() if not records]
    assert empty == [], "the test has something of everything"
    assert after == before
    assert verify_path(tmp_path / "new").problems == []


def test_a_store_that_runs_on_is_that_of_the_snapshot(tmp_path):
    """The same operations on both leave the same records."""
    restore_store(tmp_path / "snapshot", tmp_path / "new", node_key=None)
    with (
        closing(Store.open(tmp_path / "node", create=False)) as old,
        closing(Store.open(tmp_path / "new", create=False)) as new,
    ):
        for store in (old, new):
            submit(store, AppendValues(FEED, [b"later", VALUES[0]], ORIGIN, 5_000_000))
            submit(store, ForgetValues(FEED, [b"later", VALUES[2]], at=78))
            assert store.verify().problems == []
        new.snapshot(tmp_path / "new-later")
        old.snapshot(tmp_path / "old-later")
    assert records_of(tmp_path / "new-later") == records_of(tmp_path / "old-later")


def test_no_page_is_copied(tmp_path):
    """What no record leads to stays behind: here, bytes between the records of a page."""
    path = tmp_path / "snapshot" / "data.mdb"
    content, hidden = bytearray(path.read_bytes()), 0
    for at in range(2 * PAGE, len(content), PAGE):
        _, _, flags, lower, upper = HEADER.unpack_from(content, at)
        if flags in (BRANCH, LEAF) and upper - lower > 8:
            content[at + lower : at + lower + 6] = b"hidden"
            hidden += 1
    assert hidden > 10
    path.write_bytes(content)
    restore_store(path.parent, tmp_path / "new", node_key=None)
    assert b"hidden" not in (tmp_path / "new" / "data.mdb").read_bytes()


def test_older_schemas_keep_every_record_too(tmp_path):
    """But for what the steps to today's schema change: those of digests."""
    with closing(Store.open(tmp_path / "node", durable=False)) as store:
        make_older(store)
        store.snapshot(tmp_path / "older")
    restore_store(tmp_path / "older", tmp_path / "new", node_key=None)
    before, after = records_of(tmp_path / "older"), records_of(tmp_path / "new")
    for name in set(before) - {b"meta", b"feeds", b"aside"}:
        assert after[name] == before[name]
    with closing(Store.open(tmp_path / "new", durable=False)) as store:
        while any(one.digest is None for one in store.feeds()):
            submit(store, SumUp())
        assert store.verify().problems == []


@pytest.mark.parametrize("change", ["unknown", "lacking"])
def test_a_snapshot_with_other_databases_is_refused(tmp_path, change):
    """The names of keys, or those denied, must not vanish because a database lost its name."""
    path = tmp_path / "snapshot" / "data.mdb"
    if change == "unknown":
        content = path.read_bytes()
        assert content.count(b"\0names") == 1
        path.write_bytes(content.replace(b"\0names", b"\0nbmes"))
    else:
        opened = lmdb.open(str(path.parent), max_dbs=64, lock=False, map_size=1 << 28, **ENGINE)
        with closing(opened), opened.begin(write=True) as txn:
            txn.drop(opened.open_db(b"denied", txn))
    with pytest.raises(StoreCorrupt, match=f"{change}.* database"):
        restore_store(path.parent, tmp_path / "new", node_key=None)
    assert not (tmp_path / "new" / "data.mdb").exists()


def test_one_record_cannot_be_many(tmp_path):
    """All places of a page lead to one record: a file of some bytes would become a large one."""
    path = tmp_path / "snapshot" / "data.mdb"
    content = bytearray(path.read_bytes())
    # A page of the log or of the index.
    at = content.index(b"0060019vvvv") // PAGE * PAGE
    _, _, _, lower, _ = HEADER.unpack_from(content, at)
    first = content[at + HEADER.size : at + HEADER.size + 2]
    content[at + HEADER.size : at + lower] = first * ((lower - HEADER.size) // 2)
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="is damaged"):
        restore_store(path.parent, tmp_path / "new", node_key=None)


@pytest.mark.parametrize("lacking", [0, 1])
def test_no_more_is_copied_than_the_file_holds(tmp_path, monkeypatch, lacking):
    records = records_of(tmp_path / "snapshot")
    held = sum(len(key) + len(data) for found in records.values() for key, data in found)
    size = (tmp_path / "snapshot" / "data.mdb").stat().st_size
    assert held < size
    monkeypatch.setattr(restoring, "_require_room", lambda source, target: held - lacking)
    if lacking:
        with pytest.raises(StoreCorrupt, match="is damaged"):
            restore_store(tmp_path / "snapshot", tmp_path / "new", node_key=None)
        assert not (tmp_path / "new" / "data.mdb").exists()
    else:
        restore_store(tmp_path / "snapshot", tmp_path / "new", node_key=None)


def test_a_tree_that_does_not_lead_to_its_records_is_refused(tmp_path):
    """A walk finds them all, and who looks one up does not."""
    path = tmp_path / "snapshot" / "data.mdb"
    content = bytearray(path.read_bytes())
    done = 0
    for at in range(2 * PAGE, len(content), PAGE):
        number, _, flags, lower, _ = HEADER.unpack_from(content, at)
        if number != at // PAGE or flags != BRANCH or lower - HEADER.size < 6:
            continue
        # The key before which the second child is not looked at.
        (node,) = struct.unpack_from("=H", content, at + HEADER.size + 2)
        _, _, _, key_bytes = NODE.unpack_from(content, at + node)
        if key_bytes >= 8:
            content[at + node + NODE.size + 4] = 0xFF
            done += 1
    assert done
    path.write_bytes(content)
    assert not verify_path(path.parent).ok
    with pytest.raises(StoreCorrupt, match="is damaged"):
        restore_store(path.parent, tmp_path / "new", node_key=None)


def test_a_disk_that_is_full_meanwhile_leaves_nothing(tmp_path, monkeypatch):
    def no_room(*_):
        raise StoreFull("no room")

    monkeypatch.setattr(restoring, "write", no_room)
    with pytest.raises(StoreFull):
        restore_store(tmp_path / "snapshot", tmp_path / "new", node_key=None)
    assert os.listdir(tmp_path / "new") == ["node.lock"]
