"""Turns by levels, against a model that knows no tree."""

from __future__ import annotations

from collections import Counter, defaultdict, deque

from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.turns import Turns

PATHS = st.lists(st.sampled_from("abc"), max_size=3).map(tuple)


class Model:
    """On each level comes next who came longest ago. A row is below a part None of its own."""

    def __init__(self):
        self.rows, self.came, self.number = defaultdict(deque), {}, 0

    def add(self, path, item):
        self.rows[path].append(item)
        for end in range(len(path) + 2):
            self.came.setdefault((*path, None)[:end], self.number)
            self.number += 1

    def pop(self):
        at = ()
        while not (at and at[-1] is None):
            below = {(*p, None)[: len(at) + 1] for p in self.rows if (*p, None)[: len(at)] == at}
            at = min(below, key=self.came.__getitem__)
        item = self.rows[at[:-1]].popleft()
        for end in range(len(at), 0, -1):
            self.came[at[:end]], self.number = self.number, self.number + 1
        self.rows = defaultdict(deque, {path: row for path, row in self.rows.items() if row})
        kept = {(*path, None)[:end] for path in self.rows for end in range(len(path) + 2)}
        self.came = {part: came for part, came in self.came.items() if part in kept}
        return item


@given(st.lists(st.one_of(st.none(), PATHS), max_size=60))
def test_it_does_as_the_model(steps):
    turns, model = Turns(), Model()
    for number, path in enumerate(steps):
        if path is not None:
            turns.add(path, number)
            model.add(path, number)
        elif turns:
            assert turns.pop() == model.pop()
        assert len(turns) == len(model.rows)
        assert all(path in turns for path in model.rows)
    while turns:
        assert turns.pop() == model.pop()
    assert not model.rows


@given(st.lists(PATHS, min_size=1, max_size=20), st.integers(0, 30))
def test_what_is_put_back_is_the_next_again(paths, popped):
    turns = Turns()
    for number, path in enumerate(paths):
        turns.add(path, (path, number))
    for _ in range(min(popped, len(paths) - 1)):
        turns.pop()
    row = turns.first()
    path, item = row.path, row.waiting.popleft()
    turns.pass_on()
    turns.put_back(path, item)
    assert turns.pop() == item


@given(st.lists(PATHS, max_size=20), st.data())
def test_what_is_discarded_never_comes_and_the_others_do(paths, data):
    turns, waiting = Turns(), set()
    for number, path in enumerate(paths):
        turns.add(path, number)
        waiting.add(number)
    for number, path in enumerate(paths):
        if data.draw(st.booleans()):
            assert turns.discard(path, number)
            assert not turns.discard(path, number)
            waiting.discard(number)
    assert sorted(turns.pop() for _ in range(len(waiting))) == sorted(waiting)
    assert not turns


def test_ten_thousand_keys_below_one_branch_have_the_turns_of_one():
    turns = Turns()
    for number in range(10_000):
        turns.add(("member", number), "member")
    for number in range(100):
        turns.add(("honest",), "honest")
        turns.add(("group", "sub", number), "group")
        turns.add(("group", "other"), "other")
    had = Counter(turns.pop() for _ in range(120))
    assert had == {"member": 40, "honest": 40, "group": 20, "other": 20}
