"""Changes the package a little, many times, and tells which changes no test notices."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from calls import Calls, test_files
from mutants import Mutant, imports_twisted, mutants_of
from trials import Outcome, PackageCopy, record_calls, try_tests

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hyperbloom"
ROOMS = ("trust", "wire", "store", "replication", "objects", "discovery/dht", "discovery/tracker")
SECONDS_OF_TESTS = 30.0
"""So much of the room's tests that call a function is tried for each mutant of it, the quickest
first, and then so much of the tests elsewhere."""
START_SECONDS = 20.0
BUSY_MACHINE = 3
"""A trial may take START_SECONDS, and so many times what its tests took without a change."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument(
        "rooms",
        nargs="*",
        metavar="ROOM",
        help=f"folders or modules of hyperbloom/ ({' '.join(ROOMS)})",
    )
    parser.add_argument("--count", type=int, default=20, help="mutants of each room (20)")
    parser.add_argument("--seed", type=int, help="of the sample; one is drawn and printed")
    parser.add_argument(
        "--pure", action="store_true", help="only modules that do not import Twisted"
    )
    parser.add_argument(
        "--own", action="store_true", help="only the tests of the room's own folder"
    )
    parser.add_argument("--skip", type=int, default=0, help="leave out the first ones of a sample")
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--at", help="instead of a sample: PATH:LINE, such as trust/link.py:74")
    chosen = parser.parse_args()
    if chosen.at is not None and not chosen.rooms:
        chosen.rooms = [chosen.at.partition(":")[0].partition("/")[0]]
    chosen.rooms = [room.strip("/") for room in chosen.rooms or ROOMS]
    for room in chosen.rooms:
        if not (PACKAGE / room).exists():
            parser.error(f"there is no hyperbloom/{room}")
    return chosen


def sample(room: str, chosen: argparse.Namespace) -> list[Mutant]:
    place = PACKAGE / room
    modules = [
        path
        for path in ([place] if place.is_file() else sorted(place.rglob("*.py")))
        if not (chosen.pure and imports_twisted(path))
    ]
    mutants = [mutant for path in modules for mutant in mutants_of(path, PACKAGE)]
    if chosen.at is not None:
        return [one for one in mutants if f"{one.path}:{one.line}" == chosen.at]
    source = random.Random(f"{chosen.seed} {room}")
    return source.sample(mutants, min(chosen.count, len(mutants)))


class Session:
    """Tries mutants one after another, and counts."""

    def __init__(self, copy: PackageCopy, calls: Calls, *, only_own: bool) -> None:
        self._copy = copy
        self._calls = calls
        self._only_own = only_own
        self._tried: Counter[str] = Counter()
        self._unnoticed: dict[str, list[Mutant]] = {}
        self._witnesses: set[str] = set()

    def try_one(self, room: str, mutant: Mutant) -> None:
        outcome = self._outcome(room, mutant)
        self._tried[room] += 1
        if outcome.noticed:
            self._witnesses.add(outcome.by)
        else:
            self._unnoticed.setdefault(room, []).append(mutant)
        by = outcome.by.rpartition("/")[2]
        word = f"noticed ({by})" if outcome.noticed else "NOT NOTICED"
        print(f"{outcome.seconds:5.1f} s  {word}  {mutant}", flush=True)

    def _outcome(self, room: str, mutant: Mutant) -> Outcome:
        others = {one.function for one in mutants_of(PACKAGE / mutant.path, PACKAGE)}
        seconds = 0.0
        with self._copy.changed(mutant.path, mutant.source()):
            own, elsewhere = test_files(ROOT, room)
            for files in filter(None, (own, [] if self._only_own else elsewhere)):
                tests = self._tests(files, mutant.function, others)
                limit = START_SECONDS + BUSY_MACHINE * sum(cost for _, cost in tests)
                outcome = try_tests(self._copy, [one for one, _ in tests], limit=limit)
                seconds += outcome.seconds
                if outcome.noticed:
                    break
        return replace(outcome, seconds=seconds)

    def _tests(self, files: list[str], function: str, others: set[str]) -> list[tuple[str, float]]:
        """Tests that call the function; for what runs at the import, those that use its module."""
        for functions in ({function}, others, ()):
            tests = self._calls.tests_calling(files, functions, seconds=SECONDS_OF_TESTS)
            if tests:
                return tests
        raise SystemExit(f"no test of {files} passes as the sources are; run scripts/test first")

    def witnesses_hold(self) -> bool:
        """Whether the tests that failed for a mutant pass without a change."""
        tests = sorted(one for one in self._witnesses if "::" in one)
        if not tests:
            return True
        outcome = try_tests(self._copy, tests, limit=START_SECONDS + 10 * len(tests))
        if outcome.noticed:
            print(f"fails without a change, too, so this proves nothing: {outcome.by}")
        return not outcome.noticed

    def report(self) -> None:
        print()
        for room, tried in self._tried.items():
            noticed = tried - len(self._unnoticed.get(room, ()))
            print(f"{room}: {noticed} of {tried} noticed ({noticed / tried:.1%})")
        for mutants in self._unnoticed.values():
            for mutant in mutants:
                print(f"not noticed: {mutant}")


def main() -> int:
    chosen = arguments()
    chosen.seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    print(f"seed {chosen.seed}")
    os.chdir(ROOT)
    deadline = time.monotonic() + 60 * (chosen.minutes or 10**6)
    calls = Calls(ROOT, ROOT / ".cache" / "mutate" / "calls.json")
    copy = PackageCopy(ROOT, PACKAGE.name)
    session = Session(copy, calls, only_own=chosen.own)
    try:
        for room in chosen.rooms:
            own, elsewhere = test_files(ROOT, room)
            files = own if chosen.own else own + elsewhere
            calls.renew(files, lambda stale: record_calls(copy, stale))
            for index, mutant in enumerate(sample(room, chosen)):
                if index < chosen.skip:
                    continue
                if time.monotonic() > deadline:
                    print(f"stopped at mutant {index} of {room} (--skip {index} goes on)")
                    break
                session.try_one(room, mutant)
        session.report()
        return 0 if session.witnesses_hold() else 1
    finally:
        copy.remove()


if __name__ == "__main__":
    sys.exit(main())
