"""A node under a service manager, which is this test: notices, watchdog, ports handed over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import TWISTD, Nodes, RealNode, real_nodes, wait_until
from twisted.internet.defer import Deferred, succeed
from twisted.internet.testing import MemoryReactorClock

from hyperbloom.addresses import Address
from hyperbloom.config import ConfigError, parse_config
from hyperbloom.exit_codes import ExitCode
from hyperbloom.process.systemd import Notifier, Supervision, watchdog_seconds

PATIENCE = 240.0


class Supervisor:
    """Receives notices, as systemd does."""

    def __init__(self, path: str) -> None:
        self.address = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path.replace("@", "\0", 1))
        self._socket.settimeout(PATIENCE)

    def notice(self) -> dict[str, str]:
        lines = self._socket.recv(4096).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def notice_with(self, name: str) -> dict[str, str]:
        """The next one that says it; pings come in between."""
        while name not in (found := self.notice()):
            assert set(found) == {"WATCHDOG"}
        return found

    def drain(self) -> list[str]:
        """What has come so far."""
        self._socket.setblocking(False)
        try:
            found = []
            while True:
                found.append(self._socket.recv(4096).decode())
        except BlockingIOError:
            return found
        finally:
            self._socket.settimeout(PATIENCE)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Supervisor]:
    one = Supervisor(str(tmp_path / "notify"))
    yield one
    one.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def started(node: RealNode, manager: Supervisor, **more: str) -> RealNode:
    return node.start(env=os.environ | {"NOTIFY_SOCKET": manager.address} | more)


def test_a_node_is_ready_once_it_answers_and_says_when_it_stops(
    nodes: Nodes, manager: Supervisor
) -> None:
    node = started(nodes.make("node"), manager)
    assert manager.notice() == {"READY": "1", "MAINPID": str(node.process.pid)}
    assert node.stop()
    assert manager.notice() == {"STOPPING": "1"}
    assert manager.drain() == []


def test_a_node_that_cannot_start_is_never_ready(nodes: Nodes, manager: Supervisor) -> None:
    node = nodes.make("node")
    (node.folder / "store").write_text("no store")
    with pytest.raises(AssertionError, match="the node ended"):
        started(node, manager)
    assert manager.drain() == []


def test_pings_come_from_the_reactor_and_end_when_it_hangs(
    nodes: Nodes, manager: Supervisor
) -> None:
    node = started(nodes.make("node"), manager, WATCHDOG_USEC="200000")
    assert "READY" in manager.notice()
    for _ in range(5):
        assert manager.notice() == {"WATCHDOG": "1"}
    node.process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(0.3)
        manager.drain()
        time.sleep(0.5)
        assert manager.drain() == []
    finally:
        node.process.send_signal(signal.SIGCONT)
    assert manager.notice() == {"WATCHDOG": "1"}


def test_a_node_killed_by_the_watchdog_tells_where_it_was(
    nodes: Nodes, manager: Supervisor
) -> None:
    node = started(nodes.make("node"), manager, PYTHONFAULTHANDLER="1")
    node.process.send_signal(signal.SIGABRT)
    assert node.process.wait(PATIENCE) == -signal.SIGABRT
    started(node, manager)
    assert "most recent call first" in node.log_path.read_text()


def test_hang_up_is_a_reload_that_the_manager_is_told_of(nodes: Nodes, manager: Supervisor) -> None:
    node = started(nodes.make("node"), manager)
    manager.notice()
    before = time.monotonic_ns() // 1_000
    node.process.send_signal(signal.SIGHUP)
    reloading = manager.notice()
    assert reloading["RELOADING"] == "1"
    assert int(reloading["MONOTONIC_USEC"]) >= before
    assert manager.notice()["READY"] == "1"
    assert "changed: nothing" in node.log_path.read_text()


def test_a_reload_that_fails_ends_as_well(nodes: Nodes, manager: Supervisor) -> None:
    node = started(nodes.make("node"), manager)
    manager.notice()
    node.config_path.write_text("[nodes]\n")
    node.process.send_signal(signal.SIGHUP)
    assert manager.notice()["RELOADING"] == "1"
    assert manager.notice()["READY"] == "1"
    assert "did you mean node?" in node.log_path.read_text()


# Ports handed over


def handed(node: RealNode, port: socket.socket, *, pid: str = "$$") -> subprocess.Popen:
    """The node, started with a descriptor as systemd hands it over; its output is in its log."""
    node.config_path.write_text('[node]\nlisten = ["systemd"]\n')
    as_listener = f'export LISTEN_PID={pid} LISTEN_FDS=1 LISTEN_FDNAMES=x; exec "$@" 3<&"$PORT"'
    twistd = [TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path)]
    with node.log_path.open("ab") as log:
        node.process = subprocess.Popen(
            ["bash", "-c", as_listener, "bash", *twistd],
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=node.folder,
            env=os.environ | {"PORT": str(port.fileno())},
            pass_fds=[port.fileno()],
        )
    return node.process


def status(node: RealNode) -> dict:
    with node.client() as client:
        return client.status()


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["4", "6"]
)
def test_a_port_that_is_handed_over_is_listened_on(
    nodes: Nodes, family: socket.AddressFamily, host: str
) -> None:
    node = nodes.make("node")
    with socket.socket(family) as port:
        try:
            port.bind((host, 0))
        except OSError:
            pytest.skip(f"{host} is missing")
        port.listen()
        number = port.getsockname()[1]
        # Before the node is there at all: it waits in the socket's queue.
        early = socket.create_connection((host, number))
        handed(node, port)
    wait_until(node._answers, PATIENCE, "the node is ready")
    assert status(node)["listening"] == [str(Address(host, number))]
    wait_until(lambda: status(node)["connections"] == 1, PATIENCE, "who came early is let in")
    early.close()
    assert node.stop()


def test_without_a_port_of_systemds_the_node_says_what_to_do(nodes: Nodes) -> None:
    node = nodes.make("node")
    node.config_path.write_text('[node]\nlisten = ["systemd"]\n')
    ended = subprocess.run(
        [TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path)],
        capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=node.folder,
    )  # fmt: skip
    assert ended.returncode == ExitCode.CONFIG
    assert "handed over no port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_descriptors_meant_for_another_process_are_not_taken(nodes: Nodes) -> None:
    node = nodes.make("node")
    with socket.create_server(("127.0.0.1", 0)) as port:
        assert handed(node, port, pid="1").wait(PATIENCE) == ExitCode.CONFIG
    assert "handed over no port" in node.log_path.read_text()


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_INET, socket.SOCK_STREAM),
    ],
    ids=["unix", "udp", "not listening"],
)
def test_a_socket_that_is_no_listening_tcp_port_is_refused(
    nodes: Nodes, family: socket.AddressFamily, kind: socket.SocketKind
) -> None:
    node = nodes.make("node")
    with socket.socket(family, kind) as port:
        assert handed(node, port).wait(PATIENCE) == ExitCode.CONFIG
    assert "does not listen for TCP" in node.log_path.read_text()


def test_only_the_nodes_own_ports_come_from_systemd(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'systemd' is not tcp:PORT"):
        parse_config('[objects]\nlisten = ["systemd"]\n', path=tmp_path / "hyperbloom.toml")


# The parts


def test_an_abstract_socket_is_told(tmp_path: Path) -> None:
    manager = Supervisor(f"@hyperbloom-test-{os.getpid()}")
    assert Notifier(manager.address).send("STATUS=here")
    assert manager.notice() == {"STATUS": "here"}
    manager.close()


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "relative"])
def test_without_a_manager_nobody_is_told(address: str | None) -> None:
    assert not Notifier(address).send("READY=1")


def test_a_manager_that_is_gone_is_no_failure(tmp_path: Path) -> None:
    assert not Notifier(str(tmp_path / "gone")).send("READY=1")


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
    ],
)
def test_the_watchdogs_period_is_read(environment: dict[str, str], seconds: float | None) -> None:
    assert watchdog_seconds(environment) == seconds


def test_two_pings_go_out_in_each_period(manager: Supervisor) -> None:
    reactor = MemoryReactorClock()

    def reload() -> Deferred[None]:
        return succeed(None)

    supervision = Supervision(
        Notifier(manager.address), reactor=reactor, reload=reload, watchdog=60.0
    )
    before = signal.getsignal(signal.SIGHUP)
    supervision.startService()
    for hook, arguments, keywords in reactor.whenRunningHooks:
        hook(*arguments, **keywords)
    for _ in range(120):
        reactor.advance(1.0)
    pings = manager.drain().count("WATCHDOG=1")
    supervision.stopService()
    reactor.advance(60.0)
    assert pings == 5
    assert manager.drain() == ["STOPPING=1"]
    assert signal.getsignal(signal.SIGHUP) == before
