"""Opening: locks, foreign and damaged files, file modes, forks."""

import multiprocessing
import os
import shutil
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from hyperbloom.store import (
    AppendValues,
    PutFeed,
    PutMeta,
    SchemaMismatch,
    Store,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreGone,
    StoreLocked,
    WriterInline,
)
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.lmdb.datafile import check_data_file
from hyperbloom.store.lmdb.folder_lock import LOCK_FILE, FolderLock
from hyperbloom.store.lmdb.layout import META_FORMAT, META_SCHEMA
from hyperbloom.store.migrations import MIGRATIONS

FEED = b"f" * 32
ORIGIN = b"o" * 32
PAGE = 4096


def filled(path: Path, count: int = 2_000) -> None:
    """Make a store with some values and close it."""
    store = Store.open(path, durable=False)
    writer = WriterInline(store)
    writer.submit(PutFeed(FEED, {}), lambda result: None)
    values = [b"%06d" % n + b"x" * (5_000 if n % 100 == 0 else 50) for n in range(count)]
    writer.submit(AppendValues(FEED, values, ORIGIN, 1), lambda result: None)
    assert store.feed(FEED).count == count
    store.close()


def test_a_store_keeps_what_it_had(tmp_path):
    filled(tmp_path / "store")
    store = Store.open(tmp_path / "store", create=False)
    assert store.feed(FEED).count == 2_000
    assert store.verify().ok
    store.close()
    store.close()


def test_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "deep" / "store"
    before = os.umask(0)
    try:
        store = Store.open(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}
    assert set(files) == {"data.mdb", "lock.mdb", "node.lock", "store.used"}
    assert set(files.values()) == {0o600}
    store.close()


def test_a_store_is_open_once_in_a_process(tmp_path):
    store = Store.open(tmp_path / "store")
    for path in (tmp_path / "store", tmp_path / "other" / ".." / "store"):
        (tmp_path / "other").mkdir(exist_ok=True)
        with pytest.raises(StoreLocked, match=str(os.getpid())):
            Store.open(path)
    with pytest.raises(StoreLocked):
        verify_path(tmp_path / "store")
    assert store.feeds() == []
    store.close()
    Store.open(tmp_path / "store").close()


