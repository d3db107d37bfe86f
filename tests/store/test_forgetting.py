"""Forgotten values: gone from the feed, remembered within bounds, brought back as they were."""

import random

import pytest
from set_digests import digest_of

from hyperbloom.store import (
    AppendValues,
    DropFeed,
    ForgetValues,
    PutFeed,
    RestoreValues,
    Store,
)
from hyperbloom.store.limits import FORGET_STEP
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.values import forgotten
from hyperbloom.store.values.forgotten import BroughtLater, DropForgottenHashes
from hyperbloom.store.values.ordered_index import PART_BYTES
from hyperbloom.store.values.scan import feed_generation

ANNA, BERT = b"a" * 32, b"b" * 32


@pytest.fixture
def put(run, feed):
    def put(values, origin=ANNA, at=7, **more):
        return run(AppendValues(feed, values, origin, at, **more))

    return put


@pytest.fixture
def forget(run, feed):
    return lambda values, **more: run(ForgetValues(feed, values, **more))


def all_values(store, feed):
    return store.range_slice(feed, limit=100_000, max_bytes=1 << 30).values


def kept(store, feed):
    return store.forgotten_slice(feed, limit=100_000, max_bytes=1 << 30).values


def test_a_forgotten_value_is_gone_and_does_not_come_back(store, put, forget, feed):
    put([b"one", b"two", b"three"])
    before = store.feed(feed)
    result = forget([b"two", b"never here"])
    assert (result.count, result.bytes, result.absent) == (1, 3, 0)
    assert all_values(store, feed) == [b"one", b"three"]
    assert [r.value for r in store.log_slice(feed, 0, limit=9, max_bytes=99).records] == [
        b"one",
        b"three",
    ]
    again = put([b"two", b"four"], origin=BERT)
    assert (again.values, again.forgotten) == ([b"four"], 1)
    assert again.first_seq > before.top_seq
    record = store.feed(feed)
    assert (record.count, record.bytes) == (3, 12)
    assert kept(store, feed) == [b"two"]
    assert store.verify().problems == []


def test_the_digest_is_that_of_a_feed_that_never_had_it(store, run, put, forget, feed):
    run(PutFeed(b"g" * 32, {}))
    run(AppendValues(b"g" * 32, [b"one", b"x" * 2000], BERT, 9))
    put([b"one", b"x" * 2000, b"x" * 1999 + b"y"])
    forget([b"x" * 1999 + b"y"])
    assert store.feed(feed).digest == store.feed(b"g" * 32).digest


def test_what_is_absent_can_be_kept_from_coming(store, put, forget, feed):
    assert forget([b"bad"], absent=True).absent == 1
    assert forget([b"bad"], absent=True).absent == 0
    assert put([b"bad"]).forgotten == 1
    assert all_values(store, feed) == []
    assert store.verify().problems == []


def test_an_erased_value_leaves_its_hash_alone(store, put, forget, feed, tmp_path):
    put([b"a secret that is to go", b"other"])
    forget([b"a secret that is to go"], erase=True)
    figures = store.forgotten_figures(feed)
    assert (figures.count, figures.hashes) == (0, 1)
    assert put([b"a secret that is to go"]).forgotten == 1
    store.snapshot(tmp_path / "copy")
    assert b"a secret that is to go" not in (tmp_path / "copy" / "data.mdb").read_bytes()


def test_erasing_takes_what_was_kept_whole_as_well(store, put, forget, feed):
    put([b"secret"])
    forget([b"secret"])
    assert forget([b"secret"], erase=True, absent=True).absent == 1
    figures = store.forgotten_figures(feed)
    assert (figures.count, figures.hashes) == (0, 1)
    assert store.verify().problems == []


def test_undo_brings_back_who_brought_it_and_when(store, run, put, forget, feed):
    put([b"one"], at=11)
    put([b"two"], origin=BERT, at=22)
    forget([b"one", b"two"])
    forget([b"erased", b"absent"], erase=True, absent=True)
    back = run(RestoreValues(feed, [b"two", b"erased", b"unknown"]))
    assert back.values == [b"two"]
    (record,) = store.log_slice(feed, 0, limit=9, max_bytes=99).records
    assert (record.value, record.origin, record.received_at) == (b"two", BERT, 22)
    assert kept(store, feed) == [b"one"]
    assert put([b"erased"]).values == [b"erased"]
    run(DropForgottenHashes(feed))
    assert put([b"absent"]).values == [b"absent"]
    assert store.verify().problems == []


