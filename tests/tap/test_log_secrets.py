"""Logs hold no secret: two nodes at level debug do everything there is, and the log is searched."""

from __future__ import annotations

import base64
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, real_nodes, wait_until

PATIENCE = 30.0
PASSPHRASE = "correct-horse-battery-staple-of-this-test"
MARK = b"value-that-no-log-may-hold"
DISCOVERY = """
[discovery]
enabled = true
bootstrap = []
port = 0
interface = "127.0.0.1"
lan = "off"
secret = "passphrase"
[objects]
enabled = true
listen = ["tcp:0:interface=127.0.0.1"]
passphrase_file = "passphrase"
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def secret_node(nodes: Nodes, name: str, **more: str) -> RealNode:
    node = nodes.make(name, **more)
    secret = node.folder / "passphrase"
    secret.write_text(PASSPHRASE + "\n")
    secret.chmod(0o600)
    return node


def spellings(secret: bytes) -> Iterator[str]:
    """How a log might hold it."""
    yield secret.hex()
    yield secret.hex().upper()
    yield base64.b64encode(secret).decode().rstrip("=")
    yield base64.urlsafe_b64encode(secret).decode().rstrip("=")
    yield repr(secret)[2:-1]
    yield str(list(secret))[1:-1]
    yield secret.decode("latin-1")


def do_everything(owner: RealNode, member: RealNode) -> None:
    owner.put(*(MARK + b"-%d" % i for i in range(50)))
    owner.put(MARK + bytes(range(128, 160)))
    member.wait_for_count(owner.key, 51)
    member.put(MARK + b" of the member", feed=owner.key)
    owner.wait_for_count(owner.key, 52)
    for node in (owner, member):
        mark = MARK.decode()
        for command in (
            ("get", "--start", mark, owner.key.hex()),
            ("has", mark),
            ("status",),
            ("peers",),
            ("trust", "show"),
            ("snapshot", str(node.folder / "copy")),
            ("put", "--feed", mark, mark),
        ):
            node.command(*command)


def go_wrong(node: RealNode) -> None:
    """Requests, bytes and files that a node refuses."""
    with node.client() as client:
        client.discovery("own")
        path = f"/v1/feeds/own/values?start={MARK.hex()}&limit=x"
        for method, target, body in (
            ("GET", path, None),
            ("POST", "/v1/feeds/own/values", {"values": [MARK.hex(), 7]}),
            ("POST", "/v1/feeds/own/values", {MARK.decode(): MARK.decode()}),
        ):
            client._connection.request(method, target, str(body) if body else None)
            client._connection.getresponse().read()
    with socket.create_connection(("127.0.0.1", node.port)) as stranger:
        stranger.sendall(b"\x00\x00\x40" + MARK * 10)
        stranger.recv(100)
    node.config_path.write_text(f'[node]\nidentity = "{MARK.decode()}\n')
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "not taken" in node.log_path.read_text(), PATIENCE, "the file is refused")


def test_logs_hold_no_secret(nodes: Nodes) -> None:
    owner = secret_node(nodes, "owner", config=DISCOVERY).start()
    member = nodes.make("member", config=DISCOVERY.split("secret = ")[0])
    member.start()
    line = owner.command("invite", member.key.hex()).stdout.decode().strip()
    assert member.command("join", line).returncode == 0
    do_everything(owner, member)
    for node in (owner, member):
        go_wrong(node)
        assert node.stop()
    logs = "".join(node.log_path.read_text(errors="replace") for node in (owner, member))
    assert "broke the protocol" in logs
    secrets = [owner.identity.seed, member.identity.seed, PASSPHRASE.encode(), MARK]
    found = [text for secret in secrets for text in spellings(secret) if text in logs]
    assert found == []


@pytest.mark.parametrize("secret", [os.urandom(32), MARK], ids=["key", "value"])
def test_a_log_that_held_one_would_be_found(secret: bytes) -> None:
    for log in (f"the seed {secret.hex()}", f"got {secret!r}", f"{list(secret)}"):
        assert any(text in log for text in spellings(secret))
