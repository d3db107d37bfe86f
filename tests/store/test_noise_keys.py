"""Who has spoken Noise, as the store keeps it."""

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hyperbloom.store import Store, WriterInline
from hyperbloom.store.records import NoiseRecord
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import seed_store
from hyperbloom.store.tables import noise
from hyperbloom.store.tables.noise import ForgetNoise, RememberNoise

KEY = b"k" * 32


def kept(store: Store) -> dict[bytes, tuple[int, int]]:
    return {one.key: (one.first_met, one.last_met) for one in store.noise_keys()}


def test_a_key_is_remembered_until_it_is_forgotten(store, run):
    run(RememberNoise(KEY, 5))
    run(RememberNoise(b"l" * 32, 6))
    run(RememberNoise(KEY, 9))
    assert store.noise_keys() == [
        NoiseRecord(key=b"l" * 32, first_met=6, last_met=6),
        NoiseRecord(key=KEY, first_met=5, last_met=9),
    ], "those met longest ago first"
    assert store.verify().problems == []
    assert run(ForgetNoise(KEY)) is True
    assert run(ForgetNoise(KEY)) is False
    assert kept(store) == {b"l" * 32: (6, 6)}
    assert store.verify().problems == []


def test_beyond_the_limit_the_key_met_longest_ago_goes(store, run, monkeypatch):
    monkeypatch.setattr(noise, "MAX_NOISE_KEYS", 3)
    for at, key in enumerate((b"1", b"2", b"3"), start=1):
        run(RememberNoise(key * 32, at))
    run(RememberNoise(b"1" * 32, 4))
    assert len(kept(store)) == 3
    run(RememberNoise(b"4" * 32, 5))
    assert set(kept(store)) == {b"1" * 32, b"3" * 32, b"4" * 32}
    assert store.verify().problems == []


def test_what_is_no_key_and_no_time_is_refused():
    for key in (b"", b"k" * 31, b"k" * 33):
        with pytest.raises(ValueError, match="32 bytes"):
            RememberNoise(key, 0)
        with pytest.raises(ValueError, match="32 bytes"):
            ForgetNoise(key)
        with pytest.raises(ValueError, match="32 bytes"):
            RememberNoise(KEY, 0, instead=key)
    with pytest.raises(ValueError, match="8 bytes"):
        RememberNoise(KEY, 0, b"short")
    with pytest.raises(ValueError, match="microseconds"):
        RememberNoise(KEY, -1)


def test_the_branch_is_kept_and_one_key_goes_for_another(store, run):
    run(RememberNoise(KEY, 5, b"branch 1"))
    run(RememberNoise(KEY, 9, b"branch 2"))
    run(RememberNoise(b"l" * 32, 10))
    assert [one.branch for one in store.noise_keys()] == [b"branch 2", b""]
    run(RememberNoise(b"m" * 32, 11, b"branch 3", instead=KEY))
    assert set(kept(store)) == {b"l" * 32, b"m" * 32}
    assert store.verify().problems == []


@pytest.mark.parametrize(
    ("key", "data", "problem"),
    [
        (b"k" + KEY, b"short", "noise: the record 6b6b"),
        (b"k" + KEY, None, f"noise: the two records of {KEY.hex()} do not fit together"),
        (b"t" + bytes(7) + b"\x05" + KEY, None, "do not fit together"),
        (b"t" + bytes(8) + b"x" * 32, b"", f"noise: the two records of {(b'x' * 32).hex()} do not"),
        (b"odd", b"", "noise: the record 6f6464 cannot be read"),
    ],
)
def test_verify_names_records_that_are_wrong(store, run, key, data, problem):
    run(RememberNoise(KEY, 5))
    with store.environment.write() as txn:
        database = store.environment.databases["noise"]
        if data is None:
            assert txn.delete(key, db=database)
        else:
            txn.put(key, data, db=database)
    problems = store.verify().problems
    assert problems
    assert any(problem in one for one in problems)


