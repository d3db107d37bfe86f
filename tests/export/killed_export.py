"""An export in a process of its own, to be killed.

Its tasks run in this process one after the other instead of in Spark's workers, so that a kill
meets planning, writing and committing, and not the seconds in which Java starts. All else is the
real thing.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from hyperbloom.export import export_snapshots


class OneProcess:
    """As much of a Spark session as an export of `values` asks for."""

    defaultParallelism = 2

    @property
    def sparkContext(self):
        return self

    def setJobGroup(self, *_, **__):
        return None

    def setLocalProperty(self, *_):
        return None

    def statusTracker(self):
        return None

    def range(self, _start, end, *_):
        self._numbers = list(range(end))
        return self

    def mapInArrow(self, function, _schema):
        self._function = function
        return self

    def collect(self):
        batches = (pa.RecordBatch.from_pydict({"id": [number]}) for number in self._numbers)
        return [
            (answer,) for batch in self._function(batches) for answer in batch.column(0).to_pylist()
        ]


@contextmanager
def session():
    yield OneProcess()


def export(mode: str, target: Path, snapshot: Path) -> None:
    """Export the snapshot."""
    export_snapshots([snapshot], target, sessions=session, mode=mode)
