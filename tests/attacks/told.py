"""What a node tells of the connections that it closed."""

from __future__ import annotations

import re
import socket
from collections import Counter

from nodes import RealNode, wait_until


def metrics_of(node: RealNode) -> str:
    """What the node says at `/metrics`."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(str(node.folder / "control.sock"))
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := sock.recv(65_536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
    return answer.decode()


def closings(node: RealNode) -> Counter[str]:
    """How many connections the node has closed since its start, by kind: of its metrics."""
    found = re.findall(
        r'^hyperbloom_connections_refused_total\{reason="([a-z-]+)"\} (\d+)',
        metrics_of(node),
        re.MULTILINE,
    )
    return Counter({kind: int(number) for kind, number in found})


def wait_for_closing(node: RealNode, kind: str, before: Counter[str], times: int = 1) -> None:
    """Until the node has closed so many more connections of this kind, and none of another."""

    def more() -> Counter[str]:
        return closings(node) - before

    wait_until(lambda: more().total() >= times, 10, f"a connection closed: {kind}")
    assert set(more()) == {kind}, more()