def test_an_own_put_brings_it_back(store, put, forget, feed):
    put([b"one"])
    forget([b"one"])
    assert put([b"one"], restores=True).values == [b"one"]
    assert kept(store, feed) == []
    assert store.verify().problems == []


def test_only_what_one_peer_brought(store, put, forget, feed):
    put([b"hers"])
    put([b"his"], origin=BERT)
    seqs = store.seqs(feed, [b"hers"])
    assert forget([b"hers", b"his"], brought_by=BERT).count == 1
    assert all_values(store, feed) == [b"hers"]
    assert store.seqs(feed, [b"hers"]) == seqs


def test_what_a_peer_brought_later_than_it_was_asked_for_is_spared(store, put, forget, feed):
    put([b"old", b"new"])
    put([b"hers"], origin=BERT)
    (seq,) = store.seqs(feed, [b"old"])
    than = {b"old": seq, b"new": seq, b"hers": seq, b"absent": seq}
    done = forget(list(than), absent=True, spare=BroughtLater(origin=ANNA, than=than))
    assert (done.count, done.absent) == (2, 1)
    assert all_values(store, feed) == [b"new"]
    assert store.forgotten(feed, list(than)) == {b"old", b"hers", b"absent"}


def test_of_given_values_who_brought_them_and_which_are_forgotten(store, put, forget, feed):
    put([b"hers", b"gone", b"erased"])
    put([b"his"], origin=BERT)
    forget([b"gone"])
    forget([b"erased"], erase=True)
    asked = [b"his", b"never", b"gone", b"hers", b"erased"]
    assert store.origins(feed, asked) == [BERT, None, None, ANNA, None]
    assert store.forgotten(feed, asked) == {b"gone", b"erased"}
    assert store.origins(feed, []) == []


def test_values_by_origin_come_in_bounded_slices(store, put, feed, forget):
    for number in range(20):
        put([b"%02d" % number], origin=BERT if number % 4 == 0 else ANNA)
    found, seq, slices = [], 0, 0
    while seq is not None:
        piece = store.origin_slice(feed, BERT, seq, limit=2, max_bytes=99, scan=3)
        found += [record.value for record in piece.records]
        seq, slices = piece.next_seq, slices + 1
    assert found == [b"00", b"04", b"08", b"12", b"16"]
    assert slices >= 7
    forget([b"04", b"05"])
    piece = store.origin_slice(feed, BERT, 0, limit=9, max_bytes=99, forgotten=True)
    assert [record.value for record in piece.records] == [b"04"]


def test_beyond_the_bounds_hashes_stay_and_then_nothing(store, put, forget, feed, monkeypatch):
    monkeypatch.setattr(forgotten, "MAX_FORGOTTEN_VALUES", 4)
    monkeypatch.setattr(forgotten, "MAX_FORGOTTEN_HASHES", 3)
    values = [b"%d" % number for number in range(8)]
    put(values)
    for value in values:
        forget([value])
    assert kept(store, feed) == values[4:]
    assert store.forgotten_figures(feed).hashes == 3
    assert put(values).values == [b"0"]
    assert store.verify().problems == []


def test_one_step_makes_as_much_room_as_it_needs_and_no_more(store, put, forget, feed, monkeypatch):
    monkeypatch.setattr(forgotten, "MAX_FORGOTTEN_VALUES", 4)
    values = [b"%d" % number for number in range(9)]
    put(values)
    forget(values)
    assert kept(store, feed) == values[5:]
    assert store.forgotten_figures(feed).hashes == 5
    monkeypatch.setattr(forgotten, "MAX_FORGOTTEN_HASHES", 6)
    others = [b"other %d" % number for number in range(3)]
    put(others)
    forget(others, erase=True)
    assert store.forgotten_figures(feed).hashes == 6
    assert put([*values[:3], *others]).values == values[:2]
    assert store.verify().problems == []


def test_long_values_are_bounded_in_bytes(store, put, forget, feed, monkeypatch):
    monkeypatch.setattr(forgotten, "MAX_FORGOTTEN_BYTES", 1_000)
    put([b"a" * 600, b"b" * 400, b"c"])
    forget([b"a" * 600, b"b" * 400])
    assert store.forgotten_figures(feed).hashes == 0
    forget([b"c"])
    assert kept(store, feed) == [b"b" * 400, b"c"]
    assert put([b"a" * 600]).forgotten == 1


