"""One writer: group commit.

A synced commit costs the disk's time however little is in it, so whatever was asked for while the
last one ran goes into the next one together. Each caller is answered once its operation is on disk,
never before. What peers send and what is this node's own take turns (write_queue.py), and no
transaction goes on for long.

If one operation of a group fails, the group is aborted and each is done alone, so that it harms
only itself. If the map is full, it grows and the group is done again; if the disk is full, the
group's callers get StoreFull, readers go on, and later writes succeed once there is room.
"""

import math
import sys
import threading
import time
from collections.abc import Callable, Sequence

from hyperbloom.store.errors import StoreClosed, StoreCorrupt, StoreError, StoreFull, StoreGone
from hyperbloom.store.histogram import Histogram
from hyperbloom.store.limits import (
    GATHER_PART,
    GROUP_BYTES,
    GROUP_SECONDS,
    OWN_GROUP_SECONDS,
    OWN_LATELY_SECONDS,
    OWN_WAITS_SECONDS,
    PIECE_BYTES,
    WRITE_SECONDS_A_BYTE,
)
from hyperbloom.store.lmdb.environment import Environment
from hyperbloom.store.lmdb.transaction import WriteTransaction, write
from hyperbloom.store.operations import Operation, Unfinished
from hyperbloom.store.store import Store
from hyperbloom.store.tables.feeds import SweepDropped
from hyperbloom.store.values.append import AppendValues, apply_run, runs_of
from hyperbloom.store.values.digest_migration import SumUp
from hyperbloom.store.write_queue import OWN, Done, Origin, Queued, WriteQueue

__all__ = ["CommitFigures", "Done", "Writer", "WriterInline", "commit_group"]


class CommitFigures:
    """How the writer does: filled by its thread alone, read by any.

    seconds: of each commit. operations, failures: how many. seconds_a_byte: processor time that
    writing has taken of late, by what operations weigh (`Operation.size`). group_bytes: how much
    others than this node have in a transaction now.
    """

    __slots__ = ("failures", "group_bytes", "operations", "seconds", "seconds_a_byte")

    def __init__(self) -> None:
        self.seconds = Histogram()
        self.seconds_a_byte = WRITE_SECONDS_A_BYTE
        self.group_bytes = GROUP_BYTES
        self.operations = self.failures = 0

    def committed(self, results: Sequence[object], seconds: float) -> None:
        """Count a group."""
        failed = sum(isinstance(result, StoreError) for result in results)
        self.seconds.observe(seconds)
        self.operations += len(results)
        self.failures += failed

    def wrote(self, size: int, work_seconds: float) -> None:
        """Learn what writing takes from a group of this weight; small ones tell little."""
        weight = min(1.0, size / GROUP_BYTES)
        measured = work_seconds / max(size, 1)
        self.seconds_a_byte += weight * (measured - self.seconds_a_byte)


def commit_group(
    environment: Environment,
    operations: Sequence[Operation],
    *,
    is_late: Callable[[int], bool] = lambda index: False,
    run_bytes: int = PIECE_BYTES,
) -> list[object]:
    """Do all in one transaction if none fails; return each one's result or its exception.

    Appends that stand next to one another are applied as one, up to ``run_bytes`` (`runs_of`).
    Before each run but the first ``is_late`` is asked, with its index: if so, it and what
    follows is left undone, and there are fewer results than operations.
    """

    def change(transaction: WriteTransaction) -> list[object]:
        results: list[object] = []
        for run in runs_of(operations, run_bytes):
            if results and is_late(len(results)):
                break
            results += apply_run(transaction, run)
        return results

    try:
        return write(environment, change)
    except (StoreClosed, StoreCorrupt, StoreFull, StoreGone) as error:
        # Not the fault of one of them, and no better if each is tried alone.
        return [error] * len(operations)
    except Exception as error:
        if len(operations) == 1:
            return [error]
    results: list[object] = []
    for index, operation in enumerate(operations):
        if results and is_late(index):
            break
        results += commit_group(environment, [operation])
    return results


