"""What two nodes that hold the same cost each other while nothing changes."""

from __future__ import annotations

import time

from nodes import BenchNode, running

__all__ = ["steady_state"]

#: Two intervals of the default setting, with their jitter.
WATCHED_SECONDS = 130.0
#: The first comparison or plan, which is another matter, is over by then.
SETTLE_SECONDS = 15.0


def _moved(node: BenchNode) -> int:
    with node.client() as client:
        return sum(peer["bytes_in"] + peer["bytes_out"] for peer in client.peers())


def steady_state(one: BenchNode, two: BenchNode) -> dict[str, object]:
    """Bytes a minute between two prepared nodes, processor seconds a minute, stalls."""
    with running(one, two):
        deadline = time.perf_counter() + 60
        while not _moved(one) and time.perf_counter() < deadline:
            time.sleep(0.1)
        first = _moved(one)
        time.sleep(SETTLE_SECONDS)
        connected = _moved(one)
        nodes = (one, two)
        before = [node.cpu_seconds() for node in nodes]
        for node in nodes:
            node.stall()
        time.sleep(WATCHED_SECONDS)
        moved = _moved(one) - connected
        spent = [node.cpu_seconds() - was for node, was in zip(nodes, before, strict=True)]
        stalls = [node.stall() for node in nodes]
    a_minute = 60 / WATCHED_SECONDS
    return {
        "connecting_bytes": connected,
        "secure": first > 0,
        "bytes_per_minute": moved * a_minute,
        "cpu_s_per_minute": [round(seconds * a_minute, 3) for seconds in spent],
        "stall_ms": [round(stall * 1e3, 1) for stall in stalls],
        "must": "<= 10,000 bytes a minute",
        "ok": first > 0 and moved * a_minute <= 10_000,
    }
