"""What a feed does by itself: it forgets what it does not retain, and follows tombstones."""

from __future__ import annotations

from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.retention import Retention
from hyperbloom.replication.feed.tombstones import TombstoneReader
from hyperbloom.store.records import Appended

__all__ = ["Upkeep"]


class Upkeep:
    """Both for one feed: tombstones are looked for when values were stored, too."""

    def __init__(self, feed: Feed) -> None:
        self.retention = Retention(feed)
        self.tombstones = TombstoneReader(feed)
        feed.values.subscribe(self._stored)

    def _stored(self, appended: Appended, origin: bytes) -> None:
        self.tombstones.look()

    def look(self) -> None:
        """Begin what there is to do."""
        self.retention.look()
        self.tombstones.look()

    def stop(self) -> None:
        """End what is under way behind its step."""
        self.retention.stop()
        self.tombstones.stop()
