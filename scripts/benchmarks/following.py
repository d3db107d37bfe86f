"""The case of a streaming query: a running node's values into a table, over a kill of the query.

A value is behind from the moment the node has acknowledged it until a commit of the table names it.
The largest of these times is measured while the query runs, and again from where it has caught up
after the kill; what is between is Java's start and is told apart.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from nodes import BenchNode

from hyperbloom.keys import Identity

__all__ = ["following_case"]

RATE = 1_000
SECONDS = 60
PUTS_A_SECOND = 10
BEHIND = 5.0
PATIENCE = 120.0
OWNER = Identity(b"f" * 32)

#: The query, in a process of its own.
QUERY = """
import sys
from hyperbloom.export import append_batch, register, spark_session
url, table, checkpoint = sys.argv[1:]
with spark_session("local[2]") as spark:
    register(spark)
    rows = spark.readStream.format("hyperbloom").option("url", url).load()
    writer = rows.writeStream.foreachBatch(append_batch(table, query="bench"))
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
"""


class Following:
    """A query, the values put into its node, and when each of them was in the table."""

    def __init__(self, folder: Path, node: BenchNode) -> None:
        self.table = folder / "live" / "values"
        self.values: list[bytes] = []
        self._put_at: list[float] = []
        self._node = node
        self._client = node.client()
        self._numbers = random.Random(1)
        self._arguments = [
            f"unix:{node.folder}/control.sock", str(self.table), str(folder / "checkpoint"),
        ]  # fmt: skip
        self._log = folder / "query.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._version = 0
        self._seen = 0
        #: When a commit was seen, and how far the oldest value in it was behind then.
        self.commits: list[tuple[float, float]] = []

    def start(self) -> None:
        """Start the query."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", QUERY, *self._arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """End it with -9, and its Java."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def put(self, count: int) -> None:
        """Put new values into the node, which has them on disk then."""
        values = [self._numbers.randbytes(self._numbers.randint(20, 200)) for _ in range(count)]
        self._client.put(values, feed=self._node.feed.hex())
        self.values += values
        self._put_at += [time.perf_counter()] * count

    def look(self) -> bool:
        """See what has been committed; whether all that was put is in the table."""
        while True:
            log = self.table / "_delta_log" / f"{self._version:020}.json"
            if not log.exists():
                return self._seen == len(self.values)
            self._version += 1
            actions = map(json.loads, log.read_text().splitlines())
            stats = [action["add"]["stats"] for action in actions if "add" in action]
            rows = sum(json.loads(text)["numRecords"] for text in stats)
            if rows:
                now = time.perf_counter()
                self.commits.append((now, now - self._put_at[self._seen]))
                self._seen += rows

    def wait(self) -> float:
        """Wait until all is in the table; the seconds."""
        begun = time.perf_counter()
        while not self.look():
            running = self._process is not None and self._process.poll() is None
            if not running or time.perf_counter() - begun > PATIENCE:
                raise RuntimeError(self._log.read_text()[-2_000:])
            time.sleep(0.02)
        return time.perf_counter() - begun

    @property
    def keeps_up(self) -> bool:
        """Whether the newest commit came in time."""
        return bool(self.commits) and self.commits[-1][1] <= BEHIND

    def feed(self, seconds: float, *, until_it_keeps_up: bool = False) -> None:
        """Put values at the rate for so long, whatever the query does."""
        begun, put = time.perf_counter(), 0
        while (now := time.perf_counter()) < begun + seconds:
            if until_it_keeps_up and self.keeps_up:
                return
            if put < (now - begun) * PUTS_A_SECOND:
                self.put(RATE // PUTS_A_SECOND)
                put += 1
            self.look()
            time.sleep(0.02)

    def lost_and_doubled(self) -> tuple[int, int]:
        """How many values the table lacks, and how many it has more than once."""
        found = DeltaTable(str(self.table)).to_pyarrow_dataset().to_table(["value"])
        counts = Counter(found.column("value").to_pylist())
        return len(set(self.values) - counts.keys()), sum(counts.values()) - len(counts)


def following_case(folder: Path, scale: float) -> dict[str, Any]:
    """1,000 values a second for 60 seconds, the query killed in the middle."""
    seconds = max(20.0, SECONDS * scale)
    node = BenchNode(folder / "node", OWNER, OWNER.public_key)
    node.prepare()
    node.start(tac=False)
    following = Following(folder, node)
    try:
        following.start()
        following.put(1)
        start_s = following.wait()
        following.commits.clear()
        following.feed(seconds / 2)
        before = [behind for _, behind in following.commits]
        following.kill()
        killed_at = time.perf_counter()
        following.commits.clear()
        following.start()
        following.feed(PATIENCE, until_it_keeps_up=True)
        caught_up_s = time.perf_counter() - killed_at
        commits = len(before) + len(following.commits)
        following.commits.clear()
        following.feed(seconds / 2)
        following.wait()
        lost, doubled = following.lost_and_doubled()
    finally:
        following.kill()
        node.stop()
    after = [behind for _, behind in following.commits]
    return {
        "values": len(following.values),
        "behind_before_kill_s": max(before),
        "behind_after_kill_s": max(after),
        "commits": commits + len(after),
        "start_s": start_s,
        "kill_to_caught_up_s": caught_up_s,
        "lost": lost,
        "doubled": doubled,
        "must": f"<= {BEHIND:g} s behind, but for the kill; nothing lost, nothing twice",
        "ok": max(*before, *after) <= BEHIND and lost == doubled == 0,
    }
