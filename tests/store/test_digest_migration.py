"""Stores of schema 3 open at once; their digests are made later, each value counted once."""

import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest
from older_stores import digest_of_schema_3, make_older
from set_digests import digest_of

from hyperbloom.store import (
    AppendValues,
    DropFeed,
    ForgetValues,
    PutFeed,
    RestoreValues,
    Store,
    StoreCorrupt,
    Writer,
    WriterInline,
)
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.lmdb.layout import META_SUM, META_UNSUMMED, KeptSum
from hyperbloom.store.lmdb.transaction import write
from hyperbloom.store.operations import Unfinished
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import seed_store
from hyperbloom.store.values import digest_migration
from hyperbloom.store.values.digest_migration import SumUp
from hyperbloom.store.writer import commit_group

FEED, OTHER = b"f" * 32, b"g" * 32
ANNA = b"a" * 32
VALUES = [b"value %d" % number for number in range(40)] + [b"long" * 400]


def run(store, operation):
    (result,) = commit_group(store.environment, [operation])
    if isinstance(result, BaseException):
        raise result
    return result


def append(store, *values, feed=FEED):
    return run(store, AppendValues(feed, values, ANNA, 7))


def finish(store) -> None:
    while isinstance(run(store, SumUp()), Unfinished):
        pass


@pytest.fixture
def path(tmp_path):
    """A store of schema 3 with two feeds, one of which has forgotten values."""
    store = Store.open(tmp_path / "store", durable=False)
    for feed in (FEED, OTHER):
        run(store, PutFeed(feed, {}))
    append(store, *VALUES)
    append(store, b"other", feed=OTHER)
    run(store, ForgetValues(FEED, VALUES[:3]))
    run(store, ForgetValues(FEED, VALUES[3:5], erase=True))
    make_older(store)
    store.close()
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with closing(Store.open(path, durable=False)) as opened:
        yield opened


def test_an_older_store_opens_at_once_and_tells_how_much_is_left(store):
    record = store.feed(FEED)
    assert (record.digest, record.digest_left, record.count) == (None, 36, 36)
    assert [one.digest for one in store.feeds()] == [None, None]
    assert store.holding(FEED) is None
    assert store.has(FEED, VALUES[5:]) == [True] * 36
    assert store.verify().problems == []


def test_the_writer_adds_up_all_sets(store):
    done = threading.Event()
    writer = Writer(store, deliver=lambda answer: answer())
    while store.feed(OTHER).digest is None or store.holding(FEED) is None:
        assert not done.wait(0.005)
    writer.close()
    assert store.feed(FEED).digest == digest_of(VALUES[5:])
    assert store.feed(OTHER).digest == digest_of([b"other"])
    holding = store.holding(FEED)
    assert (holding.here.digest, holding.settled.digest) == (
        digest_of(VALUES[5:]),
        digest_of([*VALUES[5:], *VALUES[:3]]),
    )
    assert store.verify().problems == []
    with store.environment.read() as txn:
        meta = dict(txn.cursor(store.environment.databases["meta"]))
    assert not any(key.startswith(META_UNSUMMED) for key in meta)


def test_closing_does_not_wait_for_the_rest(store, monkeypatch):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 1)
    add_step = digest_migration._add_step
    began = threading.Event()

    def slow(transaction, state):
        """All of them take 4 seconds: time enough to close, on a busy machine too."""
        began.set()
        time.sleep(0.1)
        return add_step(transaction, state)

    monkeypatch.setattr(digest_migration, "_add_step", slow)
    writer = Writer(store, deliver=lambda answer: answer())
    assert began.wait(60)
    writer.close()
    assert store.feed(FEED).digest_left + store.feed(OTHER).digest_left > 0


def test_a_new_store_has_nothing_left_to_add(tmp_path):
    with closing(Store.open(tmp_path / "new", durable=False)) as store:
        run(store, PutFeed(FEED, {}))
        assert store.feed(FEED).digest == bytes(32)
        append(store, *VALUES)
        assert store.feed(FEED).digest == digest_of(VALUES)
        assert run(store, SumUp()) is None


def test_a_writer_inline_leaves_it_for_later(store):
    WriterInline(store)
    assert store.feed(FEED).digest_left == 36


