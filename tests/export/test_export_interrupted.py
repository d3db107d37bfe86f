"""Ctrl-C and SIGTERM: the export ends with all that it started, silently, and changes nothing."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from deltalake import DeltaTable
from export_nodes import random_values
from export_processes import of_session

from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export.engines.spark_session import _is_not_of_py4j

MAIN = "from hyperbloom.cli import main; main()"


def heed_interrupts():
    """What is started in the background ignores SIGINT, and hands that on to what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def is_result(said):
    """Whether this is what the command says when it is done, and nothing else."""
    return said.startswith("table\trows\t") and "Traceback" not in said


class Interrupted:
    """Exports of a second snapshot by the command, each to be interrupted at another moment."""

    def __init__(self, node, folder):
        node.append(random_values(1_000))
        self.target, self.scratch = folder / "tables", folder / "scratch"
        self.scratch.mkdir()
        export_snapshots([node.snapshot("1")], self.target, engines=Engines(wanted="local"))
        node.append(random_values(300_000, seed=2, longest=60))
        self.snapshot = node.snapshot("2")

    def interrupt(self, engine, seconds, number=signal.SIGINT, *, times=1):
        """Send a signal after so many seconds; the exit code and what was said."""
        options = ["--to", str(self.target), "--engine", engine, "--mode", "full"]
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "export", str(self.snapshot), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heed_interrupts,
            env={**os.environ, "MASTER": "local[2]", "TMPDIR": str(self.scratch)},
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            for _ in range(times):
                process.send_signal(number)
                time.sleep(0.05)
            said = "".join(process.communicate(timeout=120))
        finally:
            left = of_session(process.pid)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert left == []
        return process.returncode, said

    def files(self):
        return {str(path) for path in (self.target / "values").rglob("*.parquet")}

    def check(self, engine, moments, **how):
        """Interrupt at each of these moments: each ends it cleanly."""
        for seconds in moments:
            table = DeltaTable(str(self.target / "values"))
            before, files = table.version(), self.files()
            code, said = self.interrupt(engine, seconds, **how)
            if code == 0:  # it was done before
                continue
            # On a busy machine it may strike while Python itself starts or ends: before the command
            # has said anything, or behind all that it says.
            assert code in (130, -signal.SIGINT), (seconds, code, said)
            if is_done := code == -signal.SIGINT and is_result(said):
                said = ""
            assert said == "", (seconds, code, said)
            table = DeltaTable(str(self.target / "values"))
            # One that comes behind the commit finds the table done; no other file is left.
            assert table.version() in ((before + 1,) if is_done else (before, before + 1))
            named = {path.removeprefix("file://") for path in table.file_uris()}
            assert self.files() - files == (named - files)
            yield seconds


@pytest.mark.timeout(600)
def test_an_export_by_processes(node, tmp_path):
    exports = Interrupted(node, tmp_path)
    numbers = random.Random()
    moments = [numbers.uniform(0.3, 2.0) for _ in range(6)]
    assert list(exports.check("local", [0.2, *moments]))
    assert list(exports.scratch.iterdir()) == []
    code, said = exports.interrupt("local", 0.9, signal.SIGTERM)
    assert code == 0 or (code == -signal.SIGTERM and (said == "" or is_result(said)))
    assert list(exports.scratch.iterdir()) == []


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("java")
def test_an_export_by_spark(node, tmp_path):
    exports = Interrupted(node, tmp_path)
    # While Java starts, while the session does, and in mid-job; the last one three times over.
    assert list(exports.check("spark", [1.0, 2.0, 3.5, 5.0]))
    assert list(exports.check("spark", [4.0], times=3))
    code, said = exports.interrupt("spark", 4.0, signal.SIGTERM)
    assert code == 0 or (code == -signal.SIGTERM and (said == "" or is_result(said)))
    left = [path for path in exports.scratch.iterdir() if not path.name.startswith("hsperf")]
    assert left == []


def test_of_errors_by_the_root_logger_those_of_py4j_are_left_out():
    java_gateway = pytest.importorskip("py4j.java_gateway")
    logger = logging.Logger("like the root's")
    logger.addFilter(_is_not_of_py4j)
    seen = []
    logger.addHandler(logging.NullHandler())
    logger.handlers[0].handle = seen.append
    raising = "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logger.exception('said')"
    for where in (java_gateway.__file__, __file__):
        exec(compile(raising, where, "exec"), {"logger": logger})
    assert [record.pathname for record in seen] == [__file__]
