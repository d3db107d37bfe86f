"""Log files of a node that writes its own: so many of so many bytes, whatever happens."""

from __future__ import annotations

import signal
import subprocess

import pytest
from nodes import TWISTD, RealNode, wait_until
from twisted.logger import Logger

from hyperbloom.config import ConfigError, parse_config
from hyperbloom.process.logs import log_observer


def sizes(folder):
    return {path.name: path.stat().st_size for path in folder.glob("node.log*")}


@pytest.mark.parametrize("files", [2, 5])
def test_there_are_so_many_log_files_of_so_many_bytes(tmp_path, files):
    for number in range(20):
        (tmp_path / f"node.log.{number}").write_text("from before there was a limit")
    observer = log_observer("info", str(tmp_path / "node.log"), files=files, file_bytes=10_000)
    log = Logger(observer=observer, namespace="test")
    for number in range(2_000):
        log.info("line {number} {text}", number=number, text="x" * 80)
    found = sizes(tmp_path)
    del found["node.log.0"]
    assert set(found) == {"node.log", *(f"node.log.{number}" for number in range(1, files))}
    assert max(found.values()) < 10_000 + 200
    assert "line 1999" in (tmp_path / "node.log").read_text()


def test_a_node_keeps_as_many_log_files_as_it_is_told(tmp_path):
    node = RealNode(tmp_path / "node", node="log_files = 3\nlog_bytes = 10_000")
    command = [TWISTD, "-n", "--pidfile=", "--logfile=node.log", "hyperbloom", "-c", "."]
    process = node.process = subprocess.Popen(command, cwd=node.folder, stdin=subprocess.DEVNULL)
    try:
        wait_until(node._answers, 30, "the node is ready")
        with node.client() as client:
            for _ in range(400):
                client.reload()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    found = sizes(node.folder)
    assert set(found) == {"node.log", "node.log.1", "node.log.2"}
    assert max(found.values()) < 10_000 + 1_000


@pytest.mark.parametrize("line", ["log_files = 1", "log_bytes = 9_999", 'log_files = "2"'])
def test_what_no_log_can_be_is_refused(tmp_path, line):
    with pytest.raises(ConfigError, match=line.partition(" ")[0]):
        parse_config(f"[node]\n{line}\n", path=tmp_path / "hyperbloom.toml")
