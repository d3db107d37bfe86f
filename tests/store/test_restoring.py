"""Restoring and seeding: whole or not at all, the same figures, and nobody else's store."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing

import pytest
from older_stores import make_older

from hyperbloom.store import (
    AppendValues,
    ForeignSnapshot,
    ForgetValues,
    NoSuchFeed,
    PutFeed,
    PutMeta,
    SchemaMismatch,
    Store,
    StoreCorrupt,
    StoreError,
    StoreExists,
    StoreFull,
    StoreLocked,
    Writer,
    WriterInline,
)
from hyperbloom.store.backup.snapshot_folder import list_snapshots, prune_snapshots
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.limits import GROUP_OPERATIONS
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.layout import LOG_HEAD, META_SCHEMA, U32, U64, FeedState
from hyperbloom.store.migrations import MIGRATIONS, schema_version
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.restoring.replacement import REPLACED, commit_all
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import feed_key_in, seed_store
from hyperbloom.store.tables.denied import DenyKey
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.store.tables.meta import NODE_ID, SEEDED_FROM
from hyperbloom.store.values.digest_migration import SumUp
from hyperbloom.store.values.refused import RememberRefused
from hyperbloom.store.writer import commit_group

FEED, OTHER, EMPTY = b"f" * 32, b"g" * 32, b"h" * 32
NODE, PEER = b"n" * 32, b"p" * 32
NOW = 1_700_000_000.0


def link(number, expires=NOW + 60):
    return LinkRecord(
        issuer=FEED,
        trustee=bytes([number]) * 32,
        expires=expires,
        first_seen=number,
        introduced_by=PEER,
        raw=b"link %d" % number,
    )


def fill(path, *operations):
    store = Store.open(path, durable=False)
    writer = WriterInline(store)
    for operation in operations:
        writer.submit(operation, lambda result: None)
    return store


@pytest.fixture
def snapshot(tmp_path):
    """A snapshot of the node NODE: two feeds with values of two origins, links, a refusal."""
    store = fill(
        tmp_path / "node",
        PutMeta(NODE_ID, NODE),
        *[
            PutFeed(key, {"alias": alias})
            for key, alias in ((FEED, "a"), (OTHER, "b"), (EMPTY, "c"))
        ],
        AppendValues(FEED, [b"z", b"a", b"x" * 700, b"x" * 701], NODE, 5),
        AppendValues(FEED, [b"m"], PEER, 6),
        AppendValues(FEED, [b"b"], PEER, int((NOW + 9) * 1e6)),
        AppendValues(OTHER, [b"%05d" % n for n in range(3_000)], PEER, 7),
        PutLinks(FEED, (link(1), link(2, expires=NOW - 1))),
        RememberRefused(FEED, ((b"no", "too long"),), 1),
    )
    store.snapshot(tmp_path / "snapshot")
    store.close()
    return tmp_path / "snapshot"


def figures(path):
    store = Store.open_readonly(path)
    found = {one.key: (one.count, one.bytes, one.digest) for one in store.feeds()}
    store.close()
    return found


def values_of(path):
    store = Store.open_readonly(path)
    found = store.range_slice(FEED, limit=1_000_000, max_bytes=1 << 30).values
    store.close()
    return found


def wait_for(reached):
    ends = time.monotonic() + 240
    while not reached():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.005)


def test_a_restored_store_is_the_one_of_the_snapshot(snapshot, tmp_path):
    info = restore_store(snapshot, tmp_path / "new", node_key=NODE)
    assert figures(tmp_path / "new") == figures(tmp_path / "node")
    assert {one.key: one.digest for one in info.feeds} == {
        key: digest for key, (_, _, digest) in figures(tmp_path / "new").items()
    }
    assert stat.S_IMODE((tmp_path / "new" / "data.mdb").stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path / "new")) == ["data.mdb", "node.lock"]
    store = Store.open(tmp_path / "new", create=False)
    assert store.get_meta(NODE_ID) == NODE
    assert len(store.links(FEED)) == 2
    store.close()


def test_an_existing_store_is_refused_unless_it_is_to_be_replaced(snapshot, tmp_path):
    fill(tmp_path / "mine", PutFeed(FEED, {}), AppendValues(FEED, [b"mine"], NODE, 1)).close()
    with pytest.raises(StoreExists, match="--replace"):
        restore_store(snapshot, tmp_path / "mine", node_key=NODE)
    assert figures(tmp_path / "mine")[FEED][0] == 1
    restore_store(snapshot, tmp_path / "mine", node_key=NODE, replace=True)
    assert figures(tmp_path / "mine") == figures(snapshot)
    assert figures(tmp_path / ("mine" + REPLACED))[FEED][0] == 1
    with pytest.raises(StoreExists, match="keeps a store"):
        restore_store(snapshot, tmp_path / "mine", node_key=NODE, replace=True)


def test_a_running_node_is_refused(snapshot, tmp_path):
    store = fill(tmp_path / "mine", PutFeed(FEED, {}))
    for make in (
        lambda: restore_store(snapshot, tmp_path / "mine", node_key=NODE, replace=True),
        lambda: seed_store(snapshot, tmp_path / "mine", feeds=None, now=NOW, replace=True),
    ):
        with pytest.raises(StoreLocked):
            make()
    store.close()
    assert figures(tmp_path / "mine") == {FEED: (0, 0, bytes(32))}


def test_another_nodes_snapshot_is_refused(snapshot, tmp_path):
    with pytest.raises(ForeignSnapshot, match="seed"):
        restore_store(snapshot, tmp_path / "new", node_key=PEER)
    assert not (tmp_path / "new").exists()
    restore_store(snapshot, tmp_path / "new", node_key=None)


def test_a_snapshot_that_is_not_what_it_says_is_refused(snapshot, tmp_path):
    told = json.loads((snapshot / "snapshot.json").read_text())
    told["feeds"][0]["digest"] = "00" * 32
    (snapshot / "snapshot.json").write_text(json.dumps(told))
    for make in (
        lambda: restore_store(snapshot, tmp_path / "new", node_key=NODE),
        lambda: seed_store(snapshot, tmp_path / "new", feeds=None, now=NOW),
    ):
        with pytest.raises(StoreCorrupt, match="than it says"):
            make()
    assert not (tmp_path / "new" / "data.mdb").exists()


def test_a_damaged_value_is_found(snapshot, tmp_path):
    raw = bytearray((snapshot / "data.mdb").read_bytes())
    raw[raw.index(b"01234")] ^= 1
    (snapshot / "data.mdb").write_bytes(raw)
    with pytest.raises(StoreCorrupt, match="damaged"):
        restore_store(snapshot, tmp_path / "new", node_key=NODE)
    assert not (tmp_path / "new" / "data.mdb").exists()


def test_what_is_no_snapshot_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreCorrupt, match=r"snapshot\.json"):
        restore_store(tmp_path / "empty", tmp_path / "new", node_key=None)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        seed_store(tmp_path / "empty", tmp_path / "file", feeds=None, now=NOW)


def test_a_seeded_store_has_values_and_links_and_nothing_else_of_the_node(snapshot, tmp_path):
    info = seed_store(snapshot, tmp_path / "new", feeds=None, now=NOW, verify=True)
    assert {one.key for one in info.feeds} == {FEED, OTHER}
    source = figures(snapshot)
    assert figures(tmp_path / "new") == {key: source[key] for key in (FEED, OTHER)}
    assert verify_path(tmp_path / "new").ok
    store = Store.open(tmp_path / "new", create=False)
    assert store.get_meta(NODE_ID) is None
    assert json.loads(store.get_meta(SEEDED_FROM))["node_key"] == NODE.hex()
    assert [one.raw for one in store.links(FEED)] == [b"link 1"], "the expired one is left out"
    assert store.refused(FEED) == []
    records = store.log_slice(FEED, 0, limit=99, max_bytes=99_999).records
    assert [(one.value[:1], one.origin, one.received_at) for one in records] == [
        (b"z", NODE, 5),
        (b"a", NODE, 5),
        (b"x", NODE, 5),
        (b"x", NODE, 5),
        (b"m", PEER, 6),
        (b"b", PEER, int(NOW * 1e6)),
    ], "in the order of arrival; nothing arrives in the future"
    assert store.feed(FEED).settings == {"alias": "a"}
    store.close()


def test_a_link_is_taken_until_the_second_in_which_it_expires(tmp_path):
    links = (link(1, expires=NOW), link(2, expires=NOW - 0.001))
    store = fill(tmp_path / "node", PutFeed(FEED, {}), PutLinks(FEED, links))
    store.snapshot(tmp_path / "snapshot")
    store.close()
    seed_store(tmp_path / "snapshot", tmp_path / "new", feeds=None, now=NOW)
    with closing(Store.open(tmp_path / "new", create=False)) as new:
        assert [one.raw for one in new.links(FEED)] == [b"link 1"]


def test_an_existing_store_is_not_seeded_over_unless_it_is_to_be_replaced(snapshot, tmp_path):
    fill(tmp_path / "mine", PutFeed(FEED, {})).close()
    with pytest.raises(StoreExists, match="--replace"):
        seed_store(snapshot, tmp_path / "mine", feeds=None, now=NOW)
    assert figures(tmp_path / "mine") == {FEED: (0, 0, bytes(32))}
    told = []

    def tell(done, total):
        told.append((done, total))

    seed_store(snapshot, tmp_path / "mine", feeds=None, now=NOW, replace=True, progress=tell)
    assert set(figures(tmp_path / "mine")) == {FEED, OTHER}
    assert told == [(6, 3_006), (3_006, 3_006)], "values, feed by feed"


def test_what_a_snapshot_lacks_is_said(snapshot, tmp_path):
    """A count that is told and not there, or a feed more than there are."""
    told = json.loads((snapshot / "snapshot.json").read_text())
    for change in (
        lambda feeds: feeds[0].update(count=7),
        lambda feeds: feeds[0].update(bytes=7),
        lambda feeds: feeds[0].update(top_seq=7),
        lambda feeds: feeds.append({**feeds[0], "key": "ff" * 32}),
        lambda feeds: feeds.pop(),
    ):
        fields = json.loads(json.dumps(told))
        change(fields["feeds"])
        (snapshot / "snapshot.json").write_text(json.dumps(fields))
        for make in (
            lambda: restore_store(snapshot, tmp_path / "new", node_key=NODE),
            lambda: seed_store(snapshot, tmp_path / "new", feeds=None, now=NOW),
        ):
            with pytest.raises(StoreCorrupt, match="than it says"):
                make()
        assert not (tmp_path / "new" / "data.mdb").exists()


def test_only_the_chosen_feeds_are_seeded(snapshot, tmp_path):
    seed_store(snapshot, tmp_path / "new", feeds=[OTHER], now=NOW)
    assert set(figures(tmp_path / "new")) == {OTHER}
    with pytest.raises(NoSuchFeed):
        seed_store(snapshot, tmp_path / "more", feeds=[PEER], now=NOW)
    assert not (tmp_path / "more" / "data.mdb").exists()


def test_a_snapshot_under_load_restores_to_the_digest_it_was_taken_at(tmp_path):
    """What the running store said of itself after each commit is what the restored one is."""
    store = Store.open(tmp_path / "store", durable=False, map_bytes=1 << 20)
    writer = Writer(store, deliver=lambda answer: answer())
    writer.submit(PutFeed(FEED, {}), lambda result: None)
    stop = threading.Event()
    states = {}
    written = []

    def write():
        # Bounded, and slow enough that it outlasts the snapshots on a machine that is busy.
        for number in range(5_000):
            if stop.wait(0.001):
                return
            stored = threading.Event()
            values = [b"%06d %03d" % (number, n) + b"." * 60 for n in range(200)]
            writer.submit(AppendValues(FEED, values, PEER, number), lambda _, s=stored: s.set())
            assert stored.wait(240)
            written.extend(values)
            record = store.feed(FEED)
            states[record.count] = record.digest

    thread = threading.Thread(target=write)
    thread.start()
    taken = []
    try:
        wait_for(lambda: len(states) >= 10)
        for number in range(3):
            before = max(list(states))
            info = store.snapshot(tmp_path / f"snapshot{number}")
            taken.append((before, info.feeds[0], store.feed(FEED).count))
            wait_for(lambda least=taken[-1][2]: max(list(states)) > least)
        assert thread.is_alive(), "the load went on all the time"
    finally:
        stop.set()
        thread.join()
        writer.close()
    for number, (before, one, after) in enumerate(taken):
        assert before <= one.count <= after, "of a moment while it was taken"
        assert states[one.count] == one.digest
        for name, make in (
            ("restored", lambda s, t: restore_store(s, t, node_key=None)),
            ("seeded", lambda s, t: seed_store(s, t, feeds=None, now=NOW, verify=True)),
        ):
            target = tmp_path / f"{name}{number}"
            make(tmp_path / f"snapshot{number}", target)
            assert figures(target) == {FEED: (one.count, one.bytes, one.digest)}
            assert values_of(target) == sorted(written[: one.count])
    store.close()


KILLED = textwrap.dedent(
    """
    import os, sys
    from pathlib import Path
    from hyperbloom.store.restoring.restore import restore_store
    from hyperbloom.store.restoring.seed import seed_store
    kind, snapshot, target, step = sys.argv[1:]
    left = int(step)
    real = {name: getattr(os, name) for name in ("fsync", "link", "mkdir", "rename", "unlink")}
    def dying(name):
        def call(*args, **more):
            global left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), 9)
            return real[name](*args, **more)
        return call
    for name in real:
        setattr(os, name, dying(name))
    if kind == "restore":
        restore_store(Path(snapshot), Path(target), node_key=None, replace=True)
    else:
        seed_store(Path(snapshot), Path(target), feeds=None, now=1.7e9, replace=True)
    """
)


@pytest.mark.parametrize("kind", ["restore", "seed"])
@pytest.mark.parametrize("before", ["nothing", "a store"])
def test_killed_at_any_step_it_leaves_what_was_there_or_the_whole(snapshot, tmp_path, kind, before):
    old = {FEED: (1, 4, figures(snapshot)[FEED][2])}
    whole = figures(snapshot)
    if kind == "seed":
        del whole[EMPTY]
    states = []
    for step in range(30):
        target = tmp_path / f"target{step}"
        if before == "a store":
            fill(target, PutFeed(FEED, {}), AppendValues(FEED, [b"mine"], NODE, 1)).close()
            old = figures(target)
        run = subprocess.run(
            [sys.executable, "-c", KILLED, kind, str(snapshot), str(target), str(step)],
            capture_output=True,
            check=False,
        )
        assert run.returncode in (0, -signal.SIGKILL), run.stderr
        there = (target / "data.mdb").exists()
        found = figures(target) if there else None
        assert found in ([whole, old] if before == "a store" else [whole, None])
        states.append(found == whole)
        # Whatever is left is in nobody's way.
        shutil.rmtree(target.with_name(target.name + REPLACED), ignore_errors=True)
        restore_store(snapshot, target, node_key=None, replace=True)
        assert figures(target) == figures(snapshot)
        if run.returncode == 0:
            break
    assert states[0] is False
    assert states[-1] is True
    assert len(states) > 4


@pytest.mark.parametrize("kind", ["restore", "seed"])
def test_who_was_denied_stays_denied_whatever_the_snapshot_says(tmp_path, kind):
    """Denied since an older snapshot, or here and not by the node whose snapshot it is."""

    def make(target, **more):
        if kind == "restore":
            return restore_store(tmp_path / "taken", target, node_key=None, **more)
        return seed_store(tmp_path / "taken", target, feeds=None, now=NOW, **more)

    source = fill(
        tmp_path / "node",
        PutFeed(FEED, {}),
        AppendValues(FEED, [b"a", b"b"], NODE, 1),
        ForgetValues(FEED, [b"b"]),
        DenyKey(b"t" * 32, 1, "theirs"),
    )
    source.snapshot(tmp_path / "taken")
    source.close()
    mine = (PutFeed(FEED, {}), DenyKey(b"m" * 32, 5, "mine"), DenyKey(b"t" * 32, 6, "both"))
    fill(tmp_path / "mine", *mine).close()
    warned = []
    make(tmp_path / "mine", replace=True, warn=warned.append)
    make(tmp_path / "new", warn=warned.append)
    assert warned == []
    store, new = (Store.open(tmp_path / name, create=False) for name in ("mine", "new"))
    found = {one.key[:1]: (one.denied_at, one.reason) for one in store.denied()}
    assert found == {b"m": (5, "mine"), b"t": (1 if kind == "restore" else 6, "both")}
    # Another node's deny list and what it forgot are its own business.
    assert [one.key for one in new.denied()] == ([b"t" * 32] if kind == "restore" else [])
    assert store.forgotten_figures(FEED).count == (1 if kind == "restore" else 0)
    assert store.verify().ok
    store.close()
    new.close()
    shutil.rmtree(tmp_path / ("mine" + REPLACED))
    (tmp_path / "mine" / "data.mdb").write_bytes(b"no store any more")
    make(tmp_path / "mine", replace=True, warn=warned.append)
    assert len(warned) == 1
    assert "deny its keys again" in warned[0]


def test_a_snapshot_of_an_older_schema_is_restored_and_brought_up_to_date(snapshot, tmp_path):
    before = figures(tmp_path / "node")
    snapshot = tmp_path / "older"
    with closing(Store.open(tmp_path / "node")) as store:
        make_older(store)
        store.snapshot(snapshot)
    environment = Environment(snapshot, map_bytes=1 << 24)
    with environment.write() as txn:
        for name in ("denied", "aside"):
            txn.drop(environment.databases[name])
        txn.put(META_SCHEMA, U32.pack(2), db=environment.databases["meta"])
    environment.close()
    (snapshot / "lock.mdb").unlink()
    with pytest.raises(SchemaMismatch, match="older version"):
        Store.open_readonly(snapshot)
    restore_store(snapshot, tmp_path / "new", node_key=NODE)
    with closing(Environment(tmp_path / "new", map_bytes=0)) as restored:
        assert schema_version(restored) == len(MIGRATIONS) + 1
    with closing(Store.open(tmp_path / "new")) as store:
        while any(one.digest is None for one in store.feeds()):
            commit_group(store.environment, [SumUp()])
    assert figures(tmp_path / "new") == before


@pytest.mark.parametrize("kind", ["restore", "seed"])
def test_a_snapshot_of_a_newer_version_is_not_called_damaged(snapshot, tmp_path, kind):
    """Its records may have another layout, which this program cannot read."""
    environment = Environment(snapshot, map_bytes=1 << 24)
    with environment.write() as txn:
        newer = U32.pack(len(MIGRATIONS) + 2)
        txn.put(META_SCHEMA, newer, db=environment.databases["meta"])
        txn.put(FEED, b"another layout", db=environment.databases["feeds"])
    environment.close()
    (snapshot / "lock.mdb").unlink()
    make = {
        "restore": lambda: restore_store(snapshot, tmp_path / "new", node_key=NODE),
        "seed": lambda: seed_store(snapshot, tmp_path / "new", feeds=None, now=NOW),
    }[kind]
    with pytest.raises(SchemaMismatch, match="install the newer hyperbloom"):
        make()
    assert not (tmp_path / "new" / "data.mdb").exists()


def spoilt(snapshot, tmp_path, database, key, data):
    store = Store.open(tmp_path / "node")
    with store.environment.write() as txn:
        found = txn.get(key, db=store.environment.databases[database])
        txn.put(key, data(found), db=store.environment.databases[database])
    store.snapshot(tmp_path / "spoilt")
    store.close()
    return tmp_path / "spoilt"


ID = U32.pack(1)


@pytest.mark.parametrize(
    ("database", "key", "data"),
    [
        ("feeds", FEED, lambda found: found[:-2] + b"!!"),
        ("feeds", b"short", lambda found: FeedState(feed_id=9, settings=b"{}", count=1).pack()),
        ("links", ID + b"k" * 64, lambda found: b"short"),
        ("log", ID + U64.pack(1), lambda found: LOG_HEAD.pack(5, PEER) + bytes(300_000)),
        ("log", ID + U64.pack(1), lambda found: b"short"),
    ],
)
def test_a_snapshot_whose_records_make_no_sense_is_damaged(snapshot, tmp_path, database, key, data):
    bad = spoilt(snapshot, tmp_path, database, key, data)
    for make in (
        lambda: restore_store(bad, tmp_path / "new", node_key=NODE),
        lambda: seed_store(bad, tmp_path / "new", feeds=None, now=NOW, verify=True),
    ):
        with pytest.raises(StoreCorrupt):
            make()
        assert not (tmp_path / "new" / "data.mdb").exists()


def test_a_feed_is_looked_up_by_key_or_alias(snapshot, tmp_path):
    assert feed_key_in(snapshot, FEED.hex().upper()) == FEED
    with pytest.raises(NoSuchFeed, match="'elsewhere'"):
        feed_key_in(snapshot, "elsewhere")
    bad = spoilt(snapshot, tmp_path, "feeds", FEED, lambda found: found[:-2] + b"!!")
    with pytest.raises(StoreCorrupt, match="is damaged"):
        feed_key_in(bad, FEED.hex())


@pytest.mark.parametrize("text", ['{"node_key": null, "taken_at": 1e999}', "[" * 100_000, "1", ""])
def test_a_snapshot_that_says_nonsense_of_itself_is_damaged(snapshot, tmp_path, text):
    (snapshot / "snapshot.json").write_text(text)
    with pytest.raises(StoreCorrupt):
        restore_store(snapshot, tmp_path / "new", node_key=NODE)


FULL = textwrap.dedent(
    """
    import resource, signal, sys
    from pathlib import Path
    from hyperbloom.store import StoreError
    from hyperbloom.store.restoring.restore import restore_store
    from hyperbloom.store.restoring.seed import seed_store
    kind, snapshot, target = sys.argv[1:]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        if kind == "restore":
            restore_store(Path(snapshot), Path(target), node_key=None, replace=True)
        else:
            seed_store(Path(snapshot), Path(target), feeds=None, now=1.7e9, replace=True)
    except StoreError as error:
        sys.exit(type(error).__name__ + ": " + str(error))
    """
)


@pytest.mark.parametrize("kind", ["restore", "seed"])
def test_without_room_nothing_is_changed(snapshot, tmp_path, kind):
    fill(tmp_path / "mine", PutFeed(FEED, {}), AppendValues(FEED, [b"mine"], NODE, 1)).close()
    before = figures(tmp_path / "mine")
    run = subprocess.run(
        [sys.executable, "-c", FULL, kind, str(snapshot), str(tmp_path / "mine")],
        capture_output=True,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith(b"Store")
    assert b"Traceback" not in run.stderr
    assert figures(tmp_path / "mine") == before
    assert not {".new-store"} & set(os.listdir(tmp_path / "mine"))
    assert not (tmp_path / ("mine" + REPLACED)).exists()
    restore_store(snapshot, tmp_path / "mine", node_key=NODE, replace=True)


@pytest.mark.parametrize("lacking", [0, 1])
def test_what_does_not_fit_is_not_begun(snapshot, tmp_path, monkeypatch, lacking):
    free = (snapshot / "data.mdb").stat().st_size - lacking
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=free))
        if lacking:
            with pytest.raises(StoreFull, match="make room and try again"):
                restore_store(snapshot, tmp_path / "new", node_key=NODE)
            assert not (tmp_path / "new" / "data.mdb").exists()
        else:
            restore_store(snapshot, tmp_path / "new", node_key=NODE)


def test_a_disk_without_second_names_is_said_and_leaves_nothing(snapshot, tmp_path, monkeypatch):
    fill(tmp_path / "mine", PutFeed(FEED, {})).close()

    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        with pytest.raises(StoreError, match="not permitted"):
            restore_store(snapshot, tmp_path / "mine", node_key=NODE, replace=True)
    restore_store(snapshot, tmp_path / "mine", node_key=NODE, replace=True)


def test_what_a_killed_restore_left_is_removed_when_the_store_is_opened(snapshot, tmp_path):
    restore_store(snapshot, tmp_path / "mine", node_key=NODE)
    shutil.copytree(snapshot, tmp_path / "mine" / ".new-store")
    Store.open(tmp_path / "mine").close()
    assert not (tmp_path / "mine" / ".new-store").exists()


def test_snapshots_in_a_folder_are_listed_and_pruned(tmp_path):
    folder = tmp_path / "snapshots"
    folder.mkdir()
    for number, node in enumerate([NODE, NODE, PEER, NODE]):
        store = Store.open(tmp_path / str(number), durable=False, clock=lambda n=number: 100.0 + n)
        WriterInline(store).submit(PutMeta(NODE_ID, node), lambda result: None)
        store.snapshot(folder / f"taken{number}")
        store.close()
    (folder / "file").write_text("text")
    (folder / "other").mkdir()
    (folder / "link").symlink_to(folder / "taken0")
    shutil.copytree(folder / "taken0", folder / ".taken9.partial")
    shutil.copytree(folder / "taken0", folder / "half")
    (folder / "half" / "data.mdb").unlink()
    # Of a removal that was killed, of a snapshot that had this name before.
    shutil.copytree(folder / "taken1", folder / ".taken0.removed")
    names = ["taken3", "taken2", "taken1", "taken0"]
    assert [one.path.name for one in list_snapshots(folder)] == names
    assert [one.path.name for one in prune_snapshots(folder, keep=1)] == ["taken1", "taken0"]
    assert [one.path.name for one in list_snapshots(folder)] == ["taken3", "taken2"]
    others = {"file", "other", "link", "half", ".taken9.partial", "taken2", "taken3"}
    assert set(os.listdir(folder)) == others
    with pytest.raises(ValueError, match="at least one"):
        prune_snapshots(folder, keep=0)
    with pytest.raises(StoreError, match="cannot be read"):
        list_snapshots(tmp_path / "absent")


@pytest.mark.parametrize("before", [0, GROUP_OPERATIONS])
def test_what_fails_while_a_store_is_filled_ends_it(store, before):
    operations = [PutMeta("name", b"%d" % number) for number in range(before)]
    unknown = AppendValues(b"x" * 32, [b"v"], b"o" * 32, 1)
    with pytest.raises(NoSuchFeed):
        commit_all(store.environment, [*operations, unknown, PutMeta("a", b"b")])
