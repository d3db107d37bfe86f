"""Nights of all that can happen to a node: `changes` adds up to `values`, and both to the store."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from export_nodes import FEED, NODE, OTHER_FEED, SourceNode
from followed import folded, held, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from inline_engine import InlineEngines

from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export import following as following_module
from hyperbloom.export.tables.delta import OpenTable
from hyperbloom.export.upkeep import compact_tables
from hyperbloom.store import DropFeed, ForgetValues, RestoreValues
from hyperbloom.store.values import gone

FEEDS = (FEED, OTHER_FEED)
SECOND = 1_000_000
EXAMPLES = int(os.environ.get("HYPERBLOOM_NIGHTS", "24"))

feeds = some.sampled_from(FEEDS)
values = some.lists(some.integers(0, 40).map(b"value %d".__mod__), min_size=1, max_size=12)
acts = some.one_of(
    some.tuples(some.just("put"), feeds, values),
    some.tuples(some.just("put"), feeds, values),
    some.tuples(some.just("forget"), feeds, values),
    some.tuples(some.just("forget"), feeds, values),
    some.tuples(some.just("erase"), feeds, values),
    some.tuples(some.just("restore"), feeds, values),
    some.tuples(some.just("forget by an older program"), feeds, values),
    some.tuples(some.just("drop"), feeds),
    some.tuples(some.just("keep")),
    some.tuples(some.just("put back")),
    some.tuples(some.just("compact")),
)
ends = some.one_of(
    some.just("whole"),
    some.just("whole"),
    some.just("full"),
    some.sampled_from(
        [
            "killed in a task",
            "killed before values",
            "killed behind values",
            "killed before changes",
            "killed behind changes",
        ]
    ),
)
nights = some.lists(
    some.tuples(some.lists(acts, max_size=5), ends, some.booleans()), min_size=2, max_size=6
)


class Killed(BaseException):
    """What no code of ours catches."""


class Nights:
    """A node, its tables, and a store that was kept to be put back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.target = folder, folder / "tables"
        self.node = SourceNode(folder)
        self.kept: Path | None = None
        self.count = 0

    def act(self, what: str, feed: bytes = FEED, chosen: list[bytes] | None = None) -> None:
        node, chosen = self.node, chosen or []
        node.now += SECOND
        if what == "put":
            node.append(chosen, feed=feed, at=node.now)
        elif what == "keep":
            self.kept = self.snapshot()
        elif what == "put back" and self.kept is not None:
            self.put_back(self.kept)
        elif what == "compact" and (self.target / "values").is_dir():
            compact_tables(self.target)
        elif node.store.feed(feed) is None:
            return
        elif what == "drop":
            node.do(DropFeed(feed))
        elif what == "restore":
            node.do(RestoreValues(feed, chosen))
        elif what == "forget by an older program":
            with patch.object(gone.GoneNotes, "add", lambda *_: None):
                node.do(ForgetValues(feed, chosen))
        elif what in ("forget", "erase"):
            node.do(ForgetValues(feed, chosen, erase=what == "erase", absent=True, at=node.now))

    def snapshot(self) -> Path:
        self.count += 1
        return self.node.snapshot(f"snapshot-{self.count}")

    def put_back(self, kept: Path) -> None:
        now = self.node.now
        self.node.close()
        shutil.rmtree(self.folder / "store")
        (self.folder / "store").mkdir()
        shutil.copy(kept / "data.mdb", self.folder / "store" / "data.mdb")
        self.node = SourceNode(self.folder)
        self.node.now = now

    def end(self, how: str, engines: Engines) -> None:
        snapshot = self.snapshot()
        mode = "full" if how == "full" else "incremental"
        if how.startswith("killed"):
            self.killed(how, snapshot)
        for _ in range(2):
            export_snapshots(
                [snapshot], self.target, engines=engines, mode=mode, tables=("values", "changes")
            )
            self.check()

    def killed(self, how: str, snapshot: Path) -> None:
        """An export that ends where nothing is done any more, and what it leaves."""
        engines, commit = InlineEngines(), OpenTable.commit

        def commit_or_end(table, *arguments, **more):
            if how == f"killed before {table.table.name}":
                raise Killed
            version = commit(table, *arguments, **more)
            if how == f"killed behind {table.table.name}":
                raise Killed
            return version

        def end(number):
            if how == "killed in a task" and number == 1:
                raise Killed

        with (
            patch.object(OpenTable, "commit", commit_or_end),
            patch.object(InlineEngines, "before", staticmethod(end)),
            patch("hyperbloom.export.job._Export.remove_unnamed"),
            suppress(Killed),
        ):
            export_snapshots([snapshot], self.target, engines=engines, tables=("values", "changes"))

    def check(self) -> None:
        """Of feeds that were left the rows stay; of all others the store says what is there."""
        wanted = stored((NODE, self.node))
        there = {feed.key for feed in self.node.store.feeds()}
        for found in (held(self.target), folded(self.target)):
            assert Counter({row: n for row, n in found.items() if row[1] in there}) == wanted


def run(script, engines_of) -> None:
    with (
        TemporaryDirectory() as folder,
        patch.object(gone, "MAX_GONE_NOTES", 20),
        patch.object(following_module, "_LAP_ROWS", 16),
    ):
        machine = Nights(Path(folder))
        try:
            machine.act("put", FEED, [b"first"])
            for acted, how, other_engine in script:
                for act in acted:
                    machine.act(*act)
                machine.end(how, engines_of(other_engine))
        finally:
            machine.node.close()


def inline(_):
    return InlineEngines()


QUICK = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
@QUICK
@given(nights)
def test_changes_add_up_to_values_and_both_to_the_store(script):
    run(script, inline)


@pytest.mark.soak
@settings(QUICK, max_examples=20 * EXAMPLES, derandomize=False)
@given(nights)
def test_over_many_more_nights(script):
    run(script, inline)


def test_with_another_engine_from_night_to_night(by_spark):
    put, forget = ("put", FEED), ("forget", FEED)
    script = [
        ([(*put, [b"1", b"2", b"3", b"4"]), ("put", OTHER_FEED, [b"1"]), ("keep",)], "whole", 0),
        ([(*forget, [b"2"]), (*put, [b"5"])], "whole", 1),
        ([(*forget, [b"5", b"1"]), ("restore", FEED, [b"2"])], "killed behind values", 0),
        ([("put back",), (*put, [b"9"]), ("erase", FEED, [b"3"])], "whole", 1),
    ]
    run(script, lambda other: by_spark if other else Engines(wanted="local", processes=2))
