"""A small sound snapshot with something of everything a store keeps."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final

from sound_store import fill

from hyperbloom.store import Store, WriterInline
from hyperbloom.store.lmdb.layout import DATABASES as _LAYOUT

__all__ = ["DATABASES", "make_snapshot"]

DATABASES: Final = tuple(_LAYOUT)


def make_snapshot(target: Path) -> None:
    """Make a store and leave a snapshot of it in a folder that is not there yet."""
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        store = Store.open(Path(folder) / "store", durable=False)
        try:
            _fill(store)
            store.snapshot(target)
        finally:
            store.close()


def _fill(store: Store) -> None:
    writer = WriterInline(store)

    def run(operation: Any) -> None:
        answers: list[object] = []
        writer.submit(operation, answers.append)
        if isinstance(answers[0], BaseException):
            raise answers[0]

    fill(run)
