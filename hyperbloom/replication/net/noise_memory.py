"""Who has spoken `noise`: peer keys that have once completed a protected stream.

Who can and suddenly does not is not spoken to without it, until the operator says so. All keys are
in memory, for every Handshake asks; the store has them, with when they were met.
"""

from __future__ import annotations

from typing import cast

from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.limits import NOISE_MET_SECONDS
from hyperbloom.store.limits import MAX_NOISE_KEYS
from hyperbloom.store.tables.noise import ForgetNoise, RememberNoise

__all__ = ["NoiseMemory"]


class NoiseMemory:
    """The keys of a node that speak it; at most `MAX_NOISE_KEYS`, as in the store."""

    def __init__(self, context: FeedContext) -> None:
        self._context = context
        #: When each was met as far as the store knows (µs), the one that gives way first in front.
        self._written: dict[bytes, int] = {}

    def load(self) -> None:
        """Take over what the store keeps."""
        self._written = {one.key: one.last_met for one in self._context.store.noise_keys()}

    def __contains__(self, key: object) -> bool:
        return key in self._written

    def __len__(self) -> int:
        return len(self._written)

    def met(self, key: bytes) -> None:
        """A protected stream with a key stands. It is written down once in `NOISE_MET_SECONDS`."""
        now = int(self._context.now() * 1_000_000)
        written = self._written.get(key)
        if written is not None and abs(now - written) < NOISE_MET_SECONDS * 1_000_000:
            return
        self._written.pop(key, None)
        self._written[key] = now
        if len(self._written) > MAX_NOISE_KEYS:
            del self._written[next(iter(self._written))]
        self._context.write(RememberNoise(key, now))

    async def forget(self, key: bytes) -> bool:
        """Speak to a key without Noise again; whether it was remembered. Raises `StoreError`."""
        was_known = self._written.pop(key, None) is not None
        return cast("bool", await self._context.written(ForgetNoise(key))) or was_known
