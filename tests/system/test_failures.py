"""What happens to servers: killed, stopped, full disks, taken ports, wrong files."""

from __future__ import annotations

import os
import random
import resource
import socket
import subprocess
import threading
import time
from itertools import count as counting

import pytest
from nodes import TWISTD, wait_until

from hyperbloom.api.problems import Problem
from hyperbloom.client.client import NodeTimeout, NodeUnreachable
from hyperbloom.store.backup.verify import verify_path


class Callers:
    """Threads that put values one after the other and keep what was acknowledged."""

    def __init__(self, node, threads=8):
        self.node = node
        self.numbers = counting()
        self.acknowledged = []
        self.problems = []
        self.threads = [threading.Thread(target=self.run) for _ in range(threads)]
        for thread in self.threads:
            thread.start()

    def run(self):
        try:
            with self.node.client() as client:
                for _ in range(100_000):
                    value = b"%d-%d" % (os.getpid(), next(self.numbers)) + os.urandom(8)
                    client.put([value])
                    self.acknowledged.append(value)
        except (NodeUnreachable, NodeTimeout, OSError):
            return
        except Problem as problem:
            self.problems.append(problem)

    def join(self):
        for thread in self.threads:
            thread.join(240)
            assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_when_a_node_is_killed_twenty_times(nodes):
    numbers = random.Random(2)
    owner = nodes.make("owner")
    acknowledged = set()
    for _ in range(20):
        owner.start()
        callers = Callers(owner)
        time.sleep(numbers.uniform(0.05, 0.4))
        owner.kill()
        callers.join()
        acknowledged.update(callers.acknowledged)
    owner.start()
    assert len(acknowledged) > 500
    assert acknowledged <= set(owner.values())
    with owner.client() as client:
        assert client.verify()["ok"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_member_that_is_killed_while_it_replicates_ends_with_everything(nodes):
    owner = nodes.make("owner").start()
    numbers = random.Random(3)
    values = [numbers.randbytes(64) for _ in range(60_000)]
    for start in range(0, len(values), 10_000):
        owner.put(*values[start : start + 10_000])
    member = nodes.invited(owner, "member", config="[sync]\nretry_first = 0.1")
    for _ in range(6):
        time.sleep(numbers.uniform(0.0, 0.1))
        member.kill()
        member.start()
    member.wait_for_count(owner.key, len(values), 60)
    assert member.digest(owner.key) == owner.digest(owner.key)
    assert member.stop()
    assert verify_path(member.folder / "store").ok


def test_a_stop_under_load_keeps_everything_acknowledged(nodes):
    owner = nodes.make("owner").start()
    callers = Callers(owner)
    wait_until(lambda: len(callers.acknowledged) > 200, 30, "200 values")
    assert owner.stop()
    callers.join()
    assert not callers.problems
    owner.start()
    assert set(callers.acknowledged) <= set(owner.values())


def test_a_second_node_on_the_same_data_is_refused_in_one_sentence(nodes):
    owner = nodes.make("owner").start()
    again = owner.command("run")
    assert again.returncode in (7, 9)
    lines = again.stderr.decode().strip().splitlines()
    assert len(lines) == 1, lines
    assert str(owner.process.pid) in lines[0] or "already runs" in lines[0]
    assert owner.put(b"still here") == 1


def one_sentence(result, code):
    text = result.stderr.decode()
    assert result.returncode == code, (result.returncode, text)
    assert "Traceback" not in text
    assert len(text.strip().splitlines()) == 1, text
    return text


def test_a_taken_port_is_named(nodes):
    owner = nodes.make("owner")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", owner.port))
        taken.listen()
        text = one_sentence(owner.command("run"), 9)
    assert str(owner.port) in text


def test_a_wrong_configuration_is_named(nodes):
    owner = nodes.make("owner")
    owner.config_path.write_text("[node]\nlisen = []\n")
    text = one_sentence(owner.command("run"), 3)
    assert "lisen" in text
    assert "listen" in text


@pytest.mark.parametrize("content", ["", "zz" * 32 + "\n", "ab" * 31 + "\n"])
def test_a_wrong_key_file_is_named(nodes, content):
    owner = nodes.make("owner")
    (owner.folder / "identity.key").write_text(content)
    assert "identity.key" in one_sentence(owner.command("run"), 3)


def test_a_key_file_that_others_can_read_is_refused(nodes):
    owner = nodes.make("owner")
    (owner.folder / "identity.key").chmod(0o644)
    assert "chmod 600" in one_sentence(owner.command("run"), 3)


def test_a_missing_node_is_said_plainly(nodes):
    owner = nodes.make("owner")
    for command in (["count"], ["put", "a"], ["peers"], ["status"], ["watch"], ["feed", "list"]):
        assert "hyperbloom run" in one_sentence(owner.command(*command), 4)


def test_a_damaged_store_is_named(nodes):
    owner = nodes.make("owner").start()
    owner.put(b"a")
    owner.stop()
    data = owner.folder / "store" / "data.mdb"
    data.write_bytes(b"this is not a database" * 1000)
    assert "store" in one_sentence(owner.command("run"), 7)


def test_a_full_disk_refuses_writes_and_goes_on_reading(nodes):
    """The limit on a file's size stands for the disk: LMDB gets an error from the same write."""
    owner = nodes.make("owner", node="")
    limit = 3_000_000

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    owner.start(preexec_fn=small_files)
    acknowledged = []
    refused = None
    for number in range(200):
        values = [b"%03d" % number + os.urandom(1_000) for _ in range(50)]
        try:
            owner.put(*values)
        except Problem as problem:
            refused = problem
            break
        acknowledged += values
    assert refused is not None, "the disk never was full"
    assert refused.kind.status == 507
    told = owner.command("put", "-", stdin=os.urandom(100_000).hex().encode())
    assert told.returncode == 7
    assert b"Traceback" not in told.stderr
    assert set(acknowledged) <= set(owner.values())
    owner.stop()
    owner.start()
    assert owner.put(b"there is room again") == 1
    assert set(acknowledged) <= set(owner.values())


def test_twistd_as_a_daemon_writes_its_pid_and_stops(nodes):
    owner = nodes.make("owner")
    pid_file = owner.folder / "node.pid"
    run = subprocess.run(
        [
            TWISTD, "--pidfile", str(pid_file), "--logfile", str(owner.log_path),
            "hyperbloom", "-c", str(owner.config_path),
        ],
        capture_output=True,
        timeout=240,
        check=False,
        cwd=owner.folder,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    pid = int(pid_file.read_text())
    try:

        def answers() -> bool:
            try:
                with owner.client() as client:
                    return client.ping()["pid"] == pid
            except NodeUnreachable:
                return False

        wait_until(answers, 20, "the daemon answers")
    finally:
        os.kill(pid, 15)
        wait_until(lambda: not pid_file.exists(), 20, "the daemon is gone")
