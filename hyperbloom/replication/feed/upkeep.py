"""What a feed does by itself: it forgets what it does not retain, follows tombstones, keeps its
sketch, and says when this node may write no more."""

from __future__ import annotations

from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.retention import Retention
from hyperbloom.replication.feed.sketch_keeping import SketchKeeping
from hyperbloom.replication.feed.tombstones import TombstoneReader
from hyperbloom.replication.feed.trust_log import TrustLog
from hyperbloom.store.records import Appended

__all__ = ["Upkeep"]


class Upkeep:
    """All of it for one feed; tombstones and sketch also look when values were stored."""

    def __init__(self, feed: Feed) -> None:
        self.retention = Retention(feed)
        self.tombstones = TombstoneReader(feed)
        self.sketch = SketchKeeping(feed)
        self.trust_log = TrustLog(feed)
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
