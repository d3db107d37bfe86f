"""Whether a store takes writes, and what damage was met.

Each caller of the store is told of its own failure. A node says it once for all of them, in its log
and in its status. So the outcome of every write and read is noted here, and a listener is called
when it changes.
"""

from collections.abc import Callable

from hyperbloom.store.errors import StoreCorrupt, StoreError, StoreFull

__all__ = ["Condition"]


class Condition:
    """What the last write came to, and the damage that was met. Written by any thread.

    ``trouble`` is why the last write failed (full disk, read-only disk, damage, file gone), None if
    it was committed. But a full disk stays one until ``has_room``: a small write finds a free page
    in the file where the next larger one fails again. ``failures`` counts the transactions that
    failed since the trouble began. ``damage`` is what was first found damaged since the store was
    opened; it never heals.
    """

    __slots__ = ("_has_room", "damage", "failures", "listener", "trouble")

    def __init__(self, has_room: Callable[[], bool] = lambda: True) -> None:
        self._has_room = has_room
        self.trouble: StoreError | None = None
        self.damage: StoreCorrupt | None = None
        self.failures = 0
        self.listener: Callable[[], None] | None = None
        """Called after each failed write, the commit that ends failures, and new damage."""

    @property
    def problem(self) -> StoreError | None:
        """What is wrong now, None if nothing is."""
        return self.trouble or self.damage

    def failed(self, error: StoreError) -> None:
        """A write failed for the store's own reason, not for the caller's."""
        self.trouble = error
        self.failures += 1
        if isinstance(error, StoreCorrupt) and self.damage is None:
            self.damage = error
        self._tell()

    def committed(self) -> None:
        """A write is on disk."""
        if self.trouble is None or (isinstance(self.trouble, StoreFull) and not self._has_room()):
            return
        self.trouble, self.failures = None, 0
        self._tell()

    def found_damage(self, error: StoreCorrupt) -> None:
        """A read met a record or page that is none."""
        if self.damage is None:
            self.damage = error
            self._tell()

    def _tell(self) -> None:
        if self.listener is not None:
            self.listener()
