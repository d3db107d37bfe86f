"""What outputs, inputs and hooks have in common: their feed, their runs, and what they say.

An `Integration` looks for its feed, is told when something in it has changed, and runs one thing at
a time: when it is due, when it is asked to, and again after a failure.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred, DeferredLock, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.timer import Timer
from hyperbloom.errors import HyperbloomError
from hyperbloom.integrations.attempts import Attempts
from hyperbloom.integrations.commands import Commands
from hyperbloom.integrations.limits import LEFT_FEED_SECONDS
from hyperbloom.integrations.settings import IntegrationSettings
from hyperbloom.integrations.status import IntegrationStatus, Kind, State
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feeds import UnknownFeed
from hyperbloom.replication.node import Node

__all__ = ["Integration", "IntegrationContext", "IntegrationFailed", "StillFailing"]

S = TypeVar("S", bound=IntegrationSettings)

log = Logger()


class IntegrationFailed(HyperbloomError):
    """A run did not do what it should; the message is one sentence with its cure.

    wait: seconds before which it is not tried again by itself, where that is longer than what is
    usual; infinite: never.
    """

    def __init__(self, sentence: str, *, wait: float = 0.0) -> None:
        super().__init__(sentence)
        self.wait = wait


class StillFailing(IntegrationFailed):
    """What failed before was not tried again yet; it is in so many `seconds`."""

    def __init__(self, problem: str, seconds: float) -> None:
        super().__init__(problem)
        self.seconds = seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationContext:
    """What all of a node share. `data` is the node's data folder, ``own`` what no input may read.

    ``input_names`` are the inputs of the configuration. They put and take back one at a time, by
    ``inputs_turn``: what one of them takes back no other may hold.
    """

    node: Node
    commands: Commands
    data: Path
    store_path: Path
    clock: Any
    now: Callable[[], float]
    own: tuple[Path, ...] = ()
    input_names: set[str] = field(default_factory=set)
    inputs_turn: DeferredLock = field(default_factory=DeferredLock)


class Integration(ABC, Generic[S]):
    """One output, input or hook. It runs between `start` and `stop`."""

    kind: ClassVar[Kind]

    def __init__(self, settings: S, context: IntegrationContext) -> None:
        self.settings = settings
        self.context = context
        self.attempts = Attempts(context.now)
        #: The feed, while it is here.
        self.feed: Feed | None = None
        self._unsubscribe: list[Callable[[], None]] = []
        self._timer = Timer(context.clock, self._begin)
        self._looking = Timer(context.clock, self._look)
        self._running: Deferred[None] | None = None
        self._waiters: list[Deferred[None]] = []
        #: Something has happened since the run that is under way began.
        self._again = False
        self._forced = False
        self._started = False

    # Told from outside

    def start(self) -> None:
        """Look for the feed, and begin."""
        self._started = True
        self._look()

    def stop(self) -> Deferred[None]:
        """End what runs; fires when it has ended."""
        self._started = False
        self._timer.set(None)
        self._looking.set(None)
        self._leave(IntegrationFailed("it was stopped with the node"))
        running = self._running
        if running is None:
            return succeed(None)
        over: Deferred[None] = Deferred()
        running.addBoth(lambda _: over.callback(None))
        running.cancel()
        return over

    def run(self, *, force: bool = False) -> Deferred[None]:
        """Run now; fires when that is over. `force`: do also what is held back.

        Raises `IntegrationFailed` as the run does, and where the feed is not here.
        """
        waiter: Deferred[None] = Deferred()
        if self.feed is None:
            self._look()
        if self.feed is None:
            waiter.errback(IntegrationFailed(self._no_feed()))
            return waiter
        self._forced = self._forced or force
        self._waiters.append(waiter)
        if self._running is None:
            self._begin()
        else:
            self._again = True
        return waiter

    def status(self) -> IntegrationStatus:
        """How it stands."""
        attempts = self.attempts
        problem = attempts.problem if self.feed is not None else self._no_feed()
        return IntegrationStatus(
            kind=self.kind,
            name=self.settings.name,
            # As the operator wrote it: of a feed without an alias the log has a name of its own.
            feed=self.settings.feed or (self.feed.log_name if self.feed is not None else None),
            target=self.target,
            state=self._state(),
            problem=problem,
            last_success=attempts.last_success,
            last_failure=attempts.last_failure,
            next_run=self._next_run(),
            runs=attempts.runs,
            failures=attempts.failures,
            figures=self.figures(),
        )

    # What a kind says

    @property
    @abstractmethod
    def target(self) -> str:
        """The file, program or host that it is about, without what may be secret."""

    @abstractmethod
    async def work(self, feed: Feed, *, force: bool) -> float | None:
        """One run; the seconds until the next one is due by itself, None: when it is told.

        Raises `IntegrationFailed`, or what else is a `HyperbloomError`.
        """

    def figures(self) -> dict[str, int]:
        """Numbers of its kind, by name."""
        return {}

    @property
    def rest(self) -> float:
        """Seconds between the end of a run and one for what has happened meanwhile."""
        return 0.0

    @property
    def patient(self) -> bool:
        """Whether what failed waits for its time, though something has happened meanwhile."""
        return True

    @property
    def held(self) -> bool:
        """Whether somebody has to look before it goes on."""
        return False

    def joined(self, feed: Feed) -> list[Callable[[], None]]:
        """The feed is here: what to be told of it; returns how to end that."""
        return [feed.values.subscribe(lambda *_: self.wake())]

    def look(self) -> None:
        """Called every `LEFT_FEED_SECONDS` while the feed is here: see what nobody tells."""

    # For a kind to call

    def wake(self, seconds: float = 0.0) -> None:
        """Something has happened: run, so many seconds from now at the latest.

        While a run is under way, run again behind it. What failed is not tried before its time.
        """
        if not self._started or self.feed is None:
            return
        if self._running is not None:
            self._again = True
        elif self.attempts.problem is None or self._timer.moment is None or not self.patient:
            self._due(seconds)

    # Within

    def _due(self, seconds: float) -> None:
        moment = self.context.clock.seconds() + seconds
        if self._timer.moment is None or moment < self._timer.moment:
            self._timer.set(moment)

    def _look(self) -> None:
        """Find the feed, or notice that it was left."""
        node = self.context.node
        try:
            found: Feed | None = node.resolve(self.settings.feed)
        except UnknownFeed:
            found = None
        if found is not self.feed:
            self._leave(IntegrationFailed(self._no_feed()))
            if found is not None:
                self.feed = found
                self._unsubscribe = self.joined(found)
                self.wake()
        elif found is not None:
            self.look()
        if self._started:
            self._looking.set(self.context.clock.seconds() + LEFT_FEED_SECONDS)

    def _leave(self, why: IntegrationFailed) -> None:
        """Let go of the feed; who waits for a run that has not begun is told why."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.errback(why)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        self.feed = None

    def _no_feed(self) -> str:
        if self.settings.feed is None:
            return "no feed is named, and there is not just one in use; set `feed`"
        return f"the feed {self.settings.feed} is not here; join it, or correct `feed`"

    def _begin(self) -> None:
        if self._running is not None or not self._started or self.feed is None:
            return
        self._timer.set(None)
        self._again = False
        force, self._forced = self._forced, False
        waiters, self._waiters = self._waiters, []
        running = Deferred.fromCoroutine(self._run(self.feed, force=force, waiters=waiters))
        # One that had nothing to wait for is over already.
        self._running = None if running.called else running

    async def _run(self, feed: Feed, *, force: bool, waiters: list[Deferred[None]]) -> None:
        outcome: Failure | None = None
        following: float | None = None
        try:
            following = await self.work(feed, force=force)
        except (CancelledError, GeneratorExit):
            outcome = Failure(IntegrationFailed("it was stopped with the node"))
        except StillFailing as error:
            outcome, following = Failure(error), error.seconds
        except HyperbloomError as error:
            outcome = Failure(error)
            following = self._failed(str(error))
            if isinstance(error, IntegrationFailed):
                following = None if error.wait == math.inf else max(following, error.wait)
        except Exception:
            outcome = Failure(IntegrationFailed("it failed; the node's log has the details"))
            log.failure("The {kind} {name} failed", kind=self.kind, name=self.settings.name)
            following = self._failed("it failed; the node's log has the details")
        else:
            if self.attempts.problem is not None:
                log.info("The {kind} {name} works", kind=self.kind, name=self.settings.name)
            self.attempts.succeeded()
        self._running = None
        for waiter in waiters:
            waiter.callback(None) if outcome is None else waiter.errback(outcome)
        if not self._started:
            return
        if following is not None:
            self._due(following)
        if self._waiters:
            self._due(0.0)
        elif self._again and (outcome is None or not self.patient):
            self._due(self.rest)

    def _failed(self, problem: str) -> float:
        if problem != self.attempts.problem:
            # Once, however often it is tried again.
            log.warn(
                "The {kind} {name} failed: {why}",
                kind=self.kind,
                name=self.settings.name,
                why=problem,
            )
        self.attempts.failed(problem)
        return self.attempts.retry_seconds

    def _state(self) -> State:
        # Also while it runs again, which nobody has to look at: alerts would come and go with it.
        if self.held and self.feed is not None:
            return "held"
        if self._running is not None:
            return "working"
        if self.feed is None:
            return "waiting"
        if self.attempts.problem is not None:
            return "failing"
        return "idle" if self.attempts.last_success is not None else "waiting"

    def _next_run(self) -> float | None:
        moment = self._timer.moment
        if moment is None:
            return None
        wait: float = max(0.0, moment - self.context.clock.seconds())
        return self.context.now() + wait
