"""Who has spoken `noise`: peer keys that have once completed a protected stream.

Who can and suddenly does not is not spoken to without it, until the operator says so. All keys are
in memory, for every Handshake asks; the store has them, with when they were met.

A member makes as many keys as it likes. So they have room by branch: where there is no more, a key
of the branch with most of them gives way, and of these the newest, so that no number of new keys
pushes out one that is long known. Keys that this node has other reasons to know stay.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from typing import cast

from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.limits import NOISE_MET_SECONDS, NOISE_STALE_SECONDS
from hyperbloom.store.limits import MAX_NOISE_KEYS
from hyperbloom.store.tables.noise import BRANCH_BYTES, ForgetNoise, RememberNoise
from hyperbloom.trust import mark_of

__all__ = ["NoiseMemory"]

#: Seconds between two looks for keys that were not met for long: it sorts all of them.
STALE_LOOK_SECONDS = 3_600.0

_ROW = struct.Struct(f">32sQQ{BRANCH_BYTES}s")


def _kept(mark: bytes) -> bytes:
    """The mark of a branch as it is kept."""
    return mark.ljust(BRANCH_BYTES, b"\0")


class NoiseMemory:
    """The keys of a node that speak it; at most `MAX_NOISE_KEYS`, as in the store.

    keeps: whether a key stays whatever comes. A row is a key, when it was met first and when last
    as far as the store knows (µs), and its branch. All lie in one piece: an object each would stay
    among those of a crowd of connections, and keep what was freed of them from being given back.
    """

    def __init__(self, context: FeedContext, keeps: Callable[[bytes], bool]) -> None:
        self._context = context
        self._keeps = keeps
        self._rows = bytearray()
        #: How many there are of each branch.
        self._sizes: Counter[bytes] = Counter()
        #: Keys that were not met for long, the last one the longest, and when that was seen (µs).
        self._stale: list[bytes] = []
        self._looked_at = 0

    def load(self) -> None:
        """Take over what the store keeps."""
        self._rows, self._sizes = bytearray(), Counter()
        for one in self._context.store.noise_keys():
            self._add(one.key, one.first_met, one.last_met, one.branch or _kept(mark_of(one.key)))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, bytes) and self._find(key) is not None

    def __len__(self) -> int:
        return len(self._rows) // _ROW.size

    def _find(self, key: bytes) -> int | None:
        """Where the key's row begins."""
        at = self._rows.find(key)
        while at % _ROW.size and at >= 0:
            at = self._rows.find(key, at + 1)
        return None if at < 0 else at

    def met(self, key: bytes, *, branch: bytes) -> None:
        """A protected stream with a key stands, of the branch that begins with the key of a mark.

        It is written down once in `NOISE_MET_SECONDS`.
        """
        now, branch = int(self._context.now() * 1_000_000), _kept(branch)
        at, instead = self._find(key), None
        if at is not None:
            _, first, written, _ = _ROW.unpack_from(self._rows, at)
            if abs(now - written) < NOISE_MET_SECONDS * 1_000_000:
                return
            self._drop(key)
            self._add(key, first, now, branch)
            if key in self._stale:
                self._stale.remove(key)
        else:
            if len(self) >= MAX_NOISE_KEYS:
                instead = self._gives_way(key, branch, now)
                if instead == key:
                    return
                self._drop(instead)
            self._add(key, now, now, branch)
        self._context.write(RememberNoise(key, now, branch, instead))

    def _gives_way(self, newcomer: bytes, branch: bytes, now: int) -> bytes:
        """The key that makes room for a newcomer; it may be the newcomer."""
        if abs(now - self._looked_at) > STALE_LOOK_SECONDS * 1_000_000:
            self._looked_at, before = now, now - NOISE_STALE_SECONDS * 1_000_000
            met = sorted((row[2], row[0]) for row in _ROW.iter_unpack(self._rows))
            self._stale = [key for at, key in reversed(met) if at < before]
        while self._stale:
            key = self._stale.pop()
            if key in self and not self._keeps(key):
                return key
        sizes = self._sizes + Counter([branch])
        # Of equals the newcomer's own branch gives way: else two would push out each other's keys.
        for largest in sorted(sizes, key=lambda one: (-sizes[one], one != branch)):
            if largest == branch and not self._keeps(newcomer):
                return newcomer
            rows = [(row[1], row[0]) for row in _ROW.iter_unpack(self._rows) if row[3] == largest]
            for _, key in sorted(rows, reverse=True):
                if not self._keeps(key):
                    return cast("bytes", key)
        return newcomer

    def _add(self, key: bytes, first: int, last: int, branch: bytes) -> None:
        self._rows += _ROW.pack(key, first, last, branch)
        self._sizes[branch] += 1

    def _drop(self, key: bytes) -> bool:
        at = self._find(key)
        if at is None:
            return False
        self._sizes -= Counter([_ROW.unpack_from(self._rows, at)[3]])
        del self._rows[at : at + _ROW.size]
        return True

    async def forget(self, key: bytes) -> bool:
        """Speak to a key without Noise again; whether it was remembered. Raises `StoreError`."""
        was_here = self._drop(key)
        return cast("bool", await self._context.written(ForgetNoise(key))) or was_here
