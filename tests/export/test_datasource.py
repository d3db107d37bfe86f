"""The Spark data source: what it reads, and that it reads no more than asked for."""

from __future__ import annotations

import pytest
from export_nodes import FEED, NODE, ODD_VALUES, OTHER_FEED, random_values, spoil
from pyspark.sql import functions as sql
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from hyperbloom.export import register
from hyperbloom.export.errors import ExportError
from hyperbloom.export.source.snapshot_reader import SnapshotReader

VALUES = random_values(5_000, seed=5, longest=40)


@pytest.fixture
def snapshot(node):
    node.append(VALUES + list(ODD_VALUES))
    node.append([b"elsewhere", b"a"], feed=OTHER_FEED)
    return node.snapshot()


@pytest.fixture
def load(spark, snapshot):
    register(spark)

    def make(**options):
        reader = spark.read.format("hyperbloom").option("path", str(snapshot))
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load()

    return make


def values_of(frame):
    return sorted((bytes(row.feed), bytes(row.value)) for row in frame.collect())


def rows_read(frame):
    """The rows that the executed plan's scan gave to Spark."""
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    return leaf.metrics().apply("numOutputRows").value()


ALL = sorted(
    [(FEED, v) for v in [*VALUES, *ODD_VALUES]] + [(OTHER_FEED, b"elsewhere"), (OTHER_FEED, b"a")]
)


def test_it_gives_every_row_with_all_columns(load):
    frame = load()
    assert values_of(frame) == ALL
    (row,) = frame.where(sql.col("value") == sql.lit(b"elsewhere")).collect()
    assert (row.node, row.seq, row.size, str(row.date)) == (NODE.hex(), 1, 9, "2026-11-16")


def test_options_narrow_exactly(load):
    assert values_of(load(feed=OTHER_FEED.hex())) == [
        (OTHER_FEED, b"a"),
        (OTHER_FEED, b"elsewhere"),
    ]
    assert values_of(load(feed=FEED.hex(), after_seq=10, up_to_seq=13)) == sorted(
        (FEED, value) for value in VALUES[10:13]
    )
    for prefix in (b"a", b"\xff", b"y" * 499):
        wanted = [(feed, value) for feed, value in ALL if value.startswith(prefix)]
        assert values_of(load(prefix=prefix.hex())) == wanted
    both = load(feed=FEED.hex(), prefix="61", after_seq=100)
    assert values_of(both) == sorted(
        (FEED, v) for v in [*VALUES, *ODD_VALUES][100:] if v[:1] == b"a"
    )
    assert values_of(load(feed="00")) == []


def test_a_filter_on_feed_and_number_reads_only_that_range(load):
    frame = load(pushdown="true").where(
        (sql.col("feed") == sql.lit(FEED)) & (sql.col("seq") > 4_990)
    )
    assert len(values_of(frame)) == 10 + len(ODD_VALUES)
    assert rows_read(frame) == 10 + len(ODD_VALUES)


def test_a_filter_on_feed_and_number_touches_no_other_record(load, snapshot):
    # That Spark was given few rows does not tell how many were looked at for them.
    assert spoil(snapshot, outside=lambda feed, seq: feed != FEED or seq <= 4_990) == 4_992
    frame = load(pushdown="true").where(
        (sql.col("feed") == sql.lit(FEED)) & (sql.col("seq") > 4_990)
    )
    wanted = [*VALUES[4_990:], *ODD_VALUES]
    assert values_of(frame) == sorted((FEED, value) for value in wanted)


def test_a_range_of_values_reads_only_that_range(load):
    frame = load(pushdown="true").where("value >= X'6162' and value < X'6163'")
    wanted = [(feed, value) for feed, value in ALL if value.startswith(b"ab")]
    assert values_of(frame) == wanted
    assert rows_read(frame) == len(wanted)
    one = load(pushdown="true").where(sql.col("value") == sql.lit(b"y" * 499))
    assert values_of(one) == [(FEED, b"y" * 499)]
    assert rows_read(one) == 1


@pytest.mark.parametrize(
    "condition",
    [
        "seq = 7",
        "seq >= 7 and seq < 9 and size > 20",
        "seq between 3 and 5 and value > X'80'",
        "value = X'61' and seq > 1",
        "value > X'61' and value <= X'6162' and feed in (X'00', X'01')",
        "feed = X'00'",
        "seq > 10 and seq < 5",
        "not (seq > 5)",
        "seq in (4, 5) or value = X'61'",
        "startswith(value, X'79797979')",
        "seq is null",
    ],
)
def test_whatever_is_pushed_down_the_answer_is_that_of_all_rows(load, condition):
    pushed = load(pushdown="true").where(condition)
    assert values_of(pushed) == values_of(load().where(condition))


def test_one_frame_may_be_used_for_several_queries(load):
    # Spark keeps one plan for each load, and with filters pushed down the second would be wrong.
    frame = load()
    few = frame.where("seq > 5000")
    assert few.union(frame.where("seq <= 5")).count() == len(ODD_VALUES) + 7
    assert few.count() == len(ODD_VALUES)
    assert frame.count() == len(ALL)


def reader(snapshot, *filters, **options):
    made = SnapshotReader({"path": str(snapshot), "pushdown": "true", **options})
    return made, list(made.pushFilters(list(filters)))


def test_only_what_a_range_answers_exactly_is_claimed(snapshot):
    seq, value, feed, size = ("seq",), ("value",), ("feed",), ("size",)
    claimed = [
        [IsNotNull(seq), GreaterThan(seq, 5), LessThanOrEqual(seq, 9), In(feed, (FEED,))],
        [GreaterThanOrEqual(value, b"a"), LessThan(value, b"b"), EqualTo(feed, FEED)],
    ]
    for filters in claimed:
        assert reader(snapshot, *filters)[1] == []
    left = [Not(GreaterThan(seq, 5)), EqualTo(size, 3), In(seq, (1, 2)), GreaterThan(value, b"a")]
    assert reader(snapshot, GreaterThan(seq, 1), *left)[1] == left
    both = [EqualTo(value, b"a"), GreaterThan(seq, 5)]
    assert reader(snapshot, *both)[1] == both[1:]


def test_filters_narrow_together(snapshot):
    seq = ("seq",)
    made, _ = reader(
        snapshot, GreaterThan(seq, 5), GreaterThan(seq, 3), LessThan(seq, 9), LessThan(seq, 20)
    )
    parts = made.partitions()
    (found,) = [piece for part in parts for piece in part.ranges if piece.feed == FEED]
    assert (found.after_seq, found.last_seq) == (5, 8)
    rows = [row for part in parts for batch in made.read(part) for row in batch.to_pylist()]
    assert [row["seq"] for row in rows] == [6, 7, 8]


def test_wrong_options_are_sentences(snapshot):
    with pytest.raises(ExportError, match="name the snapshot"):
        SnapshotReader({})
    with pytest.raises(ExportError, match="an option of the data source is wrong"):
        reader(snapshot, prefix="xyz")
