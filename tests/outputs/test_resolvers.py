"""What resolvers answer with a file in place: blocked, below it, and what is allowed below that."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import free_port, wait_until
from output_tools import OutputTools

NXDOMAIN = 3
VALUES = [b"blocked.example.com", b"blocked.example.org"]
ALLOW = [b"allowed.blocked.example.com"]
#: Whether a name is still answered.
EXPECTED = {
    "example.com": True,
    "blocked.example.com": False,
    "a.b.blocked.example.com": False,
    "notblocked.example.com": True,
    "allowed.blocked.example.com": True,
    "a.allowed.blocked.example.com": True,
    "notallowed.blocked.example.com": False,
    "blocked.example.org": False,
    "allowed.blocked.example.org": False,
}

_UNBOUND = """\
server:
  directory: "."
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
  do-daemonize: no
  do-not-query-localhost: no
  interface: 127.0.0.1
  port: {port}
  module-config: "{modules}"
forward-zone:
  name: "."
  forward-addr: 127.0.0.1@{upstream}
"""
_RPZ = 'rpz:\n  name: "rpz.example"\n  zonefile: "{path}"\n'


def question(name: str) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return labels + b"\0" + struct.pack(">HH", 1, 1)


@pytest.fixture(scope="module")
def upstream() -> Iterator[int]:
    """The port of a name server that has an address for every name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        ending = threading.Event()
        server.settimeout(0.1)

        def serve() -> None:
            while not ending.is_set():
                with contextlib.suppress(TimeoutError):
                    query, peer = server.recvfrom(4096)
                    end = query.index(b"\0", 12) + 5
                    head = query[:2] + struct.pack(">HHHHH", 0x8580, 1, 1, 0, 0)
                    answer = struct.pack(">HHHIH4B", 0xC00C, 1, 1, 60, 4, 192, 0, 2, 99)
                    server.sendto(head + query[12:end] + answer, peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        ending.set()
        thread.join()


def asked(port: int, name: str) -> bool | None:
    """Whether a resolver has an address for a name; None where it does not answer yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", port))
        try:
            client.send(struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question(name))
            answer = client.recv(4096)
        except OSError:
            return None
    code, answers = answer[3] & 15, struct.unpack(">H", answer[6:8])[0]
    assert (code, answers > 0) in ((0, True), (NXDOMAIN, False)), (name, code, answers)
    return bool(answers)


@contextlib.contextmanager
def resolver(tools: OutputTools, port: int, *command: str) -> Iterator[None]:
    process = subprocess.Popen(
        tools.command(*command), env=tools.environment, cwd=tools.folder, stderr=subprocess.PIPE
    )
    try:

        def ready() -> bool:
            assert process.poll() is None, process.communicate()[1][-500:]
            return asked(port, "example.com") is not None

        wait_until(ready, 30, "the resolver answers")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=60)


def answers(tools: OutputTools, port: int, *command: str) -> dict[str, bool | None]:
    with resolver(tools, port, *command):
        return {name: asked(port, name) for name in EXPECTED}


@pytest.fixture
def file(in_format, tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / name
        path.write_bytes(in_format(name, VALUES, allow=ALLOW)[0])
        return path

    return write


def test_dnsmasq(tools: OutputTools, file, upstream: int) -> None:
    port = free_port()
    config = file("dnsmasq")
    options = [f"--conf-file={config}", "--no-resolv", f"--server=127.0.0.1#{upstream}"]
    options += ["--listen-address=127.0.0.1", "--bind-interfaces", f"--port={port}", "--no-hosts"]
    options += ["--keep-in-foreground", "--pid-file=", "--user=", "--group=", "--log-facility=-"]
    assert answers(tools, port, "dnsmasq", *options) == EXPECTED


@pytest.mark.parametrize("name", ["unbound", "rpz"])
def test_unbound(tools: OutputTools, file, upstream: int, tmp_path: Path, name: str) -> None:
    port, path = free_port(), file(name)
    modules = "respip iterator" if name == "rpz" else "iterator"
    config = tmp_path / "unbound.conf"
    reads = _RPZ.format(path=path) if name == "rpz" else f'include: "{path}"\n'
    config.write_text(_UNBOUND.format(port=port, upstream=upstream, modules=modules) + reads)
    assert answers(tools, port, "unbound", "-d", "-c", str(config)) == EXPECTED