def test_a_store_is_open_in_one_process(tmp_path):
    script = (
        "import sys; from pathlib import Path; from hyperbloom.store import Store\n"
        "store = Store.open(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as owner:
        assert owner.stdout.readline() == b"open\n"
        with pytest.raises(StoreLocked, match=f"process {owner.pid};"):
            Store.open(tmp_path / "store")
        owner.kill()
    Store.open(tmp_path / "store").close()


def test_nothing_is_made_where_nothing_is_to_be_made(tmp_path):
    with pytest.raises(StoreError, match="no store"):
        Store.open(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()
    with pytest.raises(StoreError, match="no store"):
        Store.open(tmp_path, create=False)
    with pytest.raises(StoreError, match="no store"):
        Store.open_readonly(tmp_path)
    with pytest.raises(StoreError, match="no store"):
        verify_path(tmp_path)
    assert not (tmp_path / "data.mdb").exists()


def test_a_creation_cut_short_is_done_again(tmp_path):
    path = tmp_path / "store"
    aside = path / ".new-store"
    aside.mkdir(parents=True)
    (aside / "data.mdb").write_bytes(b"half a file")
    Store.open(path).close()
    assert not aside.exists()


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreCorrupt, match="no folder"):
        Store.open(tmp_path / "file")


@pytest.mark.parametrize(
    "content",
    [b"", b"text", bytes(2 * PAGE), bytes(range(256)) * 64],
    ids=["empty", "short", "zeros", "garbage"],
)
def test_garbage_is_no_store_and_stays_as_it_is(tmp_path, content):
    (tmp_path / "data.mdb").write_bytes(content)
    for opener in (Store.open, Store.open_readonly):
        with pytest.raises(StoreCorrupt, match="snapshot"):
            opener(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == content
    assert not verify_path(tmp_path).ok


def test_a_foreign_lmdb_file_is_no_store(tmp_path):
    for name, databases in (("bare", []), ("named", ["meta", "feeds"])):
        folder = tmp_path / name
        folder.mkdir()
        with lmdb.open(str(folder), max_dbs=4) as environment:
            for database in databases:
                environment.open_db(database.encode())
        with pytest.raises(StoreCorrupt, match="no hyperbloom store"):
            Store.open(folder)
        with pytest.raises(StoreCorrupt, match="no hyperbloom store"):
            Store.open_readonly(folder)


def test_a_truncated_file_is_refused_before_it_is_mapped(tmp_path):
    filled(tmp_path / "whole")
    whole = (tmp_path / "whole" / "data.mdb").read_bytes()
    pages = len(whole) // PAGE
    cut = tmp_path / "cut"
    cut.mkdir()
    for length in [1, 100, PAGE, PAGE + 50, *range(2 * PAGE, len(whole), pages // 25 * PAGE)]:
        (cut / "data.mdb").write_bytes(whole[:length])
        with pytest.raises(StoreCorrupt):
            Store.open(cut)
        assert not verify_path(cut).ok
    (cut / "data.mdb").write_bytes(whole)
    assert verify_path(cut).ok


def test_a_file_that_lacks_only_free_pages_is_whole(tmp_path):
    """LMDB never writes pages that a transaction took and gave back at the end of the file."""
    short = 0
    for seed in range(8):
        folder = tmp_path / str(seed)
        filled(folder, count=10 + seed)
        with lmdb.open(str(folder), max_dbs=8, map_size=1 << 28, sync=False) as environment:
            meta = environment.open_db(b"meta")
            for turn in range(12):
                keys = [b"%06d" % (n * 7919 % 100_003) for n in range(turn * 90 + seed)]
                with environment.begin(write=True, db=meta) as txn:
                    for key in keys:
                        txn.put(key, b"x" * 300)
                    for key in keys:
                        txn.delete(key)
                file = folder / "data.mdb"
                needed = (environment.info()["last_pgno"] + 1) * PAGE
                short += file.stat().st_size < needed
                check_data_file(file)
        Store.open(folder).close()
    assert short, "no file was short, so nothing was tested"


def test_a_damaged_page_is_named_by_the_verification(tmp_path):
    filled(tmp_path)
    file = tmp_path / "data.mdb"
    content = bytearray(file.read_bytes())
    for page in range(len(content) // PAGE - 40, len(content) // PAGE - 20):
        content[page * PAGE + 200 : page * PAGE + 400] = b"\x00" * 200
    file.write_bytes(content)
    report = verify_path(tmp_path)
    assert not report.ok
    assert report.problems


@pytest.mark.parametrize("key", [META_FORMAT, META_SCHEMA])
def test_a_store_without_its_mark_is_refused(tmp_path, key):
    Store.open(tmp_path).close()
    with lmdb.open(str(tmp_path), max_dbs=8) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True) as txn:
            txn.delete(key, db=meta)
    with pytest.raises(StoreCorrupt):
        Store.open(tmp_path)
    # The refused store is not left locked.
    with pytest.raises(StoreCorrupt):
        Store.open(tmp_path)


def test_a_closed_store_says_so(store):
    store.close()
    for use in (
        store.feeds,
        store.size,
        store.verify,
        lambda: store.has(FEED, [b"a"]),
        lambda: store.snapshot(store.path / "copy"),
    ):
        with pytest.raises(StoreClosed, match="closed"):
            use()


@pytest.mark.parametrize("left", ["nothing", "another file"])
def test_what_is_written_to_a_file_that_goes_meanwhile_is_not_said_to_be_stored(
    store, run, tmp_path, left
):
    file, away = tmp_path / "store" / "data.mdb", tmp_path / "away"

    class TakeAway(PutMeta):
        def apply(self, transaction):
            super().apply(transaction)
            file.rename(away)
            if left == "another file":
                shutil.copyfile(away, file)

    with pytest.raises(StoreGone, match="restore that snapshot"):
        run(TakeAway("name", b"lost"))
    with pytest.raises(StoreGone):
        run(PutMeta("name", b"lost"))
    away.rename(file)
    run(PutMeta("name", b"stored"))
    assert store.get_meta("name") == b"stored"


def test_a_read_only_store_takes_no_writes(tmp_path):
    filled(tmp_path / "store", 10)
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "store" / "data.mdb", tmp_path / "copy")
    store = Store.open_readonly(tmp_path / "copy")
    answers = []
    WriterInline(store).submit(PutMeta("a", b"b"), answers.append)
    assert isinstance(answers[0], StoreError)
    assert store.feed(FEED).count == 10
    store.close()
    assert [file.name for file in (tmp_path / "copy").iterdir()] == ["data.mdb"]


def test_no_store_crosses_a_fork(store, run):
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child():
        for use in (store.feeds, lambda: WriterInline(store), lambda: run(PutMeta("a", b"b"))):
            try:
                use()
                answers.put("used")
            except StoreClosed as error:
                answers.put(str(error))
        store.close()

    process = context.Process(target=child)
    process.start()
    heard = [answers.get(), answers.get(), answers.get()]
    process.join(240)
    assert "fork" in heard[0]
    assert "fork" in heard[2]
    run(PutMeta("a", b"c"))
    assert store.get_meta("a") == b"c"


def test_a_newer_schema_is_refused(tmp_path):
    Store.open(tmp_path, migrations=[*MIGRATIONS, lambda transaction: None]).close()
    for opener in (Store.open, Store.open_readonly):
        with pytest.raises(SchemaMismatch, match="newer"):
            opener(tmp_path)


#: Reads a store with LMDB alone; with a line of input it tells who has a place among the readers.
READING = """
import os, sys, lmdb
environment = lmdb.open(sys.argv[1], max_dbs=32, lock=True, subdir=True, create=False)
transaction = environment.begin()
print(os.getpid(), flush=True)
if sys.argv[2] == "dies":
    os._exit(9)
sys.stdin.readline()
print(environment.readers().replace("\\n", ";"), flush=True)
"""


def test_the_places_of_readers_that_were_killed_are_free_again(tmp_path):
    """Else they would fill the table, and keep pages from being used again."""
    path = tmp_path / "store"
    Store.open(path).close()

    def reader(fate):
        command = [sys.executable, "-c", READING, str(path), fate]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    with reader("stays") as stays, reader("dies") as dies:
        pids = [one.stdout.readline().strip() for one in (stays, dies)]
        assert dies.wait() == 9
        with closing(Store.open(path)):
            readers, _ = stays.communicate("tell\n")
    assert pids[0] in readers
    assert pids[1] not in readers


def test_a_store_in_use_names_the_process_whatever_stood_there(tmp_path):
    path = tmp_path / "store"
    Store.open(path).close()
    (path / LOCK_FILE).write_text("1234567890123\n")
    with closing(Store.open(path)):
        assert (path / LOCK_FILE).read_text() == f"{os.getpid()}\n"
        with pytest.raises(StoreLocked, match=f"in use by process {os.getpid()};"):
            FolderLock(path)
