"""Values that a feed has forgotten, and what keeps them from coming back.

A set only grows among peers: what one node removes, the next Sync brings again. So removed values
are remembered, and AppendValues keeps them out. That alone would have peers send them with every
Sync, for our Bloom filters lack them; and a filter is made of hashes of the value itself under
seeds that change, which no stored hash gives. So two sets are kept aside for a feed, each with a
log and an index like the feed's own:

- tag ``v``: forgotten values, whole. Read in order beside the feed's own values they are in our
  filters, and no peer sends them. They can be brought back as they were, with who brought them and
  when.
- tag ``h``: the hashes (keyed_hash) of others. They keep a value out when it comes, and it comes
  with every Sync with a peer that has it. Here is what was to be erased without a trace of its
  bytes, and what the first set has no room for (MAX_FORGOTTEN_VALUES, MAX_FORGOTTEN_BYTES): those
  forgotten longest ago move over. Beyond MAX_FORGOTTEN_HASHES the oldest hashes are let go.

A value is in one of the three sets at most. Everything is done through the writer, in steps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hyperbloom.keys import keyed_hash
from hyperbloom.store.limits import (
    FORGET_STEP,
    MAX_FORGOTTEN_BYTES,
    MAX_FORGOTTEN_HASHES,
    MAX_FORGOTTEN_VALUES,
    MAX_VALUE_BYTES,
)
from hyperbloom.store.lmdb.layout import ASIDE_TAGS, LOG_HEAD, FeedState
from hyperbloom.store.lmdb.transaction import WriteTransaction
from hyperbloom.store.operations import (
    OVERHEAD_BYTES,
    FeedOperation,
    Unfinished,
    check_key,
    check_time,
    written_bytes,
)
from hyperbloom.store.records import Appended, Forgotten
from hyperbloom.store.values.gone import GoneNotes
from hyperbloom.store.values.ordered_index import index_of
from hyperbloom.store.values.value_set import (
    Removed,
    add_values,
    forgotten_among,
    log_heads,
    oldest_records,
    remove_values,
    take_back,
)

__all__ = ["BroughtLater", "DropForgottenHashes", "ForgetValues", "RestoreValues"]

_WHOLE, _HASHED = ASIDE_TAGS
_NOBODY = LOG_HEAD.pack(0, bytes(32))
"""The log head of a value that never came."""


def _check_values(values: Sequence[bytes]) -> tuple[bytes, ...]:
    found = tuple(dict.fromkeys(values))
    if len(found) > FORGET_STEP:
        raise ValueError(f"at most {FORGET_STEP:,} values in one step, not {len(found):,}")
    for value in found:
        if not isinstance(value, bytes):
            raise TypeError("values must be bytes")
        if not 0 < len(value) <= MAX_VALUE_BYTES:
            raise ValueError(f"a value has 1 to {MAX_VALUE_BYTES} bytes, not {len(value)}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BroughtLater:
    """Values that a peer (32-byte key) brought behind a number of the log, by value."""

    origin: bytes
    than: Mapping[bytes, int]

    def among(
        self, transaction: WriteTransaction, feed: FeedState, values: Sequence[bytes]
    ) -> set[bytes]:
        """Those of the values that are here and are such."""
        find = index_of(transaction, feed).find
        late = [v for v in values if (seq := find(v)) is not None and seq > self.than[v]]
        heads = log_heads(transaction, feed, late)
        return {value for value, head in heads if LOG_HEAD.unpack(head)[1] == self.origin}


@dataclass(frozen=True, slots=True)
class ForgetValues:
    """Remove values from a feed and remember that; at most FORGET_STEP of them.

    ``erase``: remember their hashes alone. ``absent``: also forget those that are not in the feed,
    so that they never come. ``brought_by``: only those that this peer (32-byte key) brought.
    ``spare``: those stay that were brought after they were asked to be forgotten.
    ``at`` (µs; 0 where it is not known) is noted with the numbers that they had (gone.py).
    Result: Forgotten. Fails with NoSuchFeed.
    """

    feed_key: bytes
    values: Sequence[bytes]
    erase: bool = False
    absent: bool = False
    brought_by: bytes | None = None
    spare: BroughtLater | None = None
    at: int = 0

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        check_time("at", self.at)
        if self.brought_by is not None:
            check_key("brought_by", self.brought_by)
        object.__setattr__(self, "values", _check_values(self.values))

    @property
    def size(self) -> int:
        return written_bytes(self.values) + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> Forgotten:
        feed = transaction.feed(self.feed_key)
        notes = GoneNotes(transaction, feed)
        asked = self._asked(transaction, feed)
        found = self._removed(transaction, feed, asked)
        removed = [(each.value, each.head) for each in found]
        gone = dict(removed)
        strangers = [value for value in asked if value not in gone] if self.absent else []
        known = forgotten_among(transaction, feed, strangers)
        absent = [(value, _NOBODY) for value in strangers if value not in known]
        if self.erase and known:
            # What was kept whole until now is to be erased as well.
            absent += take_back(transaction, feed, list(known))
        _remember(transaction, feed, [*removed, *absent], whole=not self.erase)
        notes.add([each.seq for each in found], self.at)
        return Forgotten(
            count=len(removed), bytes=sum(len(value) for value, _ in removed), absent=len(absent)
        )

    def _asked(self, transaction: WriteTransaction, feed: FeedState) -> Sequence[bytes]:
        if self.spare is None:
            return self.values
        spared = self.spare.among(transaction, feed, self.values)
        return [value for value in self.values if value not in spared]

    def _removed(
        self, transaction: WriteTransaction, feed: FeedState, values: Sequence[bytes]
    ) -> list[Removed]:
        if self.brought_by is not None:
            heads = log_heads(transaction, feed, values)
            values = [v for v, head in heads if LOG_HEAD.unpack(head)[1] == self.brought_by]
        return remove_values(transaction, feed, values)


@dataclass(frozen=True, slots=True)
class RestoreValues:
    """Bring forgotten values back, at most FORGET_STEP of them.

    Those kept whole are in the feed again, with the peer that brought them and the time when. Those
    of which only the hash was kept are not here, and are taken when a peer sends them. Result:
    Appended. Fails with NoSuchFeed.
    """

    feed_key: bytes
    values: Sequence[bytes]

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        object.__setattr__(self, "values", _check_values(self.values))

    @property
    def size(self) -> int:
        return written_bytes(self.values) + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> Appended:
        feed = transaction.feed(self.feed_key)
        back = [one for one in take_back(transaction, feed, self.values) if one[1] != _NOBODY]
        first_seq = feed.top_seq + 1
        new, _ = add_values(
            transaction, feed, [value for value, _ in back], [head for _, head in back]
        )
        return Appended(values=list(new), first_seq=first_seq, top_seq=feed.top_seq)


@dataclass(frozen=True, slots=True)
class DropForgottenHashes(FeedOperation):
    """Drop all hashes of forgotten values, so that these are taken again.

    Result: None, at the end. Fails with NoSuchFeed.
    """

    def apply(self, transaction: WriteTransaction) -> Unfinished | None:
        hashed = transaction.find_aside(transaction.feed(self.feed_key), _HASHED)
        if hashed is None or not hashed.count:
            return None
        oldest = oldest_records(transaction, hashed, FORGET_STEP)
        remove_values(transaction, hashed, [value for value, _ in oldest])
        return Unfinished(self) if hashed.count else None


def _remember(
    transaction: WriteTransaction,
    feed: FeedState,
    records: Sequence[tuple[bytes, bytes]],
    *,
    whole: bool,
) -> None:
    if not records:
        return
    if not whole:
        _remember_hashes(transaction, feed, records)
        return
    kept = transaction.aside(feed, _WHOLE)
    add_values(transaction, kept, [value for value, _ in records], [head for _, head in records])
    excess = kept.count - MAX_FORGOTTEN_VALUES
    if excess > 0 or kept.size > MAX_FORGOTTEN_BYTES:
        _make_room(transaction, feed, kept, excess)


def _make_room(
    transaction: WriteTransaction, feed: FeedState, kept: FeedState, excess: int
) -> None:
    """Keep only the hashes of those forgotten longest ago.

    A long value may push out more short ones than are moved in one step; the next step goes on.
    """
    too_many = kept.size - MAX_FORGOTTEN_BYTES
    moved: list[tuple[bytes, bytes]] = []
    for value, head in oldest_records(transaction, kept, FORGET_STEP):
        if excess <= 0 and too_many <= 0:
            break
        moved.append((value, head))
        excess -= 1
        too_many -= len(value)
    remove_values(transaction, kept, [value for value, _ in moved])
    _remember_hashes(transaction, feed, moved)


def _remember_hashes(
    transaction: WriteTransaction, feed: FeedState, records: Sequence[tuple[bytes, bytes]]
) -> None:
    hashed = transaction.aside(feed, _HASHED)
    hashes = [keyed_hash(value) for value, _ in records]
    add_values(transaction, hashed, hashes, [_NOBODY] * len(hashes))
    excess = hashed.count - MAX_FORGOTTEN_HASHES
    if excess > 0:
        oldest = oldest_records(transaction, hashed, excess)
        remove_values(transaction, hashed, [value for value, _ in oldest])
