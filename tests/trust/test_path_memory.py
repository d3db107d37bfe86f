"""Memories by path, against a model that looks at all entries."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.trust.path_memory import PathAccounts, PathMemory

MOST = 5
STEPS = st.sampled_from([b"a", b"b", b"c"])
PATHS = st.lists(STEPS, min_size=1, max_size=3).map(tuple)
PUTS = st.tuples(st.just("put"), PATHS, st.integers(0, 12))
POPS = st.tuples(st.just("pop"), st.just(()), st.integers(0, 12))


def may_go(entries):
    """The model: whose branch has the most entries, and within it whose key below, and so on."""
    left = {key: (*path, b"") for key, path in entries.items()}
    for depth in range(1, 5):
        counts = Counter(path[:depth] for path in left.values())
        branches = {path[:depth]: path[: depth - 1] for path in left.values()}
        most = {
            above: max(counts[one] for one in branches if branches[one] == above)
            for above in branches.values()
        }
        left = {
            key: path
            for key, path in left.items()
            if counts[path[:depth]] == most[path[: depth - 1]]
        }
    ages = {path: key for key, path in reversed(left.items())}
    return set(ages.values())  # the oldest of each


@given(st.lists(st.one_of(PUTS, PUTS, PUTS, POPS), max_size=60))
@settings(max_examples=300, deadline=None)
def test_the_branch_with_the_most_gives_its_oldest(steps):
    memory, entries = PathMemory(MOST), {}
    for number, (what, path, key) in enumerate(steps):
        if what == "pop":
            had = entries.pop(key, None)
            assert memory.pop(key) == (None if had is None else had[1])
            continue
        entries.pop(key, None)
        entries[key] = path, number
        forgotten = memory.put(path, key, number)
        if len(entries) > MOST:
            assert forgotten in may_go({key: path for key, (path, _) in entries.items()})
            del entries[forgotten]
        else:
            assert forgotten is None
        assert len(memory) == len(entries)
        assert {key: memory.get(key) for key in range(13) if key in memory} == {
            key: number for key, (_, number) in entries.items()
        }


def test_ten_thousand_keys_of_one_member_leave_the_others_what_they_have():
    memory = PathMemory(100)
    for number in range(10):
        memory.put((b"honest %d" % number, b"key"), number, "kept")
    for number in range(10_000):
        memory.put((b"member", b"key %d" % number), f"own {number}", "made")
    assert all(number in memory for number in range(10))
    assert [f"own {n}" in memory for n in (9_909, 9_910, 9_999)] == [False, True, True]
    memory.put((b"late",), "late", "kept")
    assert "late" in memory
    assert "own 9910" not in memory, "and room is made for who comes later"


def test_a_group_below_one_key_has_all_while_nobody_else_comes():
    memory = PathMemory(500)
    for number in range(500):
        assert memory.put((b"coordinator", b"member %d" % number), number, None) is None
    assert len(memory) == 500


class Account:
    is_owed = True

    def __init__(self, path):
        self.path = path


def accounts_of(most=10):
    return PathAccounts(Account, is_owed=lambda account: account.is_owed, most=most)


def test_an_account_is_one_for_all_below_and_is_the_same_when_they_come_again():
    accounts = accounts_of()
    one = accounts.join((b"m", b"1"))
    two = accounts.join((b"m", b"2"))
    assert [account.path for account in one] == [(b"m",), (b"m", b"1")]
    assert one[0] is two[0]
    accounts.leave((b"m", b"1"))
    accounts.leave((b"m", b"2"))
    assert accounts.join((b"m", b"2")) == two
    assert len(accounts) == 3


def test_of_accounts_that_all_have_left_so_many_are_remembered():
    accounts = accounts_of()
    honest = accounts.join((b"honest",))
    accounts.leave((b"honest",))
    (member, _) = accounts.join((b"m", b"stays"))
    for number in range(1_000):
        path = (b"m", b"%d" % number)
        assert accounts.join(path)[0] is member
        accounts.leave(path)
    assert len(accounts) == 10 + 2
    assert accounts.join((b"honest",)) == honest


def test_an_account_that_owes_nothing_leaves_nothing_behind():
    accounts = accounts_of()
    (account,) = accounts.join((b"m",))
    account.is_owed = False
    accounts.leave((b"m",))
    assert len(accounts) == 0