@pytest.mark.parametrize("seed", range(8))
def test_what_comes_and_goes_meanwhile_counts_exactly_once(path, seed, monkeypatch):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 3)
    rng = random.Random(seed)
    steps = 0
    with closing(Store.open(path, durable=False)) as store:
        while store.feed(FEED).digest is None or store.holding(FEED) is None:
            some = [*rng.sample(VALUES, 2), b"new %d" % rng.randrange(9)]
            match rng.randrange(5):
                case 0:
                    append(store, *some)
                case 1:
                    run(store, ForgetValues(FEED, some))
                case 2:
                    run(store, RestoreValues(FEED, some[:1]))
                case _:
                    run(store, SumUp())
            assert store.verify().problems == []
            steps += 1
        assert steps > 10
        here = store.range_slice(FEED, limit=99, max_bytes=1 << 20).values
        gone = store.forgotten_slice(FEED, limit=99, max_bytes=1 << 20).values
        assert store.feed(FEED).digest == digest_of(here)
        assert store.holding(FEED).settled.digest == digest_of([*here, *gone])


def test_it_goes_on_where_it_stopped(path, monkeypatch):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 5)
    left = []
    while True:
        with closing(Store.open(path, durable=False)) as store:
            left.append(store.feed(FEED).digest_left)
            if run(store, SumUp()) is None:
                break
    assert left[:9] == [36, 31, 26, 21, 16, 11, 6, 1, 0]
    with closing(Store.open(path, durable=False)) as store:
        assert store.feed(FEED).digest == digest_of(VALUES[5:])
        assert store.verify().problems == []


def test_a_step_ends_at_its_values_and_at_its_bytes(path, monkeypatch):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 7)
    with closing(Store.open(path, durable=False)) as store:
        run(store, SumUp())
        assert store.feed(FEED).digest_left == 36 - 7
        monkeypatch.setattr(digest_migration, "SUM_STEP_BYTES", 20)
        run(store, SumUp())
        assert store.feed(FEED).digest_left == 36 - 7 - 3  # values of 8 bytes


def test_a_feed_that_is_left_meanwhile_leaves_no_sum(store, monkeypatch):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 5)
    run(store, SumUp())
    result = run(store, DropFeed(FEED))
    while isinstance(result, Unfinished):
        result = run(store, result.rest)
    run(store, PutFeed(FEED, {}))
    append(store, b"anew")
    finish(store)
    assert store.feed(FEED).digest == digest_of([b"anew"])
    assert store.verify().problems == []
    with store.environment.read() as txn:
        meta = dict(txn.cursor(store.environment.databases["meta"]))
    assert sum(key.startswith(META_SUM) for key in meta) == 2


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda kept: kept.pack()[:-1] + b"\xff", "its sum is kept as"),
        (lambda kept: KeptSum(kept.total, kept.left + 1, kept.done, kept.last).pack(), "be summed"),
        (lambda kept: KeptSum(kept.total, kept.left, kept.done + 1, kept.last).pack(), "be summed"),
        (lambda kept: kept.pack()[:-1], "its sum cannot be read"),
    ],
)
def test_a_wrong_sum_is_found_while_it_is_being_made(store, monkeypatch, spoil, sentence):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 5)
    run(store, SumUp())

    def damage(transaction):
        (name, data), *_ = transaction.scan("meta", META_SUM)
        transaction.put("meta", name, spoil(KeptSum.unpack(data)))

    write(store.environment, damage)
    assert any(sentence in problem for problem in store.verify().problems)


def test_a_sum_that_no_set_has_is_found(store):
    write(store.environment, lambda txn: txn.put("meta", META_SUM + b"\0\0\1\0", KeptSum().pack()))
    assert "meta: a sum is kept for feed id 256, which no feed has" in store.verify().problems


KILLED = """
import sys, threading
from pathlib import Path
from hyperbloom.store import Store, Writer
from hyperbloom.store.values import digest_migration
digest_migration.SUM_STEP = 20
store = Store.open(Path(sys.argv[1]))
total = store.feed(b"f" * 32).digest_left
writer = Writer(store, deliver=lambda answer: answer())
while store.feed(b"f" * 32).digest_left == total:
    pass
print(flush=True)
threading.Event().wait()
"""


