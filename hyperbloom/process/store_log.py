"""What the node's log says of its store: when it takes no writes any more, and when it does again.

Callers are told of their own failures. The log says it once for all of them, again once a minute
while writes go on failing, and when it is over.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from hyperbloom.store import StoreCorrupt, StoreError
from hyperbloom.store.condition import Condition

__all__ = ["AGAIN_SECONDS", "StoreLog"]

AGAIN_SECONDS = 60.0
"""Between two lines about the same trouble."""

log = Logger()


class StoreLog:
    """Logs changes of a store's condition. ``look`` is called in the reactor's thread after each.

    ``seconds`` is a steady clock.
    """

    def __init__(self, condition: Condition, *, seconds: Callable[[], float]) -> None:
        self._condition = condition
        self._seconds = seconds
        self._trouble: StoreError | None = None
        self._damage: StoreCorrupt | None = None
        self._since = self._said = 0.0

    def look(self) -> None:
        """Say what is new."""
        trouble, damage, now = self._condition.trouble, self._condition.damage, self._seconds()
        if damage is not None and self._damage is None:
            self._damage = damage
            log.critical(
                "Damage was found: {why}. Look with `hyperbloom verify`; if it names problems, "
                "stop the node and restore a snapshot (`hyperbloom restore`)",
                why=str(damage),
            )
        if trouble is None:
            if self._trouble is not None:
                log.warn(
                    "The store takes writes again, after {seconds:.0f} s", seconds=now - self._since
                )
            self._trouble = None
            return
        if self._trouble is None:
            self._since = now
        if self._trouble is None or type(self._trouble) is not type(trouble):
            log.error("The store takes no writes: {why}", why=str(trouble))
        elif now - self._said >= AGAIN_SECONDS:
            log.error(
                "The store still takes no writes, {count} were refused in {seconds:.0f} s: {why}",
                count=self._condition.failures,
                seconds=now - self._since,
                why=str(trouble),
            )
        else:
            return
        self._trouble, self._said = trouble, now
