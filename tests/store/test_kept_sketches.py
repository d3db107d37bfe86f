"""Sketches of feeds: kept, in memory, salted, of ranges; from ids to values; what is damaged."""

import threading
from contextlib import closing, suppress

import numpy as np
import pytest
from older_stores import make_folder_older, make_older
from sketch_players import (
    FEED,
    ORIGIN,
    anew,
    check,
    held,
    ids,
    keep,
    keep_one,
    run,
    set_limits,
    settled,
    sketch,
)

from hyperbloom.sketches import Decoder, add, no_symbols, salted, sketch_key
from hyperbloom.store import (
    AppendValues,
    DropFeed,
    ForgetValues,
    NoSuchFeed,
    PutFeed,
    RestoreValues,
    Store,
    StoreError,
    Writer,
)
from hyperbloom.store.backup.compaction import compact_store
from hyperbloom.store.backup.snapshot import take_snapshot
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.limits import FEW_SYMBOLS, SKETCH_SYMBOLS, SKETCH_TRIES
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.kept_sketch import KEPT, RUN, SYMBOLS, KeptSketch
from hyperbloom.store.lmdb.layout import META_SCHEMA, U32, U64
from hyperbloom.store.lmdb.transaction import read, write
from hyperbloom.store.migrations import MIGRATIONS, schema_version
from hyperbloom.store.operations import Unfinished
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import seed_store
from hyperbloom.store.sketches.runs import ENTRY_BYTES, find_in, make_run, parse_run
from hyperbloom.store.sketches.writing import DropSketch, SketchPiece
from hyperbloom.store.values import digest_migration
from hyperbloom.store.values.digest_migration import SumUp
from hyperbloom.store.writer import commit_group

OTHER = b"g" * 32
VALUES = [b"value %03d" % number for number in range(50)]
RUN_OF = 10
SALT = bytes(range(16))


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    set_limits(monkeypatch.setattr, RUN_VALUES=RUN_OF, SKETCH_STEP=7)


@pytest.fixture
def store(tmp_path):
    with closing(Store.open(tmp_path / "store", durable=False)) as opened:
        run(opened, PutFeed(FEED, {}))
        yield opened


def append(store, *values, feed=FEED):
    return run(store, AppendValues(feed, values, ORIGIN, 7))


def records(store, kind: bytes = b"") -> dict[bytes, bytes]:
    """What lies in the database of sketches, by its key without the set's id."""
    with read(store.environment) as transaction:
        found = {key[U32.size :]: data for key, data in transaction.scan("sketches")}
    return {key: data for key, data in found.items() if key.startswith(kind)}


def kept(store) -> KeptSketch:
    with read(store.environment) as transaction:
        return transaction.sketch_of(transaction.feed(FEED))


def leave(store, feed: bytes) -> None:
    result = run(store, DropFeed(feed))
    while isinstance(result, Unfinished):
        result = run(store, result.rest)


def spoil(store, kind: bytes, data: bytes | None) -> None:
    """Put other data in the place of the first record of this kind, or none."""

    def change(transaction):
        key = next(key for key, _ in transaction.scan("sketches") if key[4:].startswith(kind))
        if data is None:
            transaction.delete("sketches", key)
        else:
            transaction.put("sketches", key, data)

    write(store.environment, change)


# What is kept


def test_the_kept_sketch_goes_on_by_whole_runs(store):
    append(store, *VALUES[:9])
    assert store.begin_piece(FEED) is None
    append(store, *VALUES[9:35])
    assert store.sketch_lag(FEED) == 35
    assert keep(store) == 3
    assert (kept(store).upto, kept(store).count, store.sketch_lag(FEED)) == (30, 30, 5)
    assert [U64.unpack(key[1:])[0] for key in records(store, RUN)] == [1, 11, 21]
    check(store)


def test_inserting_writes_nothing_about_sketches(store):
    append(store, *VALUES)
    assert records(store) == {}
    keep(store)
    before = records(store)
    append(store, *[b"new %d" % number for number in range(100)])
    assert records(store) == before


