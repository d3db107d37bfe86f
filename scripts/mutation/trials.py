"""Runs chosen tests against a copy of the package, in a process of its own with a time limit.

The process is a fork of one that has the libraries imported, so that a trial costs little more than
its tests. The copy is imported in place of the package and stands first on PYTHONPATH, for the
processes that a test starts. The working tree is never changed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

__all__ = ["Outcome", "PackageCopy", "record_calls", "try_tests"]

# Imported once, before the forks. None of them starts a thread or installs a reactor.
_LIBRARIES = (
    "hypothesis", "numpy", "cryptography.hazmat.primitives.asymmetric.ed25519", "nacl.bindings",
    "blake3", "mmh3", "lmdb", "msgpack", "lz4.frame", "google.protobuf.message", "bencode2",
    "pyhpke", "zope.interface", "twisted.python.failure", "twisted.internet.task",
    "twisted.internet.testing", "twisted.logger",
)  # fmt: skip
_OPTIONS = (
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
    "-m", "not slow and not soak and not interop",
    "--hypothesis-seed=0", "--timeout=20",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended; `by` is the id of the test that failed first, or of its file."""

    noticed: bool
    seconds: float
    by: str = ""


class PackageCopy:
    """A copy of the package `name` of `root` in a temporary folder, one module of it changed."""

    def __init__(self, root: Path, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        self._package = self.folder / name
        self._changes = 0
        shutil.copytree(root / name, self._package, ignore=shutil.ignore_patterns("__pycache__"))

    @contextlib.contextmanager
    def changed(self, path: str, source: str) -> Iterator[None]:
        """The module at `path` is `source` meanwhile."""
        module = self._package / path
        kept, times = module.read_bytes(), (module.stat().st_atime, module.stat().st_mtime)
        module.write_text(source, encoding="utf-8")
        # Bytecode is taken for current when size and second are those of the source.
        self._changes += 1
        os.utime(module, (times[0], times[1] + self._changes))
        try:
            yield
        finally:
            module.write_bytes(kept)
            os.utime(module, times)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class _Chosen:
    """Keeps the tests of the given ids, in their order."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._rank = {one: rank for rank, one in enumerate(ids)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        kept = [item for item in items if item.nodeid in self._rank]
        items[:] = sorted(kept, key=lambda item: self._rank[item.nodeid])


class _CallRecorder:
    """Which functions of the package each test that passed calls, and how long it took."""

    def __init__(self, folder: Path) -> None:
        self._prefix = f"{folder}{os.sep}"
        self._failed: set[str] = set()
        self._tests: dict[str, dict[str, Any]] = {}

    @property
    def tests(self) -> dict[str, dict[str, Any]]:
        return {one: kept for one, kept in self._tests.items() if one not in self._failed}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        codes = set()

        def trace(frame: FrameType, _event: str, _argument: object) -> None:
            codes.add(frame.f_code)

        began = time.monotonic()
        threading.settrace(trace)
        sys.settrace(trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            own = [code for code in codes if code.co_filename.startswith(self._prefix)]
            calls = sorted({_function(code.co_qualname) for code in own})
            seconds = round(time.monotonic() - began, 3)
            self._tests[item.nodeid] = {"seconds": seconds, "calls": calls}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)


def _function(qualified: str) -> str:
    """The function that a comprehension or a lambda belongs to."""
    return qualified.partition(".<locals>.<")[0]


def record_calls(copy: PackageCopy, files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Test ids with their `seconds` and `calls`, for each test of `files` that passes."""
    recorder = _CallRecorder(copy.folder)
    answer = copy.folder / "calls.json"

    def run() -> int:
        code = pytest.main([*_OPTIONS, *files], plugins=[recorder])
        answer.write_text(json.dumps(recorder.tests), encoding="utf-8")
        return int(code)

    _in_fork(run, copy.folder, limit=3600.0)
    tests: dict[str, dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
    return tests


def try_tests(copy: PackageCopy, tests: Sequence[str], *, limit: float) -> Outcome:
    """Run the tests of these ids until one fails.

    A trial that takes longer than `limit` seconds is noticed: a test hangs.
    """
    files = sorted({one.partition("::")[0] for one in tests})
    began = time.monotonic()
    code = _in_fork(
        lambda: int(pytest.main([*_OPTIONS, "-x", *files], plugins=[_Chosen(tests)])),
        copy.folder,
        limit=limit,
    )
    seconds = time.monotonic() - began
    if code is None:
        return Outcome(noticed=True, seconds=seconds, by="too long")
    if code != pytest.ExitCode.OK:
        return Outcome(noticed=True, seconds=seconds, by=_first_failure(copy.folder))
    return Outcome(noticed=False, seconds=seconds)


def _first_failure(folder: Path) -> str:
    for line in (folder / "output").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].partition(" - ")[0]
    return "ended early"


def _in_fork(run: Callable[[], int], folder: Path, *, limit: float) -> int | None:
    """The exit code of `run` in a fork, negative for a signal; None when it took too long."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    process = os.fork()
    if process == 0:
        _become_a_trial(run, folder)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def _become_a_trial(run: Callable[[], int], folder: Path) -> None:
    code = 70
    try:
        os.setsid()
        output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["PYTHONPATH"] = str(folder)
        # Examples that failed for one mutant are not tried at the next.
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp(dir=folder)
        sys.path.insert(0, str(folder))
        code = run()
        sys.stdout.flush()
    finally:
        os._exit(code)
