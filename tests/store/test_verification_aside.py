"""Damage outside of feeds is named: what feeds have forgotten, the pool, and what is of nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sound_store import FEED, ORIGIN, OTHER, fill

from hyperbloom.keys import keyed_hash
from hyperbloom.store import AppendValues, DropFeed, ForgetValues, PutFeed, Store
from hyperbloom.store.backup import verify
from hyperbloom.store.backup.verify import verify_path
from hyperbloom.store.lmdb.layout import META_NEXT_FEED, U32, U64
from hyperbloom.store.lmdb.transaction import WriteTransaction, write
from hyperbloom.store.objects.offers import OfferedChange, OfferedObject
from hyperbloom.store.objects.records import LIVE, PAST, PAST_BY_AGE, hash_bytes
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.writer import commit_group

Damage = Callable[[WriteTransaction], None]
HEAD = U64.pack(7) + ORIGIN


@pytest.fixture
def sound(store, run):
    """Feeds, one of which has forgotten two values, and a pool with a past version."""
    fill(run)
    run(AppendValues(FEED, [b"secret", b"old"], ORIGIN, 8))
    run(ForgetValues(FEED, [b"old"]))
    run(ForgetValues(FEED, [b"secret"], erase=True))
    offers = [
        OfferedObject(hash=1, stamp=10, fields={"n": 1}),
        OfferedChange(old=1, hash=2, stamp=20, fields={"n": 2}),
    ]
    run(OfferObjects(offers, 1, 100))
    return store


def problems(store: Store, damage: Damage) -> list[str]:
    write(store.environment, damage)
    report = store.verify()
    assert report.ok is (not report.problems)
    return report.problems


def test_forgotten_values_are_verified_and_not_counted(sound):
    seen: list[int] = []
    report = sound.verify(seen.append)
    assert (report.ok, report.problems, report.objects) == (True, [], 1)
    assert report.values == sum(one.count for one in sound.feeds())


def put(database: str, key: bytes, data: bytes) -> Damage:
    return lambda transaction: transaction.put(database, key, data)


@pytest.mark.parametrize("key", [U32.pack(77) + b"v", U32.pack(1) + b"x", U32.pack(1), b"\0\1"])
def test_a_set_kept_aside_for_no_feed(sound, key):
    found = problems(sound, put("aside", key, b"short"))
    assert found == [f"aside: the record {key.hex()} belongs to no feed"]


def test_a_set_kept_aside_that_cannot_be_read(sound):
    key = U32.pack(2) + b"v"
    found = problems(sound, put("aside", key, b"short"))
    assert f"aside: the record {key.hex()} cannot be read" in found


def test_a_set_kept_aside_with_the_id_of_a_feed(sound):
    def damage(transaction: WriteTransaction) -> None:
        aside = transaction.find_aside(transaction.feed(FEED), b"v")
        assert aside is not None
        aside.feed_id = transaction.feed(OTHER).feed_id

    name = f"feed {FEED.hex()}: what it has forgotten (v)"
    assert f"{name}: another set has its id 2" in problems(sound, damage)


def test_what_is_wrong_in_a_set_kept_aside_is_named_with_its_feed(sound):
    def damage(transaction: WriteTransaction) -> None:
        aside = transaction.find_aside(transaction.feed(FEED), b"h")
        assert aside is not None
        aside.size = 1

    name = f"feed {FEED.hex()}: what it has forgotten (h)"
    assert [one.startswith(f"{name}: its number of bytes") for one in problems(sound, damage)] == [
        True
    ]


def test_the_hash_of_a_forgotten_value_may_be_a_value(sound, run):
    run(AppendValues(FEED, [keyed_hash(b"secret")], ORIGIN, 9))
    assert sound.verify().problems == []


@pytest.mark.parametrize("feed_id", [500, (1 << 32) - 1])
@pytest.mark.parametrize("database", ["log", "index", "links", "refused", "sketches"])
def test_records_of_no_feed_are_named_once(sound, database, feed_id):
    def damage(transaction: WriteTransaction) -> None:
        for number in range(2):
            key = U32.pack(feed_id) + U64.pack(number)
            transaction.put(database, key, HEAD)

    found = problems(sound, damage)
    assert found == [f"{database}: records of feed id {feed_id}, which no feed has"]


def test_records_of_each_feed_that_is_none_are_named(sound):
    def damage(transaction: WriteTransaction) -> None:
        for feed_id in (500, 501):
            transaction.put("log", U32.pack(feed_id) + U64.pack(1), HEAD)

    assert len(problems(sound, damage)) == 2


def test_records_of_a_feed_that_is_being_dropped_are_no_fault(sound):
    commit_group(sound.environment, [DropFeed(FEED)])
    assert sound.verify().problems == []


def test_a_sum_of_no_feed(sound):
    found = problems(sound, put("meta", b"store.sum." + U32.pack(900), b""))
    assert found == ["meta: a sum is kept for feed id 900, which no feed has"]


def test_the_next_id_is_greater_than_all_there_are(store, run):
    run(PutFeed(FEED, {}))
    assert store.verify().ok

    def lose(transaction: WriteTransaction) -> None:
        transaction.delete("meta", META_NEXT_FEED)

    expected = "meta: the next feed id 1 is one that a feed has already"
    assert problems(store, lose) == [expected]
    assert problems(store, put("meta", META_NEXT_FEED, U32.pack(2))) == []


def test_a_store_without_feeds_needs_no_next_id(tmp_path):
    with_nothing = Store.open(tmp_path / "empty", durable=False)
    assert with_nothing.verify().ok
    with_nothing.close()


def test_a_store_that_was_verified_is_not_left_locked(sound):
    path = sound.path
    sound.close()
    seen: list[int] = []
    for _ in range(2):
        assert verify_path(path, seen.append).ok
    Store.open(path).close()


@pytest.mark.parametrize("is_own", [False, True])
def test_a_link_in_the_place_of_the_file_is_for_its_owner_alone(sound, tmp_path, is_own):
    sound.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.mdb").symlink_to(sound.path / "data.mdb")
    report = verify_path(tmp_path / "other", is_own=is_own)
    assert report.ok is is_own
    if not is_own:
        assert "is a symbolic link and no plain file" in report.problems[0]


def test_so_many_problems_as_may_be_named_are_named(sound, monkeypatch):
    monkeypatch.setattr(verify, "MAX_PROBLEMS", 2)

    def strays(number: int) -> list[str]:
        return problems(sound, put("log", U32.pack(500 + number) + U64.pack(1), HEAD))

    assert [len(strays(number)) for number in range(2)] == [1, 2]
    assert strays(2)[2:] == ["and 1 problems more"]
    assert strays(3)[2:] == ["and 2 problems more"]


# The pool


def test_an_object_that_is_past_and_present(sound):
    def damage(transaction: WriteTransaction) -> None:
        data = transaction.get("objects", LIVE + hash_bytes(2))
        assert data is not None
        transaction.put("objects", LIVE + hash_bytes(1), data)

    assert "objects: 1 is in the pool and a past version, too" in problems(sound, damage)


@pytest.mark.parametrize("tail", [b"\0" * 7, b"\0" * 9])
def test_an_object_under_a_key_of_another_length(sound, tail):
    def damage(transaction: WriteTransaction) -> None:
        data = transaction.get("objects", LIVE + hash_bytes(2))
        assert data is not None
        transaction.put("objects", LIVE + tail, data)

    assert problems(sound, damage) == [f"objects: the key {(LIVE + tail).hex()} is malformed"]


def test_a_past_version_that_cannot_be_read(sound):
    key = PAST + hash_bytes(1)
    found = problems(sound, put("objects", key, b"short"))
    assert found[0] == f"objects: the past version at {key.hex()} cannot be read"
    assert "objects: past is kept as 1 and comes to 0" in found
    assert found[-1] == "objects: the order of age does not name each past version once"


def test_a_past_version_without_its_age(sound):
    def damage(transaction: WriteTransaction) -> None:
        assert transaction.delete_prefix("objects", PAST_BY_AGE, 10) == 1

    expected = "objects: the past version 1 is missing in the order of age"
    assert problems(sound, damage) == [expected]


def test_an_age_of_no_version(sound):
    found = problems(sound, put("objects", PAST_BY_AGE + bytes(16), b""))
    assert found == ["objects: the order of age does not name each past version once"]
