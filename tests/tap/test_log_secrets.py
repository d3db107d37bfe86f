"""Logs hold no secret: nodes at level debug use each rightly and wrongly, and say nothing of it."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import HYPERBLOOM, TWISTD, Nodes, RealNode, free_port, real_nodes, wait_until

from hyperbloom.exit_codes import ExitCode

PATIENCE = 240.0
PASSPHRASE = "correct-horse-battery-staple-of-this-test"
MARK = b"value-that-no-log-may-hold"
#: What a node of another pool has.
OTHER_PASSPHRASE = "another-horse-that-does-not-fit"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


@pytest.fixture
def dht_port() -> Iterator[int]:
    """A DHT node by which others find each other."""
    process = subprocess.Popen(
        [HYPERBLOOM, "dht", "bootstrap", "--port", "0", "--interface", "127.0.0.1"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
    assert found is not None
    yield int(found[1])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)


class SecretNode:
    """A node with an API token and passphrases for discovery and for its pool."""

    def __init__(
        self,
        nodes: Nodes,
        name: str,
        dht_port: int,
        *,
        dials: int = 0,
        passphrase: str = PASSPHRASE,
        feed: str | None = None,
        node: str = "",
    ) -> None:
        self.api_port, self.pool_port = free_port(), free_port()
        peers = [f"127.0.0.1:{dials}"] if dials else []
        self.node = nodes.make(
            name,
            feed=feed,
            node=node,
            config=f"""
[api]
listen = "127.0.0.1:{self.api_port}"
[discovery]
enabled = true
bootstrap = ["127.0.0.1:{dht_port}"]
port = 0
interface = "127.0.0.1"
lan = "off"
secret = "passphrase"
[objects]
enabled = true
listen = ["tcp:{self.pool_port}:interface=127.0.0.1"]
peers = {json.dumps(peers)}
retry_first = 0.1
passphrase_file = "passphrase"
""",
        )
        secret = self.node.folder / "passphrase"
        secret.write_text(passphrase + "\n")
        secret.chmod(0o600)

    @property
    def token(self) -> str:
        return (self.node.folder / "api.token").read_text().strip()

    def ask(
        self, path: str, authorization: str, method: str = "GET", body: object = None
    ) -> tuple[int, dict]:
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=PATIENCE)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Authorization": authorization})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def objects(self) -> dict:
        with self.node.client() as client:
            return dict(client.status()["objects"])


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
    member.wait_for_count(owner.feed_key, 51)
    member.put(MARK + b" of the member", feed=owner.feed_key)
    owner.wait_for_count(owner.feed_key, 52)
    for node in (owner, member):
        mark = MARK.decode()
        for command in (
            ("get", "--start", mark, owner.feed_key.hex()),
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
        client.discovery()
        path = f"/v1/feeds/-/values?start={MARK.hex()}&limit=x"
        for method, target, body in (
            ("GET", path, None),
            ("POST", "/v1/feeds/-/values", {"values": [MARK.hex(), 7]}),
            ("POST", "/v1/feeds/-/values", {MARK.decode(): MARK.decode()}),
        ):
            client._connection.request(method, target, str(body) if body else None)
            client._connection.getresponse().read()
    with socket.create_connection(("127.0.0.1", node.port)) as stranger:
        stranger.sendall(b"\x00\x00\x40" + MARK * 10)
        stranger.recv(100)
    node.config_path.write_text(f'[node]\nidentity = "{MARK.decode()}\n')
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "not taken" in node.log_path.read_text(), PATIENCE, "the file is refused")


def use_the_token(owner: SecretNode) -> list[str]:
    """Rightly and wrongly; the code and the session that came of it."""
    token = owner.token
    assert owner.ask("/v1/status", f"Bearer {token}")[0] == 200
    for wrong in (f"Bearer {token}x", f"Basic {token}", token, f"Bearer {token[:-1]}"):
        assert owner.ask("/v1/status", wrong)[0] == 401
    assert owner.ask(f"/v1/{token}", f"Bearer {token}")[0] == 404
    assert owner.ask(f"/v1/peers?token={token}", f"Bearer {token}")[0] == 400
    claim = "/v1/sessions/claim"
    assert owner.ask(claim, "Bearer x", "POST", {"code": token})[0] == 401
    status, offer = owner.ask("/v1/sessions", f"Bearer {token}", "POST", {})
    assert status == 201
    connection = http.client.HTTPConnection("127.0.0.1", owner.api_port, timeout=PATIENCE)
    connection.request("POST", claim, json.dumps({"code": offer["code"]}))
    session = json.loads(connection.getresponse().read())["token"]
    connection.close()
    assert owner.ask("/v1/status", f"Bearer {session}")[0] == 200
    assert owner.ask("/v1/sessions", f"Bearer {session}", "POST", {})[0] == 403
    return [token, offer["code"], session]


def use_the_passphrases(owner: SecretNode, member: SecretNode, stranger: SecretNode) -> None:
    """The pool's: two nodes share an object, and one with another passphrase is refused."""
    with owner.node.client() as client:
        client.add_object({"word": MARK.decode()})
    wait_until(lambda: member.objects()["count"] == 1, PATIENCE, "the member has the object")
    stranger.node.start()
    wait_until(
        lambda: "is the passphrase the same" in owner.node.log_path.read_text(), PATIENCE, "refused"
    )
    assert stranger.objects()["count"] == 0


