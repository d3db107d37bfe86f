"""The deny list in memory: keys that take part in no feed of this node, whoever vouches for them.

It wins over every chain. A chain that leads to or through a denied key is no chain here: not for
a peer that proves itself with it, not for a member that is listed, and not for this node itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from hyperbloom.store.records import DeniedRecord
from hyperbloom.trust import Chain

__all__ = ["DenyList"]


class DenyList:
    """The denied keys of a node; at most `hyperbloom.store.MAX_DENIED_KEYS`."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._keys = set(keys)

    def load(self, records: Iterable[DeniedRecord]) -> None:
        """Take over what the store keeps."""
        self._keys = {record.key for record in records}

    def add(self, key: bytes) -> None:
        """Deny a key from now on."""
        self._keys.add(key)

    def discard(self, key: bytes) -> None:
        """Let a key take part again."""
        self._keys.discard(key)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def first_of(self, chain: Chain) -> bytes | None:
        """The denied key that a chain leads to or through, the nearest to the feed's; or None."""
        return next((key for key in chain.keys if key in self._keys), None)
