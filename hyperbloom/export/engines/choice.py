"""Which engine runs an export: the one that is asked for, or the one that is done first.

Spark needs seconds to start, and on one machine its Python workers do no more than the processes of
the local engine. So on one machine `auto` takes the local engine. A cluster has more cores, and is
worth its start once the processes here would take longer than that.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hyperbloom.export.engines.engine import Engine, EngineName
from hyperbloom.export.engines.local import local_engine, usable_cores
from hyperbloom.export.engines.spark import SparkEngine
from hyperbloom.export.engines.spark_session import resolve_master, running_cluster, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Choice", "EngineWanted", "Engines"]

EngineWanted = Literal["auto", "local", "spark"]
SessionSource = Callable[[], AbstractContextManager["SparkSession"]]

ROWS_A_CORE: Final = 7_000_000
"""What a process writes while Spark starts (scripts/bench export: 7 s, a million rows a second)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An engine, and why it is this one: the end of a sentence."""

    engine: EngineName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """The engines that an export may start.

    ``processes`` are those of the local engine (one for each core), ``master`` is Spark's
    (spark_session.py). ``sessions`` gives another session than one of ``master``.
    """

    wanted: EngineWanted = "auto"
    master: str | None = None
    processes: int | None = None
    sessions: SessionSource | None = None

    def choose(self, rows: int) -> Choice:
        """The engine for a table for which so many rows are read.

        Raises MasterUnreachable for a master that can be none.
        """
        if self.wanted != "auto":
            return Choice(self.wanted, "it was asked for")
        if importlib.util.find_spec("pyspark") is None:
            return Choice("local", "Spark is not installed")
        master = running_cluster() or resolve_master(self.master, os.environ)
        if master.startswith("local"):
            return Choice("local", "no cluster is named, and on one machine Spark is not faster")
        cores = self.processes or usable_cores()
        if rows < ROWS_A_CORE * cores:
            return Choice("local", f"{rows:,} rows take less time than Spark's start")
        return Choice("spark", f"{rows:,} rows are worth starting Spark at {master}")

    @contextmanager
    def start(self, engine: EngineName) -> Iterator[Engine]:
        """Start an engine, for the time of the block."""
        if engine == "local":
            with local_engine(self.processes) as started:
                yield started
            return
        with (self.sessions or (lambda: spark_session(self.master)))() as session:
            yield SparkEngine(session)
