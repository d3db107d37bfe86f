"""An export by the local engine, to be killed: in a process forked from one that has read all."""

from __future__ import annotations

import os
from pathlib import Path

from hyperbloom.export import Engines, export_snapshots

TABLES = ("values", "links", "feeds", "changes")


def export(mode: str, target: Path | str, snapshot: Path, environment: dict[str, str]) -> None:
    """Export the snapshot with two workers; what forks keeps the environment it started with."""
    os.environ.update(environment)
    engines = Engines(wanted="local", processes=2)
    export_snapshots([snapshot], target, engines=engines, mode=mode, tables=TABLES)
