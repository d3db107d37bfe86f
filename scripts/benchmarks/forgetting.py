"""Forgetting: how fast, how long others wait for a step, and what it costs to keep values away."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hyperbloom.store import (
    AppendValues,
    ForgetValues,
    PutFeed,
    RestoreValues,
    Store,
    WriterInline,
)
from hyperbloom.store.backup.compaction import compact_store
from hyperbloom.store.limits import FORGET_STEP

__all__ = ["forgetting_case"]

FEED, ORIGIN = b"f" * 32, b"o" * 32


class _Bench:
    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder / "store")
        self._writer = WriterInline(self.store)

    def do(self, operation: Any) -> Any:
        results: list[Any] = []
        self._writer.submit(operation, results.append)
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    def steps(self, kind: Any, values: Sequence[bytes], **more: bool) -> list[float]:
        """The seconds of each step."""
        seconds = []
        for start in range(0, len(values), FORGET_STEP):
            operation = kind(FEED, values[start : start + FORGET_STEP], **more)
            begun = time.perf_counter()
            self.do(operation)
            seconds.append(time.perf_counter() - begun)
        return seconds

    def append(self, values: Sequence[bytes]) -> float:
        begun = time.perf_counter()
        for start in range(0, len(values), 5_000):
            self.do(AppendValues(FEED, values[start : start + 5_000], ORIGIN, 1))
        return time.perf_counter() - begun

    def walk(self) -> float:
        """Seconds to read what a whole Sync plan lists."""
        begun = time.perf_counter()
        start: bytes | None = b""
        while start is not None:
            start = self.store.settled_slice(FEED, start, limit=8_192, max_bytes=1 << 20).next_start
        return time.perf_counter() - begun


def forgetting_case(folder: Path, scale: float) -> dict[str, Any]:
    """A third of a feed is forgotten, comes again, is brought back, and is erased; then compact."""
    numbers = random.Random(1)
    count = max(6_000, int(300_000 * scale))
    values = sorted(numbers.randbytes(40) for _ in range(count))
    bench = _Bench(folder)
    bench.do(PutFeed(FEED, {}))
    bench.append(values)
    walked = bench.walk()
    third = values[::3]
    forgetting = bench.steps(ForgetValues, third)
    figures = {
        "forgotten_per_second": len(third) / sum(forgetting),
        "longest_step_seconds": max(forgetting),
        "refused_per_second": len(third) / bench.append(third),
        "walk_seconds": walked,
        "walk_with_forgotten_seconds": bench.walk(),
        "brought_back_per_second": len(third) / sum(bench.steps(RestoreValues, third)),
    }
    erasing = bench.steps(ForgetValues, third, erase=True)
    bench.store.close()
    begun = time.perf_counter()
    done = compact_store(folder / "store")
    return {
        **figures,
        "values": count,
        "erased_per_second": len(third) / sum(erasing),
        "compact_seconds": time.perf_counter() - begun,
        "bytes_before": done.before,
        "bytes_after": done.after,
        "must": ">= 5,000 forgotten a second",
        "ok": figures["forgotten_per_second"] >= 5_000,
    }
