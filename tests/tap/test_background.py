"""A node that twistd starts in the background: what the command says, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from nodes import TWISTD, Nodes, RealNode, real_nodes, wait_until

from hyperbloom.client.client import NodeUnreachable
from hyperbloom.exit_codes import ExitCode
from hyperbloom.process.background import MAX_SENTENCE_BYTES, Starting

START_SECONDS = 240.0
STOP_SECONDS = 20.0
#: More than the kernel ever gives (PID_MAX_LIMIT).
NO_PROCESS = 2**22 + 1


@pytest.fixture
def node(tmp_path: Path):
    with real_nodes(tmp_path) as nodes:
        yield Nodes.make(nodes, "node", feed="words")


def in_background(node: RealNode, *options: str, **environment: str) -> tuple[int, str]:
    """What the command ends with, and all that it prints.

    It prints into a file: a pipe would wait for whoever else has it.
    """
    said = node.folder / "said"
    with said.open("wb") as file:
        done = subprocess.run(
            [TWISTD, "--pidfile=node.pid", *options, "hyperbloom", "-c", str(node.config_path)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=node.folder,
            env=os.environ | environment,
            timeout=START_SECONDS,
            check=False,
        )
    return done.returncode, said.read_text()


def answers(node: RealNode, pid: int) -> bool:
    try:
        with node.client() as client:
            return client.ping()["pid"] == pid
    except NodeUnreachable:
        return False


def test_it_runs_says_nothing_and_is_not_started_twice(node: RealNode) -> None:
    pid_file = node.folder / "node.pid"
    assert in_background(node, "--logfile=node.log") == (0, "")
    pid = int(pid_file.read_text())
    try:
        wait_until(lambda: answers(node, pid), 20, "the node answers")
        assert os.getsid(pid) != os.getsid(0)
        assert (pid_file.stat().st_mode & 0o077) == 0
        code, said = in_background(node, "--logfile=node.log")
        assert code == ExitCode.BUSY
        assert said.startswith(f"hyperbloom: the pid file ./node.pid names process {pid}, which")
        assert len(said.splitlines()) == 1
        assert answers(node, pid)
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not pid_file.exists(), STOP_SECONDS, "the node is gone")


def test_a_start_that_fails_is_told_whole_with_its_exit_code(node: RealNode) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", node.port))
        other.listen()
        code, said = in_background(node)
    assert code == ExitCode.BUSY
    assert said == (
        f"hyperbloom: cannot listen on 127.0.0.1, port {node.port}: Address already in use; stop "
        f"what uses it, or change listen under [node] in {node.config_path}\n"
    )
    log = (node.folder / "twistd.log").read_text()
    assert "#critical] cannot listen on 127.0.0.1" in log
    assert "Traceback" not in log
    assert not (node.folder / "node.pid").exists()


def test_what_is_wrong_with_the_configuration_is_told(node: RealNode) -> None:
    node.config_path.write_text("[nodes]\n")
    code, said = in_background(node)
    assert (code, len(said.splitlines())) == (ExitCode.CONFIG, 1)
    assert "did you mean node?" in said


@pytest.mark.parametrize("option", ["--logfile", "--pidfile"])
def test_a_file_that_cannot_be_written_is_told(node: RealNode, option: str) -> None:
    code, said = in_background(node, f"{option}=missing/file")
    assert code == ExitCode.USAGE
    assert "missing/file cannot be written (No such file or directory); name another" in said
    assert len(said.splitlines()) == 1


#: What the node calls at its start, replaced by what fails.
ENDS = {
    "None": "the start met an unexpected error (TypeError: 'NoneType' object is not callable); the "
    "end of the log has more",
    "lambda _: os.kill(os.getpid(), 9)": "the node ended before it served; the end of twistd.log "
    "says why",
}


@pytest.mark.parametrize("call", ENDS)
def test_an_end_that_nobody_foresaw_is_told(node: RealNode, tmp_path: Path, call: str) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    text = f"import os, sys\nsys.setswitchinterval = {call}\n"
    (broken / "sitecustomize.py").write_text(text)
    code, said = in_background(node, PYTHONPATH=str(broken))
    assert (code, said) == (ExitCode.UNEXPECTED, f"hyperbloom: {ENDS[call]}\n")


def test_a_stale_pid_file_is_no_hindrance(node: RealNode) -> None:
    pid_file = node.folder / "node.pid"
    pid_file.write_text(str(NO_PROCESS))
    code, said = in_background(node)
    assert code == 0, said
    os.kill(int(pid_file.read_text()), signal.SIGTERM)
    wait_until(lambda: not pid_file.exists(), STOP_SECONDS, "the node is gone")


def test_a_sentence_that_is_too_long_is_cut() -> None:
    reading, writing = os.pipe()
    Starting(writing).tell(ExitCode.STORE, "x" * MAX_SENTENCE_BYTES)
    told = os.read(reading, 2 * MAX_SENTENCE_BYTES)
    os.close(reading)
    assert (told[0], len(told)) == (ExitCode.STORE, MAX_SENTENCE_BYTES)


def test_nobody_has_to_wait() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    Starting(writing).tell(ExitCode.OK)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(writing)
