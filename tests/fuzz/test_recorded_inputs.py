"""Each seed and each case that was ever found, given to its target again; needs no atheris.

That a case is here means that it is fixed: a target raises whatever is not its decoder's own error.
"""

from __future__ import annotations

import gc
import importlib
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from fuzz_targets import TARGETS, seed_files

RECORDED = [(target, path) for target in TARGETS for path in seed_files(target)]

#: Bytes that the same inputs may hold on to beyond what the round before held. A leak of a few
#: bytes an input is more.
MAX_HELD_BYTES = 200_000
ROUNDS = 3
CHANGED = 60


def fuzz_of(target: str) -> Callable[[bytes], bool]:
    fuzz: Callable[[bytes], bool] = importlib.import_module(f"fuzz_targets.{target}").fuzz
    return fuzz


@pytest.mark.parametrize(
    ("target", "path"), RECORDED, ids=[f"{target}-{path.name}" for target, path in RECORDED]
)
def test_a_recorded_input(target: str, path: Path) -> None:
    taken = fuzz_of(target)(path.read_bytes())
    if path.parent.parent.name == "seeds":
        # A seed that is refused at once leads nowhere: tests/fuzz/write_seeds.py makes it anew.
        assert taken is not path.name.startswith("refused-")


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_seeds_and_a_part_of_the_long_run(target: str) -> None:
    module = importlib.import_module(f"fuzz_targets.{target}")
    names = {path.name for path in seed_files(target)}
    assert names >= set(module.seeds())
    assert all(len(path.read_bytes()) <= module.MAX_BYTES for path in seed_files(target))
    assert module.RUNS > 0


def test_the_parts_of_the_long_run_are_a_whole() -> None:
    runs = [importlib.import_module(f"fuzz_targets.{target}").RUNS for target in TARGETS]
    assert sum(runs) == 1_000


def test_the_recorded_inputs_are_small() -> None:
    assert sum(path.stat().st_size for _, path in RECORDED) < 200_000


def changed(data: bytes, chance: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(3):
            case 0 if out:
                out[at % len(out)] ^= 1 << chance.randrange(8)
            case 1:
                del out[at : at + chance.randrange(1, 5)]
            case _:
                out[at:at] = chance.randbytes(chance.randrange(1, 5))
    return bytes(out)


# What a child reads holds nothing here.
@pytest.mark.parametrize("target", [name for name in TARGETS if name != "snapshot_pages"])
def test_nothing_grows_with_the_number_of_inputs(target: str) -> None:
    fuzz = fuzz_of(target)
    chance = random.Random(11)
    seeds = [path.read_bytes() for path in seed_files(target)]
    inputs = seeds + [changed(chance.choice(seeds), chance) for _ in range(CHANGED)]
    held = []
    tracemalloc.start()
    try:
        for _ in range(1 + ROUNDS):
            for data in inputs:
                fuzz(data)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # The first round fills caches.
    assert held[-1] - held[1] < MAX_HELD_BYTES, held


def test_growth_would_be_seen() -> None:
    kept: list[bytes] = []
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(ROUNDS * CHANGED):
            kept.append(bytes(2_000))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown > MAX_HELD_BYTES
