"""Objects in the store: which version holds, whatever the order in which offers come."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from hyperbloom.store import Store, WriterInline, limits
from hyperbloom.store.limits import OWN_PART, PAST_PART
from hyperbloom.store.objects.offers import OfferedChange, OfferedObject, OfferedRemoval
from hyperbloom.store.objects.records import (
    COUNTS_KEY,
    LIVE,
    PAST,
    Verdict,
    disk_bytes,
    hash_bytes,
    pack_fields,
    unpack_fields,
    unpack_past,
)
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.objects.table import DiskBounds

NAME = {"name": "Ada", "n": 0}


def made(number=1, stamp=10, fields=NAME, **more):
    return OfferedObject(hash=number, stamp=stamp, fields=fields, **more)


def change(old, number, stamp, **fields):
    return OfferedChange(old=old, hash=number, stamp=stamp, fields=fields or {"n": number})


def removal(number, stamp):
    return OfferedRemoval(hash=number, stamp=stamp)


class Table:
    """A store, offers given to it one after the other, and what it said."""

    def __init__(self, path):
        self.store = Store.open(path, durable=False)
        self.writer = WriterInline(self.store)
        self.at = 0

    def offer(self, *offers, most=1_000_000, **more):
        self.at += 1
        told = self.step(*offers, most=most, **more)
        while len(told) < len(offers):
            told += self.step(*offers[len(told) :], most=most, **more)
        return told

    def step(self, *offers, most=1_000_000, **more):
        """What one transaction does of the offers."""
        results = []
        self.writer.submit(OfferObjects(offers, self.at, most, **more), results.append)
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]

    def said(self, *offers, **more):
        return [outcome.verdict for outcome in self.offer(*offers, **more)]

    def pool(self):
        records = self.store.objects(self.store.object_hashes())
        return {r.hash: (r.stamp, dict(r.fields)) for r in records}

    def check(self):
        report = self.store.verify()
        assert report.problems == []
        assert report.objects == len(self.pool())
        return self


@pytest.fixture
def tables(tmp_path):
    made_now = []

    def make():
        made_now.append(Table(tmp_path / str(len(made_now))))
        return made_now[-1]

    yield make
    for table in made_now:
        table.check().store.close()


@pytest.fixture
def table(tables):
    return tables()


def test_an_object_lives_its_life(table):
    created, again = table.offer(made(), made())
    assert (created.verdict, again.verdict) == (Verdict.CREATED, Verdict.KNOWN)
    (changed,) = table.offer(change(1, 2, 20))
    assert (changed.verdict, changed.stamp) == (Verdict.CHANGED, 20)
    assert changed.before.hash == 1
    assert changed.after.fields == {"name": "Ada", "n": 2}
    assert changed.after.ancestors == (1,)
    assert (changed.after.created, changed.after.changed) == (1, 2)
    (removed,) = table.offer(removal(2, 30))
    assert (removed.verdict, removed.before.hash) == (Verdict.REMOVED, 2)
    assert table.pool() == {}
    assert table.store.object_figures().past == 2


def test_what_comes_again_is_known_and_what_is_unknown_is_ignored(table):
    table.offer(made(), change(1, 2, 20))
    assert table.said(change(1, 2, 20), made()) == [Verdict.KNOWN, Verdict.STALE]
    assert table.said(change(7, 8, 20), removal(7, 5)) == [Verdict.UNKNOWN] * 2
    assert table.pool() == {2: (20, {"name": "Ada", "n": 2})}


def test_late_news_of_an_object_that_went_on_is_told_what_holds(table):
    table.offer(made(), change(1, 2, 20), change(2, 3, 30))
    (stale,) = table.offer(made())
    assert (stale.verdict, stale.after.hash, stale.stamp) == (Verdict.STALE, 3, 30)
    assert unpack_fields(stale.offered) == NAME
    (crossed,) = table.offer(change(1, 9, 25))
    assert (crossed.verdict, crossed.hash, crossed.after.hash) == (Verdict.STALE, 9, 3)
    assert unpack_fields(crossed.offered) == {"name": "Ada", "n": 9}


def test_a_removed_object_does_not_come_back_by_old_news(table):
    table.offer(made(), change(1, 2, 20), removal(2, 30))
    for offer in (made(), made(2, 20), change(1, 2, 20), change(1, 9, 29)):
        (outcome,) = table.offer(offer)
        assert (outcome.verdict, outcome.after, outcome.stamp) == (Verdict.STALE, None, 30)
    assert table.said(removal(2, 30), removal(1, 20)) == [Verdict.KNOWN] * 2
    assert table.pool() == {}


def test_a_version_that_comes_after_its_removal_is_remembered_as_removed(table):
    table.offer(made(), removal(1, 30))
    assert table.said(change(1, 9, 29)) == [Verdict.STALE]
    (outcome,) = table.offer(made(9, 29, {"name": "Ada", "n": 9}))
    assert (outcome.verdict, outcome.after, outcome.stamp) == (Verdict.STALE, None, 30)
    assert table.pool() == {}


def test_an_object_created_anew_is_another_one(table):
    table.offer(made(), change(1, 2, 20))
    assert table.said(made(stamp=21)) == [Verdict.CREATED]
    assert sorted(table.pool()) == [1, 2]
    # Late copies of what happened to the first do not touch the second.
    assert table.said(change(1, 2, 20), removal(1, 20)) == [Verdict.KNOWN] * 2
    assert table.said(change(1, 5, 20)) == [Verdict.STALE]
    assert sorted(table.pool()) == [1, 2]


def test_a_local_object_is_newer_than_the_end_of_its_like(table):
    table.offer(made(), removal(1, 500))
    (outcome,) = table.offer(made(stamp=100, local=True))
    assert (outcome.verdict, outcome.stamp) == (Verdict.CREATED, 501)


def test_a_slow_clock_may_change_what_is_there(table):
    table.offer(made(stamp=1_000))
    (outcome,) = table.offer(change(1, 2, 3))
    assert (outcome.verdict, outcome.stamp) == (Verdict.CHANGED, 1_001)
    (outcome,) = table.offer(removal(2, 3))
    assert (outcome.verdict, outcome.stamp) == (Verdict.REMOVED, 1_002)


def test_there_and_back_and_late_copies_of_it(table):
    table.offer(made(), change(1, 2, 20), change(2, 1, 30, n=0))
    assert table.pool() == {1: (30, NAME)}
    assert table.said(change(1, 2, 20)) == [Verdict.STALE]
    assert table.said(change(2, 1, 30, n=0), removal(1, 20)) == [Verdict.KNOWN] * 2
    assert table.said(change(1, 2, 40)) == [Verdict.CHANGED]
    assert table.pool() == {2: (40, {"name": "Ada", "n": 2})}


def test_a_change_to_what_is_there_already_makes_them_one(table):
    table.offer(made(), made(2, 15, {"name": "Ada", "n": 2}))
    (outcome,) = table.offer(change(1, 2, 20))
    assert (outcome.verdict, outcome.before.hash, outcome.after.hash) == (Verdict.MERGED, 1, 2)
    assert sorted(table.pool()) == [2]
    assert table.said(made()) == [Verdict.STALE]


def test_a_change_to_the_hash_of_another_object_is_a_clash(table):
    table.offer(made(), made(2, 15, {"name": "Eve", "n": 2}))
    assert table.said(change(1, 2, 20)) == [Verdict.CLASH]
    assert sorted(table.pool()) == [1, 2]


def test_the_same_hash_with_other_fields_is_a_clash(table):
    table.offer(made(type_name="Person"))
    assert table.said(made(fields={"other": 1})) == [Verdict.CLASH]
    assert table.said(made(type_name="Robot")) == [Verdict.CLASH]
    assert table.said(made(fields={"name": "Eve", "n": 0})) == [Verdict.CLASH]
    assert table.said(made(type_name="Person"), made()) == [Verdict.KNOWN] * 2
    assert table.pool() == {1: (10, NAME)}


def test_a_change_may_not_bring_new_fields_or_too_many_bytes(table):
    table.offer(made())
    assert table.said(change(1, 2, 20, other=1)) == [Verdict.UNFIT]
    room = limits.MAX_OBJECT_BYTES
    half = {"name": "x" * (room - 20), "n": 0}
    table.offer(made(5, fields=half))
    assert table.said(change(5, 6, 20, n="y" * 100)) == [Verdict.UNFIT]
    table.offer(change(1, 2, 20))
    assert table.said(change(1, 3, 30, other=1)) == [Verdict.UNFIT]


def test_a_pool_takes_so_many_objects_and_no_more(table):
    assert table.said(made(1), made(2), most=1) == [Verdict.CREATED, Verdict.FULL]
    table.offer(removal(1, 50))
    assert table.said(made(2), made(1, 60), most=1) == [Verdict.CREATED, Verdict.FULL]


def conflict():
    return [change(1, 2, 20), change(1, 3, 30), change(2, 4, 25), change(3, 5, 31)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_of_crossing_changes_the_last_holds_in_every_order(tables, order):
    table = tables()
    table.offer(made())
    events = conflict()
    waiting = [events[i] for i in order]
    while waiting:
        # A node hears of a version before it hears of what follows it.
        ready = [o for o in waiting if table.said(o) != [Verdict.UNKNOWN]]
        waiting = [o for o in waiting if o not in ready]
    assert table.pool() == {5: (31, {"name": "Ada", "n": 5})}


def test_at_the_same_millisecond_the_greater_hash_holds(tables):
    for offers in (
        [change(1, 2, 20), change(1, 3, 20)],
        [change(1, 3, 20), change(1, 2, 20)],
    ):
        table = tables()
        table.offer(made(), *offers)
        assert sorted(table.pool()) == [3]


@pytest.mark.parametrize(("removed_at", "left"), [(19, [2]), (20, [2]), (21, [])])
def test_a_removal_and_a_change_that_cross(tables, removed_at, left):
    for offers in (
        [change(1, 2, 20), removal(1, removed_at)],
        [removal(1, removed_at), change(1, 2, 20)],
    ):
        table = tables()
        table.offer(made(), *offers)
        assert sorted(table.pool()) == left


def test_an_object_that_a_peer_knows_by_an_earlier_hash_is_the_same(table):
    table.offer(made(), change(1, 2, 20))
    other = {"name": "Ada", "n": 7}
    (outcome,) = table.offer(made(7, 30, other, ancestors=(6, 1)))
    assert (outcome.verdict, outcome.before.hash) == (Verdict.CHANGED, 2)
    (outcome,) = table.offer(made(8, 25, other, ancestors=(1,)))
    assert (outcome.verdict, outcome.after.hash) == (Verdict.STALE, 7)
    table.offer(removal(7, 40))
    assert table.said(made(8, 35, other, ancestors=(1,))) == [Verdict.STALE]
    assert table.said(made(9, 45, other, ancestors=(1,))) == [Verdict.CREATED]
    assert sorted(table.pool()) == [9]


def test_a_later_stamp_of_the_same_version_is_news_once(table):
    table.offer(made())
    assert table.said(made(stamp=15), made(stamp=15)) == [Verdict.RESTAMPED, Verdict.KNOWN]
    table.offer(change(1, 2, 20))
    assert table.said(change(1, 2, 22), change(1, 2, 22)) == [Verdict.RESTAMPED, Verdict.KNOWN]
    table.offer(removal(2, 30))
    assert table.said(removal(2, 31), removal(2, 31)) == [Verdict.RESTAMPED, Verdict.KNOWN]


def test_past_versions_are_bounded_and_the_oldest_go(table, monkeypatch):
    monkeypatch.setattr("hyperbloom.store.objects.table.MAX_PAST_OBJECTS", 3)
    table.offer(made())
    for number in range(1, 10):
        table.offer(change(number, number + 1, 10 + number))
        assert table.store.object_figures().past <= 3
    assert table.said(change(8, 99, 5)) == [Verdict.STALE]
    assert table.said(change(5, 99, 5)) == [Verdict.UNKNOWN]
    monkeypatch.setattr("hyperbloom.store.objects.table.MAX_PAST_BYTES", 20)
    table.offer(change(10, 11, 50))
    assert table.store.object_figures().past == 1


def test_news_of_a_version_whose_successor_is_forgotten_is_ignored(table, monkeypatch):
    """Of two that ended at one time the lesser hash is forgotten first, here the later version."""
    table.offer(made(5), change(5, 1, 20, n=0), removal(1, 30))
    monkeypatch.setattr("hyperbloom.store.objects.table.MAX_PAST_OBJECTS", 1)
    table.offer()
    ancestor = made(8, 12, ancestors=(5,))
    assert table.said(made(5), change(5, 9, 15)) == [Verdict.UNKNOWN] * 2
    assert table.said(ancestor) == [Verdict.CREATED], "of nothing that is known here"


def test_as_many_past_versions_and_bytes_are_kept_as_may_be(table, monkeypatch):
    fields = {"n": b"x" * 40}
    packed = len(pack_fields(fields))
    monkeypatch.setattr("hyperbloom.store.objects.table.MAX_PAST_OBJECTS", 3)
    table.offer(*(made(number, fields=fields) for number in range(1, 6)))
    for number in range(1, 5):
        table.offer(removal(number, 50))
    assert table.store.object_figures().past == 3
    assert table.said(removal(1, 50), removal(2, 50)) == [Verdict.UNKNOWN, Verdict.KNOWN]
    for bound, left in ((3 * packed, 3), (3 * packed - 1, 2)):
        monkeypatch.setattr("hyperbloom.store.objects.table.MAX_PAST_BYTES", bound)
        table.offer()
        assert table.store.object_figures().past == left


def test_a_version_knows_so_many_ancestors(table):
    table.offer(made(), *(change(n, n + 1, 10 + n) for n in range(1, 20)))
    assert table.store.object(20).ancestors == tuple(range(19, 3, -1))


def test_an_ancestor_with_other_fields_is_another_object(table):
    table.offer(made())
    assert table.said(made(7, 30, {"other": 1}, ancestors=(1,))) == [Verdict.CREATED]
    assert sorted(table.pool()) == [1, 7]


def test_a_local_object_that_is_there_stays_as_it_is(table):
    table.offer(made())
    (outcome,) = table.offer(made(stamp=15, local=True))
    assert (outcome.verdict, outcome.stamp, outcome.after.stamp) == (Verdict.KNOWN, 10, 10)


def test_a_change_may_make_an_object_as_large_as_there_may_be(table):
    empty = len(pack_fields({"name": "Ada", "n": b"x" * 60_000})) - 60_000
    most = limits.MAX_OBJECT_BYTES - empty
    table.offer(made())
    assert table.said(change(1, 2, 20, n=b"x" * (most + 1))) == [Verdict.UNFIT]
    assert table.said(change(1, 2, 20, n=b"x" * most)) == [Verdict.CHANGED]


def test_no_number_is_the_same_as_no_number(table):
    none = float("nan")
    table.offer(made(fields={"x": none, "y": 1}))
    assert table.said(made(fields={"x": none, "y": 1})) == [Verdict.KNOWN]
    assert table.said(made(fields={"x": float("nan"), "y": 1})) == [Verdict.KNOWN]
    assert table.said(made(fields={"x": float("nan"), "y": 2})) == [Verdict.CLASH]
    assert table.said(made(fields={"x": 1.0, "y": 1})) == [Verdict.CLASH]


def test_an_end_that_is_late_news_is_of_what_was_then(table):
    table.offer(made(), removal(1, 30), made(stamp=31))
    (known,) = table.offer(removal(1, 30))
    assert (known.verdict, known.stamp) == (Verdict.KNOWN, 31)
    assert table.said(change(1, 2, 30)) == [Verdict.STALE]
    (changed,) = table.offer(change(1, 3, 31))
    assert (changed.verdict, changed.stamp) == (Verdict.CHANGED, 32)
    (removed,) = table.offer(removal(1, 33))
    assert (removed.verdict, removed.stamp, removed.before.hash) == (Verdict.REMOVED, 33, 3)


def test_offers_stay_as_they_were_made(table):
    offers = [made(1)]
    operation = OfferObjects(offers, 1, 10)
    offers.append(made(2))
    table.writer.submit(operation, lambda result: None)
    assert list(table.pool()) == [1]


def test_a_long_way_to_what_holds_is_walked_once(table):
    table.offer(made(), *(change(n, n + 1, 10 + n) for n in range(1, 2_000)))
    assert table.said(made()) == [Verdict.STALE]
    with table.store.environment.read() as txn:
        data = txn.get(PAST + hash_bytes(1), db=table.store.environment.databases["objects"])
    assert unpack_past(data).successor == 2_000


@pytest.mark.parametrize(
    "make",
    [
        lambda: made(1 << 63),
        lambda: made(stamp=-1),
        lambda: made(stamp=1 << 63),
        lambda: made(fields={}),
        lambda: made(fields={"": 1}),
        lambda: made(fields={"x" * 256: 1}),
        lambda: made(fields={str(n): n for n in range(256)}),
        lambda: made(fields={"a": 1 << 64}),
        lambda: made(fields={"a": bytes(limits.MAX_OBJECT_BYTES)}),
        lambda: made(ancestors=tuple(range(17))),
        lambda: made(type_name=""),
        lambda: change(1, -(1 << 63) - 1, 1),
        lambda: removal(1, -1),
        lambda: removal(1 << 63, 1),
        lambda: OfferObjects((), -1, 1),
    ],
)
def test_what_cannot_be_stored_is_refused_when_it_is_made(make):
    with pytest.raises(ValueError, match=r"."):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: made("1"),
        lambda: made(stamp=1.5),
        lambda: made(fields={1: 2}),
        lambda: made(fields={"a": object()}),
        lambda: OfferObjects((1,), 1, 1),
    ],
)
def test_what_has_the_wrong_type_is_refused_when_it_is_made(make):
    with pytest.raises(TypeError):
        make()


def test_slices_and_figures(table):
    numbers = [5, -3, 1 << 62, -(1 << 62)]
    table.offer(*(made(n, fields={"n": n}) for n in numbers))
    found, after = [], None
    while page := table.store.objects_slice(after, limit=3):
        found += [record.hash for record in page]
        after = page[-1].hash
    assert found == [5, 1 << 62, -(1 << 62), -3]
    assert list(table.store.object_hashes()) == found
    assert table.store.object(-3).fields == {"n": -3}
    assert table.store.object(4) is None
    assert [r.hash for r in table.store.objects([4, 5])] == [5]
    assert table.store.object_figures().count == 4


def test_equal_pools_have_equal_digests_however_they_came_about(tables):
    one, other = tables(), tables()
    one.offer(made(1), made(2, fields={"n": 2}))
    other.offer(made(2, fields={"n": 2}), made(3, fields=NAME), change(3, 1, 50, n=0))
    assert one.store.object_figures().digest == other.store.object_figures().digest
    other.offer(removal(1, 60))
    assert one.store.object_figures().digest != other.store.object_figures().digest


@pytest.mark.parametrize("seed", range(5))
def test_random_offers_leave_the_store_as_it_should_be(tables, seed):
    chance = random.Random(seed)
    table = tables()
    for _ in range(300):
        old, new, stamp = chance.randrange(12), chance.randrange(12), chance.randrange(60)
        kind = chance.randrange(4)
        if kind == 0:
            ancestors = tuple(chance.sample(range(12), 2))
            table.offer(made(new, stamp, {"n": new}, ancestors=ancestors))
        elif kind == 1:
            table.offer(removal(old, stamp))
        else:
            table.offer(change(old, new, stamp))
        if not _ % 50:
            table.check()


def test_damage_is_found(table):
    table.offer(made(), change(1, 2, 20), made(5, fields={"n": 5}))
    database = table.store.environment.databases["objects"]
    with table.store.environment.write() as txn:
        txn.put(LIVE + hash_bytes(5), b"short", db=database)
        txn.delete(b"q" + (2 - 1).to_bytes(8, "big") + hash_bytes(1), db=database)
    problems = " ".join(table.store.verify().problems)
    assert "cannot be read" in problems
    assert "order of age" in problems
    assert "count is kept as 2 and comes to 1" in problems
    with table.store.environment.write() as txn:
        txn.put(COUNTS_KEY, b"short", db=database)
    assert "objects: the figures cannot be read" in table.store.verify().problems
    with table.store.environment.write() as txn:
        txn.drop(database, delete=False)


def test_a_snapshot_holds_the_objects(table, tmp_path):
    table.offer(made(), made(2, fields={"n": 2}))
    table.store.snapshot(tmp_path / "copy")
    copy = Store.open_readonly(tmp_path / "copy")
    assert copy.object_figures() == table.store.object_figures()
    copy.close()


BIG = {"text": "x" * 5_000}
#: What LMDB needs for it: two pages, and its place among the others.
BIG_BYTES = disk_bytes(len(pack_fields(BIG)) + 42)


def bounds(objects, of_one):
    """Room for so many of BIG, and for so many of one origin."""
    live = -(-objects * BIG_BYTES * OWN_PART // (OWN_PART - 1))
    return DiskBounds(-(-live * PAST_PART // (PAST_PART - 1)), of_one * BIG_BYTES)


def brought(origin, objects=9, of_one=9):
    return {"origin": origin, "bounds": bounds(objects, of_one)}


def test_one_origin_has_its_part_of_the_disk_and_all_have_theirs(table):
    two = [Verdict.CREATED] * 2
    offers = [made(n, fields=BIG) for n in range(40)]
    full = [Verdict.FULL]
    assert table.said(*offers[:3], **brought(b"one", 5, 2)) == two + full
    assert table.said(*offers[2:5], **brought(b"two", 5, 2)) == two + full
    assert table.said(*offers[4:6], **brought(b"three", 5, 2)) == [Verdict.CREATED, *full]
    own = made(6, fields={"n": 1})
    assert table.said(own, bounds=bounds(5, 2)) == [Verdict.CREATED], "this node's own"
    assert table.said(removal(0, 20), **brought(b"two", 5, 2)) == [Verdict.REMOVED]
    assert table.said(offers[7], **brought(b"one", 5, 2)) == full, "there is no room in all"
    assert table.said(removal(6, 20)) == [Verdict.REMOVED]
    assert table.said(offers[7], **brought(b"one", 5, 2)) == [Verdict.CREATED]
    table.check()


def test_whoever_makes_an_object_larger_brings_all_of_it(table):
    small = {"text": ""}
    table.offer(made(1, fields=small), made(2, fields=small), **brought(b"one"))
    grow = [change(n, n + 10, 20, **BIG) for n in (1, 2)]
    assert table.said(*grow, **brought(b"two", 9, 1)) == [Verdict.CHANGED, Verdict.FULL]
    assert table.said(made(3, fields=BIG), **brought(b"one", 9, 1)) == [Verdict.FULL]
    assert table.said(change(11, 21, 30, text="y" * 5_000), **brought(b"one", 9, 1)) == [
        Verdict.CHANGED
    ], "what does not grow stays in the part that it is in"
    assert table.said(change(21, 31, 40, text=""), **brought(b"two", 9, 0)) == [Verdict.CHANGED]
    assert table.said(change(31, 41, 50, **BIG), **brought(b"one", 9, 0)) == [Verdict.FULL]
    table.check()


def test_past_versions_have_a_part_of_the_disk(table):
    more = {"bounds": bounds(9, 9)}
    for number in range(1, 40):
        table.offer(made(number, 10, BIG), removal(number, 20), **more)
        kept = table.store.object_figures()
        assert kept.disk_bytes <= more["bounds"].past
    assert 0 < kept.past < 10


@pytest.mark.parametrize("size", [1, 500, 1_990, 1_992, 1_993, 3_000, 4_080, 4_081, 65_000])
def test_what_a_record_takes_on_disk_is_no_more_than_is_counted(tmp_path, size):
    fields = {"a": bytes(size)}
    table = Table(tmp_path / "store")
    before = table.store.size().used_bytes
    count = 200
    table.offer(*(made(random.getrandbits(62), fields=fields) for _ in range(count)))
    counted = table.store.object_figures().disk_bytes
    assert table.store.size().used_bytes - before <= counted + 40 * 4_096
    table.check().store.close()


def test_a_long_chain_is_followed_in_steps(table):
    length = 60_000
    for begin in range(1, length, 10_000):
        first = [made()] if begin == 1 else []
        table.offer(*first, *(change(n, n + 1, 10 + n) for n in range(begin, begin + 10_000)))
    at, seconds, told = 100_000_000, [], ()
    while not told:
        begun = time.thread_time()
        table.at = at
        told = table.step(removal(1, 99_999))
        seconds.append(time.thread_time() - begun)
    print(len(seconds), "steps, the longest", max(seconds))
    assert told[0].verdict is Verdict.REMOVED
    assert len(seconds) > 40
    assert max(seconds) < 0.05
    table.check()


def test_a_step_of_what_others_send_is_bounded(table):
    offers = [made(n, fields={"a": bytes(60_000)}) for n in range(1, 100)]
    table.at = 1
    told = table.step(*offers, origin=b"one")
    assert 1 <= len(told) < 20
    assert table.said(*offers[len(told) :], origin=b"one") == [Verdict.CREATED] * (99 - len(told))


LATEST = 2**63 - 1
NOW = 2_000_000_000_000


def test_a_time_far_ahead_is_none(table):
    table.at = NOW * 1_000
    ahead = NOW + limits.MAX_AHEAD_MS
    more = {"origin": b"one"}
    for stamp, kept in ((ahead, ahead), (ahead + 1, NOW), (LATEST, NOW)):
        (made_so,) = table.offer(made(stamp, stamp), **more)
        assert made_so.stamp == kept
        assert table.said(made(stamp, stamp), **more) == [Verdict.KNOWN]
        (gone,) = table.offer(removal(stamp, stamp), **more)
        assert (gone.verdict, gone.stamp) == (Verdict.REMOVED, kept + 1)
    assert table.said(made(LATEST, NOW + 2), **more) == [Verdict.CREATED]
    assert table.said(removal(ahead + 1, LATEST), **more) == [Verdict.KNOWN]


def test_a_time_far_ahead_that_is_stored_counts_as_when_it_came(table):
    table.at = NOW * 1_000
    # As an older program took it: this node's own stamps are not looked at.
    table.offer(made(1, 10), removal(1, LATEST), made(2, LATEST))
    more = {"origin": b"one"}
    assert table.said(made(1, NOW), **more) == [Verdict.STALE]
    assert table.said(made(1, NOW + 1), **more) == [Verdict.CREATED]
    (changed,) = table.offer(change(2, 3, NOW + 5), **more)
    assert (changed.verdict, changed.stamp) == (Verdict.CHANGED, NOW + 5)
    assert table.said(removal(3, NOW + 6), **more) == [Verdict.REMOVED]
    table.check()
