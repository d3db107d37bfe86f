"""What outputs, inputs and hooks have in common: their feed, their runs, and how they stand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from hyperbloom.integrations.integration import (
    Integration,
    IntegrationContext,
    IntegrationFailed,
    StillFailing,
)
from hyperbloom.integrations.limits import (
    FIRST_RETRY_SECONDS,
    LAST_RETRY_SECONDS,
    LEFT_FEED_SECONDS,
)
from hyperbloom.integrations.settings import HookSettings
from hyperbloom.replication.feeds import UnknownFeed

NOW = 1_000_000.0


class FeedDouble:
    """A feed, as far as an integration looks at one."""

    log_name = "names"

    def __init__(self) -> None:
        self.values = self
        self.subscribers: list[Callable[..., None]] = []

    def subscribe(self, subscriber: Callable[..., None]) -> Callable[[], None]:
        self.subscribers.append(subscriber)
        return lambda: self.subscribers.remove(subscriber)

    def store(self) -> None:
        for subscriber in list(self.subscribers):
            subscriber(None, b"")


class NodeDouble:
    """A node that has one feed or none."""

    def __init__(self) -> None:
        self.feed: FeedDouble | None = FeedDouble()

    def resolve(self, name: str | None) -> FeedDouble:
        if self.feed is None:
            raise UnknownFeed("there is none")
        return self.feed


class Worker(Integration[HookSettings]):
    """Its runs end when the test says so."""

    kind = "hook"
    following: float | None = None
    longest_rest = 0.0
    has_to_wait = True
    is_held = False
    is_patient = True
    looks = 0

    def __init__(self, settings: HookSettings, context: IntegrationContext) -> None:
        super().__init__(settings, context)
        self.under_way: list[Deferred[None]] = []
        self.forced: list[bool] = []

    @property
    def target(self) -> str:
        return "true"

    @property
    def rest(self) -> float:
        return self.longest_rest

    @property
    def held(self) -> bool:
        return self.is_held

    @property
    def patient(self) -> bool:
        return self.is_patient

    def look(self) -> None:
        self.looks += 1

    async def work(self, feed: Any, *, force: bool) -> float | None:
        self.forced.append(force)
        if self.has_to_wait:
            ended: Deferred[None] = Deferred()
            self.under_way.append(ended)
            await ended
        return self.following

    @property
    def runs(self) -> int:
        return len(self.forced)

    def end(self, error: Exception | None = None) -> None:
        ended = self.under_way.pop()
        ended.callback(None) if error is None else ended.errback(error)


class Scene:
    """A worker, its node and its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.node = NodeDouble()
        context = IntegrationContext(
            node=cast("Any", self.node),
            commands=cast("Any", None),
            data=Path("/nowhere"),
            store_path=Path("/nowhere/store"),
            clock=self.clock,
            now=lambda: NOW + self.clock.seconds(),
        )
        self.worker = Worker(HookSettings(name="one", feed="names", command=("true",)), context)

    def start(self) -> Worker:
        self.worker.start()
        self.clock.advance(0)
        return self.worker

    def store(self) -> None:
        feed = self.node.feed
        assert feed is not None
        feed.store()
        self.clock.advance(0)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_runs_when_it_begins_and_when_something_was_stored(scene: Scene) -> None:
    worker = scene.start()
    assert (worker.runs, worker.status().state) == (1, "working")
    worker.end()
    assert worker.status().state == "idle"
    scene.store()
    assert worker.runs == 2


def test_a_run_that_has_nothing_to_wait_for_is_over(scene: Scene) -> None:
    scene.worker.has_to_wait = False
    worker = scene.start()
    assert (worker.runs, worker.status().state) == (1, "idle")
    scene.store()
    assert worker.runs == 2
    outcomes: list[Any] = []
    worker.run().addCallback(outcomes.append)
    assert (worker.runs, outcomes) == (3, [None])