class Writer:
    """The thread through which all writes to a store go.

    After each commit ``deliver`` is called once, in the writer's thread, with a function that
    answers every caller of the group; a Twisted program passes ``reactor.callFromThread``.
    ``clock`` gives steady seconds, ``work_seconds`` the processor time of the thread that asks.
    """

    def __init__(
        self,
        store: Store,
        *,
        deliver: Callable[[Callable[[], None]], None],
        clock: Callable[[], float] = time.monotonic,
        work_seconds: Callable[[], float] = time.thread_time,
    ) -> None:
        self.figures = CommitFigures()
        self._clock = clock
        self._work_seconds = work_seconds
        self._environment = store.environment
        self._deliver = deliver
        self._changed = threading.Condition(threading.Lock())
        self._queue = WriteQueue()
        self._writing_bytes = 0
        #: When something was inserted here last, and what a byte of others' takes
        #: until it is on disk: where values lie far apart the disk takes longer than their writing.
        self._own_at = -math.inf
        self._seconds_a_byte = 0.0
        self._others_were_last = False
        #: How many own operations are soon due again, and how long the next group waits for them.
        self._answered, self._gather_seconds = 0, 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="hyperbloom-writer", daemon=True)
        for unfinished in (SweepDropped(), SumUp()):
            self.submit(unfinished, _ignore)
        self._thread.start()

    @property
    def queued_bytes(self) -> int:
        """How much is submitted and not yet on disk; for callers to hold their own input back."""
        return self._queue.bytes + self._writing_bytes

    def submit(self, operation: Operation, done: Done, *, origin: Origin = OWN) -> None:
        """Queue an operation. ``done`` gets its result or exception, by way of ``deliver``.

        What a peer has sent has its path as ``origin``: origins take turns (`write_queue`), and
        the operations of one are done in the order in which they were submitted.
        """
        queued = Queued(operation, operation.size, origin, done)
        with self._changed:
            if not self._closed:
                is_idle = not self._queue
                self._queue.add(queued)
                if origin is OWN and isinstance(operation, AppendValues):
                    self._own_at = self._clock()
                if is_idle or self._queue.only_own == self._answered:
                    self._changed.notify()
                return
        self._answer([(done, _closed_error())])

    def close(self) -> None:
        """Write what is queued, then stop. Returns when the last group has been delivered."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        # While it waits for the next group, nothing of the last one is kept.
        while self._commit(self._take()):
            pass

    def _commit(self, group: list[Queued]) -> bool:
        """Write a group and answer for it; false where it is empty."""
        if not group:
            return False
        began, begun_work = self._clock(), self._work_seconds()
        results = commit_group(
            self._environment,
            [queued.operation for queued in group],
            is_late=self._lateness(group, began),
            run_bytes=GROUP_BYTES if _is_own(group) else PIECE_BYTES,
        )
        seconds = self._clock() - began
        self.figures.committed(results, seconds)
        unwritten = group[len(results) :]
        written = self._writing_bytes - sum(queued.size for queued in unwritten)
        self.figures.wrote(written, self._work_seconds() - begun_work)
        if group[-1].origin is not OWN and written >= PIECE_BYTES // 2:
            known, taken = self._seconds_a_byte, seconds / written
            self._seconds_a_byte = known + (taken - known) / 4 if known else taken
        answers: list[tuple[Done, object]] = []
        with self._changed:
            self._writing_bytes = 0
            self._queue.put_back(unwritten)
            for queued, result in zip(group, results, strict=False):
                if isinstance(result, Unfinished):
                    rest = result.rest
                    if self._closed and isinstance(rest, SumUp):
                        continue  # it goes on at the next start
                    self._queue.add(Queued(rest, rest.size, queued.origin, queued.done))
                else:
                    answers.append((queued.done, result))
            is_own = group[-1].origin is OWN and group[0].origin is OWN
            self._answered = len(answers) + self._queue.only_own if is_own else 0
            self._gather_seconds = min(seconds * GATHER_PART, OWN_WAITS_SECONDS)
        self._answer(answers)
        return True

    def _lateness(self, group: Sequence[Queued], began: float) -> Callable[[int], bool]:
        """Whether an operation of a group waits for the next, for it has taken its time.

        Others' operations have less of it while own ones are in the group, or wait. A group of own
        ones alone has more, and as much as it needs while nobody waits for the next.
        """
        if _is_own(group):
            return lambda index: self._clock() - began > OWN_GROUP_SECONDS and bool(self._queue)
        others_began: float | None = None

        def is_late(index: int) -> bool:
            nonlocal others_began
            now = self._clock()
            if group[index].origin != OWN:
                others_began = now if others_began is None else others_began
                own_waits = group[0].origin == OWN or self._queue.has_own
                if own_waits and now - others_began > OWN_WAITS_SECONDS:
                    return True
            return now - began > GROUP_SECONDS

        return is_late

    def _take(self) -> list[Queued]:
        """The next group; empty when closed and drained."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            self._gather()
            waiting = self._queue.bytes
            self.figures.group_bytes = self._most_of_others()
            # Own operations do not wait for others twice, in the last group and in their own.
            group = self._queue.take(self.figures.group_bytes, own_alone=self._others_were_last)
            self._others_were_last = any(queued.origin is not OWN for queued in group)
            self._writing_bytes = waiting - self._queue.bytes
        return group

    def _gather(self) -> None:
        """Wait a little for those who were just answered: many of them insert again at once.

        Else callers that once were parted into two groups would stay so, with two syncs for one.
        """
        if 0 < self._queue.only_own < self._answered and not self._closed:
            self._changed.wait(self._gather_seconds)

    def _most_of_others(self) -> int:
        """Bytes of others in a group: so much at the most is waited for by who inserts here."""
        now = self._clock()
        if now - self._own_at > OWN_LATELY_SECONDS or not self._seconds_a_byte:
            return GROUP_BYTES
        seconds = OWN_WAITS_SECONDS if self._queue.has_own else GROUP_SECONDS
        return int(min(GROUP_BYTES, seconds / self._seconds_a_byte))

    def _answer(self, answers: list[tuple[Done, object]]) -> None:
        if not answers:
            return
        try:
            self._deliver(lambda: _call_all(answers))
        except Exception:
            # A caller's mistake must not end the writing of all others.
            sys.excepthook(*sys.exc_info())