def test_removal_at_or_below_what_is_kept_is_taken_out_at_once(store):
    append(store, *VALUES)
    keep_one(store)
    run(store, ForgetValues(FEED, VALUES[:3], erase=True))
    run(store, ForgetValues(FEED, VALUES[9:10], erase=True))
    assert (kept(store).count, kept(store).removals) == (6, 0)
    symbols = np.frombuffer(records(store)[SYMBOLS], "<u4").reshape(-1, SKETCH_SYMBOLS)
    assert np.array_equal(symbols, anew(VALUES[3:9], SKETCH_SYMBOLS))
    run(store, ForgetValues(FEED, VALUES[10:12], erase=True))
    assert (kept(store).count, kept(store).removals) == (6, 1)
    check(store)


def test_a_piece_is_not_written_if_what_it_was_made_of_has_changed(store):
    append(store, *VALUES)
    for change in (
        lambda: run(store, ForgetValues(FEED, VALUES[2:3])),
        lambda: keep_one(store),
        lambda: run(store, DropSketch(FEED, b"")),
    ):
        piece = store.begin_piece(FEED)
        while (operation := piece.step()) is None:
            pass
        change()
        assert run(store, operation) is False
        check(store)
    assert keep(store) == 4
    check(store)


def test_a_piece_may_be_cut_short_by_what_is_forgotten(store):
    append(store, *VALUES[:RUN_OF])
    piece = store.begin_piece(FEED)
    run(store, ForgetValues(FEED, VALUES, erase=True))
    while (operation := piece.step()) is None:
        pass
    assert run(store, operation) is False
    assert keep(store) == 0
    check(store)


@pytest.mark.parametrize("apart", [4, 8])  # in the first step of a piece, and in the second
def test_a_piece_ends_where_its_numbers_lie_too_far_apart(store, monkeypatch, apart):
    set_limits(monkeypatch.setattr, MAX_OFFSET=apart)
    append(store, *VALUES[:12])
    keep_one(store)
    assert (kept(store).upto, kept(store).count) == (apart + 1, apart + 1)
    check(store)


def test_a_piece_of_a_set_that_is_gone_is_not_written(store):
    append(store, *VALUES[:20])
    run(store, ForgetValues(FEED, VALUES[:10]))
    while (piece := store.begin_piece(FEED))._tag == b"":
        keep_one(store)
    while (operation := piece.step()) is None:
        pass
    run(store, RestoreValues(FEED, VALUES[:10]))
    leave(store, FEED)
    run(store, PutFeed(FEED, {}))
    assert run(store, operation) is False
    assert records(store) == {}


def test_a_feed_that_is_left_in_the_transaction_that_changes_it_leaves_nothing(store):
    append(store, *VALUES)
    keep(store)
    changed_and_left = [ForgetValues(FEED, VALUES[:3], erase=True), DropFeed(FEED)]
    _, result = commit_group(store.environment, changed_and_left)
    while isinstance(result, Unfinished):
        result = run(store, result.rest)
    assert records(store) == {}
    assert store.verify().problems == []


def test_nothing_stays_of_what_could_not_be_read(store):
    append(store, *VALUES[:35])
    keep(store)
    assert [U64.unpack(key[1:])[0] for key in records(store, RUN)] == [1, 11, 21]
    run(store, ForgetValues(FEED, VALUES[:5], erase=True))
    spoil(store, KEPT, b"abc")
    keep(store)
    assert [U64.unpack(key[1:])[0] for key in records(store, RUN)] == [6, 16, 26]
    check(store)


def test_a_run_goes_when_all_its_values_are_gone(store):
    append(store, *VALUES[:30])
    keep(store)
    run(store, ForgetValues(FEED, VALUES[:19]))
    append(store, *VALUES[30:45])
    keep(store)
    assert [U64.unpack(key[1:])[0] for key in records(store, RUN)] == [11, 21, 31]
    check(store)