def take_out_of_the_file(node: RealNode, text: str) -> None:
    """A feed without an alias, which the node has to call something."""
    node.config_path.write_text(text)
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "read anew" in node.log_path.read_text(), PATIENCE, "the file is read")


def spoil_the_secrets(node: RealNode) -> None:
    """Files that hold a secret and something else, for a node that runs and for one that starts."""
    key = node.folder / "identity.key"
    good = key.read_text()
    key.write_text(good.strip() + "zz\n")
    told = node.log_path.read_text().count("not taken")
    node.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: node.log_path.read_text().count("not taken") > told, PATIENCE, "the key is refused"
    )
    key.write_text(good)


def fails_to_start(node: RealNode) -> str:
    """What a node says whose passphrase and token are no single line."""
    said = ""
    for name in ("passphrase", "api.token"):
        path = node.folder / name
        good = path.read_text()
        path.write_text(good + good)
        done = subprocess.run(
            [TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            cwd=node.folder, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == ExitCode.CONFIG, done.stdout
        said += done.stdout
        path.write_text(good)
    return said


def fields_of(node: RealNode) -> str:
    """What stands in a log of JSON, not as JSON spells it."""
    lines = [json.loads(line) for line in node.log_path.read_text().splitlines()]
    assert any("peer" in line for line in lines)
    return "\n".join(str(told) for line in lines for told in line.values())


def test_logs_hold_no_secret(nodes: Nodes, dht_port: int) -> None:
    owner = SecretNode(nodes, "owner", dht_port, feed="words")
    feed = owner.node.feed_key
    owner.node.start()
    member = SecretNode(
        nodes, "member", dht_port, dials=owner.pool_port, node='log_format = "json"'
    )
    stranger = SecretNode(
        nodes, "stranger", dht_port, dials=owner.pool_port, passphrase=OTHER_PASSPHRASE
    )
    text = member.node.config_path.read_text()
    member.node.config_path.write_text(f'{text}\n[[feeds]]\nkey = "{feed.hex()}"\n')
    member.node.start()
    with owner.node.client() as client:
        link = client.issue_link(member.node.key, expires=time.time() + 86_400)
        invitation = client.invite(member.node.key, expires=time.time() + 86_400)["invitation"]
    with member.node.client() as client:
        client.accept(invitation)
        client.add_links([bytes.fromhex(link["link"])], feed=feed.hex())
    # They know no address: only records sealed with the passphrase bring them together.
    do_everything(owner.node, member.node)
    secrets = use_the_token(owner)
    use_the_passphrases(owner, member, stranger)
    take_out_of_the_file(member.node, text)
    for node in (owner.node, member.node):
        start_of_file = node.config_path.read_text()
        spoil_the_secrets(node)
        go_wrong(node)
        assert node.stop()
        node.config_path.write_text(start_of_file)
    assert stranger.node.stop()
    logs = fails_to_start(owner.node) + fields_of(member.node)
    for one in (owner, member, stranger):
        logs += one.node.log_path.read_text(errors="replace")
        secrets += (one.token, one.node.identity.seed.decode("latin-1"))
    assert ": closed, " in logs  # what `go_wrong` sent is told of
    # Whoever knows a feed's key can read it: its pair's public half is a secret to a log, too.
    secrets += (feed.decode("latin-1"), owner.node.pair.seed.decode("latin-1"), invitation[11:])
    secrets += (PASSPHRASE, OTHER_PASSPHRASE, MARK.decode())
    hidden = {text for one in secrets for text in spellings(one.encode("latin-1"))}
    assert [text for text in hidden if text in logs] == []


@pytest.mark.parametrize("secret", [os.urandom(32), MARK], ids=["key", "value"])
def test_a_log_that_held_one_would_be_found(secret: bytes) -> None:
    for log in (f"the seed {secret.hex()}", f"got {secret!r}", f"{list(secret)}"):
        assert any(text in log for text in spellings(secret))
