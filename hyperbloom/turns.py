"""Turns by levels: whoever waits does so at the end of a path, and on each level paths take turns.

A path leads from a branch down to one row of it (`hyperbloom.trust.branch`). Those that begin alike
have one turn among the others, and share it below by the same rule. So nobody comes sooner for
having more rows: ten thousand of them below one branch have the turns of that branch.

This is hierarchical round robin; a row's `credit` makes it deficit round robin, for those who need
that (Bennett and Zhang, "Hierarchical packet fair queueing algorithms", 1996, is the general form).
A step takes as long as the path is.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar, cast

__all__ = ["Turns", "TurnsRow"]

T = TypeVar("T")

Path = tuple[Hashable, ...]

_END = None
"""Stands below the last part of a path for its row, so that a path may be the beginning of another:
a key's own row takes turns with those of the keys below it."""


class TurnsRow(Generic[T]):
    """What waits at the end of one path, in its order."""

    __slots__ = ("credit", "path", "waiting")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: deque[T] = deque()
        self.credit = 0


_Level = OrderedDict[Hashable, object]


class Turns(Generic[T]):
    """Rows of what waits; the length is the number of rows, and none of them is empty."""

    def __init__(self) -> None:
        self._top: _Level = OrderedDict()
        self._rows: dict[Path, TurnsRow[T]] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, path: object) -> bool:
        return path in self._rows

    def add(self, path: Path, item: T) -> None:
        """Put something at the end of a row; a new row has its first turn after all others."""
        self._row(path).waiting.append(item)

    def put_back(self, path: Path, item: T) -> TurnsRow[T]:
        """Put something at the front of a row, which has the next turn; returns the row."""
        row = self._row(path)
        row.waiting.appendleft(item)
        for level, part in zip(self._levels(path), (*path, _END), strict=True):
            level.move_to_end(part, last=False)
        return row

    def first(self) -> TurnsRow[T]:
        """The row whose turn it is."""
        found: object = self._top
        while isinstance(found, OrderedDict):
            found = next(iter(found.values()))
        return cast("TurnsRow[T]", found)

    def pass_on(self) -> None:
        """The turn of the first row is over: on each level it goes to the end, or out if empty."""
        row = self.first()
        if not row.waiting:
            self._take_out(row)
        else:
            for level, part in zip(self._levels(row.path), (*row.path, _END), strict=True):
                level.move_to_end(part)

    def pop(self) -> T:
        """The first of the row whose turn it is; then its turn is over."""
        item = self.first().waiting.popleft()
        self.pass_on()
        return item

    def discard(self, path: Path, item: T) -> bool:
        """It waits no more; whether it did."""
        row = self._rows.get(path)
        if row is None or item not in row.waiting:
            return False
        row.waiting.remove(item)
        if not row.waiting:
            self._take_out(row, passed=False)
        return True

    def _row(self, path: Path) -> TurnsRow[T]:
        row = self._rows.get(path)
        if row is None:
            row = self._rows[path] = TurnsRow(path)
            level = self._top
            for part in path:
                level = cast("_Level", level.setdefault(part, OrderedDict()))
            level[_END] = row
        return row

    def _levels(self, path: Path) -> list[_Level]:
        """From the top one down to that of the row."""
        levels = [self._top]
        for part in path:
            levels.append(cast("_Level", levels[-1][part]))
        return levels

    def _take_out(self, row: TurnsRow[T], *, passed: bool = True) -> None:
        """Remove a row; if its turn has `passed`, that of the branches it was in has as well."""
        del self._rows[row.path]
        levels = self._levels(row.path)
        for level, part in zip(reversed(levels), (_END, *reversed(row.path)), strict=True):
            if part is _END or not level[part]:
                del level[part]
            elif passed:
                level.move_to_end(part)
