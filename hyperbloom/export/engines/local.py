"""The local engine: worker processes of this machine, without Spark and without Java.

They do what Spark's Python workers do (tasks.py), a task at a time each. What starts within half a
second is done before Spark is there. A worker that dies ends the export; what it leaves are files
that no commit names.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hyperbloom.export.engines.counter import count_rows
from hyperbloom.export.engines.engine import Files, Task, TaskProgress
from hyperbloom.export.engines.interrupts import deferred, uninterrupted, waited_for
from hyperbloom.export.engines.local_reports import make_report
from hyperbloom.export.engines.tasks import is_failure, memory_settings
from hyperbloom.export.engines.unnamed import unnamed_files
from hyperbloom.export.engines.worker import Call
from hyperbloom.export.errors import ExportError, SnapshotUnusable

if TYPE_CHECKING:
    from hyperbloom.export.tables.delta import OpenTable

__all__ = ["LocalEngine", "local_engine", "usable_cores"]

_END_SECONDS: Final = 5
_DAMAGE: Final = (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV, signal.SIGFPE, signal.SIGILL)
_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from hyperbloom.export.engines.worker import main; main()"
)


def usable_cores() -> int:
    """How many processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def local_engine(processes: int | None = None) -> Iterator[LocalEngine]:
    """An engine of so many worker processes (one for each core), which end with the block."""
    engine = LocalEngine(processes or usable_cores())
    try:
        yield engine
    finally:
        with uninterrupted():
            engine.close()


class LocalEngine:
    """Runs tasks in up to ``cores`` processes, which are started when there is something to do."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._workers: list[_Worker] = []

    def run(
        self, tasks: Sequence[Task], files: Files, progress: Callable[[int], None]
    ) -> list[str]:
        """Run tasks; an answer a task."""
        with unnamed_files() as new_file:
            counter = new_file()
            files = replace(files, counter=counter)
            calls: list[Call] = [(do, (work, files, n)) for n, (do, work) in enumerate(tasks)]
            return self._do(calls, lambda _: progress(count_rows(counter)))

    def write_report(
        self, name: str, source: OpenTable, files: Files, progress: TaskProgress
    ) -> list[str]:
        """Make a report by a shuffle through the temporary folder, and write it."""
        return make_report(name, source, files, self._do, progress, cores=self.cores)

    def close(self) -> None:
        """End all workers and wait for them."""
        for worker in self._workers:
            worker.dismiss()
        for worker in self._workers:
            worker.end()

    def _do(self, calls: Sequence[Call], progress: Callable[[int], None]) -> list[str]:
        """Have the workers do these calls; their answers in the same order."""
        while len(self._workers) < min(self.cores, len(calls)):
            with deferred():
                self._workers.append(_Worker())
        round_ = _Round(calls)
        return waited_for(
            lambda: round_.run(self._workers),
            end=lambda: round_.give_up(self._workers),
            meanwhile=lambda: progress(round_.done),
        )


class _Round:
    """Calls that workers take one after the other, each worker in a thread that waits for it."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.done = 0
        self._left = deque(enumerate(calls))
        self._answers = [""] * len(calls)
        self._failure: ExportError | None = None
        self._lock = threading.Lock()

    def run(self, workers: Sequence[_Worker]) -> list[str]:
        """The answers; ExportError if a worker died."""
        if self._left:
            with ThreadPoolExecutor(len(workers)) as threads:
                for worker in workers:
                    threads.submit(self._work, worker, workers)
        if self._failure is not None:
            raise self._failure
        # One that failed leaves calls that nobody took.
        return list(filter(None, self._answers))

    def give_up(self, workers: Sequence[_Worker]) -> None:
        """Kill the workers; their threads then end."""
        self._left.clear()
        for worker in workers:
            worker.kill()

    def _work(self, worker: _Worker, workers: Sequence[_Worker]) -> None:
        while True:
            try:
                number, call = self._left.popleft()
            except IndexError:
                return
            try:
                answer = worker.do(call)
            except ExportError as error:
                with self._lock:
                    # Those killed for it fail, too.
                    self._failure = self._failure or error
                self.give_up(workers)
                return
            self._answers[number] = answer
            self.done += 1
            if is_failure(answer):
                self._left.clear()


class _Worker:
    """One worker process (worker.py)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**memory_settings(), **os.environ},
        )

    def do(self, call: Call) -> str:
        """Its answer; ExportError if it dies instead."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101  # both are pipes
        assert stdout is not None  # noqa: S101
        try:
            pickle.dump(call, stdin)
            stdin.flush()
            line = stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise self._death()
        return line.decode().rstrip("\n")

    def _death(self) -> ExportError:
        code = self._process.wait()
        try:
            ended_by = signal.Signals(-code)
        except ValueError:
            return ExportError(
                f"a worker process ended with exit code {code}; the tables are as they were"
            )
        if ended_by in _DAMAGE:
            return SnapshotUnusable(
                f"what was read is damaged: LMDB ended the process that read it ({ended_by.name}); "
                "the tables are as they were, use another snapshot"
            )
        return ExportError(
            f"a worker process was ended by {ended_by.name}: out of memory, or by somebody; "
            "the tables are as they were, run it again"
        )

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def dismiss(self) -> None:
        """Let it end, for it has nothing to do."""
        assert self._process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def end(self) -> None:
        """Wait for the end of one that was dismissed; end it if it still does something."""
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
