"""What peers may hold in memory: shares of a bound, branch by branch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from hyperbloom.connections.limits import MAX_ALL_UNSENT_BYTES, WOKEN_AT_ONCE
from hyperbloom.connections.shares import Shares
from hyperbloom.replication.limits import Limits

FRAME = 262_144


def shares():
    return Shares(Clock(), Limits)


def keys(*names):
    return tuple(name.ljust(32).encode() for name in names)


def fill(room, share, *, frame=FRAME, most=10_000):
    """It takes a frame after the other, as long as it may; how many bytes it holds then."""
    for _ in range(most):
        if not room.allows(share):
            break
        room.hold(share, frame)
    return room.of(share)


def allowed_by_model(room, line, held, bound):
    """Half of what is allowed is for anybody below; the rest in equal parts for those who hold."""
    for depth in range(len(line) + 1):
        at = line[:depth]
        of = lambda path: sum(n for one, n in held.items() if one[: len(path)] == path)  # noqa: E731
        if 2 * of(at) < bound:
            return True
        if (depth and of(at) >= bound) or depth == len(line):
            return depth == len(line) and of(at) < bound
        siblings = {one[: depth + 1] for one in held if one[:depth] == at and of(one[: depth + 1])}
        bound = bound / 2 / len(siblings | {line[: depth + 1]})
    raise AssertionError


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(lambda path: keys(*path))


@settings(deadline=None)
@given(st.lists(st.tuples(PATHS, st.integers(0, 12)), max_size=30))
def test_it_allows_as_the_model_does(steps):
    tree, held = shares(), {}
    room, unit = tree.rooms.unsent, MAX_ALL_UNSENT_BYTES // 16
    joined = {}
    for path, amount in steps:
        share = joined.setdefault(path, None) or tree.join(path)
        joined[path] = share
        line = (*path, b"own")
        assert room.allows(share) == allowed_by_model(room, line, held, MAX_ALL_UNSENT_BYTES)
        room.hold(share, amount * unit - held.get(line, 0))
        held[line] = amount * unit
    for path, share in joined.items():
        room.hold(share, -held[(*path, b"own")])
    assert room.held == 0
    assert not room._held
    assert not room._holders


def test_ten_thousand_keys_of_one_member_hold_a_part_and_no_branch_is_kept_from_beginning():
    tree = shares()
    room = tree.rooms.unsent
    held = sum(fill(room, tree.join((*keys("member"), b"%032d" % one))) for one in range(10_000))
    assert held <= MAX_ALL_UNSENT_BYTES + FRAME
    others = [fill(room, tree.join(keys(f"honest {number}")), frame=4_096) for number in range(20)]
    assert min(others) >= MAX_ALL_UNSENT_BYTES / 4 / 21 - 4_096, "half of its part, at the least"
    assert not room.allows(tree.join((*keys("member"), b"one more".ljust(32))))


def test_within_a_branch_one_member_does_not_hold_it_all_either():
    tree = shares()
    room = tree.rooms.unsent
    fill(room, tree.join(keys("elsewhere")))
    for number in range(1_000):
        fill(room, tree.join((*keys("coordinator", "hostile"), b"%032d" % number)), most=2)
    honest = tree.join(keys("coordinator", "honest"))
    assert room.allows(honest)
    assert fill(room, honest, frame=4_096) > FRAME


def test_those_who_wait_look_again_level_by_level_when_something_is_released():
    tree = shares()
    clock, room = tree._clock, tree.rooms.unsent
    looked = []
    holder = tree.join(keys("holder"))
    room.hold(holder, 10)
    for number in range(100):
        share = tree.join((*keys("member"), b"%032d" % number))
        share.wait(lambda: looked.append("member"))
        tree.rooms.wait(share)
    share = tree.join(keys("honest"))
    share.wait(lambda: looked.append("honest"))
    tree.rooms.wait(share)
    clock.advance(1)
    assert looked == [], "nothing was released"
    room.hold(holder, -1)
    clock.advance(0)
    assert looked[:2] == ["member", "honest"]
    assert len(looked) == WOKEN_AT_ONCE
