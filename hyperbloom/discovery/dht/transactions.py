"""Queries whose answers are awaited.

An answer counts only if it has the id of a query and comes from where that query went, so that who
neither reads our packets nor can forge that address has nothing to say. Ids are 4 unpredictable
bytes: mainline (Rust) drops any other length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.limits import MAX_OUTSTANDING

__all__ = ["TRANSACTION_BYTES", "Transactions"]

TRANSACTION_BYTES: Final = 4

T = TypeVar("T")


class Transactions(Generic[T]):
    """What was asked (a `T`), by transaction id and address; each is taken out once.

    All are given the same time, so the order of asking is the order of running out.
    """

    def __init__(self, random_bytes: Callable[[int], bytes], *, seconds: float) -> None:
        self._random_bytes = random_bytes
        self._seconds = seconds
        self._waiting: dict[tuple[bytes, Address], tuple[float, T]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether `MAX_OUTSTANDING` answers are awaited."""
        return len(self._waiting) >= MAX_OUTSTANDING

    @property
    def deadline(self) -> float | None:
        """When the oldest runs out."""
        for deadline, _ in self._waiting.values():
            return deadline
        return None

    def begin(self, address: Address, asked: T, *, now: float) -> bytes:
        """Remember a query to this address; the id to send it with."""
        while True:
            key = (self._random_bytes(TRANSACTION_BYTES), address)
            if key not in self._waiting:
                self._waiting[key] = (now + self._seconds, asked)
                return key[0]

    def take(self, transaction_id: bytes, address: Address) -> T | None:
        """What was asked there under this id, which is then answered; None if nothing was."""
        found = self._waiting.pop((transaction_id, address), None)
        return None if found is None else found[1]

    def expire(self, *, now: float) -> Iterator[T]:
        """Takes out those that ran out, oldest first."""
        while self._waiting:
            key = next(iter(self._waiting))
            if self._waiting[key][0] > now:
                return
            yield self._waiting.pop(key)[1]
