"""What an export asks of an engine: to run its tasks, and to give back their answers.

A task reads ranges of snapshots, or rows of `values`, and writes files of one table. Which ranges
it has, what the files are like and what is committed is not the engine's: so the tables do not
show which one wrote them, and it may be another one each night.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hyperbloom.export.places.place import Place
from hyperbloom.export.places.sharing import ShareWith

if TYPE_CHECKING:
    from hyperbloom.export.tables.delta import OpenTable

__all__ = ["Engine", "EngineName", "Files", "Task", "TaskProgress"]

EngineName = Literal["local", "spark"]

TaskProgress = Callable[[int, int], None]
"""Called now and then with the number of tasks done and of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """How files of a table are written: where, how named, how large, and who may read them.

    ``name`` begins their names. ``cut_by`` are the columns that the table is cut by. ``sign`` is
    found in the place around the table's by those who have the same one before them
    (`Place.check_seen`); None is not looked for. ``counter`` is a file in which tasks count the
    rows they have written (counter.py); one that cannot be opened, as on another machine, is left
    out.
    """

    place: Place
    name: str
    target_bytes: int
    share_with: ShareWith
    cut_by: tuple[str, ...] = ()
    sign: str | None = None
    counter: Path | None = None


Task = tuple[Callable[[Any, Files, int], str], Any]
"""A function of tasks.py and what it is to do; it is called with the files and its number, too."""


class Engine(Protocol):
    """Runs tasks. Every method may raise ExportError and its kinds, and KeyboardInterrupt.

    After it raised, none of its tasks runs any more.
    """

    @property
    def cores(self) -> int:
        """Tasks that run at one time."""

    def run(
        self, tasks: Sequence[Task], files: Files, progress: Callable[[int], None]
    ) -> list[str]:
        """Run tasks that write files of one table; an answer a task.

        ``progress`` is called now and then with the number of rows done so far.
        """

    def write_report(
        self, name: str, source: OpenTable, files: Files, progress: TaskProgress
    ) -> list[str]:
        """Make a report from `values` as ``source`` has it, and write it; answers of tasks."""
