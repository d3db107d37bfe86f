"""What a connection has moved, and sums of that: plain numbers, so that counting is cheap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Counters"]

#: The counts that add up over connections.
_SUMS = (
    "values_in", "values_new", "values_out", "syncs_sent", "syncs_received", "sync_seconds",
    "values_tested", "sketches_asked", "sketch_symbols", "sketch_bytes", "sketch_differences",
    "ids_told", "values_pulled",
)  # fmt: skip


@dataclass(slots=True)
class Counters:
    """Counts of one connection since it became secure; times are seconds since 1970."""

    values_in: int = 0
    values_new: int = 0
    values_out: int = 0
    syncs_sent: int = 0
    syncs_received: int = 0
    #: Spent on making filters, or on adding up digests that were equal; and the values that were
    #: tested against the peer's filters.
    sync_seconds: float = 0.0
    values_tested: int = 0
    #: Tries by symbols that this side began; symbols that came, bytes that were sent to ask and to
    #: answer by them, and values found that one of both lacked.
    sketches_asked: int = 0
    sketch_symbols: int = 0
    sketch_bytes: int = 0
    sketch_differences: int = 0
    #: Ids of values that were told instead of sending these, and values asked for that were told.
    ids_told: int = 0
    values_pulled: int = 0
    #: When a value came or went last, in seconds of the node's clock.
    moved_at: float = 0.0
    last_sync_sent: float | None = None
    last_sync_received: float | None = None
    last_data: float | None = None
    #: When something came that was not here.
    last_new: float | None = None

    def add(self, other: Counters) -> None:
        """Add the counts of another connection."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def sums(self) -> dict[str, Any]:
        """The counts that add up over connections, by name."""
        return {name: getattr(self, name) for name in _SUMS}
