"""A local user without the token, against the API of a real node."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from pathlib import Path

import pytest
from nodes import RealNode, free_port
from stranger import Stranger, request

from hyperbloom.client.client import Client

LONG_HEAD = 1_090_000


@pytest.fixture
def node(nodes) -> RealNode:
    port = free_port()
    made = nodes.make("node", config=f'[api]\nlisten = "127.0.0.1:{port}"\n').start()
    made.api_port = port
    return made


def busy_seconds(node: RealNode) -> float:
    """Processor time of the node until now."""
    fields = Path(f"/proc/{node.process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def over_tcp(node: RealNode) -> Client:
    return Client.over_tcp(f"127.0.0.1:{node.api_port}", node.folder / "api.token", timeout=240)


def test_long_heads_in_small_parts(node):
    """Each byte that is added to a long line costs a copy of the line: 4.6 KB held a node 0.4 s."""
    strangers = [Stranger(node.api_port, b"GET /" + b"x" * LONG_HEAD + b" ") for _ in range(60)]
    before = busy_seconds(node)
    for _ in range(77):
        for one in strangers:
            one.send(b"x")
    with node.client() as client:
        client.ping()
    spent = busy_seconds(node) - before
    ended = sum(one.look(1.0) for one in strangers)
    assert ended == 60, f"{ended} of 60 ended; 4,620 bytes kept the node busy for {spent:.2f} s"


@pytest.mark.timeout(600)
def test_connections_that_say_nothing(node):
    """More than there may be, with what was opened before them and what comes after them."""
    watching, asking = over_tcp(node), over_tcp(node)
    watch = watching.watch()
    assert next(watch) is None
    strangers = [
        Stranger(node.api_port, (b"", b"GET / HT", b"GET / HTTP/1.1\r\na: ")[n % 3])
        for n in range(400)
    ]
    node.put(b"over the control socket")
    assert list(asking.range()) == [b"over the control socket"]
    assert next(watch).value == b"over the control socket"
    # Those that are left have seconds, whatever they send meanwhile.
    for _ in range(240):
        for one in strangers:
            one.send(b"x")
        ended = [one.look() for one in strangers]
        if all(ended):
            break
        strangers[-1].look(0.25)
    assert all(one.ended for one in strangers), "connections without the token are kept"
    node.put(b"later")
    assert next(watch).value == b"later"
    assert asking.count()["count"] == 2
    assert "client" not in node.log_path.read_text()
    for client in (watching, asking):
        client.close()


def test_a_thousand_requests_at_once(node):
    """Sent in one piece, so that they come in one turn of the reactor."""
    with Stranger(node.api_port, request("GET", "/health", node.api_port) * 1_000) as one:
        one.look(2.0)
        assert one.got.count(b"HTTP/1.1 200") <= 1
        assert one.look(60.0)


def answer(node: RealNode, method: str, path: str, token: str = "", body: object = None) -> dict:
    """The status of an answer over TCP, and what it says."""
    asking = http.client.HTTPConnection("127.0.0.1", node.api_port, timeout=240)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    sent = None if body is None else json.dumps(body)
    if sent is not None:
        headers["Content-Type"] = "application/json"
    with contextlib.closing(asking):
        asking.request(method, path, sent, headers)
        got = asking.getresponse()
        return {"status": got.status, **json.loads(got.read())}


def test_a_session_that_leaked_ends_with_a_restart(node):
    """Out of a browser's profile, say: the operator restarts the node to cut it off."""
    with node.client() as client:
        code = client.offer_session()["code"]
    session = answer(node, "POST", "/v1/sessions/claim", body={"code": code})["token"]
    assert answer(node, "GET", "/v1/status", session)["status"] == 200
    token = (node.folder / "api.token").read_text()
    assert node.stop()
    node.start()
    assert (node.folder / "api.token").read_text() == token
    assert answer(node, "GET", "/v1/status", token.strip())["status"] == 200
    assert answer(node, "GET", "/v1/status", session)["status"] == 401
