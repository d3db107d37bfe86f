"""Memories by path: who makes more keys pushes out what is remembered of his own ones alone.

A `PathMemory` holds so many entries. When it is full, the branch with the most of them gives its
oldest; within it the key below with the most, and so on down. `PathAccounts` keeps an account for
each path that somebody is connected by and for each path above it, and remembers so many of those
that all have left: to leave and come again wins nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from hyperbloom.trust.branch import Path

__all__ = ["PathAccounts", "PathMemory"]

K = TypeVar("K")
V = TypeVar("V")

#: The step below a path to the entries of the path itself.
_OWN = b""


class _Part(Generic[K]):
    """The entries below one path; those of the path itself lie one step further, under `_OWN`."""

    __slots__ = ("above", "below", "by_count", "count", "keys", "step")

    def __init__(self, above: _Part[K] | None, step: bytes) -> None:
        self.above, self.step = above, step
        self.count = 0
        self.below: dict[bytes, _Part[K]] = {}
        #: The parts below by how many entries each has; of equal ones the first to have so many.
        self.by_count: dict[int, dict[bytes, _Part[K]]] = {}
        #: The keys of a last part, the oldest first.
        self.keys: dict[K, None] = {}

    def part_below(self, step: bytes) -> _Part[K]:
        part = self.below.get(step)
        if part is None:
            part = self.below[step] = _Part(self, step)
        return part

    def grow(self, by: int) -> None:
        """It and all above it have one more entry, or one less."""
        part, above = self, self.above
        while above is not None:
            if part.count:
                alike = above.by_count[part.count]
                del alike[part.step]
                if not alike:
                    del above.by_count[part.count]
            part.count += by
            if part.count:
                above.by_count.setdefault(part.count, {})[part.step] = part
            else:
                del above.below[part.step]
            part, above = above, above.above

    def oldest_of_most(self) -> K:
        part = self
        while part.by_count:
            part = next(iter(part.by_count[max(part.by_count)].values()))
        return next(iter(part.keys))


class PathMemory(Generic[K, V]):
    """At most `most` entries, each with a key of its own and the path that it belongs to."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[K, tuple[V, _Part[K]]] = {}
        self._root: _Part[K] = _Part(None, _OWN)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """The value of a key, None: it is not remembered."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, path: Path, key: K, value: V) -> K | None:
        """Remember it as the latest of this path; the key that was forgotten for it, if one was."""
        self.pop(key)
        part = self._root
        for step in (*path, _OWN):
            part = part.part_below(step)
        part.keys[key] = None
        part.grow(1)
        self._entries[key] = value, part
        if len(self._entries) <= self._most:
            return None
        forgotten = self._root.oldest_of_most()
        self.pop(forgotten)
        return forgotten

    def pop(self, key: K) -> V | None:
        """Forget it; its value, None: it was not remembered."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        value, part = entry
        del part.keys[key]
        part.grow(-1)
        return value


class _Held(Generic[V]):
    """An account, and how many have joined by its path or by one below it."""

    __slots__ = ("account", "joined")

    def __init__(self, account: V) -> None:
        self.account, self.joined = account, 0


class PathAccounts(Generic[V]):
    """An account for each path in use and each above it; `make` makes that of a path.

    At most `most` are remembered of paths that nobody uses any more, where `is_owed` says that a
    new one would not be the same.
    """

    def __init__(
        self, make: Callable[[Path], V], *, is_owed: Callable[[V], bool], most: int
    ) -> None:
        self._make, self._is_owed = make, is_owed
        self._held: dict[Path, _Held[V]] = {}
        self._left: PathMemory[Path, V] = PathMemory(most)

    def __len__(self) -> int:
        return len(self._held) + len(self._left)

    def join(self, path: Path) -> tuple[V, ...]:
        """Somebody comes by this path; the accounts from its branch's own down to it."""
        accounts = []
        for depth in range(1, len(path) + 1):
            upper = path[:depth]
            held = self._held.get(upper)
            if held is None:
                account = self._left.pop(upper)
                held = _Held(self._make(upper) if account is None else account)
                self._held[upper] = held
            held.joined += 1
            accounts.append(held.account)
        return tuple(accounts)

    def leave(self, path: Path) -> None:
        """Somebody who joined by this path has gone."""
        for depth in range(len(path), 0, -1):
            upper = path[:depth]
            held = self._held[upper]
            held.joined -= 1
            if not held.joined:
                del self._held[upper]
                if self._is_owed(held.account):
                    self._left.put(upper, upper, held.account)
