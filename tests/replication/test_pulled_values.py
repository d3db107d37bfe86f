"""What was asked for by ids is read from the log, and nothing else of it is sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.digests import value_ids
from hyperbloom.replication.sync.pulled_values import PulledValues
from hyperbloom.replication.sync.reply import PORTION_BYTES
from hyperbloom.store.records import LogRecord, LogSlice

ORIGIN = bytes(32)


class Log:
    """Arrivals by number; at most `most` of them in a slice. `reads`: how often it was read."""

    def __init__(self, values, most=1_000):
        self.values, self.most, self.reads = values, most, 0

    def read(self, after, limit):
        self.reads += 1
        seqs = sorted(seq for seq in self.values if seq > after)[: min(limit, self.most)]
        records = [LogRecord(seq, 1, ORIGIN, self.values[seq]) for seq in seqs]
        return LogSlice(records=records, last_seq=seqs[-1] if seqs else after)


def all_of(answer):
    found = []
    for _ in range(1_000):
        if answer.done:
            return found
        found += answer.next_portion()
    raise AssertionError("it does not end")


def place(low, value, spare=0):
    return low, low + spare, value_ids([value])


def test_values_beside_each_other_are_read_at_once():
    log = Log({seq: b"%d" % seq for seq in range(1, 101)})
    wanted = [*range(20, 40), 60]
    answer = PulledValues([place(seq, log.values[seq]) for seq in wanted], log.read)
    assert all_of(answer) == [b"%d" % seq for seq in wanted]
    assert log.reads == 2


def test_what_stands_between_and_was_not_asked_for_is_not_sent():
    log = Log({5: b"five", 6: b"six", 7: b"seven"})
    answer = PulledValues([place(5, b"five", 2), place(5, b"seven", 2)], log.read)
    assert all_of(answer) == [b"five", b"seven"]
    assert log.reads == 1


def test_what_was_forgotten_meanwhile_is_left_out():
    log = Log({5: b"five", 9: b"nine"})
    answer = PulledValues([place(5, b"five"), place(6, b"six"), place(7, b"nine")], log.read)
    assert all_of(answer) == [b"five"]


def test_a_long_answer_comes_in_portions_and_counts_its_work():
    long = b"v" * (PORTION_BYTES // 4)
    log = Log({seq: long + b"%d" % seq for seq in range(1, 13)}, most=2)
    answer = PulledValues([place(seq, value) for seq, value in log.values.items()], log.read)
    assert answer.take_tested() > 0
    first = answer.next_portion()
    assert 4 <= len(first) <= 6
    assert answer.take_tested() >= len(first) * len(long) // 64
    assert answer.take_tested() == 0
    assert first + all_of(answer) == list(log.values.values())


@given(
    kept=st.sets(st.integers(1, 60)),
    wanted=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 5))),
    most=st.integers(1, 9),
)
def test_each_value_that_is_where_it_was_comes_once(kept, wanted, most):
    log = Log({seq: b"%d" % seq for seq in kept}, most=most)
    places = [place(max(1, seq - spare), b"%d" % seq, spare) for seq, spare in wanted]
    found = all_of(PulledValues(places, log.read))
    assert sorted(found) == sorted({b"%d" % seq for seq, _ in wanted if seq in kept})
