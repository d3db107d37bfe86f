"""What the log says of this node's own right to write: when it ends, and when it is back."""

from __future__ import annotations

from twisted.logger import Logger

from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.membership import NotTrusted

__all__ = ["TrustLog"]

log = Logger()


class TrustLog:
    """Says it once for each time; a feed that this node was never invited to is no news."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._is_lost = False

    def look(self) -> None:
        """Say what is new."""
        trust, name = self._feed.trust, self._feed.log_name
        if trust.chain is not None:
            if self._is_lost:
                self._is_lost = False
                log.info("This node may write to {feed} again", feed=name)
            return
        if self._is_lost or not trust.membership.was_member:
            return
        self._is_lost = True
        try:
            trust.require_chain()
        except NotTrusted as problem:
            log.error(
                "This node may not write to {feed} any more: {why}", feed=name, why=str(problem)
            )
