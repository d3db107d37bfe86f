"""Writes tests/fuzz/seeds anew from what each target's `seeds` gives.

    python tests/fuzz/write_seeds.py [TARGET…]

Seeds are recorded data: they are written once and stay as they are, until a format changes and the
tests say that a seed is not taken any more. Seeds that are taken are left alone.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))


def write(name: str) -> int:
    """Write the seeds of a target that are missing or not taken any more; how many they were."""
    target = importlib.import_module(f"fuzz_targets.{name}")
    folder = FOLDER / "seeds" / name
    folder.mkdir(parents=True, exist_ok=True)
    seeds = target.seeds()
    for path in folder.iterdir():
        if path.name not in seeds:
            path.unlink()
    written = 0
    for seed, data in seeds.items():
        path = folder / seed
        if not path.exists() or not target.fuzz(path.read_bytes()):
            path.write_bytes(data)
            written += 1
    return written


if __name__ == "__main__":
    from fuzz_targets import TARGETS

    for each in sys.argv[1:] or TARGETS:
        print(f"{each}: {write(each)} seeds written")
