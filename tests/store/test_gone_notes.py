"""Notes of what was forgotten: which numbers, when, and whether they say all."""

from __future__ import annotations

import numpy as np
import pytest

from hyperbloom.store import AppendValues, DropFeed, ForgetValues, RestoreValues
from hyperbloom.store.backup.verify import verify_environment
from hyperbloom.store.limits import MAX_FORGOTTEN_VALUES, MAX_GONE_NOTES
from hyperbloom.store.lmdb.layout import U64
from hyperbloom.store.lmdb.transaction import write
from hyperbloom.store.values import gone
from hyperbloom.store.values.scan import forgotten_note, forgotten_since, missing_seqs

ANNA = b"a" * 32


@pytest.fixture
def put(run, feed):
    return lambda values: run(AppendValues(feed, values, ANNA, 7))


@pytest.fixture
def forget(run, feed):
    return lambda values, **more: run(ForgetValues(feed, values, **more))


def numbered(first, last):
    return [b"value %d" % number for number in range(first, last + 1)]


def problems(store):
    return verify_environment(store.environment).problems


def test_each_number_is_noted_with_its_time_in_the_order_of_forgetting(store, put, forget, feed):
    assert forgotten_since(store, feed, 0) == (0, [])
    put(numbered(1, 9))
    forget(numbered(7, 8), at=100)
    forget([*numbered(2, 2), b"never here"], absent=True, erase=True, at=200)
    forget([b"neither"], absent=True, at=300)
    forget(numbered(7, 7), at=400)  # It is gone already.
    assert forgotten_since(store, feed, 0) == (3, [(7, 100), (8, 100), (2, 200)])
    assert forgotten_since(store, feed, 2) == (3, [(2, 200)])
    assert forgotten_since(store, feed, 3) == (3, [])
    assert forgotten_since(store, feed, 4) == (3, None)
    assert forgotten_note(store, feed, 3) != forgotten_note(store, feed, 2) != b""
    assert forgotten_note(store, feed, 4) == b""
    assert not problems(store)


def test_a_value_that_is_back_is_gone_under_its_new_number(store, run, put, forget, feed):
    put(numbered(1, 3))
    forget(numbered(2, 2), at=100)
    run(RestoreValues(feed, numbered(2, 2)))
    assert forgotten_since(store, feed, 0) == (1, [(2, 100)])
    forget(numbered(2, 2), at=200)
    assert forgotten_since(store, feed, 0) == (2, [(2, 100), (4, 200)])


def test_beyond_the_limit_the_oldest_go_and_that_shows(store, put, forget, feed, monkeypatch):
    assert MAX_GONE_NOTES == MAX_FORGOTTEN_VALUES
    monkeypatch.setattr(gone, "MAX_GONE_NOTES", 4)
    put(numbered(1, 9))
    forget(numbered(1, 4), at=100)
    assert forgotten_since(store, feed, 0) == (4, [(n, 100) for n in range(1, 5)])
    forget(numbered(5, 5), at=200)
    assert forgotten_since(store, feed, 0) == (5, None)
    assert forgotten_since(store, feed, 1) == (5, [(2, 100), (3, 100), (4, 100), (5, 200)])
    assert forgotten_note(store, feed, 1) == b""
    assert not problems(store)


def test_what_an_older_program_forgot_without_a_note_shows(store, put, forget, feed, monkeypatch):
    put(numbered(1, 9))
    forget(numbered(1, 1), at=100)
    with monkeypatch.context() as older:
        older.setattr(gone.GoneNotes, "add", lambda *_: None)
        forget(numbered(2, 2))
    assert forgotten_since(store, feed, 0) == (1, None)
    assert forgotten_since(store, feed, 1) == (1, None)
    forget(numbered(3, 3), at=300)
    last, notes = forgotten_since(store, feed, 1)
    assert notes is None
    forget(numbered(4, 4), at=400)
    assert forgotten_since(store, feed, last) == (last + 1, [(4, 400)])
    assert forgotten_since(store, feed, 0)[1] is None


def test_they_go_with_their_feed(store, run, put, forget, feed):
    put(numbered(1, 9))
    forget(numbered(1, 5), at=100)
    run(DropFeed(feed))
    with store.environment.read() as txn:
        assert txn.stat(store.environment.databases["gone"])["entries"] == 0


def test_wrong_ones_are_named(store, put, forget, feed):
    put(numbered(1, 9))
    forget(numbered(1, 1), at=100)

    def spoil(transaction):
        prefix = transaction.feed(feed).prefix
        transaction.put("gone", prefix + U64.pack(1), U64.pack(2) + U64.pack(100))
        transaction.put("gone", prefix + U64.pack(7), U64.pack(70) + U64.pack(100))
        transaction.put("gone", prefix + U64.pack(3), b"short")

    write(store.environment, spoil)
    found = "\n".join(problems(store))
    assert "log record 2 is noted as forgotten, and is there" in found
    assert "the note 7 of a forgotten value is beyond the last one, 1" in found
    assert "the note 7 is of record 70, beyond the top 9" in found
    assert "cannot be read" in found


@pytest.mark.parametrize("step", [1, 3, 50])
def test_numbers_without_a_record_are_found_close_together_and_far_apart(
    store, put, forget, feed, step
):
    put(numbered(1, 400))
    lost = set(range(5, 400, 7))
    forget([b"value %d" % number for number in lost])
    asked = np.arange(1, 410, step, dtype=np.int64)
    found = missing_seqs(store, feed, asked)
    assert found.tolist() == [n for n in asked.tolist() if n in lost or n > 400]
    assert missing_seqs(store, b"x" * 32, asked).tolist() == asked.tolist()
    assert missing_seqs(store, feed, asked[:0]).tolist() == []
