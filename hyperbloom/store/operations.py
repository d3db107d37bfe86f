"""The write operations: what each does inside a transaction.

An operation is made and checked where it is asked for, and applied in the writer's thread. What
can be wrong with it is found when it is made (ValueError, TypeError), so that inside a transaction
it fails for the store's reasons only.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from hyperbloom.store.limits import DELETE_STEP, MAX_VALUE_BYTES, PIECE_BYTES, VALUE_COST_BYTES
from hyperbloom.store.lmdb.layout import (
    KEY_BYTES,
    LOG_HEAD,
    META_DROPPING,
    FeedState,
    parse_settings,
)
from hyperbloom.store.records import Appended, FeedRecord
from hyperbloom.store.transaction import WriteTransaction
from hyperbloom.store.values.value_set import add_values, forgotten_among, take_back

__all__ = [
    "OVERHEAD_BYTES",
    "AppendValues",
    "DropFeed",
    "FeedOperation",
    "Operation",
    "PutFeed",
    "PutMeta",
    "SweepDropped",
    "Unfinished",
    "check_key",
    "check_time",
    "feed_record",
    "meta_key",
    "pieces_of",
    "written_bytes",
]

OVERHEAD_BYTES: Final = 256
"""What an operation weighs in the queue beside its values: keys, records, the object itself."""
_MAX_TIME: Final = (1 << 64) - 1


class Operation(Protocol):
    """What the writer takes: something with a size (bytes, for its queue) that can be applied."""

    @property
    def size(self) -> int: ...

    def apply(self, transaction: WriteTransaction) -> object: ...


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What an operation returns whose rest is to be applied in a later transaction."""

    rest: Operation


def written_bytes(values: Sequence[bytes]) -> int:
    """What values weigh that are to be written: their bytes and what each costs beside them."""
    return sum(map(len, values)) + VALUE_COST_BYTES * len(values)


def pieces_of(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Values in parts that weigh PIECE_BYTES at most, or are one value; in their order."""
    longest = max(map(len, values), default=0)
    if longest <= VALUE_COST_BYTES:
        # The usual case, and one for which there may be many: as many of the longest as fit.
        step = PIECE_BYTES // (longest + VALUE_COST_BYTES)
        for start in range(0, len(values), step):
            yield values[start : start + step]
        return
    start = weight = 0
    for end, value in enumerate(values):
        cost = len(value) + VALUE_COST_BYTES
        if weight + cost > PIECE_BYTES and end > start:
            yield values[start:end]
            start, weight = end, 0
        weight += cost
    if start < len(values):
        yield values[start:]


def check_key(name: str, key: bytes) -> None:
    """Refuse anything but 32 bytes, with ValueError or TypeError."""
    if not isinstance(key, bytes):
        raise TypeError(f"{name} must be bytes")
    if len(key) != KEY_BYTES:
        raise ValueError(f"{name} must be {KEY_BYTES} bytes, not {len(key)}")


def check_time(name: str, time: int) -> None:
    """Refuse what is no time in whole microseconds, with ValueError or TypeError."""
    if not isinstance(time, int):
        raise TypeError(f"{name} must be whole microseconds")
    if not 0 <= time <= _MAX_TIME:
        raise ValueError(f"{name} must be between 0 and 2^64 microseconds, not {time}")


def meta_key(name: str) -> bytes:
    """The key of a meta entry of ours; ValueError for the store's own names."""
    if not name or name.startswith("store.") or len(name.encode()) > 255:
        raise ValueError(f"{name!r} is no name for a meta entry")
    return name.encode()


def feed_record(feed_key: bytes, state: FeedState, left: int) -> FeedRecord:
    """A feed's state as the store gives it out; ``left`` values are not in its sum yet."""
    return FeedRecord(
        key=feed_key,
        count=state.count,
        bytes=state.size,
        digest=None if left else state.digest,
        digest_left=left,
        top_seq=state.top_seq,
        settings=parse_settings(state.settings),
    )


@dataclass(frozen=True, slots=True)
class AppendValues:
    """Add values to a feed; those it has are left as they are, and those it forgot stay out.

    ``origin`` is the 32-byte key of the peer that brought them, ``received_at`` the time in µs.
    With ``restores`` values that were forgotten come in as well, and are forgotten no more.
    Result: Appended. Fails with NoSuchFeed.
    """

    feed_key: bytes
    values: Sequence[bytes]
    origin: bytes
    received_at: int
    restores: bool = False
    size: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        check_key("origin", self.origin)
        check_time("received_at", self.received_at)
        values = tuple(self.values)
        if set(map(type, values)) - {bytes}:
            raise TypeError("values must be bytes")
        lengths = list(map(len, values))
        if lengths and max(lengths) > MAX_VALUE_BYTES:
            raise ValueError(f"a value has at most {MAX_VALUE_BYTES} bytes, not {max(lengths)}")
        object.__setattr__(self, "values", values)
        size = sum(lengths) + VALUE_COST_BYTES * len(values) + OVERHEAD_BYTES
        object.__setattr__(self, "size", size)

    def apply(self, transaction: WriteTransaction) -> Appended:
        feed = transaction.feed(self.feed_key)
        values = list(dict.fromkeys(self.values))
        forgotten = forgotten_among(transaction, feed, values)
        if forgotten and self.restores:
            take_back(transaction, feed, list(forgotten))
            forgotten = set()
        elif forgotten:
            values = [value for value in values if value not in forgotten]
        head = LOG_HEAD.pack(self.received_at, self.origin)
        new, first_seq = add_values(transaction, feed, values, [head] * len(values))
        return Appended(
            values=new, first_seq=first_seq, top_seq=feed.top_seq, forgotten=len(forgotten)
        )


@dataclass(frozen=True, slots=True)
class PutFeed:
    """Add a feed, or give it other settings (a JSON object). Result: FeedRecord."""

    feed_key: bytes
    settings: Mapping[str, object]
    encoded: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)
        encoded = json.dumps(dict(self.settings), sort_keys=True, separators=(",", ":"))
        object.__setattr__(self, "encoded", encoded.encode())

    @property
    def size(self) -> int:
        return len(self.encoded) + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> FeedRecord:
        feed = transaction.find_feed(self.feed_key)
        if feed is None:
            feed = FeedState(feed_id=transaction.next_feed_id(), settings=self.encoded)
            transaction.add_feed(self.feed_key, feed)
        feed.settings = self.encoded
        return feed_record(self.feed_key, feed, transaction.sum_of(feed).left)


