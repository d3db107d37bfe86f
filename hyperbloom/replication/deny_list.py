"""The deny list in memory: keys that take part in no feed of this node, whoever vouches for them.

It wins over every chain. A chain that leads to or through a denied key is no chain here: not for
a peer that proves itself with it, not for a member that is listed, and not for this node itself.
Nor is one whose links have been shortened since, by somebody who did not know of the denial: such
links carry the marks of the keys that they leave out (`hyperbloom.trust.branch`).
"""

from __future__ import annotations

from collections.abc import Iterable

from hyperbloom.store.records import DeniedRecord
from hyperbloom.trust import Chain, mark_of, shortened_by

__all__ = ["DenyList"]


class DenyList:
    """The denied keys of a node; at most `hyperbloom.store.MAX_DENIED_KEYS`."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._set(keys)

    def _set(self, keys: Iterable[bytes]) -> None:
        self._marks = {mark_of(key): key for key in keys}
        #: The keys and their marks, as `LinkGraph` leaves them out.
        self.excluded = {*self._marks, *self._marks.values()}

    def load(self, records: Iterable[DeniedRecord]) -> None:
        """Take over what the store keeps."""
        self._set(record.key for record in records)

    def add(self, key: bytes) -> None:
        """Deny a key from now on."""
        self._marks[mark_of(key)] = key
        self.excluded |= {mark_of(key), key}

    def discard(self, key: bytes) -> None:
        """Let a key take part again."""
        self._marks.pop(mark_of(key), None)
        self.excluded -= {mark_of(key), key}

    def __contains__(self, key: object) -> bool:
        return key in self.excluded

    def __len__(self) -> int:
        return len(self._marks)

    def first_of(self, chain: Chain) -> bytes | None:
        """The denied key that a chain leads to or through, the nearest to the feed's; or None."""
        if not self._marks:
            return None
        marks = [mark_of(chain.feed_key)]
        for link in chain.links:
            marks += (*shortened_by(link), mark_of(link.public_key))
        return next((self._marks[mark] for mark in marks if mark in self._marks), None)