class WriterInline:
    """The same interface without a thread: each operation is committed where it is submitted.

    Sums that an older store lacks (digest_migration.py) are left to a Writer: they take their time.
    """

    def __init__(self, store: Store) -> None:
        self.figures = CommitFigures()
        self._environment = store.environment
        self._closed = False
        self.submit(SweepDropped(), _ignore)

    @property
    def queued_bytes(self) -> int:
        """Always 0: nothing waits."""
        return 0

    def submit(self, operation: Operation, done: Done, *, origin: Origin = OWN) -> None:
        """Commit the operation and call ``done`` with its result or exception."""
        if self._closed:
            done(_closed_error())
            return
        result = commit_group(self._environment, [operation])[0]
        while isinstance(result, Unfinished):
            result = commit_group(self._environment, [result.rest])[0]
        done(result)

    def close(self) -> None:
        """Take no more operations."""
        self._closed = True


def _is_own(group: Sequence[Queued]) -> bool:
    return all(queued.origin is OWN for queued in group)


def _closed_error() -> StoreClosed:
    return StoreClosed("the writer is closed, nothing was written; open the store again")


def _ignore(result: object) -> None:
    """For an operation that nobody waits for; what failed is tried again at the next start."""


def _call_all(answers: list[tuple[Done, object]]) -> None:
    """Call every caller back, even if one of them raises; the first exception is raised on."""
    first: BaseException | None = None
    for done, result in answers:
        try:
            done(result)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
