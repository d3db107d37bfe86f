"""Records read in bulk: those of a range, whole, and nobody waits for it."""

import threading
from contextlib import closing

import pytest

from hyperbloom.store import AppendValues, PutFeed, StoreCorrupt
from hyperbloom.store.lmdb.layout import LOG_HEAD_BYTES, U64
from hyperbloom.store.lmdb.transaction import write
from hyperbloom.store.values.ordered_index import PART_BYTES
from hyperbloom.store.values.scan import last_record, scan_log, scan_values

ORIGIN = b"o" * 32
VALUES = [b"d", b"b", b"x" * 700, b"a", b"c"]


@pytest.fixture
def filled(store, run, feed):
    run(AppendValues(feed, VALUES, ORIGIN, 1))
    return store


def values_in(chunks) -> list[bytes]:
    found = []
    for chunk in chunks:
        assert len(chunk.keys) == len(chunk.data)
        found += [data[LOG_HEAD_BYTES:] for data in chunk.data]
    return found


@pytest.mark.parametrize(
    ("after", "last", "found"),
    [(0, 5, VALUES), (1, 3, VALUES[1:3]), (3, 99, VALUES[3:]), (5, 99, []), (4, 4, [])],
)
def test_the_log_is_scanned_in_order_of_arrival(filled, feed, after, last, found):
    assert values_in(scan_log(filled, feed, after, last)) == found


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (b"", None, sorted(VALUES)),
        (b"b", b"d", [b"b", b"c"]),
        (b"d\0", None, [b"x" * 700]),
        (b"y", None, []),
    ],
)
def test_values_are_scanned_in_their_own_order(filled, feed, start, end, found):
    assert values_in(scan_values(filled, feed, start, end)) == found


@pytest.mark.parametrize(
    ("up_to", "found"), [(0, None), (1, 1), (3, 3), (5, 5), (6, 5), (2**64 - 1, 5)]
)
def test_the_last_record_up_to_a_number(filled, run, feed, up_to, found):
    # Feeds before and behind it in the log are other feeds.
    for key in (b"\x01" * 32, b"\xfe" * 32):
        run(PutFeed(key, {}))
        run(AppendValues(key, [b"another"], ORIGIN, 1))
    record = last_record(filled, feed, up_to)
    if found is None:
        assert record is None
    else:
        assert (record.seq, record.value, record.origin) == (found, VALUES[found - 1], ORIGIN)


def test_a_feed_without_values_has_no_last_record(store, run, feed):
    assert last_record(store, feed, 9) is None
    run(PutFeed(b"\xfe" * 32, {}))
    run(AppendValues(b"\xfe" * 32, [b"another"], ORIGIN, 1))
    assert last_record(store, feed, 9) is None
    assert last_record(store, feed, 0) is None
    run(AppendValues(feed, VALUES, ORIGIN, 1))
    run(PutFeed(b"\xff" * 32, {}))
    assert last_record(store, b"\xff" * 32, 9) is None


def test_a_scan_of_values_names_the_damage_if_a_record_is_missing(filled, feed):
    write(
        filled.environment,
        lambda transaction: transaction.delete("log", transaction.feed(feed).prefix + U64.pack(2)),
    )
    with pytest.raises(StoreCorrupt):
        list(scan_values(filled, feed, b"", None))


@pytest.mark.parametrize(
    "scan",
    [lambda *of: scan_log(*of, 0, 99), lambda *of: scan_values(*of, b"", None)],
    ids=["log", "values"],
)
def test_readers_do_not_wait_while_the_map_is_to_grow_under_a_scan(filled, feed, scan):
    grown, done = threading.Event(), threading.Event()
    growing = threading.Thread(target=lambda: (filled.environment.grow(), grown.set()))
    reading = threading.Thread(target=lambda: (filled.has(feed, [b"a"]), done.set()))
    with closing(scan(filled, feed)) as chunks:
        next(chunks)
        growing.start()
        assert not grown.wait(0.05)
        reading.start()
        assert done.wait(30)
        assert not grown.is_set()
    growing.join(240)
    reading.join(240)
    assert grown.is_set()


def test_a_range_ends_where_it_says_and_not_where_another_branch_looks_alike(store, run, feed):
    one, other, same = (letter * PART_BYTES for letter in (b"1", b"2", b"x"))
    values = [head + same + tail for head in (one, other) for tail in (b"a", b"z")]
    run(AppendValues(feed, values, ORIGIN, 1))
    found = store.range_slice(feed, b"", other + same + b"m", limit=9, max_bytes=1 << 20)
    assert found.values == values[:3]
