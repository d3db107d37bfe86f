"""What a write operation is; the rooms `values`, `tables` and `objects` have them all.

An operation is made and checked where it is asked for, and applied in the writer's thread. What
can be wrong with it is found when it is made (ValueError, TypeError), so that inside a transaction
it fails for the store's reasons only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from hyperbloom.store.limits import MAX_VALUE_BYTES, PIECE_BYTES, VALUE_COST_BYTES
from hyperbloom.store.lmdb.layout import KEY_BYTES
from hyperbloom.store.lmdb.transaction import WriteTransaction

__all__ = [
    "LARGEST_PIECE_BYTES",
    "OVERHEAD_BYTES",
    "FeedOperation",
    "Operation",
    "Unfinished",
    "check_key",
    "check_time",
    "pieces_of",
    "written_bytes",
]

OVERHEAD_BYTES: Final = 256
"""What an operation weighs in the queue beside its values: keys, records, the object itself."""
LARGEST_PIECE_BYTES: Final = max(PIECE_BYTES, MAX_VALUE_BYTES + VALUE_COST_BYTES) + OVERHEAD_BYTES
"""What the heaviest operation with a peer's values weighs."""
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
    """The weight of values that are to be written: their bytes, and VALUE_COST_BYTES for each."""
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


@dataclass(frozen=True, slots=True)
class FeedOperation:
    """Of operations that need nothing but a feed's key."""

    feed_key: bytes

    def __post_init__(self) -> None:
        check_key("feed_key", self.feed_key)

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES
