"""What an append gives back, what the log keeps, and what a feed's figures say."""

import pytest
from set_digests import digest_of

from hyperbloom.digests import SUM_BATCH, element_sum, set_digest
from hyperbloom.store import (
    AppendValues,
    DropFeed,
    ForgetValues,
    NoSuchFeed,
    PutFeed,
    PutMeta,
    Store,
    Writer,
    WriterInline,
)
from hyperbloom.store.limits import DELETE_STEP, MAX_VALUE_BYTES
from hyperbloom.store.records import Appended, LogRecord
from hyperbloom.store.values.ordered_index import _MANY
from hyperbloom.store.writer import commit_group

ORIGIN = b"o" * 32
MANY = 1 << 40


def append(feed, *values, origin=ORIGIN, at=1):
    return AppendValues(feed, values, origin, at)


def test_new_values_come_back_in_arrival_order_and_once(run, feed):
    assert run(append(feed, b"b", b"a", b"b")) == Appended(
        values=[b"b", b"a"], first_seq=1, top_seq=2
    )
    assert run(append(feed, b"a", b"c")).values == [b"c"]
    nothing = run(append(feed, b"a"))
    assert (nothing.values, nothing.first_seq) == ([], nothing.top_seq + 1)
    assert run(append(feed)).values == []


@pytest.mark.parametrize("count", [_MANY - 1, _MANY, _MANY + 1, 300])
def test_of_many_values_those_that_were_there_do_not_come_again(store, run, feed, count):
    before = [b"%05d" % number for number in range(0, count, 3)]
    run(append(feed, *before))
    values = [b"%05d" % number for number in reversed(range(count))]
    appended = run(append(feed, *values))
    assert appended.values == [value for value in values if value not in before]
    assert run(append(feed, *values)).values == []
    assert store.feed(feed).count == count
    assert store.range_slice(feed, b"", None, limit=count, max_bytes=MANY).values == sorted(values)
    records = store.log_slice(feed, 0, limit=MANY, max_bytes=MANY).records
    assert [record.value for record in records] == before + appended.values
    assert records[-1].seq == appended.top_seq


@pytest.mark.parametrize("count", [1, SUM_BATCH - 1, SUM_BATCH, SUM_BATCH + 1])
def test_the_digest_counts_what_single_operations_of_a_transaction_add_and_remove(
    store, run, feed, count
):
    values = [b"%d" % number for number in range(count)]
    operations = [append(feed, value) for value in values]
    operations.append(ForgetValues(feed, values[-1:]))
    operations.append(append(feed, b"last"))
    commit_group(store.environment, operations)
    assert store.feed(feed).digest == set_digest(count, element_sum([*values[:-1], b"last"]))


def test_the_log_keeps_arrival_order_origin_and_time(store, run, feed):
    run(append(feed, b"z", b"a", at=5))
    run(append(feed, b"z", b"m", origin=b"p" * 32, at=6))
    records = store.log_slice(feed, 0, limit=10, max_bytes=MANY).records
    assert [(r.value, r.received_at, r.origin) for r in records] == [
        (b"z", 5, ORIGIN),
        (b"a", 5, ORIGIN),
        (b"m", 6, b"p" * 32),
    ]
    seqs = [r.seq for r in records]
    assert seqs == sorted(set(seqs))
    assert store.feed(feed).top_seq == seqs[-1]


def test_the_log_is_read_on_from_where_a_slice_ended(store, run, feed):
    run(PutFeed(b"g" * 32, {}))
    values = [b"%03d" % n for n in range(50, 0, -1)]
    run(append(feed, *values))
    run(append(b"g" * 32, b"other"))
    seen: list[LogRecord] = []
    after = 0
    while True:
        piece = store.log_slice(feed, after, limit=7, max_bytes=12)
        if not piece.records:
            assert piece.last_seq == after
            break
        assert len(piece.records) <= 4
        seen += piece.records
        after = piece.last_seq
    assert [record.value for record in seen] == values


def test_nothing_arrived_behind_the_last_number_there_can_be(store, run, feed):
    run(AppendValues(feed, [b"v"], ORIGIN, 1))
    last = 2**64 - 1
    behind = store.log_slice(feed, last, limit=9, max_bytes=MANY)
    assert (behind.records, behind.last_seq) == ([], last)
    there = store.origin_slice(feed, ORIGIN, last, limit=9, max_bytes=MANY)
    assert (there.records, there.next_seq) == ([], None)


def test_a_log_slice_holds_one_record_even_beyond_its_bytes(store, run, feed):
    run(append(feed, b"x" * 100, b"y"))
    assert len(store.log_slice(feed, 0, limit=9, max_bytes=5).records) == 1