def test_a_store_from_before_has_none(tmp_path):
    """A snapshot that was taken before there was this table is read, and restored."""
    store = Store.open(tmp_path / "store", durable=False)
    database = store.environment.databases.pop("noise")
    with store.environment.write() as txn:
        txn.drop(database)
    store.snapshot(tmp_path / "older")
    store.close()
    snapshot = Store.open_readonly(tmp_path / "older")
    assert snapshot.noise_keys() == []
    assert snapshot.verify().ok
    snapshot.close()
    restore_store(tmp_path / "older", tmp_path / "new", node_key=None)
    again = Store.open(tmp_path / "new")
    WriterInline(again).submit(RememberNoise(KEY, 5), lambda _: None)
    assert kept(again) == {KEY: (5, 5)}
    again.close()


def remembering(path: Path, **met: int) -> Path:
    store = Store.open(path, durable=False)
    writer = WriterInline(store)
    for name, at in met.items():
        writer.submit(RememberNoise(name.encode() * 32, at), lambda _: None)
    store.close()
    return path


def test_a_store_that_is_replaced_hands_it_on(tmp_path):
    remembering(tmp_path / "store", a=5)
    store = Store.open(tmp_path / "store", durable=False)
    store.snapshot(tmp_path / "snapshot")
    store.close()
    remembering(tmp_path / "store", a=9, b=7)
    restore_store(tmp_path / "snapshot", tmp_path / "store", node_key=None, replace=True)
    store = Store.open(tmp_path / "store", durable=False)
    assert kept(store) == {b"a" * 32: (5, 9), b"b" * 32: (7, 7)}
    store.close()


def test_another_nodes_memory_is_not_taken(tmp_path):
    """Whoever gives a snapshot away could else shut peers out of the new node."""
    remembering(tmp_path / "store", a=5)
    store = Store.open(tmp_path / "store", durable=False)
    store.snapshot(tmp_path / "snapshot")
    store.close()
    seed_store(tmp_path / "snapshot", tmp_path / "new", feeds=None, now=10.0)
    remembering(tmp_path / "other", b=6)
    seed_store(tmp_path / "snapshot", tmp_path / "other", feeds=None, now=10.0, replace=True)
    for name, expected in (("new", {}), ("other", {b"b" * 32: (6, 6)})):
        store = Store.open(tmp_path / name, durable=False)
        assert kept(store) == expected
        store.close()


keys = st.sampled_from([bytes([number]) * 32 for number in range(8)])
times = st.integers(0, 12)


class RememberedKeys(RuleBasedStateMachine):
    """The table against a dict, at most four keys, with a clock that goes both ways."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(noise, "MAX_NOISE_KEYS", 4)
        self.folder = Path(mkdtemp())
        self.store = Store.open(self.folder / "store", durable=False)
        self.model: dict[bytes, tuple[int, int]] = {}

    def run(self, operation):
        results = []
        WriterInline(self.store).submit(operation, results.append)
        return results[0]

    @rule(key=keys, at=times)
    def remember(self, key, at):
        assert self.run(RememberNoise(key, at)) is None
        self.model[key] = (self.model.get(key, (at, at))[0], at)
        if len(self.model) > 4:
            del self.model[min(self.model, key=lambda one: (self.model[one][1], one))]

    @rule(key=keys)
    def forget(self, key):
        assert self.run(ForgetNoise(key)) is (self.model.pop(key, None) is not None)

    @rule()
    def open_again(self):
        self.store.close()
        self.store = Store.open(self.folder / "store", durable=False)

    @invariant()
    def is_what_was_said(self):
        assert kept(self.store) == self.model
        found = [(one.last_met, one.key) for one in self.store.noise_keys()]
        assert found == sorted(found)
        assert self.store.verify().problems == []

    def teardown(self):
        self.store.close()
        self.patch.undo()
        shutil.rmtree(self.folder)


TestRememberedKeys = RememberedKeys.TestCase
TestRememberedKeys.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
