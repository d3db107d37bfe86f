"""The sketch of a feed is that of its values, whatever comes, goes, fails or is opened again."""

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sketch_players import FEED, ORIGIN, check, keep_one, run, set_limits

from hyperbloom.store import AppendValues, DropFeed, ForgetValues, PutFeed, RestoreValues, Store
from hyperbloom.store.operations import Unfinished
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.sketches.writing import SketchPiece
from hyperbloom.store.writer import commit_group

POOL = [b"value %d" % number for number in range(60)] + [b"l" * 700 + b"%d" % n for n in range(4)]
some = st.lists(st.sampled_from(POOL), min_size=1, max_size=16, unique=True)


class Fails:
    """An operation that fails behind what others of its group have done."""

    size = 1

    def apply(self, transaction):
        raise ZeroDivisionError


class SketchedStore(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        set_limits(self.patch.setattr, RUN_VALUES=6, SKETCH_STEP=4)
        self.folder = Path(mkdtemp())
        self.path = self.folder / "store"
        self.store = Store.open(self.path, durable=False)
        run(self.store, PutFeed(FEED, {}))
        self.work = None
        self.restored = 0

    @rule(values=some)
    def append(self, values):
        run(self.store, AppendValues(FEED, values, ORIGIN, 1))

    @rule(values=some)
    def insert(self, values):
        run(self.store, AppendValues(FEED, values, ORIGIN, 1, restores=True))

    @rule(values=some, erase=st.booleans(), absent=st.booleans())
    def forget(self, values, erase, absent):
        run(self.store, ForgetValues(FEED, values, erase=erase, absent=absent))

    @rule(values=some)
    def restore_values(self, values):
        run(self.store, RestoreValues(FEED, values))

    @rule(gone=some, new=some)
    def group(self, gone, new):
        operations = [
            ForgetValues(FEED, gone),
            AppendValues(FEED, new, ORIGIN, 1),
            ForgetValues(FEED, new[:2]),
            RestoreValues(FEED, gone[:3]),
        ]
        assert not any(
            isinstance(one, BaseException)
            for one in commit_group(self.store.environment, operations)
        )

    @rule(gone=some)
    def failing_group(self, gone):
        commit_group(self.store.environment, [ForgetValues(FEED, gone), Fails()])

    @rule()
    def begin_keeping(self):
        self.work = self.store.begin_piece(FEED)

    @rule()
    def go_on_keeping(self):
        if isinstance(self.work, SketchPiece):
            self.work = self.work.step() or self.work
        elif self.work is not None:
            run(self.store, self.work)
            self.work = None

    @rule()
    def keep_on(self):
        keep_one(self.store)

    @rule()
    def one_step_of_the_sketch(self):
        self.store.sketch_step(FEED)

    @rule()
    def open_again(self):
        self.store.close()
        self.store = Store.open(self.path, durable=False)
        self.work = None

    @rule()
    def leave_and_join_again(self):
        result = run(self.store, DropFeed(FEED))
        while isinstance(result, Unfinished):
            result = run(self.store, result.rest)
        run(self.store, PutFeed(FEED, {}))
        self.work = None

    @rule()
    def snapshot_and_restore(self):
        self.restored += 1
        copy = self.folder / f"copy {self.restored}"
        self.store.snapshot(copy)
        self.store.close()
        self.path = self.folder / f"restored {self.restored}"
        restore_store(copy, self.path, node_key=None)
        self.store = Store.open(self.path, durable=False)
        self.work = None

    @invariant()
    def everything_fits(self):
        check(self.store)

    def teardown(self):
        self.patch.undo()
        self.store.close()
        shutil.rmtree(self.folder)


SketchedStore.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestSketchedStore = SketchedStore.TestCase
