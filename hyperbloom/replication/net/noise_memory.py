"""Who has spoken `noise`: peer keys that have once completed a protected stream.

Who can and suddenly does not is not spoken to without it, until the operator says so. All keys are
in memory, for every Handshake asks; the store has them, with when they were met.
"""

from __future__ import annotations

import struct
from typing import cast

from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.limits import NOISE_MET_SECONDS
from hyperbloom.store.limits import MAX_NOISE_KEYS
from hyperbloom.store.tables.noise import ForgetNoise, RememberNoise

__all__ = ["NoiseMemory"]

_ROW = struct.Struct(">32sQ")


class NoiseMemory:
    """The keys of a node that speak it; at most `MAX_NOISE_KEYS`, as in the store.

    A row is a key and when it was met as far as the store knows (µs); those that give way first
    are in front. All lie in one piece: an object each would stay among those of a crowd of
    connections, and keep what was freed of them from being given back.
    """

    def __init__(self, context: FeedContext) -> None:
        self._context = context
        self._rows = bytearray()

    def load(self) -> None:
        """Take over what the store keeps."""
        kept = self._context.store.noise_keys()
        self._rows = bytearray().join(_ROW.pack(one.key, one.last_met) for one in kept)

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

    def met(self, key: bytes) -> None:
        """A protected stream with a key stands. It is written down once in `NOISE_MET_SECONDS`."""
        now = int(self._context.now() * 1_000_000)
        at = self._find(key)
        if at is not None:
            _, written = _ROW.unpack_from(self._rows, at)
            if abs(now - written) < NOISE_MET_SECONDS * 1_000_000:
                return
            del self._rows[at : at + _ROW.size]
        self._rows += _ROW.pack(key, now)
        del self._rows[: -MAX_NOISE_KEYS * _ROW.size]
        self._context.write(RememberNoise(key, now))

    async def forget(self, key: bytes) -> bool:
        """Speak to a key without Noise again; whether it was remembered. Raises `StoreError`."""
        at = self._find(key)
        if at is not None:
            del self._rows[at : at + _ROW.size]
        return cast("bool", await self._context.written(ForgetNoise(key))) or at is not None