def test_what_comes_while_it_runs_is_one_more_run(scene: Scene) -> None:
    worker = scene.start()
    scene.store()
    scene.store()
    assert worker.runs == 1
    worker.end()
    scene.clock.advance(0)
    assert worker.runs == 2
    worker.end()
    scene.clock.advance(3_600)
    assert worker.runs == 2


def test_it_rests_before_that_run(scene: Scene) -> None:
    worker = scene.start()
    worker.longest_rest = 3.0
    scene.store()
    worker.end()
    scene.clock.advance(2.9)
    assert worker.runs == 1
    scene.clock.advance(0.2)
    assert worker.runs == 2


def test_it_says_itself_when_the_next_one_is_due(scene: Scene) -> None:
    worker = scene.start()
    worker.following = 60.0
    worker.end()
    assert worker.status().next_run == NOW + 60.0
    scene.clock.advance(59.0)
    assert worker.runs == 1
    scene.clock.advance(1.0)
    assert worker.runs == 2


def test_what_failed_is_tried_again_later_and_later(scene: Scene) -> None:
    worker = scene.start()
    waits = [FIRST_RETRY_SECONDS * 2**number for number in range(7)]
    for number, wait in enumerate(waits, 1):
        worker.end(IntegrationFailed("the disk is full; make room"))
        status = worker.status()
        assert (status.state, status.problem) == ("failing", "the disk is full; make room")
        assert (status.runs, status.failures) == (number, number)
        scene.clock.advance(wait - 0.1)
        assert worker.runs == number
        scene.clock.advance(0.2)
        assert worker.runs == number + 1
    worker.end()
    status = worker.status()
    assert (status.state, status.problem, status.failures) == ("idle", None, len(waits))


def test_what_is_held_stays_so_while_it_runs_again(scene: Scene) -> None:
    worker = scene.start()
    worker.is_held = True
    worker.end(IntegrationFailed("half of it is gone; look"))
    assert worker.status().state == "held"
    scene.clock.advance(FIRST_RETRY_SECONDS)
    assert (worker.runs, worker.status().state) == (2, "held")
    worker.is_held = False
    assert worker.status().state == "working"
    worker.end()
    assert worker.status().state == "idle"


def test_it_is_never_left_alone_for_longer_than_the_limit(scene: Scene) -> None:
    worker = scene.start()
    for _ in range(40):
        worker.end(IntegrationFailed("no"))
        scene.clock.advance(LAST_RETRY_SECONDS)
    assert worker.runs == 41


@pytest.mark.parametrize(
    ("wait", "due"), [(1.0, FIRST_RETRY_SECONDS), (60.0, 60.0), (math.inf, None)]
)
def test_a_failure_may_say_how_long_to_wait(scene: Scene, wait: float, due: float | None) -> None:
    worker = scene.start()
    worker.end(IntegrationFailed("busy", wait=wait))
    assert worker.status().next_run == (None if due is None else NOW + due)


def test_what_is_stored_does_not_hurry_what_failed(scene: Scene) -> None:
    worker = scene.start()
    worker.end(IntegrationFailed("no"))
    scene.store()
    assert worker.runs == 1
    scene.clock.advance(FIRST_RETRY_SECONDS)
    assert worker.runs == 2


def test_what_nobody_foresaw_is_logged_and_tried_again(scene: Scene) -> None:
    worker = scene.start()
    with capturedLogs() as events:
        worker.end(ZeroDivisionError("seven"))
    assert [event["log_failure"].type for event in events if "log_failure" in event] == [
        ZeroDivisionError
    ]
    assert "the node's log has the details" in (worker.status().problem or "")
    scene.clock.advance(FIRST_RETRY_SECONDS)
    assert worker.runs == 2


