"""An input of a running node: the first import, a list that is as it was, one that changed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodes import BenchNode, prefill, running

from hyperbloom.client.client import Client
from hyperbloom.keys import Identity

__all__ = ["node_inputs_case"]

OWNER = Identity(b"o" * 32)


def _names(count: int, seed: int) -> list[bytes]:
    chosen = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return [
        ("".join(chosen.choices(letters, k=12)) + ".example.com").encode() for _ in range(count)
    ]


def _write(path: Path, names: list[bytes]) -> None:
    aside = path.with_suffix(".aside")
    aside.write_bytes(b"\n".join(names) + b"\n")
    os.replace(aside, path)


class _Peak:
    """The most memory of its own that a node has meanwhile."""

    def __init__(self, node: BenchNode) -> None:
        self._node = node
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.bytes = 0

    def _look(self) -> None:
        while not self._is_over.wait(0.05):
            self.bytes = max(self.bytes, self._node.resident_bytes())

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def _run(node: BenchNode, what: str, most: float | None = None) -> dict[str, Any]:
    node.stall()
    cpu, before = node.cpu_seconds(), node.resident_bytes()
    with _Peak(node) as peak, Client(node.folder / "control.sock", timeout=280) as client:
        begun = time.perf_counter()
        figures = client.run_integration("input", "list")["figures"]
        seconds = time.perf_counter() - begun
    stall = node.stall()
    must = "no stall above 50 ms" if most is None else f"<= {most} s, no stall above 50 ms"
    return {
        "run": what,
        "values": figures["values"],
        "new": figures["new"],
        "gone": figures["gone"],
        "seconds": seconds,
        "node_cpu_s": node.cpu_seconds() - cpu,
        "stall_ms": stall * 1e3,
        "memory_mib": (peak.bytes - before) / 1_048_576,
        "must": must,
        "ok": stall <= 0.05 and (most is None or seconds <= most),
    }


def node_inputs_case(folder: Path, scale: float) -> Iterator[dict[str, Any]]:
    """A list of one million names, which a node reads for the first time and again."""
    count = int(1_000_000 * scale)
    path = folder / "list.txt"
    node = BenchNode(folder / "node", OWNER, OWNER.public_key)
    node.prepare()
    prefill(node.folder, OWNER, node.feed, [])
    with (node.folder / "hyperbloom.toml").open("a") as config:
        config.write('tombstones = "owner"\n\n[[inputs]]\nname = "list"\n')
        config.write(f'path = "{path}"\nevery = 86400\n')
    names = _names(count, 1)
    _write(path, names[:1])
    with running(node):
        yield _run(node, "one value")
        _write(path, names)
        yield _run(node, "the first import")
        yield _run(node, "unchanged", 2.0)
        _write(path, names)
        yield _run(node, "written anew, with the same in it", 2.0)
        _write(path, names[100:] + _names(100, 2))
        yield _run(node, "100 came, 100 went")
        _write(path, names[100 + count // 10 :] + _names(100, 2))
        yield _run(node, "a tenth went")