def test_making_room_reads_what_goes_and_no_more(put, forget, monkeypatch):
    """At the bound every step makes room: it must not read all that is kept for it."""
    monkeypatch.setattr(forgotten, "MAX_FORGOTTEN_VALUES", 200)
    values = [b"%04d" % number for number in range(210)]
    put(values)
    forget(values[:200])
    read = []
    scan = WriteTransaction.scan

    def counted(self, database, prefix):
        for item in scan(self, database, prefix):
            read.append(item)
            yield item

    monkeypatch.setattr(WriteTransaction, "scan", counted)
    forget(values[200:205])
    assert len(read) <= 6


def test_a_step_has_its_bound(feed):
    ForgetValues(feed, [b"%d" % number for number in range(FORGET_STEP)])
    with pytest.raises(ValueError, match="in one step"):
        ForgetValues(feed, [b"%d" % number for number in range(FORGET_STEP + 1)])


def test_settled_values_are_both_in_order(store, put, forget, feed):
    values = [b"%03d" % number for number in range(50)]
    put(values)
    forget(values[::3])
    found, start = [], b""
    while start is not None:
        piece = store.settled_slice(feed, start, b"045", limit=7, max_bytes=1 << 20)
        found += piece.values
        start = piece.next_start
    assert found == values[:45]


def test_a_dropped_feed_takes_what_it_forgot_along(store, run, put, forget, feed):
    put([b"one", b"two"])
    forget([b"one"])
    forget([b"two"], erase=True)
    run(DropFeed(feed))
    assert store.verify().problems == []
    run(PutFeed(feed, {}))
    assert put([b"one", b"two"]).forgotten == 0
    assert store.verify().values == 2


def test_forgetting_changes_the_generation_that_exports_look_at(store, put, forget, feed):
    put([b"one", b"two"])
    before = feed_generation(store, feed)
    put([b"three"])
    assert feed_generation(store, feed) == before
    forget([b"one"])
    assert feed_generation(store, feed) != before


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_steps_leaves_a_store_that_verifies(store, run, put, forget, feed, seed):
    """Against a model: values of all lengths that share long beginnings, in and out."""
    chance = random.Random(seed)
    stems = [b"s" * (PART_BYTES * level) for level in range(4)]
    pool = [
        chance.choice(stems) + chance.choice([b"a", b"b"]) * chance.randrange(1, 2 * PART_BYTES)
        for _ in range(120)
    ] + [b"%d" % number for number in range(60)]
    here, gone = set(), set()
    for _ in range(40):
        some = chance.sample(pool, 25)
        match chance.randrange(4):
            case 0 | 1:
                put(some)
                here |= set(some) - gone
            case 2:
                forget(some)
                gone |= here & set(some)
                here -= set(some)
            case 3:
                run(RestoreValues(feed, some))
                here |= gone & set(some)
                gone -= set(some)
        assert all_values(store, feed) == sorted(here)
        assert kept(store, feed) == sorted(gone)
        assert store.feed(feed).digest == digest_of(here)
    assert store.verify().problems == []
    forget(list(here))
    run(DropForgottenHashes(feed))
    assert store.verify().problems == []


def test_verify_names_a_value_that_is_in_both(store, put, forget, feed):
    put([b"one", b"two"])
    forget([b"one"])
    environment = store.environment
    with environment.write() as txn:
        moved = [
            (key, data)
            for key, data in txn.cursor(environment.databases["log"])
            if data.endswith(b"one")
        ]
        ((key, data),) = moved
        txn.put(key, data[:-3] + b"two", db=environment.databases["log"])
    assert any("in the feed as well" in problem for problem in store.verify().problems)


def test_it_is_there_after_opening_again(tmp_path, feed):
    from hyperbloom.store import WriterInline

    with_store = Store.open(tmp_path / "again", durable=False)
    writer = WriterInline(with_store)
    for operation in (
        PutFeed(feed, {}),
        AppendValues(feed, [b"one"], ANNA, 1),
        ForgetValues(feed, [b"one"]),
    ):
        writer.submit(operation, lambda _: None)
    with_store.close()
    store = Store.open(tmp_path / "again", durable=False)
    answers = []
    WriterInline(store).submit(AppendValues(feed, [b"one"], BERT, 2), answers.append)
    assert answers[0].forgotten == 1
    store.close()


def test_a_long_value_that_is_not_here_takes_no_other_with_it(store, run, feed):
    """Not the one that it ends with, nor one that begins as it does."""
    tail, head = b"tail", b"h" * 2 * PART_BYTES
    run(AppendValues(feed, [tail, head], b"o" * 32, 1))
    absent = [b"x" * PART_BYTES + tail, b"x" * 2 * PART_BYTES + tail, head + tail, head[:-1]]
    assert run(ForgetValues(feed, absent)).count == 0
    assert store.has(feed, [tail, head]) == [True, True]
    assert store.verify().ok
