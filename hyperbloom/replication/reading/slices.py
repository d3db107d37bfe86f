"""A feed's values slice by slice, as plans, replies and digests read them.

Each slice is one short read transaction of about 5 ms; they are read in threads.
"""

from __future__ import annotations

from collections.abc import Callable

from hyperbloom.replication.limits import (
    LONGEST_VALUE_BYTES,
    SHARED_SLICE_BYTES,
    SLICE_BYTES,
    SLICE_VALUES,
)
from hyperbloom.store import Store
from hyperbloom.store.records import RangeSlice

__all__ = ["FeedSlices"]


class FeedSlices:
    """Reads one feed; `top_seq` is the number of the last arrival.

    slice_bytes: what a slice that peers are sent may have.
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        top_seq: Callable[[], int],
        slice_bytes: Callable[[], int] = lambda: SLICE_BYTES,
    ) -> None:
        self._store = store
        self._key = key
        self._top_seq = top_seq
        self._slice_bytes = slice_bytes

    def here(self, start: bytes, end: bytes | None) -> RangeSlice:
        """The next values of a range, as many as a slice holds."""
        return self._store.range_slice(
            self._key, start, end, limit=SLICE_VALUES, max_bytes=SLICE_BYTES
        )

    def forgotten(self, start: bytes, end: bytes | None) -> RangeSlice:
        """The next forgotten values of a range, of those that are kept whole."""
        return self._store.forgotten_slice(
            self._key, start, end, limit=SLICE_VALUES, max_bytes=SLICE_BYTES
        )

    def settled(self, start: bytes, end: bytes | None) -> RangeSlice:
        """The next values of a range that are here or forgotten: what no peer is to send."""
        return self._store.settled_slice(
            self._key, start, end, limit=SLICE_VALUES, max_bytes=SLICE_BYTES
        )

    def at_most(self, start: bytes, end: bytes | None, most: int) -> RangeSlice:
        """The next values of a range, `most` of them (0: as many as a slice holds)."""
        limit = min(most or SLICE_VALUES, SLICE_VALUES)
        return self._store.range_slice(
            self._key, start, end, limit=limit, max_bytes=self._slice_bytes()
        )

    def portion(self, start: bytes, end: bytes | None) -> RangeSlice:
        """The next values of a range, as many as a frame of an answer has."""
        return self._store.range_slice(
            self._key, start, end, limit=SLICE_VALUES, max_bytes=SHARED_SLICE_BYTES
        )

    def was_here(self, asked_at: int | None = None) -> Callable[[list[bytes]], list[bytes]]:
        """Tells of values which of them were here when `asked_at` arrived; None: at this moment."""
        if asked_at is None:
            asked_at = self._top_seq()

        def was_here(values: list[bytes]) -> list[bytes]:
            if self._top_seq() <= asked_at or not values:
                return values
            later = self._arrived_after(asked_at, most=len(values) // 4)
            if later is not None:
                return [value for value in values if value not in later]
            seqs = self._store.seqs(self._key, values)
            return [v for v, seq in zip(values, seqs, strict=True) if seq and seq <= asked_at]

        return was_here

    def _arrived_after(self, seq: int, *, most: int) -> set[bytes] | None:
        """All that arrived behind `seq`; None if they are many, or long."""
        if not 0 <= self._top_seq() - seq < most:
            return None
        log = self._store.log_slice(self._key, seq, limit=most, max_bytes=SLICE_BYTES)
        values = {record.value for record in log.records}
        was_cut = sum(map(len, values)) > SLICE_BYTES - LONGEST_VALUE_BYTES
        return None if was_cut or len(log.records) == most else values
