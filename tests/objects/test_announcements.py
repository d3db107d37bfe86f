"""What peers are told of a change, and how a whole pool goes to one of them."""

from __future__ import annotations

import pytest

from hyperbloom.objects.announcements import ANNOUNCED, answers, difference, messages
from hyperbloom.objects.limits import OBJECTS_PER_PART, PART_BYTES
from hyperbloom.objects.peers.pool_sync import PoolSync
from hyperbloom.objects.wire.messagepack import pack
from hyperbloom.objects.wire.payloads import Change, Creation, Removal, Version
from hyperbloom.store.objects.records import ObjectRecord, Outcome, Verdict, pack_fields


def record(number, fields=None, *, stamp=5, ancestors=()):
    return ObjectRecord(
        hash=number,
        packed=pack_fields({"n": number} if fields is None else fields),
        type_name=None,
        created=1,
        changed=1,
        stamp=stamp,
        ancestors=ancestors,
    )


OLD = record(1, {"a": 1, "b": "x"})
NEW = record(2, {"a": 1, "b": "y", "c": None}, stamp=9)


def outcome(verdict, **more):
    return Outcome(
        **{"verdict": verdict, "hash": 1, "stamp": 9, "before": OLD, "after": NEW} | more
    )


@pytest.mark.parametrize(
    ("came", "told"),
    [
        (outcome(Verdict.CREATED, before=None), [Creation(t=9, d=NEW.fields, h=2)]),
        (outcome(Verdict.CHANGED), [Change(t=9, d={"b": "y", "c": None}, h=2, oh=1)]),
        (outcome(Verdict.MERGED), [Change(t=9, d={"b": "y", "c": None}, h=2, oh=1)]),
        (outcome(Verdict.REMOVED, after=None), [Removal(t=9, h=1)]),
        (outcome(Verdict.RESTAMPED), [Creation(t=9, d=NEW.fields, h=2)]),
        (outcome(Verdict.RESTAMPED, hash=7, after=None), [Removal(t=9, h=7)]),
        # Nothing but the hash is another: then the fields go whole.
        (outcome(Verdict.CHANGED, before=NEW), [Change(t=9, d=NEW.fields, h=2, oh=2)]),
    ],
)
def test_what_peers_are_told_of_news(came, told):
    assert came.verdict in ANNOUNCED
    assert messages(came) == told


@pytest.mark.parametrize("verdict", sorted(set(Verdict) - ANNOUNCED, key=lambda one: one.value))
def test_what_changed_nothing_here_is_told_to_nobody(verdict):
    assert messages(outcome(verdict)) == []


def test_who_offers_an_older_state_is_told_the_newer_one():
    assert answers(outcome(Verdict.STALE, hash=4, after=None)) == [Removal(t=9, h=4)]
    offered = {"a": 1, "b": "x"}
    assert answers(outcome(Verdict.STALE, hash=4, offered=pack_fields(offered))) == [
        Change(t=9, d={"b": "y", "c": None}, h=2, oh=4)
    ]
    assert answers(outcome(Verdict.STALE, hash=4)) == [Change(t=9, d=NEW.fields, h=2, oh=4)]


def test_a_difference_is_what_has_another_value_or_another_type():
    fields = {"same": 1, "other": 1, "type": 1, "flag": 1, "none": None, "gone": 1}
    later = {"same": 1, "other": 2, "type": 1.0, "flag": True, "none": None, "new": None}
    assert difference(fields, later) == {"other": 2, "type": 1.0, "flag": True, "new": None}


class Pool:
    """Objects by number; what is asked for and not there is left out, as the store does."""

    def __init__(self, *records):
        self.records = {one.hash: one for one in records}
        self.asked = []

    def read(self, numbers):
        self.asked.append(list(numbers))
        return [self.records[one] for one in numbers if one in self.records]


def streamed(pool):
    sync = PoolSync(pool.read)
    assert not sync.ready
    sync.put_first(pool.records)
    assert sync.ready
    return sync


def parts_of(sync):
    parts = []
    while (part := sync.next_part(7)) is not None:
        assert part.t == 7
        assert part.respond is False
        parts.append(part)
    return parts


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, []),
        (1, [1]),
        (OBJECTS_PER_PART, [OBJECTS_PER_PART]),
        (OBJECTS_PER_PART + 1, [OBJECTS_PER_PART, 1]),
    ],
)
def test_a_pool_goes_in_parts_of_so_many_objects(count, sizes):
    pool = Pool(*(record(number, ancestors=(number + 1_000,)) for number in range(count)))
    parts = parts_of(streamed(pool))
    assert [len(part.objects) for part in parts] == sizes
    assert [fields for part in parts for fields in part.objects] == [
        {"n": number} for number in range(count)
    ]
    assert [one for part in parts for one in part.versions] == [
        Version(hash=number, stamp=5, ancestors=(number + 1_000,)) for number in range(count)
    ]


def test_a_part_has_so_many_bytes_and_one_object_at_least():
    head = len(pack({"d": bytes(PART_BYTES // 2)})) - PART_BYTES // 2
    half = {"d": bytes(PART_BYTES // 2 - head)}
    assert 2 * len(pack(half)) == PART_BYTES
    longer = {"d": bytes(PART_BYTES // 2 - head + 1)}
    double = {"d": bytes(PART_BYTES)}

    def sizes(*fields):
        pool = Pool(*(record(number, one) for number, one in enumerate(fields)))
        return [len(part.objects) for part in parts_of(streamed(pool))]

    assert sizes(half, half, half) == [2, 1]
    assert sizes(half, longer, half) == [1, 1, 1]
    assert sizes(double, half, half, double) == [1, 2, 1]


def test_what_is_gone_meanwhile_is_left_out_and_what_was_added_comes_last():
    pool = Pool(*(record(number) for number in range(2 * OBJECTS_PER_PART)))
    sync = PoolSync(pool.read)
    sync.add(9_999)
    sync.put_first(range(2 * OBJECTS_PER_PART))
    pool.records[9_999] = record(9_999)
    for number in range(OBJECTS_PER_PART + 5):
        del pool.records[number]
    parts = parts_of(sync)
    assert [len(part.objects) for part in parts] == [OBJECTS_PER_PART - 5, 1]
    assert parts[-1].versions[0].hash == 9_999
    sync.add(5)
    assert sync.next_part(7) is None
    pool.records[6] = record(6)
    sync.add(6)
    assert sync.next_part(7).versions[0].hash == 6


def test_what_is_added_while_the_last_objects_wait_for_their_part_comes_behind_them():
    pool = Pool(record(1, {"d": bytes(PART_BYTES)}), record(2, {"d": bytes(PART_BYTES)}))
    sync = streamed(pool)
    assert sync.next_part(7).versions[0].hash == 1
    pool.records[3] = record(3)
    sync.add(3)
    assert [part.versions[0].hash for part in parts_of(sync)] == [2, 3]


def test_to_a_peer_of_another_kind_objects_go_one_by_one_as_they_are_then():
    pool = Pool(*(record(number) for number in range(3)))
    sync = streamed(pool)
    assert sync.next_object().hash == 0
    del pool.records[1]
    changed = pool.records[2] = record(2, {"n": "later"})
    assert sync.next_object() is changed
    assert sync.next_object() is None
    assert pool.asked == [[0], [1], [2]]
