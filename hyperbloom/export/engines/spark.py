"""Spark as an engine: jobs whose tasks write their files themselves.

Spark's part is to schedule: a job is a range of task numbers through mapInArrow, and each task
writes its files with pyarrow (tasks.py). On a cluster the same job runs on the executors. The
reports are a shuffle of Spark's own (spark_reports.py), whose last stage writes in the same way.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from hyperbloom.export.engines.counter import count_rows, counter_file
from hyperbloom.export.engines.engine import Files, Task, TaskProgress
from hyperbloom.export.engines.interrupts import deferred, waited_for
from hyperbloom.export.engines.spark_reports import REPORT_FRAMES
from hyperbloom.export.engines.spark_session import one_sentence
from hyperbloom.export.engines.tasks import write_report_rows, write_value_rows
from hyperbloom.export.errors import ExportError, ExportFull
from hyperbloom.export.tables.reading import read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hyperbloom.export.tables.delta import OpenTable

__all__ = ["SparkEngine", "write_frame"]

_ANSWER_SCHEMA: Final = "answer string"


class SparkEngine:
    """Runs tasks in a session, which somebody else ends."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    def cores(self) -> int:
        """Tasks that run at one time."""
        with deferred():
            return max(1, self._session.sparkContext.defaultParallelism)

    def run(
        self, tasks: Sequence[Task], files: Files, progress: Callable[[int], None]
    ) -> list[str]:
        """Run tasks; an answer a task."""
        with counter_file() as counter:
            counted = replace(files, counter=counter)

            def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                for batch in batches:
                    for number in batch.column(0).to_pylist():
                        do, what = tasks[number]
                        yield _as_batch(do(what, counted, number))

            return self._answers(
                lambda: self._session.range(0, len(tasks), 1, len(tasks)).mapInArrow(
                    work, _ANSWER_SCHEMA
                ),
                lambda group: progress(count_rows(counter)),
            )

    def write_report(
        self, name: str, source: OpenTable, files: Files, progress: TaskProgress
    ) -> list[str]:
        """Make a report by a shuffle and write it, a file or more for each of its last tasks."""

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

        try:
            return waited_for(
                work, end=lambda: context.cancelJobGroup(group), meanwhile=lambda: show(group)
            )
        except Exception as error:
            if isinstance(error, ExportError):
                raise
            raise _failed_job(error) from error


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


def _failed_job(error: Exception) -> ExportError:
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
    return ExportError(f"the Spark job failed, the tables are as they were: {one_sentence(error)}")
