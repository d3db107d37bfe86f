"""Which arrival numbers a feed has forgotten, and when, in the order in which it did.

Who has copied the log up to a number and comes back learns from the notes what to take out of the
copy, at a cost of what is gone. The database ``gone`` holds for each feed that has forgotten values

- under the feed's prefix: the number of the last note, and how many values were ever remembered as
  forgotten when it was written (`times_remembered`), two u64;
- under the prefix and a note's number (u64, from 1): the arrival number u64 and the time u64 (µs; 0
  where it is not known).

The notes are a help, and whoever reads them can tell that they do not say all (`notes_since`): a
store of an older version has none, the oldest are let go beyond MAX_GONE_NOTES, and an older
program forgets without noting it. The next program that does finds that more is remembered than
the notes know of, and leaves out a number.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from hyperbloom.store.limits import MAX_GONE_NOTES
from hyperbloom.store.lmdb.layout import ASIDE_TAGS, U32, U64, FeedState
from hyperbloom.store.lmdb.transaction import ReadTransaction, WriteTransaction

__all__ = ["GoneNotes", "Note", "note_at", "notes_since", "times_remembered", "verify_gone"]

_STATE: Final = struct.Struct(">QQ")
_NOTE: Final = struct.Struct(">QQ")


class Note(NamedTuple):
    """The arrival number of a value that is gone, and when it was forgotten (µs, or 0)."""

    seq: int
    at: int


def times_remembered(transaction: ReadTransaction, feed: FeedState) -> int:
    """A count that grows with all that the feed remembers as forgotten, and never shrinks."""
    asides = (transaction.find_aside(feed, tag) for tag in ASIDE_TAGS)
    return sum(aside.top_seq for aside in asides if aside is not None)


def _state(transaction: ReadTransaction, feed: FeedState) -> tuple[int, int]:
    data = transaction.get("gone", feed.prefix) if "gone" in transaction.databases else None
    if data is None:
        return 0, 0
    last, remembered = _STATE.unpack(data)
    return last, remembered


class GoneNotes:
    """Notes to be written by one operation; made before it changes what is remembered."""

    def __init__(self, transaction: WriteTransaction, feed: FeedState) -> None:
        self._transaction = transaction
        self._feed = feed
        self._before = last, noted = _state(transaction, feed)
        self._last = last if times_remembered(transaction, feed) == noted else last + 1

    def add(self, seqs: Sequence[int], at: int) -> None:
        """Note that these are gone since ``at``, and that all is noted which is remembered now."""
        put, prefix = self._transaction.put, self._feed.prefix
        for number, seq in enumerate(seqs, self._last + 1):
            put("gone", prefix + U64.pack(number), _NOTE.pack(seq, at))
        self._last += len(seqs)
        state = self._last, times_remembered(self._transaction, self._feed)
        if state != self._before:
            put("gone", prefix, _STATE.pack(*state))
        self._let_go(self._last - MAX_GONE_NOTES)

    def _let_go(self, up_to: int) -> None:
        if up_to <= 0:
            return
        end = self._feed.prefix + U64.pack(up_to)
        cursor = self._transaction.cursor("gone")
        found = cursor.set_range(self._feed.prefix + U64.pack(0))
        while found and cursor.key() <= end:
            found = cursor.delete()


def notes_since(
    transaction: ReadTransaction, feed: FeedState, number: int
) -> tuple[int, list[Note] | None]:
    """The number of the last note, and those above ``number``: None if they do not say all."""
    last, noted = _state(transaction, feed)
    if noted != times_remembered(transaction, feed) or number > last:
        return last, None
    if number == last:
        return last, []
    cursor, found = transaction.cursor("gone"), []
    is_there = cursor.set_range(feed.prefix + U64.pack(number + 1))
    while is_there and cursor.key().startswith(feed.prefix):
        found.append(Note(*_NOTE.unpack(cursor.value())))
        is_there = cursor.next()
    return last, found if len(found) == last - number else None


def note_at(transaction: ReadTransaction, feed: FeedState, number: int) -> bytes:
    """The note of this number as it lies there; empty if there is none."""
    if "gone" not in transaction.databases:
        return b""
    return transaction.get("gone", feed.prefix + U64.pack(number)) or b""


def verify_gone(
    transaction: ReadTransaction, feed: FeedState, problem: Callable[[str], None]
) -> None:
    """Notes can be read, are below the last one's number, and name records that are not there."""
    try:
        last, _ = _state(transaction, feed)
    except struct.error:
        problem("the number of its notes of forgotten values cannot be read")
        return
    for key, data in transaction.scan("gone", feed.prefix):
        if key == feed.prefix:
            continue
        if len(key) != U32.size + U64.size or len(data) != _NOTE.size:
            problem(f"the note of a forgotten value at {key.hex()} cannot be read")
            continue
        number, note = U64.unpack_from(key, U32.size)[0], Note(*_NOTE.unpack(data))
        if number > last:
            problem(f"the note {number} of a forgotten value is beyond the last one, {last}")
        if note.seq > feed.top_seq:
            problem(f"the note {number} is of record {note.seq}, beyond the top {feed.top_seq}")
        if transaction.get("log", feed.prefix + U64.pack(note.seq)) is not None:
            problem(f"log record {note.seq} is noted as forgotten, and is there")
