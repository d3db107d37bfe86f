"""Spark as an engine: jobs whose tasks write their files themselves.

Spark's part is to schedule: a job is a range of task numbers through mapInArrow, and each task
writes its files with pyarrow (tasks.py). On a cluster the same job runs on the executors, once they
have said that they see the folders (executors.py). The reports are a shuffle of Spark's own
(spark_reports.py), whose last stage writes in the same way.

A task that is lost with its executor is done again by another one, under other files' names. Those
of the lost attempt are named by no commit.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from hyperbloom.export.engines.counter import count_rows, counter_file
from hyperbloom.export.engines.engine import Files, Task, TaskProgress
from hyperbloom.export.engines.executors import Executors, Landmark, refusal, unseen
from hyperbloom.export.engines.interrupts import deferred, waited_for
from hyperbloom.export.engines.spark_reports import REPORT_FRAMES
from hyperbloom.export.engines.spark_session import is_in_this_process, one_sentence
from hyperbloom.export.engines.tasks import snapshots_of, write_report_rows, write_value_rows
from hyperbloom.export.errors import ExportError, ExportFull
from hyperbloom.export.tables.reading import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hyperbloom.export.tables.delta import OpenTable

__all__ = ["SparkEngine", "failed_job", "write_frame"]

_ANSWER_SCHEMA: Final = "answer string"
_OF_EXECUTORS: Final = (
    (
        re.compile(r"ModuleNotFoundError: No module named '(\w+)"),
        "Python on an executor has no {}; install there what docs/clusters.md says, or set "
        "PYSPARK_PYTHON to a Python of theirs that has it",
    ),
    (
        re.compile(r'Cannot run program "([^"]+)"'),
        "there is no {} on an executor; set PYSPARK_PYTHON to the Python that they have",
    ),
    (
        re.compile("PYTHON_VERSION_MISMATCH"),
        "executors have another version of Python than this process; set PYSPARK_PYTHON to one of "
        "the same version",
    ),
    (
        re.compile("ExecutorLostFailure"),
        "executors ended again and again over the same work; if it is for want of memory, raise "
        "spark.executor.memoryOverhead",
    ),
)
"""What Spark says of executors, and what to do about it."""


class SparkEngine:
    """Runs tasks in a session, which somebody else ends."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._executors: Executors | None = None
        context = getattr(session, "sparkContext", None)
        if context is None:
            raise ExportError(
                "a session of Spark Connect runs no export; give a session that has a "
                "SparkContext, or take the engine local"
            )
        if not is_in_this_process(context.master):
            self._executors = Executors(context)
            self._executors.send_package()

    @property
    def cores(self) -> int:
        """Tasks that run at one time."""
        if self._executors is not None:
            self._executors.wait()
        with deferred():
            return max(1, self._session.sparkContext.defaultParallelism)

    def run(
        self, tasks: Sequence[Task], files: Files, progress: Callable[[int], None]
    ) -> list[str]:
        """Run tasks; an answer a task."""
        marks = {}
        if self._executors is not None:
            marks = {path: Landmark.of(path) for task in tasks for path in snapshots_of(task)}
            self._check(list(marks.values()), files)
        with counter_file() as counter:
            counted = replace(files, counter=counter)

            def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for number in _numbers(batches):
                    do, what = tasks[number]
                    # It may be on an executor that came when the others had been asked already.
                    seen = {marks[path] for path in snapshots_of(tasks[number])} if marks else ()
                    failure = marks and unseen(seen, files)
                    yield _as_batch(refusal(failure) if failure else do(what, counted, number))

            return self._answers(
                lambda: self._each(len(tasks), work),
                lambda group: progress(count_rows(counter)),
            )

    def write_report(
        self, name: str, source: OpenTable, files: Files, progress: TaskProgress
    ) -> list[str]:
        """Make a report by a shuffle and write it, a file or more for each of its last tasks."""
        if self._executors is not None:
            self._check([], files)

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield _as_batch(write_report_rows(batches, name, files))

        def show(group: str) -> None:
            with deferred():
                counts = _count_tasks(self._session.sparkContext.statusTracker(), group)
            progress(*counts)

        return self._answers(
            lambda: REPORT_FRAMES[name](read(self._session, source.place)).mapInArrow(
                work, _ANSWER_SCHEMA
            ),
            show,
        )

    def _check(self, marks: Sequence[Landmark], files: Files) -> None:
        """Ask executors whether they see these snapshots, and where files are written.

        Spark spreads tasks over all cores that are free, and there are as many: so each executor
        is asked. Raises ExportError.
        """

        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in _numbers(batches):
                yield _as_batch(unseen(marks, files) or "")

        answers = self._answers(lambda: self._each(self.cores, work), lambda group: None)
        for failure in filter(None, answers):
            raise ExportError(f"{failure}; nothing was written")

    def _each(self, count: int, work: Callable[..., Iterator[pa.RecordBatch]]) -> DataFrame:
        """A job of so many tasks, each given its number."""
        return self._session.range(0, count, 1, count).mapInArrow(work, _ANSWER_SCHEMA)

    def _answers(
        self, make_frame: Callable[[], DataFrame], show: Callable[[str], None]
    ) -> list[str]:
        """Run a job whose rows are answers; an error of Spark's own becomes one sentence.

        ``show`` is called now and then with the name of the job's group.
        """
        context = self._session.sparkContext
        group = f"hyperbloom-{uuid.uuid4().hex[:8]}"

        def work() -> list[str]:
            # A job group is a thread's.
            context.setJobGroup(group, "hyperbloom export", interruptOnCancel=True)
            return [row[0] for row in make_frame().collect()]

        def meanwhile() -> None:
            if self._executors is not None:
                self._executors.watch()
            show(group)

        try:
            return waited_for(work, end=lambda: context.cancelJobGroup(group), meanwhile=meanwhile)
        except Exception as error:
            if isinstance(error, ExportError):
                raise
            raise failed_job(error) from error


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def write_frame(frame: DataFrame, files: Files) -> list[str]:
    """Have the tasks of a frame write its rows into files of `values`; answers of tasks."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _as_batch(write_value_rows(batches, files))

    return [row[0] for row in frame.mapInArrow(work, _ANSWER_SCHEMA).collect()]


def _as_batch(answer: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"answer": [answer]})


def _count_tasks(tracker: Any, group: str) -> tuple[int, int]:
    finished = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            stage_info = tracker.getStageInfo(stage)
            if stage_info is not None:
                finished += stage_info.numCompletedTasks
                total += stage_info.numTasks
    return finished, total


def failed_job(error: Exception) -> ExportError:
    """What Spark raised as one of ours, in one sentence that says what to do."""
    text = str(error)
    if "No space left on device" in text:
        return ExportFull(
            "no room for Spark's own files (spark.local.dir, else the temporary folder); "
            "the tables are as they were, make room and try again"
        )
    if "Python worker exited unexpectedly" in text:
        return ExportError(
            "a Python worker ended at once: out of memory, or a damaged snapshot "
            "(`hyperbloom verify SNAPSHOT` tells); the tables are as they were"
        )
    for pattern, sentence in _OF_EXECUTORS:
        found = pattern.search(text)
        if found is not None:
            return ExportError(f"{sentence.format(*found.groups())}; the tables are as they were")
    return ExportError(f"the Spark job failed, the tables are as they were: {one_sentence(error)}")
