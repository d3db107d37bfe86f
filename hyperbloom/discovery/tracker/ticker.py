"""An action that is repeated at intervals with jitter, whatever becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from hyperbloom.discovery.tracker.procedures import interval
from hyperbloom.discovery.tracker.topic_records import LookupFailed, PublishFailed

__all__ = ["Timing", "tick"]

log = Logger()


class Timing(Protocol):
    """Seconds to the first time, and from the end of one to the next: base and jitter."""

    @property
    def initial_delay(self) -> float:
        """Seconds to the first time."""
        ...

    @property
    def base_interval(self) -> float:
        """Least seconds from the end of one to the next."""
        ...

    @property
    def max_jitter(self) -> float:
        """Most seconds added at random."""
        ...


def tick(
    action: Callable[[], Coroutine[Deferred[Any], Any, None]],
    timing: Timing,
    *,
    clock: IReactorTime,
    random: Random,
) -> Deferred[None]:
    """Do `action` again and again; cancelling the Deferred ends that."""

    async def run() -> None:
        await deferLater(clock, timing.initial_delay)
        while True:
            try:
                await action()
            except (LookupFailed, PublishFailed) as failed:
                log.debug("{failed}", failed=failed)
            await deferLater(clock, interval(timing.base_interval, timing.max_jitter, random))

    return Deferred.fromCoroutine(run())
