"""What goes out to one peer: jobs that take turns while the transport wants more.

Every source of outgoing bytes is a job: the broadcast of new values, the replies to the peer's
questions, our own Sync plan. A job makes its bytes in steps of a slice each; the next step is
taken only while the transport is not full, so that a peer that reads slowly costs the memory of
one slice and nothing more, however much waits for it. Jobs take turns, so that a long reply does
not hold up the broadcast or our own questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

__all__ = ["Job", "SendScheduler"]


def _nothing() -> None:
    """What is called when nothing is to be."""


class Job(Protocol):
    """A source of outgoing bytes. `ready_at` (clock seconds) delays its next step."""

    ready_at: float

    async def step(self) -> bool:
        """Send the next portion; whether there is more to come."""
        ...


class Output(Protocol):
    """What writes to the transport (`peer_output.PeerOutput`)."""

    def was_read(self) -> None:
        """The transport has room again."""


@implementer(IPushProducer)
class SendScheduler:
    """Runs the jobs of one connection, one step at a time, while the transport takes bytes."""

    __slots__ = (
        "_clock",
        "_failed",
        "_finish",
        "_jobs",
        "_running",
        "_stopped",
        "_wake_call",
        "output",
        "paused",
        "paused_at",
    )

    def __init__(self, clock: IReactorTime, *, failed: Callable[[Failure], None]) -> None:
        self._clock = clock
        self._failed = failed
        # A tuple, as there are few, and an empty one costs nothing.
        self._jobs: tuple[Job, ...] = ()
        self._running = False
        self._stopped = False
        #: The jobs that alone go on, and what is called when they are done; None: all do.
        self._finish: tuple[tuple[Job, ...], Callable[[], None]] | None = None
        self._wake_call: IDelayedCall | None = None
        #: What counts the bytes that the peer has not read; None: nobody does.
        self.output: Output | None = None
        self.paused = False
        #: Since when, in seconds of the clock; infinite: it is held for this node's own rate.
        self.paused_at = 0.0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def is_idle(self) -> bool:
        """Whether bytes may be written at once, out of turn."""
        return not (self._running or self.paused or self._stopped)

    def stalled_since(self, moment: float) -> float:
        """Seconds the transport has been full at clock time `moment`; 0 while it is not."""
        return max(0.0, moment - self.paused_at) if self.paused and not self._stopped else 0.0

    def add(self, job: Job) -> None:
        """Let `job` take turns from now on (a job already there is only woken)."""
        self._put(job)
        self.wake()

    def _put(self, job: Job) -> None:
        is_wanted = self._finish is None or job in self._finish[0]
        if is_wanted and not self._stopped and job not in self._jobs:
            self._jobs += (job,)

    def finish(self, jobs: tuple[Job, ...], done: Callable[[], None]) -> None:
        """Let only these jobs go on; call `done` when all is sent and the transport has room."""
        self._finish = jobs, done
        self._jobs = tuple(job for job in self._jobs if job in jobs)
        self.wake()

    def wake(self) -> None:
        """Go on if nothing is under way: a job has become ready."""
        if self._running or self.paused or self._stopped:
            return
        if self._jobs:
            self._running = True
            Deferred.fromCoroutine(self._run()).addErrback(self._fail)
        elif self._finish is not None:
            (_, done), self._finish = self._finish, ((), _nothing)
            done()

    async def _run(self) -> None:
        try:
            while not (self.paused or self._stopped):
                job = self._next_ready()
                if job is None:
                    break
                if await job.step():
                    self._put(job)
        finally:
            self._running = False
        if self._finish is not None and not self._jobs:
            self.wake()

    def _next_ready(self) -> Job | None:
        now = self._clock.seconds()
        for _ in range(len(self._jobs)):
            job, *others = self._jobs
            if job.ready_at <= now:
                self._jobs = tuple(others)
                return job
            self._jobs = (*others, job)
        if self._jobs:
            self._wake_at(min(job.ready_at for job in self._jobs))
        return None

    def _wake_at(self, when: float) -> None:
        if self._wake_call is not None and self._wake_call.active():
            self._wake_call.cancel()
        self._wake_call = self._clock.callLater(max(0.0, when - self._clock.seconds()), self.wake)

    def _fail(self, failure: Failure) -> None:
        if not self._stopped:
            self._failed(failure)

    def hold(self) -> None:
        """Take no step: what was sent waits for this node's rate, which is no fault of the peer."""
        self.paused = True
        self.paused_at = math.inf

    # IPushProducer: called by the transport

    def pauseProducing(self) -> None:
        """The transport is full."""
        if not self.paused or self.paused_at == math.inf:
            self.paused = True
            self.paused_at = self._clock.seconds()

    def resumeProducing(self) -> None:
        """The transport has room again."""
        self.paused = False
        if self.output is not None:
            self.output.was_read()
        self.wake()

    def stopProducing(self) -> None:
        """The connection is gone: no job takes another step."""
        self._stopped = True
        self._jobs = ()
        if self._wake_call is not None and self._wake_call.active():
            self._wake_call.cancel()
