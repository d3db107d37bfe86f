"""Runs the cases named on the command line (all without a name); a JSON line or several each."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from cases import CASES, run_case
from crowd import Size


def matching(name: str) -> list[str]:
    """A case by its name, or a family of them by the beginning of theirs (`hostile`)."""
    return [name] if name in CASES else [case for case in CASES if case.startswith(f"{name}-")]


def main() -> int:
    """The exit code is 1 when a case did not reach what it must."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--runs", type=int, default=1, help="times each case is run")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the inputs, 1 is full")
    parser.add_argument("--folder", type=Path, help="where the stores are made (a real disk)")
    parser.add_argument(
        "--peers", type=int, default=Size.peers, help="members of a crowd, at scale 1"
    )
    options = parser.parse_args()
    Size.peers = options.peers
    names = [case for name in options.cases for case in (matching(name) or [name])]
    unknown = [name for name in names if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    all_ok = True
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for name in names or CASES:
            for _ in range(options.runs):
                for figures in run_case(name, Path(folder), options.scale):
                    all_ok = all_ok and figures["ok"]
                    rounded = {
                        k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()
                    }
                    print(json.dumps(rounded), flush=True)
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
