"""A feed's values as files of other tools: seconds of one core and memory, by format, and a file
that a node keeps."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import random
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nodes import BenchNode, memory_of, prefill, running

from hyperbloom.keys import Identity
from hyperbloom.outputs import FORMATS, Allowed, Counts, Rendering

__all__ = ["OUTPUTS_CASES"]

#: Values of one page, as the client gets them of a node.
PAGE = 10_000
#: What one million may take; the other formats are told.
MOST_SECONDS = {"hosts": 2.0}


def _names(count: int) -> list[bytes]:
    chosen = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    texts = ("".join(chosen.choices(letters, k=12)) + ".example.com" for _ in range(count))
    return sorted(text.encode() for text in texts)


def _addresses(count: int) -> list[bytes]:
    chosen = random.Random(2)
    texts = (str(ipaddress.IPv4Address(chosen.randrange(1 << 24, 127 << 24))) for _ in range(count))
    return sorted(text.encode() for text in texts)


def _pages(values: list[bytes]) -> Iterator[list[bytes]]:
    for at in range(0, len(values), PAGE):
        yield values[at : at + PAGE]


def _measure(name: str, scale: float) -> dict[str, Any]:
    """Once for the time, once more for what is taken of memory beyond the values."""
    count = int(1_000_000 * scale)
    kinds = getattr(FORMATS[name], "kinds", {"domain"})
    values = _names(count) if "domain" in kinds else _addresses(count)
    rendering, left_out = Rendering(allowed=Allowed(), serial=1), Counts()

    def render() -> int:
        return sum(map(len, FORMATS[name].file(_pages(values), rendering, left_out)))

    begun = time.process_time()
    size = render()
    seconds = time.process_time() - begun
    assert not left_out
    tracemalloc.start()
    render()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "format": name,
        "values": count,
        "bytes": size,
        "cpu_s": seconds,
        "memory_mib": peak / 1_048_576,
    }


def outputs_case(folder: Path, scale: float) -> Iterator[dict[str, Any]]:
    """One million names or addresses in each format, typing included."""
    for name in FORMATS:
        figures = _measure(name, scale)
        most = MOST_SECONDS.get(name)
        figures["ok"] = most is None or figures["cpu_s"] <= most
        if most is not None:
            figures["must"] = f"<= {most} s of one core"
        yield figures


class Meter:
    """The most memory of a node and of its children, looked at again and again in the block."""

    def __init__(self, node: BenchNode) -> None:
        self._node = node
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.node = self.child = self.child_all = 0

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.02):
            self.node = max(self.node, self._node.resident_bytes())
            for child in self._node.children():
                with contextlib.suppress(OSError, RuntimeError):
                    self.child = max(self.child, memory_of(child, "RssAnon"))
                    self.child_all = max(self.child_all, memory_of(child, "VmRSS"))


def _kept(folder: Path) -> tuple[str, Path, Path]:
    """An output in a configuration, its file, and the one that its command writes."""
    path, told = folder / "hosts", folder / "told"
    command = ["/bin/sh", "-c", f"echo >> {told}"]
    return (
        (
            f'\n[[outputs]]\nname = "hosts"\nformat = "hosts"\npath = "{path}"\n'
            f"command = {json.dumps(command)}\n"
        ),
        path,
        told,
    )


def _until_told(told: Path, before: int) -> None:
    deadline = time.perf_counter() + 60
    while not told.exists() or told.stat().st_size <= before:
        if time.perf_counter() > deadline:
            raise RuntimeError("the command was not run")
        time.sleep(0.005)


def _puts(node: BenchNode, told: Path | None, runs: int) -> list[float]:
    """Put one value after the other; seconds until the command was run for each."""
    seconds = []
    for number in range(runs):
        before = told.stat().st_size if told is not None else 0
        begun = time.perf_counter()
        with node.client() as client:
            client.put([b"put%d.example.com" % number], feed=node.feed.hex())
        if told is not None:
            _until_told(told, before)
        seconds.append(time.perf_counter() - begun)
        time.sleep(4.0)  # longer than it rests
    return seconds


def kept_case(folder: Path, scale: float) -> Iterator[dict[str, Any]]:
    """A node with one million values, with and without a `hosts` file of them: one value put."""
    values = _names(int(1_000_000 * scale))
    plain = 0
    for kept in (False, True):
        place = folder / ("kept" if kept else "plain")
        node = BenchNode(place, Identity(b"o" * 32), Identity(b"o" * 32).public_key)
        more, path, told = _kept(place)
        node.prepare(more=more if kept else "")
        prefill(place, node.identity, node.feed, _pages(values))
        with running(node), Meter(node) as meter:
            if kept:
                _until_told(told, 0)
            time.sleep(4.0)
            node.stall()
            seconds = _puts(node, told if kept else None, 3)
            stall = node.stall()
        if not kept:
            plain = meter.node
            continue
        assert path.read_bytes().count(b"\n") == len(values) + len(seconds)
        mib = 1_048_576
        yield {
            "values": len(values),
            "seconds": max(seconds),
            "seconds_of_each": [round(one, 3) for one in seconds],
            "stall_ms": stall * 1e3,
            "node_mib": meter.node / mib,
            "more_than_without_mib": (meter.node - plain) / mib,
            "child_mib": meter.child / mib,
            "child_with_mapped_pages_mib": meter.child_all / mib,
            "must": "<= 2 s, stalls <= 50 ms, + 50 MiB with the child",
            "ok": max(seconds) <= 2.0
            and stall <= 0.05
            and meter.node - plain + meter.child <= 50 * mib,
        }


OUTPUTS_CASES = {"outputs": outputs_case, "outputs-kept": kept_case}
