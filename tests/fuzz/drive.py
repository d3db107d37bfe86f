"""Fuzzes one target by coverage, with atheris (libFuzzer for Python).

    python tests/fuzz/drive.py TARGET [--seconds S] [--runs N] [--seed N] [--corpus FOLDER]

Only hyperbloom's own modules are measured. Inputs that reach something new are kept in the corpus
folder and are where the next run begins. A finding is written there as `crash-…`, its traceback is
printed, and the exit code is not 0.

Beside what a target asserts, no input may take more than MAX_CPU_SECONDS or raise the memory of the
process by more than MAX_INPUT_BYTES, and all of them together not by more than MAX_GROWTH_BYTES.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent
MEASURED: Final = "hyperbloom"

MAX_CPU_SECONDS: Final = 5.0
"""CPU of one input, which has a few KB. It is measured code, three to ten times slower than usual;
what costs the square of its length takes minutes."""

MAX_INPUT_BYTES: Final = 64 << 20
"""Memory that one input adds to the process's peak. The largest that anything here is allowed is
a payload of 4 MiB and what it is built into."""

MAX_GROWTH_BYTES: Final = 384 << 20
"""What the peak may rise above that of the first inputs: the corpus, which libFuzzer keeps in
memory, and caches that are bounded."""

FIRST_INPUTS: Final = 200

HANG_SECONDS: Final = 1_200
"""Seconds of the clock after which libFuzzer ends an input that does not return. A machine that has
much other work leaves the process without any for minutes."""


class TooMuch(Exception):
    """An input took more time or memory than any may."""


def peak_bytes() -> int:
    """The most memory the process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


class Watched:
    """A target's `fuzz` with the bounds on what an input may take."""

    def __init__(self, fuzz: Callable[[bytes], bool]) -> None:
        self._fuzz = fuzz
        self._count = 0
        self._base = self._peak = peak_bytes()

    def __call__(self, data: bytes) -> None:
        began = time.process_time()
        self._fuzz(data)
        took = time.process_time() - began
        before, self._peak = self._peak, peak_bytes()
        self._count += 1
        if self._count <= FIRST_INPUTS:
            self._base = self._peak
        if took > MAX_CPU_SECONDS:
            raise TooMuch(f"{took:.1f} s for {len(data)} bytes")
        if self._count > 1 and self._peak - before > MAX_INPUT_BYTES:
            raise TooMuch(f"{self._peak - before:,} bytes of memory for {len(data)} bytes")
        if self._peak - self._base > MAX_GROWTH_BYTES:
            raise TooMuch(f"{self._peak - self._base:,} bytes more than after the first inputs")


def load_target(name: str) -> Any:
    """A target of `fuzz_targets`, or a module at a path."""
    if not name.endswith(".py"):
        return importlib.import_module(f"fuzz_targets.{name}")
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="a module of tests/fuzz/fuzz_targets, or the path of one")
    parser.add_argument("--seconds", type=int, default=60, help="0: no limit (with --runs)")
    parser.add_argument("--runs", type=int, default=-1, help="inputs at most; -1: no limit")
    parser.add_argument("--seed", type=int, default=20_261_121)
    parser.add_argument("--corpus", type=Path, help="kept between runs; made if it is not there")
    return parser.parse_args()


def main() -> None:
    """Run, and do not return: libFuzzer ends the process."""
    import atheris

    sys.path.insert(0, str(FOLDER))
    told = options()
    corpus = told.corpus or FOLDER.parents[1] / ".cache" / "fuzz" / Path(told.target).stem
    corpus.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=[MEASURED]):
        target = load_target(told.target)
    folders = [FOLDER / kind / told.target for kind in ("seeds", "found")]
    arguments = [
        sys.argv[0],
        str(corpus),
        *(str(folder) for folder in folders if folder.is_dir()),
        f"-artifact_prefix={corpus}/",
        f"-max_len={target.MAX_BYTES}",
        f"-max_total_time={told.seconds}",
        f"-runs={told.runs}",
        f"-seed={told.seed}",
        f"-timeout={HANG_SECONDS}",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        "-use_value_profile=0",
    ]
    atheris.Setup(arguments, Watched(target.fuzz))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
