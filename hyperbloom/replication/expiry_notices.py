"""What the log says of links that end: once a day, from a week before a node may write no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.logger import Logger

from hyperbloom.feed_words import LINK_ENDS_SOON
from hyperbloom.replication.feed.feed import Feed

__all__ = ["ExpiryNotices"]

#: Between two lines about one feed: a day, less what makes up for a look that comes a little early.
AGAIN_SECONDS = 86_400.0 - 1_800.0

log = Logger()


class ExpiryNotices:
    """Remembers what was said; `look` is called now and then. `now`: seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._said: dict[bytes, float] = {}

    def look(self, feeds: Iterable[Feed]) -> None:
        """Say to which of a node's feeds it may soon write no more."""
        now, said = self._now(), self._said
        self._said = {}
        for feed in feeds:
            until = feed.trust.writes_until
            if until is None or until - now >= LINK_ENDS_SOON:
                continue
            last = said.get(feed.key)
            # A clock that was set back is no reason to be silent.
            if last is not None and 0 <= now - last < AGAIN_SECONDS:
                self._said[feed.key] = last
                continue
            self._said[feed.key] = now
            hours = (until - now) / 3_600
            log.warn(
                "This node may write to {feed} for {left} more: have its link renewed by who "
                "invited it",
                feed=feed.log_name,
                left=f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} hours",
            )
