"""An export by the local engine, to be killed: in a process forked from one that has read all."""

from __future__ import annotations

from pathlib import Path

from hyperbloom.export import Engines, export_snapshots


def export(mode: str, target: Path, snapshot: Path) -> None:
    """Export the snapshot with two workers."""
    export_snapshots([snapshot], target, engines=Engines(wanted="local", processes=2), mode=mode)