def test_what_is_forgotten_and_kept_whole_has_a_sketch_of_its_own_and_no_runs(store):
    append(store, *VALUES)
    run(store, ForgetValues(FEED, VALUES[:25]))
    assert keep(store) == 2 + 2
    with read(store.environment) as transaction:
        (_, aside) = (transaction.feed(FEED), transaction.find_aside(transaction.feed(FEED), b"v"))
        keys = [key[4:5] for key, _ in transaction.scan("sketches", aside.prefix)]
    assert keys == [KEPT, SYMBOLS]
    check(store)
    run(store, RestoreValues(FEED, VALUES[:5]))
    check(store)
    assert store.values_of(FEED, ids(VALUES[:7])) == VALUES[:5]


def test_a_left_feed_leaves_nothing(store):
    run(store, PutFeed(OTHER, {}))
    append(store, *VALUES, feed=OTHER)
    append(store, *VALUES)
    run(store, ForgetValues(FEED, VALUES[:20]))
    keep(store)
    keep(store, OTHER)
    there = set(records(store))
    piece = SketchPiece(store.environment, FEED, b"", prefix=b"\0\0\0\1", kept=kept(store))
    leave(store, FEED)
    assert store.verify().problems == []
    leave(store, OTHER)
    assert records(store) == {}
    assert there
    for ask in (store.sketch_step, store.begin_piece, store.sketch_lag):
        with pytest.raises(NoSuchFeed):
            ask(FEED)
    run(store, PutFeed(FEED, {}))
    with pytest.raises(NoSuchFeed, match="left while"):
        piece.step()
    append(store, *VALUES[:3])
    check(store)


def test_sketches_are_in_snapshots_and_stay_when_a_store_is_compacted(store, tmp_path):
    append(store, *VALUES)
    run(store, ForgetValues(FEED, VALUES[:20]))
    keep(store)
    before = records(store)
    store.snapshot(tmp_path / "copy")
    with closing(Store.open_readonly(tmp_path / "copy")) as copy:
        assert records(copy) == before
        check(copy)
    restore_store(tmp_path / "copy", tmp_path / "restored", node_key=None)
    compact_store(tmp_path / "restored")
    with closing(Store.open(tmp_path / "restored", durable=False)) as restored:
        assert records(restored) == before
        check(restored)
    seed_store(tmp_path / "copy", tmp_path / "seeded", feeds=None, now=1e9, verify=True)
    with closing(Store.open(tmp_path / "seeded", durable=False)) as seeded:
        assert records(seeded) == {}
        check(seeded)
        assert keep(seeded) == 3
        check(seeded)


# What is handed out


def test_a_step_reads_so_many_values_and_the_next_goes_on(store):
    append(store, *VALUES[:22])
    assert [store.sketch_step(FEED) is None for _ in range(4)] == [True, True, True, False]
    append(store, VALUES[22])
    assert store.sketch_step(FEED).settled.count == 23
    assert store.sketch_step(FEED).settled.count == 23


def test_a_step_ends_at_its_bytes_too(store, monkeypatch):
    set_limits(monkeypatch.setattr, SKETCH_STEP_BYTES=100)
    append(store, *[b"%d" % number * 90 for number in range(5)])
    steps = 1
    while store.sketch_step(FEED) is None:
        steps += 1
    assert steps == 6
    check(store)


def test_what_was_handed_out_stays_as_it_was(store):
    append(store, *VALUES[:30])
    keep_one(store)
    first = sketch(store)
    copy = first.symbols.copy()
    append(store, *VALUES[30:])
    run(store, ForgetValues(FEED, VALUES[:25], erase=True))
    keep(store)
    assert not np.array_equal(sketch(store).symbols, copy)
    assert np.array_equal(first.symbols, copy)