def test_a_node_that_is_killed_meanwhile_goes_on_at_its_next_start(tmp_path):
    values = [b"%05d" % number for number in range(3_000)]
    with closing(Store.open(tmp_path / "store")) as store:
        run(store, PutFeed(FEED, {}))
        append(store, *values)
        make_older(store)
    lefts = [3_000]
    while lefts[-1]:
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path / "store")], stdout=subprocess.PIPE
        ) as process:
            process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            process.wait()
        with closing(Store.open(tmp_path / "store")) as store:
            lefts.append(store.feed(FEED).digest_left)
            assert lefts[-1] < lefts[-2]
            assert store.verify().problems == []
            if len(lefts) > 3:
                finish(store)
                lefts.append(store.feed(FEED).digest_left)
                assert store.feed(FEED).digest == digest_of(values)


# Snapshots that older versions took


@pytest.fixture
def snapshot(tmp_path):
    """Of schema 3."""
    store = Store.open(tmp_path / "node", durable=False)
    run(store, PutFeed(FEED, {}))
    append(store, *VALUES)
    make_older(store)
    store.snapshot(tmp_path / "snapshot")
    store.close()
    return tmp_path / "snapshot"


def test_an_older_snapshot_is_read_and_verified_as_it_is(snapshot):
    assert digest_of_schema_3(VALUES).hex() in (snapshot / "snapshot.json").read_text()
    assert verify_path(snapshot).problems == []
    with closing(Store.open_readonly(snapshot)) as store:
        record = store.feed(FEED)
        assert (record.digest, record.digest_left, record.count) == (None, 41, 41)
        assert store.holding(FEED) is None


def test_an_older_snapshot_is_restored_and_seeds(snapshot, tmp_path):
    restore_store(snapshot, tmp_path / "new", node_key=None)
    with closing(Store.open(tmp_path / "new", durable=False)) as store:
        assert store.feed(FEED).digest is None
        finish(store)
        assert store.feed(FEED).digest == digest_of(VALUES)
    seed_store(snapshot, tmp_path / "seeded", feeds=None, now=1e9, verify=True)
    with closing(Store.open(tmp_path / "seeded", durable=False)) as store:
        assert store.feed(FEED).digest == digest_of(VALUES)


def test_an_older_snapshot_that_holds_other_values_than_it_says_is_found(tmp_path):
    store = Store.open(tmp_path / "node", durable=False)
    run(store, PutFeed(FEED, {}))
    append(store, b"abc", b"def")
    make_older(store)

    def change(transaction):
        for key, data in list(transaction.scan("log", b"")):
            transaction.put("log", key, data.replace(b"abc", b"abd"))
        for key, data in list(transaction.scan("index", b"")):
            if key.endswith(b"abc"):
                transaction.delete("index", key)
                transaction.put("index", key[:-1] + b"d", data)

    write(store.environment, change)
    store.snapshot(tmp_path / "bad")
    store.close()
    assert "its digest is kept" in verify_path(tmp_path / "bad").problems[0]
    with pytest.raises(StoreCorrupt, match="its digest is kept"):
        restore_store(tmp_path / "bad", tmp_path / "new", node_key=None)
    with pytest.raises(StoreCorrupt, match="other values than it says"):
        seed_store(tmp_path / "bad", tmp_path / "new", feeds=None, now=1e9)


def test_a_snapshot_taken_meanwhile_says_so_and_is_restored(store, tmp_path, monkeypatch):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 5)
    run(store, SumUp())
    store.snapshot(tmp_path / "copy")
    assert '"digest": null' in (tmp_path / "copy" / "snapshot.json").read_text()
    assert verify_path(tmp_path / "copy").problems == []
    restore_store(tmp_path / "copy", tmp_path / "new", node_key=None)
    with closing(Store.open(tmp_path / "new", durable=False)) as restored:
        assert restored.feed(FEED).digest_left == 31
        finish(restored)
        assert restored.feed(FEED).digest == digest_of(VALUES[5:])
    seed_store(tmp_path / "copy", tmp_path / "seeded", feeds=None, now=1e9, verify=True)
    with closing(Store.open(tmp_path / "seeded", durable=False)) as seeded:
        assert seeded.feed(FEED).digest == digest_of(VALUES[5:])
