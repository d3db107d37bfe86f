"""What a group takes of what waits, to the byte and to the operation."""

from __future__ import annotations

import pytest

from hyperbloom.store.limits import (
    GROUP_BYTES,
    GROUP_OPERATIONS,
    OWN_GROUP_BYTES,
    QUANTUM_BYTES,
)
from hyperbloom.store.operations import LARGEST_PIECE_BYTES
from hyperbloom.store.tables.feeds import SweepDropped
from hyperbloom.store.write_queue import OWN, Origin, Queued, WriteQueue

A, B = (b"a" * 32,), (b"b" * 32,)


class Waiting:
    """A queue of which each operation is known by its number."""

    def __init__(self) -> None:
        self.queue = WriteQueue()
        self._added = 0

    def add(self, origin: Origin, *sizes: int) -> None:
        for size in sizes:
            # The origin and the number stand in for whom to call back.
            label = f"{origin[-1][:1].decode() if origin else 'own'} {self._added}"
            self.queue.add(Queued(SweepDropped(), size, origin, Label(label)))
            self._added += 1

    def take(self, most_of_others: int = GROUP_BYTES, *, own_alone: bool = False) -> list[str]:
        return [str(one.done) for one in self.queue.take(most_of_others, own_alone=own_alone)]


class Label:
    """Who waits for an operation."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, result: object) -> None: ...

    def __str__(self) -> str:
        return self._text


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_own_operations_have_half_of_a_group_and_what_others_leave(waiting):
    waiting.add(OWN, *[GROUP_BYTES // 8] * 10)
    waiting.add(A, 300)
    own = [f"own {number}" for number in range(10)]
    assert waiting.take() == [*own[:4], "a 10", *own[4:7]]
    assert waiting.take() == own[7:]


def test_what_others_leave_is_filled_to_the_byte(waiting):
    waiting.add(OWN, GROUP_BYTES // 2, GROUP_BYTES // 2 - 300, 1)
    waiting.add(A, 300)
    assert waiting.take() == ["own 0", "a 3", "own 1"]
    assert waiting.take() == ["own 2"]


def test_own_operations_alone_have_a_larger_group(waiting):
    waiting.add(OWN, *[OWN_GROUP_BYTES // 4] * 4, 1)
    assert waiting.take() == ["own 0", "own 1", "own 2", "own 3"]
    assert waiting.take() == ["own 4"]


def test_an_operation_beyond_all_room_is_written_by_itself(waiting):
    waiting.add(OWN, 2 * OWN_GROUP_BYTES, 1)
    assert waiting.take() == ["own 0"]
    waiting.add(A, 2 * GROUP_BYTES, 1)
    assert waiting.take() == ["own 1"], "others have their turn behind it"
    assert waiting.take() == ["a 2"]
    assert waiting.take() == ["a 3"]


@pytest.mark.parametrize(("others", "own"), [(1, GROUP_OPERATIONS // 2), (0, GROUP_OPERATIONS)])
def test_a_group_has_so_many_operations(waiting, others, own):
    waiting.add(OWN, *[1] * (GROUP_OPERATIONS + 2))
    waiting.add(A, *[1] * others)
    taken = waiting.take()
    assert len(taken) == GROUP_OPERATIONS
    assert [one.startswith("own") for one in taken[: own + others]] == [True] * own + [
        False
    ] * others


def test_others_fill_the_number_that_own_operations_leave(waiting):
    waiting.add(OWN, 1)
    waiting.add(A, *[1] * GROUP_OPERATIONS)
    waiting.add(B, 1)
    taken = waiting.take()
    assert len(taken) == GROUP_OPERATIONS
    assert [one[:3] for one in taken].count("own") == 1


@pytest.mark.parametrize(
    ("most", "count"),
    [
        (0, 1),
        (LARGEST_PIECE_BYTES, 1),
        (2 * LARGEST_PIECE_BYTES - 1, 1),
        (2 * LARGEST_PIECE_BYTES, 2),
    ],
)
def test_others_have_so_many_bytes_of_a_group_or_one_operation(waiting, most, count):
    waiting.add(A, *[LARGEST_PIECE_BYTES] * 4)
    assert len(waiting.take(most)) == count


def test_own_operations_are_alone_where_it_is_their_turn(waiting):
    waiting.add(OWN, *[GROUP_BYTES // 4] * 3)
    waiting.add(A, 300)
    assert waiting.queue.bytes == GROUP_BYTES // 4 * 3 + 300
    assert waiting.take(own_alone=True) == ["own 0", "own 1"]
    assert waiting.queue.bytes == GROUP_BYTES // 4 + 300
    assert waiting.take(own_alone=True) == ["own 2"]
    assert waiting.take(own_alone=True) == ["a 3"]
    assert waiting.queue.bytes == 0


def test_who_waits_is_known(waiting):
    def known() -> tuple[bool, bool, int]:
        return bool(waiting.queue), waiting.queue.has_own, waiting.queue.only_own

    assert known() == (False, False, 0)
    waiting.add(OWN, 1, 1)
    assert known() == (True, True, 2)
    waiting.add(A, 1)
    assert known() == (True, True, 0)
    waiting.take(own_alone=True)
    assert known() == (True, False, 0)
    waiting.take()
    assert known() == (False, False, 0)


def test_rows_take_turns_by_bytes(waiting):
    half = QUANTUM_BYTES // 2
    waiting.add(A, *[half] * 4)
    waiting.add(B, *[half] * 4)
    assert waiting.take() == ["a 0", "a 1", "b 4", "b 5", "a 2", "a 3", "b 6", "b 7"]


def test_what_does_not_fit_in_a_turn_is_saved_for_the_next(waiting):
    waiting.add(A, QUANTUM_BYTES + 1, QUANTUM_BYTES - 1)
    waiting.add(B, *[QUANTUM_BYTES] * 2)
    assert waiting.take() == ["b 2", "a 0", "a 1", "b 3"]


def test_a_turn_that_a_full_group_ended_goes_on_in_the_next(waiting):
    third = QUANTUM_BYTES // 3
    waiting.add(A, *[third] * 5)
    waiting.add(B, *[third] * 3)
    assert waiting.take(2 * third) == ["a 0", "a 1"]
    assert waiting.take() == ["a 2", "b 5", "b 6", "b 7", "a 3", "a 4"]


def test_what_is_put_back_comes_first_and_has_its_turn_again(waiting):
    half = QUANTUM_BYTES // 2
    waiting.add(A, *[half] * 3)
    waiting.add(B, half)
    waiting.add(OWN, 1, 1)
    before = waiting.queue.bytes
    group = waiting.queue.take()
    assert [str(one.done) for one in group] == ["own 4", "own 5", "a 0", "a 1", "b 3", "a 2"]
    waiting.queue.put_back(group[1:])
    assert waiting.queue.bytes == before - 1
    assert waiting.take(half) == ["own 5", "a 0"]
    assert waiting.take() == ["a 1", "a 2", "b 3"]


def test_what_is_put_back_comes_before_what_others_wait_with(waiting):
    half = QUANTUM_BYTES // 2
    waiting.add(A, *[half] * 6)
    waiting.add(B, half)
    group = waiting.queue.take(3 * half)
    assert [str(one.done) for one in group] == ["a 0", "a 1", "b 6"]
    waiting.queue.put_back(group[2:])
    assert waiting.take(3 * half) == ["b 6", "a 2", "a 3"]
