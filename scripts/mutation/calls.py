"""Which tests call which function: recorded once for each test file, and again when it changed.

A room's tests are those of its folder in tests/, and of other folders where the room is imported.
Tests that start processes or need other programs are left out: they are too slow to run for each
mutant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Calls", "test_files"]

_SLOW_FOLDERS = (
    "attacks", "cli", "demo", "docs", "export", "house", "interop", "packaging", "system",
    "tap",
)  # fmt: skip

Record = Callable[[list[str]], Mapping[str, Mapping[str, Any]]]


def test_files(root: Path, room: str) -> tuple[list[str], list[str]]:
    """The test files of the room's own folder, and the others, relative to `root`.

    A room is a folder of the package, or one module of it.
    """
    top, files = (
        room.partition("/")[0].removesuffix(".py"),
        sorted((root / "tests").rglob("test_*.py")),
    )
    own = [path for path in files if path.relative_to(root).parts[1] == top]
    others = [
        path
        for path in files
        if path not in own
        and path.relative_to(root).parts[1] not in _SLOW_FOLDERS
        and f"hyperbloom.{top}" in path.read_text(encoding="utf-8")
    ]
    return _names(root, own), _names(root, others)


def _names(root: Path, paths: Iterable[Path]) -> list[str]:
    return [path.relative_to(root).as_posix() for path in paths]


class Calls:
    """The record, kept in the file `kept`: a test that failed when it was made is not in it."""

    def __init__(self, root: Path, kept: Path) -> None:
        self._root = root
        self._kept = kept
        self._files: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}

    def renew(self, files: Iterable[str], record: Record) -> None:
        """Record what is not recorded of `files` as they are now.

        The package may have changed since: then a test may call other functions than are recorded.
        """
        stamps = {
            file: hashlib.sha256((self._root / file).read_bytes()).hexdigest() for file in files
        }
        stale = [file for file in stamps if self._files.get(file, {}).get("stamp") != stamps[file]]
        if not stale:
            return
        tests = record(stale)
        for file in stale:
            own = {one: found for one, found in tests.items() if one.partition("::")[0] == file}
            # Without a test that passed, perhaps it could not be imported then: look again.
            self._files[file] = {"stamp": stamps[file] if own else None, "tests": own}
        self._kept.parent.mkdir(parents=True, exist_ok=True)
        self._kept.write_text(json.dumps(self._files), encoding="utf-8")

    def tests_calling(
        self, files: Iterable[str], functions: Iterable[str], *, seconds: float
    ) -> list[tuple[str, float]]:
        """Tests of `files` that call one of `functions`, any test if there are none: id, seconds.

        The quickest come first, as many as take `seconds` together.
        """
        wanted = set(functions)
        found = sorted(
            (test["seconds"], one)
            for file in files
            for one, test in self._files.get(file, {}).get("tests", {}).items()
            if not wanted or wanted.intersection(test["calls"])
        )
        chosen, total = [], 0.0
        for cost, one in found:
            total += cost
            if total > seconds:
                break
            chosen.append((one, cost))
        return chosen
