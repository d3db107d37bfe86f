"""An engine whose tasks run in this process: for tests of many exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hyperbloom.export.engines.choice import Choice, Engines


class InlineEngine:
    """Runs tasks one after the other. ``before`` is called with the number of each."""

    cores = 2

    def __init__(self, before: Callable[[int], None]) -> None:
        self._before = before

    def run(self, tasks: Sequence[Any], files: Any, progress: Callable[[int], None]) -> list[str]:
        answers = []
        for number, (do, work) in enumerate(tasks):
            self._before(number)
            answers.append(do(work, files, number))
            progress(number)
        return answers


class InlineEngines(Engines):
    """In the place of those that an export would start."""

    before: Callable[[int], None] = staticmethod(lambda number: None)

    def choose(self, rows: int) -> Choice:
        return Choice("local", "a test asked for it")

    @contextmanager
    def start(self, engine: str) -> Iterator[Any]:
        yield InlineEngine(self.before)
