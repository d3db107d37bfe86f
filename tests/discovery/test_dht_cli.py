"""`hyperbloom dht …` as processes on 127.0.0.1."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hyperbloom.cli.commands.dht_session import Session, run_session
from hyperbloom.discovery.dht.settings import PUBLIC_ROUTERS, DhtSettings
from hyperbloom.keys import create_key_file

COMMAND = [sys.executable, "-m", "hyperbloom.cli", "dht"]
WAIT = 240


class Network:
    """Processes of `dht serve` that know each other through the first, a `dht bootstrap`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {"XDG_STATE_HOME": str(folder)}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.first = self.start("bootstrap")

    def start(self, *arguments: str) -> str:
        """The address of a new node."""
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--json", "--port", "0", "--interface", "127.0.0.1"],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read().decode() if process.stderr else ""
        address: str = json.loads(line)["address"]
        return address

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )

    def ask(self, *arguments: str) -> str:
        """Standard output of a command that must succeed and say nothing else."""
        done = self.run(*arguments, "--bootstrap", self.first)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def end(self, process: subprocess.Popen[bytes], number: int) -> tuple[int, bytes]:
        process.send_signal(number)
        _, said = process.communicate(timeout=WAIT)
        return process.returncode, said

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=WAIT)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    network = Network(tmp_path_factory.mktemp("dht"))
    try:
        for _ in range(2):
            network.start("serve", "--bootstrap", network.first)
        yield network
    finally:
        network.stop()


def facts(text: str) -> dict[str, str]:
    return dict(line.split("\t") for line in text.splitlines())


def test_a_mutable_item(network: Network) -> None:
    key = network.folder / "owner.key"
    owner = create_key_file(key, b"o" * 32).public_key.hex()
    put = facts(network.ask("put", "hello", "--key", str(key), "--salt", "s"))
    assert put["key"] == owner
    assert (put["seq"], put["found"], put["refused"]) == ("1", "yes", "0")
    assert int(put["stored"]) == int(put["asked"]) >= 2
    again = json.loads(
        network.ask("put", "6869", "--hex", "--key", str(key), "--salt", "73", "--json")
    )
    assert (again["seq"], again["found"], again["target"]) == (2, True, put["target"])
    assert network.ask("get", owner, "--salt", "s") == "2\thi\n"
    form = json.loads(network.ask("get", owner, "--salt", "s", "--json"))
    assert form["items"] == [{"seq": 2, "value": b"hi".hex()}]


def test_a_terminal_gets_the_number_and_the_value_apart(network: Network) -> None:
    key = network.folder / "shown.key"
    owner = create_key_file(key, b"t" * 32).public_key.hex()
    network.ask("put", "a\tb", "--key", str(key))
    main, other = pty.openpty()
    command = [*COMMAND, "get", owner, "--bootstrap", network.first]
    process = subprocess.Popen(command, env=network.environment, stdout=other)
    os.close(other)
    assert process.wait(WAIT) == 0
    assert os.read(main, 1_000) == b"1\ta\\x09b\r\n"
    os.close(main)


def test_an_immutable_item(network: Network) -> None:
    put = facts(network.ask("put", "for ever"))
    assert put["found"] == "yes"
    assert network.ask("get", put["target"]) == "for ever\n"
    assert network.ask("get", put["target"], "--hex") == b"for ever".hex() + "\n"


def test_what_is_refused(network: Network) -> None:
    key = network.folder / "other.key"
    create_key_file(key, b"x" * 32)
    network.ask("put", "a", "--key", str(key), "--seq", "5")
    done = network.run("put", "b", "--key", str(key), "--seq", "4", "--bootstrap", network.first)
    assert done.returncode == 1
    assert facts(done.stdout)["found"] == "no"
    assert int(facts(done.stdout)["refused"]) >= 2
    assert done.stderr == "hyperbloom: the value was not found again\n"


def test_lookup(network: Network) -> None:
    nodes = network.ask("lookup", "--node", "00" * 20).splitlines()
    assert len(nodes) == 3
    assert network.first in {line.split("\t")[1] for line in nodes}
    done = network.run("lookup", "00" * 20, "--bootstrap", network.first)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hyperbloom: nothing found (")


def test_nobody_is_there(network: Network) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = network.run("get", "00" * 20, "--bootstrap", address)
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr == f"hyperbloom: no node of the DHT answered at {address}\n"
        done = network.run("get", "00" * 20, "--bootstrap", address, "--timeout", "0.5")
        assert (done.returncode, done.stdout) == (6, "")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["get", "00" * 20], 2),
        (["get", "00" * 21, "--public"], 2),
        (["get", "xy" * 20, "--public"], 2),
        (["lookup", "00" * 32, "--public"], 2),
        (["put", "a", "--seq", "-1", "--public"], 2),
        (["put", "zz", "--hex", "--public"], 2),
        (["put", "a", "--key", "nowhere.key", "--public"], 3),
        (["serve", "--bootstrap", "nowhere"], 2),
        (["serve", "--port", "0", "--state", "/"], 2),
        (["serve", "--port", "0", "--state", "nowhere/state.json"], 3),
        (["serve", "--port", "0", "--interface", "nowhere"], 2),
    ],
)
def test_wrong_command_lines(network: Network, arguments: list[str], code: int) -> None:
    done = network.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("hyperbloom: ")
    assert "Traceback" not in done.stderr


def test_a_port_in_use(network: Network) -> None:
    host, _, port = network.first.partition(":")
    done = network.run("serve", "--port", port, "--interface", host)
    assert done.returncode == 9
    assert done.stderr == (
        f"hyperbloom: cannot listen on UDP port {port}: Address already in use; stop what uses "
        "it, or give another --port or --interface\n"
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_end_keeps_the_state(network: Network, number: int, code: int) -> None:
    state = network.folder / f"{number}.json"
    network.start("serve", "--bootstrap", network.first, "--state", str(state))
    process = network.processes.pop()
    assert process.stderr is not None
    assert json.loads(process.stderr.readline())["remark"].startswith("joined: ")
    ended, said = network.end(process, number)
    assert ended == code
    assert [json.loads(line)["exit_code"] for line in said.splitlines()] == [code] * (code > 0)
    saved = json.loads(state.read_bytes())
    assert len(saved["nodes"]) >= 1

    # It comes back as who it was, and needs nobody to be named.
    network.start("serve", "--state", str(state))
    process = network.processes.pop()
    assert process.stderr is not None
    assert not json.loads(process.stderr.readline())["remark"].startswith("joined: 0")
    network.end(process, number)
    assert json.loads(state.read_bytes())["id"] == saved["id"]


def test_ctrl_c_while_it_asks(network: Network) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.settimeout(WAIT)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [*COMMAND, "get", "00" * 20, "--bootstrap", address],
            env=network.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        silent.recv(4_096)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=WAIT)
    assert (process.returncode, out, said) == (130, b"", b"")


def test_a_damaged_state_is_no_reason_not_to_start(network: Network) -> None:
    state = network.folder / "damaged.json"
    state.write_bytes(b"{not json")
    network.start("serve", "--state", str(state))


def test_the_public_network_is_asked_only_when_it_is_named() -> None:
    assert DhtSettings().bootstrap == ()
    assert len(PUBLIC_ROUTERS) >= 3


def test_a_session_in_a_thread() -> None:
    """Only a main thread gets signals; elsewhere a session works without."""
    results: list[object] = []

    async def work(node, reactor):
        return node.address.host

    def run() -> None:
        results.append(run_session(Session(settings=DhtSettings(), interface="127.0.0.1"), work))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(WAIT)
    assert results == ["127.0.0.1"]
