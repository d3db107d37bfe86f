"""A feed's values as files of other tools: seconds of one core and memory, by format."""

from __future__ import annotations

import ipaddress
import random
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


OUTPUTS_CASES = {"outputs": outputs_case}
