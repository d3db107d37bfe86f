"""A process that inserts, forgets and keeps sketches is killed; what is kept fits all the same."""

import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from sketch_players import FEED, check, keep, set_limits, settled

from hyperbloom.store import Store

LIMITS = {"RUN_VALUES": 300, "SKETCH_STEP": 100, "SKETCH_TRIES": 1 << 30}

SCRIPT = f"""
import os, sys
from pathlib import Path
from sketch_players import FEED, ORIGIN, keep_one, run, set_limits
from hyperbloom.store import *

set_limits(setattr, **{LIMITS})
store = Store.open(Path(sys.argv[1]), map_bytes=1 << 20)
run(store, PutFeed(FEED, {{}}))
os.write(1, b"ready\\n")
number = int(sys.argv[2]) * 1_000_000
while True:
    values = [b"%09d" % n + b"x" * (n % 3 * 300) for n in range(number, number + 100)]
    number += 100
    run(store, AppendValues(FEED, values, ORIGIN, number))
    run(store, ForgetValues(FEED, values[::7], erase=number % 200 == 0))
    old = [b"%09d" % n + b"x" * (n % 3 * 300) for n in range(number - 1500, number - 1000, 9)]
    run(store, ForgetValues(FEED, old, erase=number % 300 == 0))
    run(store, RestoreValues(FEED, old[::2]))
    keep_one(store)
    store.sketch_step(FEED)
    os.write(1, b".")
"""


def write_until_killed(path: Path, number: int, rounds: int, seconds: float) -> None:
    """Let a process write: so often, and so long behind that."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(number)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[1],
    ) as writer:
        assert writer.stdout.readline() == b"ready\n"
        assert len(writer.stdout.read(rounds)) == rounds
        time.sleep(seconds)
        writer.kill()
    assert writer.returncode == -9


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
def test_what_is_kept_fits_after_each_kill(tmp_path, monkeypatch, kills):
    set_limits(monkeypatch.setattr, **LIMITS)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    for number in range(kills):
        rounds, seconds = chance.randrange(3, 12), chance.uniform(0, 0.05)
        write_until_killed(tmp_path / "store", number, rounds, seconds)
        with closing(Store.open(tmp_path / "store")) as store:
            check(store)
            keep(store)
            check(store)
            assert store.sketch_lag(FEED) < LIMITS["RUN_VALUES"]
            values = len(settled(store))
    # Far more than those that may be in no kept sketch yet.
    assert values > 2 * LIMITS["RUN_VALUES"]
