"""Every target under atheris: some seconds each, and for hours when asked for.

HYPERBLOOM_FUZZ_SECONDS and HYPERBLOOM_FUZZ_SEED are for a longer run, and another one. What a run
finds new is kept in .cache/fuzz and begun with the next time.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_targets import FOLDER, TARGETS

SECONDS = int(os.environ.get("HYPERBLOOM_FUZZ_SECONDS", "1"))
SEED = os.environ.get("HYPERBLOOM_FUZZ_SEED", "20261121")
#: Inputs at most where nothing else is asked for; a fast decoder is done before its seconds are.
RUNS = 20_000
SOAK_INPUTS = 10_000_000
#: Of one target, which needs some three minutes of a core that has no other work.
SOAK_SECONDS = 7_200
#: Beside the seconds of fuzzing: imports of a busy machine.
START_SECONDS = 180

needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed: it has no wheel for this Python or machine; the recorded "
    "inputs are tested all the same",
)


def drive(
    target: str, corpus: Path, *, seconds: int, runs: int, environ: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the driver; the seed is printed where a test fails."""
    command = [sys.executable, str(FOLDER / "drive.py"), target, f"--seed={SEED}"]
    command += [f"--seconds={seconds}", f"--runs={runs}", f"--corpus={corpus}"]
    print(" ".join(command))
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds + START_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **(environ or {})},
    )


def inputs_of(done: subprocess.CompletedProcess[str]) -> int:
    found = re.search(r"^Done (\d+) runs", done.stdout, re.MULTILINE)
    return int(found[1]) if found else 0


def memory_of(done: subprocess.CompletedProcess[str]) -> str:
    """The process's memory once it had read its corpus, and the most it had."""
    first = re.search(r"\bINITED\b.* rss: (\d+)Mb", done.stdout)
    most = re.search(r"^stat::peak_rss_mb: +(\d+)", done.stdout, re.MULTILINE)
    return f"{first[1] if first else '?'} to {most[1] if most else '?'} MiB"


def check(done: subprocess.CompletedProcess[str]) -> int:
    """The number of inputs; a finding fails with its traceback and where it lies."""
    assert done.returncode == 0, done.stdout[-6_000:]
    count = inputs_of(done)
    assert count > 0, done.stdout[-2_000:]
    return count


@needs_atheris
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 2 * START_SECONDS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_while(target: str, tmp_path: Path) -> None:
    is_long = "HYPERBLOOM_FUZZ_SECONDS" in os.environ
    corpus = FOLDER.parents[1] / ".cache" / "fuzz" / target if is_long else tmp_path
    count = check(drive(target, corpus, seconds=SECONDS, runs=-1 if is_long else RUNS))
    print(f"{count:,} inputs")


@needs_atheris
@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 2 * START_SECONDS)
@pytest.mark.parametrize("target", TARGETS)
def test_ten_million_inputs_in_all(target: str) -> None:
    wanted = importlib.import_module(f"fuzz_targets.{target}").RUNS * SOAK_INPUTS // 1_000
    corpus = FOLDER.parents[1] / ".cache" / "fuzz" / target
    done = drive(target, corpus, seconds=SOAK_SECONDS, runs=wanted)
    count = check(done)
    print(f"{count:,} of {wanted:,} inputs, {memory_of(done)}")
    assert count >= wanted, f"{SOAK_SECONDS} s were too short for {wanted:,} inputs"


@needs_atheris
@pytest.mark.timeout(3 * START_SECONDS)
@pytest.mark.parametrize(
    ("fault", "told"),
    [("error", "IndexError: the planted fault"), ("memory", "bytes of memory"), ("time", "s for")],
)
def test_a_planted_fault_is_found(fault: str, told: str, tmp_path: Path) -> None:
    target, environ = str(FOLDER / "deliberately_broken.py"), {"HYPERBLOOM_PLANTED_FAULT": fault}
    done = drive(target, tmp_path, seconds=60, runs=500_000, environ=environ)
    assert done.returncode != 0
    assert told in done.stdout
    (case,) = tmp_path.glob("crash-*")
    assert case.stat().st_size <= 64


@needs_atheris
@pytest.mark.timeout(3 * START_SECONDS)
def test_without_the_fault_the_same_run_finds_nothing(tmp_path: Path) -> None:
    target, environ = str(FOLDER / "deliberately_broken.py"), {"HYPERBLOOM_PLANTED_FAULT": "none"}
    check(drive(target, tmp_path, seconds=5, runs=5_000, environ=environ))
    assert list(tmp_path.iterdir()), "nothing was measured: no input reached anything new"
