"""What resolvers answer with a file in place: blocked, below it, and what is allowed below that."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from name_server import asked
from nodes import free_port, wait_until
from output_tools import UNBOUND_SERVER, OutputTools
from test_output_tools import NAMES, many, many_spelled

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

_UNBOUND = (
    UNBOUND_SERVER
    + """\
  so-reuseport: no
  do-daemonize: no
  do-not-query-localhost: no
  interface: 127.0.0.1
  port: {port}
  module-config: "{modules}"
forward-zone:
  name: "."
  forward-addr: 127.0.0.1@{upstream}
"""
)
_RPZ = 'rpz:\n  name: "rpz.example"\n  zonefile: "{path}"\n'


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


def dnsmasq(config: Path, port: int, upstream: int) -> list[str]:
    options = [f"--conf-file={config}", "--no-resolv", f"--server=127.0.0.1#{upstream}"]
    options += ["--listen-address=127.0.0.1", "--bind-interfaces", f"--port={port}", "--no-hosts"]
    options += ["--keep-in-foreground", "--pid-file=", "--user=", "--group=", "--log-facility=-"]
    return ["dnsmasq", *options]


def test_dnsmasq(tools: OutputTools, file, upstream: int) -> None:
    port = free_port()
    assert answers(tools, port, *dnsmasq(file("dnsmasq"), port, upstream)) == EXPECTED


@pytest.mark.parametrize("name", ["unbound", "rpz"])
def test_unbound(tools: OutputTools, file, upstream: int, tmp_path: Path, name: str) -> None:
    port, path = free_port(), file(name)
    modules = "respip iterator" if name == "rpz" else "iterator"
    config = tmp_path / "unbound.conf"
    reads = _RPZ.format(path=path) if name == "rpz" else f'include: "{path}"\n'
    config.write_text(_UNBOUND.format(port=port, upstream=upstream, modules=modules) + reads)
    assert answers(tools, port, "unbound", "-d", "-c", str(config)) == EXPECTED


def test_unbound_holds_every_name_of_a_long_file(
    tools: OutputTools, in_format, upstream: int, tmp_path: Path
) -> None:
    port, path, control = free_port(), tmp_path / "blocked.conf", tmp_path / "control"
    path.write_bytes(in_format("unbound", many(NAMES))[0])
    config = tmp_path / "unbound.conf"
    config.write_text(
        _UNBOUND.format(port=port, upstream=upstream, modules="iterator")
        + f'remote-control:\n  control-enable: yes\n  control-interface: "{control}"\n'
        + f'include: "{path}"\n'
    )
    with resolver(tools, port, "unbound", "-d", "-c", str(config)):
        listed = tools.run("unbound-control", "-c", str(config), "list_local_zones").decode()
        (longest,) = (name for name in many_spelled(NAMES) if len(name) == 253)
        assert asked(port, longest) is False
    zones = [line.split() for line in listed.splitlines()]
    blocked = {name.removesuffix(".") for name, kind in zones if kind == "always_nxdomain"}
    # Of the longest name that there is it does not print the end.
    assert blocked == many_spelled(NAMES) - {longest} | {longest.removesuffix("com") + "&"}


def test_dnsmasq_knows_no_name_of_a_long_file(
    tools: OutputTools, in_format, upstream: int, tmp_path: Path
) -> None:
    port, path = free_port(), tmp_path / "blocked.conf"
    path.write_bytes(in_format("dnsmasq", many(NAMES))[0])
    names = sorted(many_spelled(NAMES))
    some = random.Random(23).sample(names, 500)
    with resolver(tools, port, *dnsmasq(path, port, upstream)):
        assert {asked(port, name) for name in some} == {False}
        assert {asked(port, f"not-{name}") for name in some if len(name) < 60} == {True}
