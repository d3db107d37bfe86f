"""Programs that tests fork do what those do that start from nothing; see tests/forked.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from nodes import CEILING, HYPERBLOOM, TWISTD, wait_until

BOOTSTRAP = [HYPERBLOOM, "dht", "bootstrap", "--port", "0", "--interface", "127.0.0.1"]


@pytest.mark.parametrize(
    "command",
    [
        [HYPERBLOOM, "--version"],
        [HYPERBLOOM, "--wrong"],
        [HYPERBLOOM, "-c", "no-such-file.toml", "put", "-"],
        [TWISTD, "--help"],
        [TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", "no-such-file.toml"],
    ],
)
def test_it_says_and_returns_what_one_does_that_starts_from_nothing(command):
    alone = subprocess.run(
        command, input=b"a value", capture_output=True, timeout=CEILING, check=False
    )
    done = forked.run(command, stdin=b"a value", timeout=CEILING)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert done.stderr == alone.stderr


@pytest.fixture
def endless(tmp_path):
    with (tmp_path / "log").open("w+b") as log, open(os.devnull, "rb") as nothing:
        program = forked.Forked(BOOTSTRAP, stdin=nothing, stdout=log, stderr=log, cwd=tmp_path)
    yield program
    program.kill()


def test_it_runs_until_it_is_ended(endless):
    assert endless.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        endless.wait(0.01)
    endless.kill()
    assert endless.wait(CEILING) == -signal.SIGKILL
    assert endless.poll() == -signal.SIGKILL
    endless.terminate()


def test_it_ends_when_the_tests_are_killed(tmp_path):
    source = f"""
import sys
import forked
with open("log", "r+b") as log:
    print(forked.Forked({BOOTSTRAP!r}, stdin=log, stdout=log, stderr=log, cwd=".").pid, flush=True)
sys.stdin.read()
"""
    log = tmp_path / "log"
    log.touch()
    tests = subprocess.Popen(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(forked.__file__).parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    pid = int(tests.stdout.readline())
    wait_until(lambda: b"127.0.0.1:" in log.read_bytes(), 10, "it runs")
    assert Path(f"/proc/{pid}").exists()
    tests.kill()
    tests.communicate()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 10, "it is gone")
