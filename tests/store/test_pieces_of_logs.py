"""What is read of a log at a time, what a tail knows of it, and what the writer's figures say."""

from __future__ import annotations

import numpy as np
import pytest

from hyperbloom.digests import value_ids
from hyperbloom.sketches import ids_from, sketch_key
from hyperbloom.store import AppendValues, ForgetValues, PutFeed, StoreError
from hyperbloom.store.limits import GROUP_BYTES, WRITE_SECONDS_A_BYTE
from hyperbloom.store.lmdb.kept_sketch import KeptSketch
from hyperbloom.store.lmdb.layout import LOG_HEAD_BYTES, U32, U64
from hyperbloom.store.lmdb.transaction import read
from hyperbloom.store.sketches import tails
from hyperbloom.store.sketches.log_pieces import LogPiece, read_piece
from hyperbloom.store.sketches.runs import find_in, id_heads, make_run, parse_run
from hyperbloom.store.sketches.tails import FeedTails, Tail
from hyperbloom.store.writer import CommitFigures

OTHER, ORIGIN = b"g" * 32, b"o" * 32
VALUES = [b"a", b"b", b"c", b"d", b"e"]
RECORD = LOG_HEAD_BYTES + 1


@pytest.mark.parametrize("has_neighbour", [False, True])
@pytest.mark.parametrize(
    ("after", "limit", "max_bytes", "found", "is_last"),
    [
        (0, 9, 9_999, VALUES, True),
        (0, 6, 9_999, VALUES, True),
        (0, 5, 9_999, VALUES, False),
        (0, 4, 9_999, VALUES[:4], False),
        (0, 9, 3 * RECORD, VALUES[:3], False),
        (0, 9, 3 * RECORD + 1, VALUES[:4], False),
        (0, 9, 0, VALUES[:1], False),
        (3, 9, 9_999, VALUES[3:], True),
        (5, 9, 9_999, [], True),
        ((1 << 64) - 1, 9, 9_999, [], True),
        (0, 0, 9_999, [], False),
        (0, -1, 9_999, [], False),
    ],
)
def test_a_piece_has_its_limits(
    store, run, feed, has_neighbour, after, limit, max_bytes, found, is_last
):
    run(AppendValues(feed, VALUES, ORIGIN, 1))
    if has_neighbour:
        run(PutFeed(OTHER, {}))
        run(AppendValues(OTHER, [b"not this one's"], ORIGIN, 1))
    with read(store.environment) as transaction:
        prefix = transaction.feed(feed).prefix
        piece = read_piece(transaction, prefix, after, limit=limit, max_bytes=max_bytes)
    assert (piece.values, piece.is_last) == (found, is_last)
    assert len(piece.keys) == len(found)
    assert piece.seqs().tolist() == [after + 1 + number for number in range(len(found))]


def piece_of(*seqs: int) -> LogPiece:
    keys = [U32.pack(1) + U64.pack(seq) for seq in seqs]
    return LogPiece(keys, [b"value %d" % seq for seq in seqs], is_last=False)


def heads_of(*seqs: int) -> np.ndarray:
    return np.sort(id_heads(ids_from(value_ids([b"value %d" % seq for seq in seqs]))))


def test_a_tail_knows_the_ids_of_so_many_values_and_not_of_later_ones(monkeypatch):
    monkeypatch.setattr(tails, "MAX_RECENT_IDS", 4)
    tail = Tail(b"\0\0\0\1", 10, 0, 16)
    empty = tail.nbytes
    tail.take(piece_of(), sketch_key(OTHER), with_ids=True)
    assert (tail.at, tail.ids_upto, tail.count, tail.nbytes) == (10, 10, 0, empty)
    tail.take(piece_of(11, 12, 13), sketch_key(OTHER), with_ids=True)
    assert (tail.at, tail.ids_upto, tail.count, tail.nbytes) == (13, 13, 3, empty + 3 * 16)
    tail.take(piece_of(14), sketch_key(OTHER), with_ids=True)
    assert (tail.at, tail.ids_upto) == (14, 14)
    tail.take(piece_of(15), sketch_key(OTHER), with_ids=True)
    monkeypatch.setattr(tails, "MAX_RECENT_IDS", 400)
    tail.take(piece_of(16), sketch_key(OTHER), with_ids=True)
    assert (tail.at, tail.ids_upto, tail.count) == (16, 14, 6)
    assert sorted(seq for _, seq in tail.find(heads_of(9, 11, 14, 15, 16))) == [11, 14]
    assert list(tail.find(heads_of())) == []


def test_a_tail_goes_on_while_what_is_kept_is_the_same():
    feed = FeedTails()
    first = feed.tail(b"", b"1", KeptSketch(upto=5), 16)
    assert (first.base, feed.tries) == (5, 0)
    assert feed.tail(b"", b"1", KeptSketch(upto=5), 16) is first
    larger = feed.tail(b"", b"1", KeptSketch(upto=5), 32)
    assert larger is not first
    assert feed.tries == 0, "only its size is another one"
    assert feed.tail(b"", b"1", KeptSketch(upto=5, removals=1), 32) is not larger
    assert feed.tries == 1
    assert feed.tail(b"", b"1", KeptSketch(upto=9, removals=2), 32).base == 9
    assert feed.tail(b"", b"2", KeptSketch(upto=9, removals=3), 32).prefix == b"2"
    assert feed.tries == 1, "another set, or one that goes on from a later number"
    feed.distrusted.add(b"2")
    assert feed.tail(b"", b"2", KeptSketch(upto=9), 16).base == 0
    feed.tail(b"", b"2", KeptSketch(), 16)
    assert feed.distrusted == set()
    assert feed.nbytes == feed.by_tag[b""].nbytes


def test_all_places_of_a_head_are_found():
    heads = np.array([7, 3, 7, 9], "<u8")
    data = make_run(heads, np.array([11, 12, 13, 14], "<u8"), 11)
    sorted_heads, offsets = parse_run(data, 11)
    assert sorted_heads.tolist() == [3, 7, 7, 9]
    assert offsets.tolist() == [1, 0, 2, 3]
    wanted = np.array([1, 7, 8, 9, 10], "<u8")
    assert list(find_in(sorted_heads, wanted)) == [(1, 1), (1, 2), (3, 3)]
    assert list(find_in(sorted_heads[:0], wanted)) == []
    with pytest.raises(ValueError, match="the run from number 11 has 47 bytes"):
        parse_run(data[:-1], 11)


def test_the_lag_is_that_of_the_set_with_most_to_do(store, run, feed):
    run(AppendValues(feed, VALUES, ORIGIN, 1))
    assert store.sketch_lag(feed) == 5
    run(ForgetValues(feed, VALUES[:4]))
    assert store.sketch_lag(feed) == 4
    assert store.begin_piece(feed) is None


def test_figures_count_operations_and_those_that_failed():
    figures = CommitFigures()
    figures.committed([None, StoreError("disk"), ValueError("a caller's own")], 0.5)
    figures.committed([None], 0.25)
    assert (figures.operations, figures.failures, figures.seconds.total) == (4, 1, 0.75)


def test_what_a_byte_takes_is_learned_by_the_weight_of_a_group():
    figures = CommitFigures()
    figures.wrote(0, 5.0)
    assert figures.seconds_a_byte == WRITE_SECONDS_A_BYTE
    figures.wrote(2 * GROUP_BYTES, 8.0 * GROUP_BYTES)
    assert figures.seconds_a_byte == 4.0
    figures.wrote(GROUP_BYTES // 2, 4.0 * GROUP_BYTES)
    assert figures.seconds_a_byte == 6.0
