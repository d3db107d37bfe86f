"""What a feed does by itself: it forgets what it does not retain, follows tombstones, and keeps its
sketch."""

from __future__ import annotations

from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.retention import Retention
from hyperbloom.replication.feed.sketch_keeping import SketchKeeping
from hyperbloom.replication.feed.tombstones import TombstoneReader
from hyperbloom.store.records import Appended

__all__ = ["Upkeep"]


class Upkeep:
    """All of it for one feed; the last two also look when values were stored."""

    def __init__(self, feed: Feed) -> None:
        self.retention = Retention(feed)
        self.tombstones = TombstoneReader(feed)
        self.sketch = SketchKeeping(feed)
        feed.values.subscribe(self._stored)

    def _stored(self, appended: Appended, origin: bytes) -> None:
        self.tombstones.look()
        self.sketch.stored()

    def look(self) -> None:
        """Begin what there is to do."""
        self.retention.look()
        self.tombstones.look()
        self.sketch.look()

    def stop(self) -> None:
        """End what is under way behind its step."""
        self.retention.stop()
        self.tombstones.stop()
        self.sketch.stop()