def test_two_stores_differ_by_what_their_sketches_say(store, tmp_path):
    append(store, *VALUES)
    keep(store)
    with closing(Store.open(tmp_path / "other", durable=False)) as other:
        run(other, PutFeed(FEED, {}))
        append(other, *VALUES[3:], b"theirs")
        decoder = Decoder(sketch_key(FEED), most_ids=100)
        theirs = sketch(other).symbols
        difference = sketch(store).symbols[:, : theirs.shape[1]] - theirs
        assert decoder.feed(difference[:, :128])
        assert sorted(store.values_of(FEED, decoder.mine)) == VALUES[:3]
        assert other.values_of(FEED, decoder.theirs) == [b"theirs"]


def test_threads_may_ask_at_once(store):
    append(store, *VALUES)
    made = []
    threads = [threading.Thread(target=lambda: made.append(sketch(store))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert all(np.array_equal(one.symbols, anew(VALUES, FEW_SYMBOLS)) for one in made)


def test_there_is_no_sketch_while_the_digest_is_being_computed(tmp_path, store, monkeypatch):
    monkeypatch.setattr(digest_migration, "SUM_STEP", 5)
    append(store, *VALUES)
    make_older(store)
    store.close()
    with closing(Store.open(tmp_path / "store", durable=False)) as opened:
        for ask in (opened.sketch_step, lambda key: opened.salted_sketch(key, SALT, 9).step()):
            with pytest.raises(StoreError, match="being computed"):
                ask(FEED)
        while isinstance(run(opened, SumUp()), Unfinished):
            pass
        check(opened)


def test_who_asks_again_and_again_while_values_go_is_told_so(store):
    append(store, *VALUES)
    for number in range(3):
        assert store.sketch_step(FEED) is None
        run(store, ForgetValues(FEED, [VALUES[number]]))
    with pytest.raises(StoreError, match="removed each time"):
        store.sketch_step(FEED)
    check(store)


def test_a_sketch_that_was_made_has_all_its_tries_again(store):
    append(store, *VALUES)
    sketch(store)
    for number in range(SKETCH_TRIES - 1):
        run(store, ForgetValues(FEED, [VALUES[number]]))
        assert store.sketch_step(FEED) is None
    check(store)


def test_sketches_in_memory_give_way_beyond_their_bytes(store, monkeypatch):
    run(store, PutFeed(OTHER, {}))
    for feed in (FEED, OTHER):
        append(store, *VALUES[:RUN_OF], feed=feed)
    sketch(store)
    one = store.tails.nbytes
    assert one > FEW_SYMBOLS * 28
    set_limits(monkeypatch.setattr, MAX_SKETCH_BYTES=2 * one)
    sketch(store, OTHER)
    assert store.tails.nbytes == 2 * one
    assert store.sketch_step(FEED) is not None
    set_limits(monkeypatch.setattr, MAX_SKETCH_BYTES=2 * one - 1)
    assert store.sketch_step(OTHER) is not None
    assert store.tails.nbytes == one
    assert store.sketch_step(OTHER) is not None
    assert store.sketch_step(FEED) is None
    check(store)


# With a salt, of ranges


def finished(pass_):
    steps = 1
    while (made := pass_.step()) is None:
        steps += 1
    return made, steps


def test_a_salted_sketch_is_of_salted_ids(store):
    append(store, *VALUES)
    run(store, ForgetValues(FEED, VALUES[:4]))
    keep(store)
    pass_ = store.salted_sketch(FEED, SALT, 300)
    made, steps = finished(pass_)
    expected = no_symbols(300)
    add(expected, salted(ids(VALUES), SALT), sketch_key(FEED))
    assert np.array_equal(made.symbols, expected)
    assert (made.settled, made.top_seq) == (store.holding(FEED).settled, 50)
    assert (pass_.looked_at, steps) == (50, 8)


def test_a_salted_sketch_is_of_the_moment_at_which_it_is_through(store):
    append(store, *VALUES[:30])
    pass_ = store.salted_sketch(FEED, SALT, 300)
    for step in range(3):
        assert pass_.step() is None
        if step == 1:
            append(store, *VALUES[30:])
            run(store, ForgetValues(FEED, VALUES[:4], erase=True))
    made, _ = finished(pass_)
    expected = no_symbols(300)
    add(expected, salted(ids(VALUES[4:]), SALT), sketch_key(FEED))
    assert np.array_equal(made.symbols, expected)
    assert made.settled == store.holding(FEED).settled
    assert pass_.looked_at > 46


def test_a_salted_sketch_is_given_up_if_values_go_again_and_again(store):
    append(store, *VALUES)
    pass_ = store.salted_sketch(FEED, SALT, 300)

    def ask_and_remove():
        for value in VALUES:
            assert pass_.step() is None
            run(store, ForgetValues(FEED, [value], erase=True))

    with pytest.raises(StoreError, match="removed each time"):
        ask_and_remove()
    assert pass_.looked_at > 100


def test_a_sketch_of_ranges_is_of_what_is_settled_there(store):
    append(store, *VALUES)
    run(store, ForgetValues(FEED, VALUES[10:13]))
    ranges = [(b"value 005", b"value 012"), (b"value 04", None)]
    pass_ = store.range_sketch(FEED, ranges, 300)
    made, _ = finished(pass_)
    expected = [*VALUES[5:12], *VALUES[40:]]
    assert np.array_equal(made.symbols, anew(expected, 300))
    append_only = [value for value in settled(store) if value in expected]
    assert append_only == expected
    with closing(Store.open(store.path.with_name("part"), durable=False)) as part:
        run(part, PutFeed(FEED, {}))
        append(part, *expected)
        assert made.settled == part.holding(FEED).settled
    empty, steps = finished(store.range_sketch(FEED, [], 300))
    assert (empty.symbols.any(), empty.settled.count, steps) == (False, 0, 1)


# From ids to values


def test_values_are_found_in_runs_in_memory_and_in_the_log(store):
    append(store, *VALUES[:25])
    keep(store)
    append(store, *VALUES[25:30])
    sketch(store)
    append(store, *VALUES[30:35])
    assert sorted(store.values_of(FEED, ids(VALUES))) == VALUES[:35]
    assert store.values_of(FEED, ids([])) == []
    run(store, ForgetValues(FEED, VALUES[:3] + VALUES[31:32]))
    assert sorted(store.values_of(FEED, ids(VALUES))) == VALUES[3:31] + VALUES[32:35]


def test_an_id_of_which_the_first_bytes_fit_is_not_found(store):
    append(store, *VALUES[:25])
    keep(store)
    sketch(store)
    wrong = ids(VALUES[:25]).copy()
    wrong[:, 3] ^= 1
    assert store.values_of(FEED, wrong) == []
    both = np.concatenate([wrong, ids(VALUES[:25])])
    assert sorted(store.values_of(FEED, both)) == VALUES[:25]


def test_equal_heads_in_a_run_are_all_found():
    heads = np.array([5, 9, 5, 7, 5], "<u8")
    seqs = np.array([10, 11, 12, 13, 15], "<u8")
    found, offsets = parse_run(make_run(heads, seqs, 10), 10)
    places = list(find_in(found, np.array([4, 5, 9, 10], "<u8")))
    assert [(which, 10 + int(offsets[place])) for which, place in places] == [
        (1, 10), (1, 12), (1, 15), (2, 11),
    ]  # fmt: skip
    assert list(find_in(found[:0], heads)) == []


def test_ids_in_memory_and_values_read_of_the_log_are_bounded(store, monkeypatch):
    set_limits(monkeypatch.setattr, MAX_RECENT_IDS=14)
    append(store, *VALUES)
    sketch(store)
    # Two steps of seven in memory, RUN_OF behind them from the log.
    assert sorted(store.values_of(FEED, ids(VALUES))) == VALUES[: 14 + RUN_OF]
    set_limits(monkeypatch.setattr, MAX_RECENT_IDS=13)
    append(store, b"one more")
    store.tails.__init__()
    sketch(store)
    assert sorted(store.values_of(FEED, ids(VALUES))) == VALUES[: 7 + RUN_OF]
    keep(store)
    assert sorted(store.values_of(FEED, ids(VALUES))) == VALUES


# Older stores


def as_schema_4(transaction):
    for key, _ in list(transaction.scan("sketches")):
        transaction.delete("sketches", key)
    transaction.put("meta", META_SCHEMA, U32.pack(4))


@pytest.mark.parametrize("schema", [3, 4])
def test_an_older_store_gets_its_sketch_in_the_background(tmp_path, store, schema):
    append(store, *VALUES)
    run(store, ForgetValues(FEED, VALUES[:15]))
    if schema == 4:
        write(store.environment, as_schema_4)
    store.close()
    path = tmp_path / "store"
    if schema == 3:
        make_folder_older(path)
    with closing(Store.open(path, durable=False)) as opened:
        assert schema_version(opened.environment) == len(MIGRATIONS) + 1
        assert opened.sketch_lag(FEED) == 35
        done = threading.Event()
        writer = Writer(opened, deliver=lambda answer: answer())
        while opened.holding(FEED) is None:
            assert not done.wait(0.005)
        writer.close()
        assert keep(opened) == 3 + 1
        check(opened)


def test_a_snapshot_from_before_sketches_is_read_verified_restored(tmp_path, store):
    append(store, *VALUES)
    write(store.environment, as_schema_4)
    store.close()
    with closing(Environment(tmp_path / "store", map_bytes=1 << 20)) as environment:
        with environment.write() as txn:
            txn.drop(environment.databases.pop("sketches"), delete=True)
        take_snapshot(environment, tmp_path / "old", taken_at=7)
    assert verify_path(tmp_path / "old").problems == []
    with closing(Store.open_readonly(tmp_path / "old")) as old:
        assert "sketches" not in old.environment.databases
        assert held(old) == VALUES
        assert sorted(old.values_of(FEED, ids(VALUES[:9]))) == VALUES[:9]
        assert np.array_equal(sketch(old).symbols, anew(VALUES, FEW_SYMBOLS))
    restore_store(tmp_path / "old", tmp_path / "new", node_key=None)
    with closing(Store.open(tmp_path / "new", durable=False)) as new:
        assert keep(new) == 5
        check(new)


# Damage


def with_wrong_symbol(store) -> bytes:
    data = bytearray(records(store)[SYMBOLS])
    data[5_000] ^= 1
    return bytes(data)


def changed(store, **fields) -> bytes:
    one = kept(store)
    for name, value in fields.items():
        setattr(one, name, value)
    return one.pack()


DAMAGE = {
    "wrong symbol": (SYMBOLS, with_wrong_symbol, "its sketch is not that of its values"),
    "short symbols": (SYMBOLS, lambda s: records(s)[SYMBOLS][:-1], "symbols of its sketch cannot"),
    "no symbols": (SYMBOLS, lambda store: None, "symbols of its sketch cannot be read"),
    "short record": (KEPT, lambda store: b"abc", "what is kept of its sketch cannot be read"),
    "wrong count": (KEPT, lambda s: changed(s, count=29), "its sketch is of 29 values and comes"),
    "wrong upto": (KEPT, lambda s: changed(s, upto=31), "its sketch is of 30 values and comes to"),
    "far upto": (KEPT, lambda s: changed(s, upto=1 << 40), "beyond the top number 35"),
    "wrong key": (KEPT, lambda s: changed(s, key=bytes(16)), "was made for another feed"),
    "short run": (RUN, lambda s: records(s)[RUN + U64.pack(1)][1:], "from number 1 has 119 bytes"),
    "no run": (RUN, lambda store: None, "log record 1 is missing in the runs"),
    "other run": (RUN, lambda s: records(s)[RUN + U64.pack(11)], "log record 1 is missing in"),
    "empty run": (RUN, lambda store: b"", "log record 10 is missing in the runs"),
    "entries swapped": (
        RUN,
        lambda s: records(s)[RUN + U64.pack(1)][8:16] * 2 + records(s)[RUN + U64.pack(1)][16:],
        "is missing in the runs of its sketch",
    ),
    "unsorted run": (
        RUN,
        lambda s: make_run(np.zeros(RUN_OF, "<u8"), np.arange(1, 11, dtype="<u8"), 1)[::-1],
        "run from number 1 is not sorted",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_does_no_harm(store, tmp_path, name):
    kind, make, sentence = DAMAGE[name]
    append(store, *VALUES[:35])
    keep(store)
    assert store.verify().problems == []
    spoil(store, kind, make(store))
    assert any(sentence in problem for problem in store.verify().problems)
    store.snapshot(tmp_path / "copy")
    assert any(sentence in problem for problem in verify_path(tmp_path / "copy").problems)
    # Who asks gets a sketch, or a sentence; who writes is not in the way of it.
    with suppress(StoreError):
        sketch(store)
    assert set(store.values_of(FEED, ids(VALUES))) <= set(VALUES)
    run(store, ForgetValues(FEED, VALUES[:4], erase=True))
    append(store, *VALUES[35:])
    with suppress(StoreError):
        sketch(store)
    keep(store)
    assert sorted(held(store)) == VALUES[4:]
    # What a node sees by itself is mended; a wrong symbol or run shows in verify alone.
    if name in ("short symbols", "no symbols", "short record", "wrong count", "wrong key"):
        check(store)
    run(store, DropSketch(FEED, b""))
    keep(store)
    check(store)


@pytest.mark.parametrize("name", ["short symbols", "no symbols", "wrong count", "wrong key"])
def test_a_sketch_is_right_though_what_is_kept_cannot_be_used(store, name):
    kind, make, _ = DAMAGE[name]
    append(store, *VALUES[:35])
    keep(store)
    spoil(store, kind, make(store))
    assert np.array_equal(sketch(store).symbols, anew(VALUES[:35], SKETCH_SYMBOLS))


@pytest.mark.parametrize("name", ["short symbols", "no symbols", "wrong key"])
def test_what_was_spoilt_while_a_piece_was_made_is_not_added_to(store, name):
    kind, make, _ = DAMAGE[name]
    append(store, *VALUES[:35])
    keep_one(store)
    piece = store.begin_piece(FEED)
    while (operation := piece.step()) is None:
        pass
    spoil(store, kind, make(store))
    assert run(store, operation) is False
    assert records(store) == {}
    assert keep(store) == 3
    check(store)


def test_a_sketch_that_comes_to_another_count_is_given_up(store):
    append(store, *VALUES[:5])
    write(store.environment, lambda transaction: setattr(transaction.feed(FEED), "count", 6))
    assert [store.sketch_step(FEED) for _ in range(SKETCH_TRIES)] == [None] * SKETCH_TRIES
    with pytest.raises(StoreError):
        store.sketch_step(FEED)


def test_records_of_no_set_are_found(store):
    write(store.environment, lambda txn: txn.put("sketches", b"\0\0\1\0" + KEPT, b""))
    assert "sketches: records of feed id 256, which no feed has" in store.verify().problems


def test_a_malformed_key_of_a_run_is_named(store):
    append(store, *VALUES[:35])
    keep(store)
    prefix = b"\0\0\0\1"
    write(store.environment, lambda txn: txn.put("sketches", prefix + RUN + b"\0\0", b""))
    assert any("is malformed" in problem for problem in store.verify().problems)
    assert set(store.values_of(FEED, ids(VALUES))) <= set(VALUES)


def test_an_entry_is_as_long_as_it_says():
    made = make_run(np.arange(3, dtype="<u8"), np.arange(3, dtype="<u8"), 0)
    assert len(made) == 3 * ENTRY_BYTES
