"""Where a slice of values or of the log ends, by number and by bytes, and where it goes on."""

from __future__ import annotations

import pytest

from hyperbloom.store import AppendValues, ForgetValues, NoSuchFeed, PutFeed

ANNA, BERT = b"a" * 32, b"b" * 32
MANY = 1 << 40


@pytest.fixture
def five(run, feed):
    """Five values of ten bytes, brought in turn; a feed before and one behind have others."""
    for other in (b"A" * 32, b"z" * 32):
        run(PutFeed(other, {}))
        run(AppendValues(other, [b"others value"], ANNA, 1))
    for number in range(5):
        run(AppendValues(feed, [b"value %04d" % number], BERT if number % 2 else ANNA, number))
    return [b"value %04d" % number for number in range(5)]


@pytest.mark.parametrize(
    ("limit", "max_bytes", "count"),
    [
        (9, MANY, 5), (5, MANY, 5), (4, MANY, 4), (1, MANY, 1),
        (9, 50, 5), (9, 49, 4), (9, 20, 2), (9, 19, 1), (9, 1, 1), (9, 0, 1), (2, 20, 2),
    ],
)  # fmt: skip
def test_limits_of_values_and_bytes(store, feed, five, limit, max_bytes, count):
    piece = store.range_slice(feed, limit=limit, max_bytes=max_bytes)
    assert piece.values == five[:count]
    assert piece.next_start == (None if count == 5 else five[count - 1] + b"\0")
    log = store.log_slice(feed, 0, limit=limit, max_bytes=max_bytes)
    assert [record.value for record in log.records] == five[:count]
    assert log.last_seq == log.records[-1].seq


def test_a_range_has_its_start_and_not_its_end(store, feed, five):
    def between(start, end, **limits):
        return store.range_slice(feed, start, end, **{"limit": 9, "max_bytes": MANY} | limits)

    assert between(five[1], five[3]).values == five[1:3]
    assert between(five[1], five[3] + b"\0").values == five[1:4]
    assert between(five[1] + b"\0", None).values == five[2:]
    assert between(five[3], five[3]).values == []
    assert between(b"w", None).next_start is None
    assert between(five[0], five[2], limit=2).next_start is None, "the third is no part of it"
    assert between(five[0], five[2], limit=1).next_start == five[0] + b"\0"


def test_who_brought_a_value_and_when_is_in_the_log(store, feed, five):
    records = store.log_slice(feed, 0, limit=9, max_bytes=MANY).records
    assert [record.received_at for record in records] == [0, 1, 2, 3, 4]
    assert [record.origin for record in records] == [ANNA, BERT, ANNA, BERT, ANNA]
    seqs = [record.seq for record in records]
    assert store.seqs(feed, [*five, b"none"]) == [*seqs, None]
    assert store.has(feed, [b"none", *five[:2]]) == [False, True, True]
    assert [r.value for r in store.log_slice(feed, seqs[2], limit=9, max_bytes=MANY).records] == (
        five[3:]
    )
    with pytest.raises(ValueError, match="not negative: -1"):
        store.log_slice(feed, -1, limit=9, max_bytes=MANY)


@pytest.mark.parametrize(
    ("limits", "found", "is_last"),
    [
        ({}, [0, 2, 4], True),
        ({"limit": 3}, [0, 2, 4], False),
        ({"limit": 2}, [0, 2], False),
        ({"max_bytes": 11}, [0, 2], False),
        ({"max_bytes": 10}, [0], False),
        ({"scan": 3}, [0, 2], False),
        ({"scan": 2}, [0], False),
    ],
)
def test_what_one_peer_brought(store, feed, five, limits, found, is_last):
    seqs = store.seqs(feed, five)
    piece = store.origin_slice(feed, ANNA, 0, **{"limit": 9, "max_bytes": MANY} | limits)
    assert [record.value for record in piece.records] == [five[number] for number in found]
    assert [record.seq for record in piece.records] == [seqs[number] for number in found]
    assert [record.received_at for record in piece.records] == found
    assert all(record.origin == ANNA for record in piece.records)
    if is_last:
        assert piece.next_seq is None
    else:
        last = limits.get("scan", 0)
        assert piece.next_seq == (seqs[last - 1] if last else piece.records[-1].seq)
        rest = store.origin_slice(feed, ANNA, piece.next_seq, limit=9, max_bytes=MANY)
        behind = [number for number in (0, 2, 4) if number not in found]
        assert [record.value for record in rest.records] == [five[number] for number in behind]
        assert rest.next_seq is None


def test_settled_values_are_those_here_and_those_forgotten_in_one_order(store, run, feed, five):
    assert store.settled_slice(feed, limit=9, max_bytes=MANY).values == five
    run(ForgetValues(feed, [five[1], five[4], b"value 0005"], absent=True))
    assert store.range_slice(feed, limit=9, max_bytes=MANY).values == [five[n] for n in (0, 2, 3)]
    forgotten = store.forgotten_slice(feed, limit=9, max_bytes=MANY).values
    assert forgotten == [five[1], five[4], b"value 0005"]
    figures = store.forgotten_figures(feed)
    assert (figures.count, figures.bytes, figures.hashes) == (3, 30, 0)
    found, start, slices = [], b"", 0
    while start is not None:
        piece = store.settled_slice(feed, start, limit=2, max_bytes=MANY)
        found += piece.values
        start, slices = piece.next_start, slices + 1
        assert slices < 9
    assert found == [*five, b"value 0005"]


def test_a_feed_that_has_nothing(store, run, feed):
    empty = store.range_slice(feed, limit=1, max_bytes=1)
    assert (empty.values, empty.next_start) == ([], None)
    assert store.settled_slice(feed, limit=1, max_bytes=1) == empty
    assert store.forgotten_slice(feed, limit=1, max_bytes=1) == empty
    assert store.log_slice(feed, 7, limit=1, max_bytes=1).last_seq == 7
    for forgotten in (False, True):
        none = store.origin_slice(feed, ANNA, 0, limit=1, max_bytes=1, forgotten=forgotten)
        assert (none.records, none.next_seq) == ([], None)
    figures = store.forgotten_figures(feed)
    assert (figures.count, figures.bytes, figures.hashes) == (0, 0, 0)
    assert store.refused(feed) == []
    for ask in (store.range_slice, store.forgotten_slice, store.settled_slice):
        with pytest.raises(ValueError, match="at least one value: limit 0"):
            ask(feed, limit=0, max_bytes=1)
        with pytest.raises(NoSuchFeed):
            ask(b"s" * 32, limit=1, max_bytes=1)