def test_figures_and_digest_do_not_depend_on_the_order_of_arrival(store, run, feed):
    values = [b"", b"a", b"b" * 600, b"b" * 601, b"c" * 70_000]
    other = b"g" * 32
    run(PutFeed(other, {"mode": "full"}))
    for value in values:
        run(append(feed, value, value))
    run(append(other, *reversed(values)))
    for record in store.feeds():
        assert record.count == len(values)
        assert record.bytes == sum(map(len, values))
        assert record.digest == digest_of(values)
    assert store.feed(other).settings == {"mode": "full"}


def test_an_empty_feed_has_the_digest_zero(store, run, feed):
    assert store.feed(feed).digest == bytes(32)


def test_settings_are_replaced_and_figures_stay(store, run, feed):
    run(append(feed, b"a"))
    assert run(PutFeed(feed, {"alias": "x"})).count == 1
    assert store.feed(feed).settings == {"alias": "x"}


def test_a_feed_that_is_not_there_is_named(store, run):
    stranger = b"s" * 32
    assert store.feed(stranger) is None
    for read in (
        lambda: run(append(stranger, b"a")),
        lambda: store.has(stranger, [b"a"]),
        lambda: store.range_slice(stranger, limit=1, max_bytes=1),
        lambda: store.log_slice(stranger, 0, limit=1, max_bytes=1),
        lambda: store.links(stranger),
        lambda: store.refused(stranger),
    ):
        with pytest.raises(NoSuchFeed, match=stranger.hex()):
            read()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"feed_key": b"short"}, ValueError),
        ({"feed_key": "f" * 32}, TypeError),
        ({"origin": b""}, ValueError),
        ({"received_at": -1}, ValueError),
        ({"received_at": 1 << 64}, ValueError),
        ({"received_at": 1.5}, TypeError),
        ({"values": ["text"]}, TypeError),
        ({"values": [memoryview(b"a")]}, TypeError),
        ({"values": [b"x" * (MAX_VALUE_BYTES + 1)]}, ValueError),
    ],
)
def test_what_an_append_cannot_store_is_refused_when_it_is_made(feed, fields, error):
    good = {"feed_key": feed, "values": [b"a"], "origin": ORIGIN, "received_at": 1}
    AppendValues(**good)
    with pytest.raises(error):
        AppendValues(**(good | fields))


def test_the_longest_value_is_stored(store, run, feed):
    longest = b"x" * MAX_VALUE_BYTES
    assert run(append(feed, longest)).values == [longest]
    assert store.log_slice(feed, 0, limit=1, max_bytes=1).records[0].value == longest


def test_meta_entries_are_kept_and_the_stores_own_are_out_of_reach(store, run):
    assert store.get_meta("node_id") is None
    run(PutMeta("node_id", b"n"))
    assert store.get_meta("node_id") == b"n"
    run(PutMeta("node_id", None))
    assert store.get_meta("node_id") is None
    with pytest.raises(ValueError, match=r"store\.schema"):
        PutMeta("store.schema", b"9")
    with pytest.raises(ValueError, match=r"store\.schema"):
        store.get_meta("store.schema")


def test_a_dropped_feed_is_gone_and_its_neighbours_stay(store, run, feed):
    neighbour = b"g" * 32
    run(PutFeed(neighbour, {}))
    run(append(neighbour, b"kept", b"k" * 600))
    run(append(feed, *(b"%05d" % n for n in range(2 * DELETE_STEP + 1)), b"x" * 900, b"x" * 901))
    run(DropFeed(feed))
    assert store.feed(feed) is None
    assert [record.key for record in store.feeds()] == [neighbour]
    report = store.verify()
    assert (report.problems, report.values) == ([], 2)
    run(PutFeed(feed, {}))
    assert store.range_slice(feed, limit=1, max_bytes=1).values == []
    assert run(append(feed, b"00001")).values == [b"00001"]
    run(DropFeed(b"s" * 32))


@pytest.mark.parametrize(
    "next_writer",
    [lambda store: Writer(store, deliver=lambda answer: answer()), WriterInline],
    ids=["thread", "inline"],
)
def test_a_drop_cut_short_is_finished_by_the_next_writer(tmp_path, feed, next_writer):
    path = tmp_path / "store"
    with_values = Store.open(path, durable=False)
    writer = WriterInline(with_values)
    writer.submit(PutFeed(feed, {}), lambda result: None)
    writer.submit(append(feed, *(b"%05d" % n for n in range(100))), lambda result: None)
    # The first step only, as if the process had died after it.
    from hyperbloom.store.writer import commit_group

    commit_group(with_values.environment, [DropFeed(feed)])
    assert with_values.feed(feed) is None
    assert log_entries(with_values) == 100
    assert with_values.verify().ok
    with_values.close()
    again = Store.open(path, durable=False)
    next_writer(again).close()
    assert log_entries(again) == 0
    assert again.verify().ok
    again.close()


def log_entries(store) -> int:
    with store.environment.read() as txn:
        return txn.stat(store.environment.databases["log"])["entries"]