def test_a_run_that_is_asked_for_tells_how_it_went(scene: Scene) -> None:
    worker = scene.start()
    worker.end()
    outcomes: list[Any] = []
    worker.run(force=True).addBoth(outcomes.append)
    assert (worker.forced, outcomes) == ([False, True], [])
    worker.end()
    assert outcomes == [None]
    worker.run().addErrback(outcomes.append)
    worker.end(IntegrationFailed("no"))
    assert outcomes[1].getErrorMessage() == "no"


def test_one_asked_for_while_it_runs_is_a_run_of_its_own(scene: Scene) -> None:
    worker = scene.start()
    outcomes: list[Any] = []
    worker.run(force=True).addBoth(outcomes.append)
    worker.end()
    assert outcomes == []
    scene.clock.advance(0)
    assert worker.forced == [False, True]
    worker.end()
    assert outcomes == [None]


def test_it_waits_for_its_feed_and_says_so(scene: Scene) -> None:
    scene.node.feed = None
    worker = scene.start()
    status = worker.status()
    assert (worker.runs, status.state, status.feed) == (0, "waiting", "names")
    assert "the feed names is not here" in (status.problem or "")
    outcomes: list[Any] = []
    worker.run().addErrback(outcomes.append)
    assert "is not here" in outcomes[0].getErrorMessage()
    scene.node.feed = FeedDouble()
    scene.clock.advance(LEFT_FEED_SECONDS)
    assert (worker.runs, worker.status().feed) == (1, "names")


def test_a_feed_that_was_left_is_not_asked_any_more(scene: Scene) -> None:
    worker = scene.start()
    worker.end()
    outcomes: list[Any] = []
    scene.store()
    worker.run().addErrback(outcomes.append)
    left, scene.node.feed = scene.node.feed, None
    scene.clock.advance(LEFT_FEED_SECONDS)
    assert left is not None
    worker.end()
    assert (left.subscribers, worker.status().state) == ([], "waiting")
    assert "is not here" in outcomes[0].getErrorMessage()
    scene.node.feed = FeedDouble()
    scene.clock.advance(LEFT_FEED_SECONDS)
    assert worker.runs == 3


def test_a_stop_ends_the_run_and_all_that_waits(scene: Scene) -> None:
    worker = scene.start()
    outcomes: list[Any] = []
    worker.run().addErrback(outcomes.append)
    stopped: list[Any] = []
    worker.stop().addCallback(stopped.append)
    assert stopped == [None]
    assert [failure.getErrorMessage() for failure in outcomes] == ["it was stopped with the node"]
    scene.store()
    scene.clock.advance(3_600)
    assert (worker.runs, scene.clock.getDelayedCalls()) == (1, [])


def test_one_that_is_not_patient_does_at_once_what_it_can(scene: Scene) -> None:
    worker = scene.start()
    worker.is_patient = False
    worker.end(IntegrationFailed("the second half failed"))
    scene.store()
    assert (worker.runs, worker.status().problem) == (2, "the second half failed")
    # And what happens during a run that fails is a run behind it.
    scene.store()
    worker.end(IntegrationFailed("the second half failed"))
    scene.clock.advance(0)
    assert worker.runs == 3


def test_what_is_not_tried_yet_is_no_other_failure(scene: Scene) -> None:
    worker = scene.start()
    worker.end(IntegrationFailed("no"))
    scene.clock.advance(FIRST_RETRY_SECONDS)
    worker.end(StillFailing("no", 2.0))
    status = worker.status()
    assert (status.failures, status.runs, status.problem) == (1, 1, "no")
    scene.clock.advance(1.9)
    assert worker.runs == 2
    scene.clock.advance(0.2)
    assert worker.runs == 3


def test_it_looks_now_and_then_while_its_feed_is_here(scene: Scene) -> None:
    worker = scene.start()
    scene.clock.advance(LEFT_FEED_SECONDS)
    assert worker.looks == 1
    scene.node.feed = None
    scene.clock.advance(LEFT_FEED_SECONDS)
    scene.clock.advance(LEFT_FEED_SECONDS)
    assert worker.looks == 1
