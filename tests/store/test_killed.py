"""A process that writes is killed at random moments; what it acknowledged is there."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hyperbloom.store import Store

FEED = b"f" * 32
ROUNDS = 20

SCRIPT = """
import os, sys, threading
from pathlib import Path
from hyperbloom.store import *

FEED, ORIGIN = b"f" * 32, b"o" * 32
round_number = int(sys.argv[2])
store = Store.open(Path(sys.argv[1]), map_bytes=1 << 17)
writer = Writer(store, deliver=lambda answer: answer())
writer.submit(PutFeed(FEED, {}), lambda result: None)
waiting = threading.Semaphore(8)

def answered(result):
    if isinstance(result, BaseException):
        os._exit(3)
    names = [value.strip(b"xy") for value in result.values]
    os.write(1, b"".join(b"%s\\n" % name for name in names))
    waiting.release()

os.write(1, b"ready\\n")
number = 0
while True:
    values = []
    for _ in range(1 + number % 7):
        number += 1
        name = b"%03d-%06d-" % (round_number, number)
        # Short ones, long ones, and long ones that share their first two parts.
        form = number % 3
        values.append((name, name + b"x" * 900, b"y" * 1200 + name)[form])
    waiting.acquire()
    writer.submit(AppendValues(FEED, values, ORIGIN, number), answered)
"""


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    path = tmp_path / "store"
    acknowledged: set[bytes] = set()
    for number in range(ROUNDS):
        said = kill_a_writer(path, number, chance.uniform(0.01, 0.25))
        acknowledged |= said
        store = Store.open(path)
        stored = {r.value.strip(b"xy") for r in all_records(store)}
        missing = acknowledged - stored
        report = store.verify()
        store.close()
        assert missing == set()
        assert report.problems == []
    assert len(acknowledged) > ROUNDS


FORGET_SCRIPT = """
import os, sys
from pathlib import Path
from hyperbloom.store import *

FEED, ORIGIN = b"f" * 32, b"o" * 32
store = Store.open(Path(sys.argv[1]), map_bytes=1 << 17)
writer = WriterInline(store)
writer.submit(PutFeed(FEED, {}), lambda result: None)
os.write(1, b"ready\\n")
number = int(sys.argv[2]) * 1_000_000
while True:
    values = [b"%09d" % n + b"x" * (n % 3 * 600) for n in range(number, number + 50)]
    number += 50
    def said(result):
        if isinstance(result, BaseException):
            os._exit(3)
    writer.submit(AppendValues(FEED, values, ORIGIN, number), said)
    writer.submit(ForgetValues(FEED, values[::2], erase=number % 100 == 0), said)
    writer.submit(RestoreValues(FEED, values[::6]), said)
    gone = [v for i, v in enumerate(values) if i % 2 == 0 and i % 6]
    os.write(1, b"".join(v[:9] + b"\\n" for v in gone))
"""


@pytest.mark.slow
def test_a_kill_amid_forgetting_leaves_a_store_that_verifies(tmp_path):
    path = tmp_path / "store"
    forgotten: set[bytes] = set()
    for number in range(8):
        forgotten |= kill_a_writer(path, number, random.uniform(0.02, 0.3), FORGET_SCRIPT)
        store = Store.open(path)
        stored = {record.value[:9] for record in all_records(store)}
        report = store.verify()
        store.close()
        assert report.problems == []
        assert not stored & forgotten
    assert forgotten


def kill_a_writer(path: Path, number: int, seconds: float, script: str = SCRIPT) -> set[bytes]:
    """Let a process write for that long, kill it, and return the names it acknowledged."""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path), str(number)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as writer:
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(seconds)
        writer.kill()
        lines = writer.stdout.read().split(b"\n")
    assert writer.returncode == -9
    return set(lines[:-1])


def all_records(store: Store):
    after = 0
    while records := store.log_slice(FEED, after, limit=5_000, max_bytes=1 << 30).records:
        yield from records
        after = records[-1].seq