@dataclass(frozen=True, slots=True)
class FeedOperation:
    """Of operations that need nothing but a feed's key."""

    feed_key: bytes

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class DropFeed(FeedOperation):
    """Remove a feed, if it is there: at once for every reader, its records bit by bit.

    The record goes and the id is noted in ``meta``, in one transaction; SweepDropped then removes
    what is under the id, and is done again when a writer starts. Result: None, when all is gone.
    """

    def apply(self, transaction: WriteTransaction) -> Unfinished | None:
        feed = transaction.find_feed(self.feed_key)
        if feed is None:
            return None
        for state in (feed, *transaction.remove_aside(feed)):
            transaction.put("meta", META_DROPPING + state.prefix, b"1")
        transaction.remove_feed(self.feed_key)
        transaction.delete_prefix("peers", self.feed_key, DELETE_STEP)
        return Unfinished(SweepDropped())


@dataclass(frozen=True, slots=True)
class SweepDropped:
    """Remove a step's worth of what dropped feeds left behind. Result: None, at the end."""

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> Unfinished | None:
        room = DELETE_STEP
        for key in [key for key, _ in transaction.scan("meta", META_DROPPING)]:
            prefix = key.removeprefix(META_DROPPING)
            for database in ("index", "log", "links", "refused"):
                room -= transaction.delete_prefix(database, prefix, room)
                if room <= 0:
                    return Unfinished(self)
            transaction.delete("meta", key)
        return None


@dataclass(frozen=True, slots=True)
class PutMeta:
    """Keep a few bytes under a name; None removes them. Result: None."""

    name: str
    value: bytes | None

    def __post_init__(self) -> None:
        meta_key(self.name)
        if self.value is not None and not isinstance(self.value, bytes):
            raise TypeError("value must be bytes")

    @property
    def size(self) -> int:
        return len(self.value or b"") + OVERHEAD_BYTES

    def apply(self, transaction: WriteTransaction) -> None:
        if self.value is None:
            transaction.delete("meta", meta_key(self.name))
        else:
            transaction.put("meta", meta_key(self.name), self.value)
