"""A node that cannot listen where its configuration says: the address, why, and what to change."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, real_nodes

from hyperbloom.exit_codes import ExitCode


@pytest.fixture
def port():
    """A port of 127.0.0.1 that somebody else listens on."""
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        yield other.getsockname()[1]


def start_of(folder: Path, text: str) -> tuple[RealNode, int, str]:
    """A node with this configuration, how its start ended, and the last thing it said."""
    with real_nodes(folder) as nodes:
        node = Nodes.make(nodes, "node", feed="words")
        node.config_path.write_text(text)
        done = node.command("run")
        said = done.stderr.decode() if isinstance(done.stderr, bytes) else done.stderr
        assert "Traceback" not in said
        return node, done.returncode, said.strip().splitlines()[-1]


@pytest.mark.parametrize("table", ["node", "api", "objects"])
def test_a_port_that_is_taken_names_the_setting(tmp_path, port, table):
    settings = {
        "node": f'[node]\nlisten = ["tcp:{port}:interface=127.0.0.1"]\n',
        "api": f'[node]\nlisten = []\n[api]\nlisten = "127.0.0.1:{port}"\n',
        "objects": f"[node]\nlisten = []\n[objects]\nenabled = true\n"
        f'listen = ["tcp:{port}:interface=127.0.0.1"]\n',
    }
    node, code, said = start_of(tmp_path, settings[table])
    assert code == ExitCode.BUSY
    assert said == (
        f"hyperbloom: cannot listen on 127.0.0.1, port {port}: Address already in use; stop what "
        f"uses it, or change listen under [{table}] in {node.config_path}"
    )


@pytest.mark.parametrize("table", ["node", "objects"])
def test_an_address_of_another_machine_names_the_setting(tmp_path, table):
    # TEST-NET-1 (RFC 5737): no machine has it, and nothing is sent there.
    listen = 'listen = ["tcp:4365:interface=192.0.2.7"]\n'
    objects = "[node]\nlisten = []\n[objects]\nenabled = true\n" + listen
    node, code, said = start_of(tmp_path, f"[node]\n{listen}" if table == "node" else objects)
    assert code == ExitCode.CONFIG
    assert said == (
        "hyperbloom: cannot listen on 192.0.2.7, port 4365: Cannot assign requested address; this "
        "machine has no such address; name one that `ip address` shows: listen under "
        f"[{table}] in {node.config_path}"
    )
