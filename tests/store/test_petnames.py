"""What the operator calls keys, as the store keeps it."""

import pytest

from hyperbloom.store import DropFeed, PutFeed, Store, WriterInline
from hyperbloom.store.limits import MAX_PETNAME_CHARACTERS
from hyperbloom.store.records import LinkRecord, NameRecord, PendingRecord
from hyperbloom.store.restoring.restore import restore_store
from hyperbloom.store.restoring.seed import seed_store
from hyperbloom.store.tables import names, pending
from hyperbloom.store.tables.denied import DenyKey
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.store.tables.names import (
    NameKey,
    NameTaken,
    TooManyNames,
    UnnameKey,
    check_petname,
    folded,
)
from hyperbloom.store.tables.noise import RememberNoise
from hyperbloom.store.tables.pending import DropPending, PutPending

KEY, OTHER = b"k" * 32, b"o" * 32


def called(store: Store) -> dict[bytes, str]:
    return {one.key: one.name for one in store.names()}


def test_a_key_has_a_name_until_it_is_removed(store, run):
    assert run(NameKey(KEY, "alice", 5)) is None
    assert store.names() == [NameRecord(key=KEY, name="alice", named_at=5)]
    assert run(NameKey(KEY, "Alice B.", 6)) == "alice"
    assert run(NameKey(OTHER, "alice", 7)) is None, "the old name is free again"
    assert called(store) == {KEY: "Alice B.", OTHER: "alice"}
    assert store.verify().problems == []
    assert run(UnnameKey(KEY)) == "Alice B."
    assert run(UnnameKey(KEY)) is None
    assert called(store) == {OTHER: "alice"}
    assert store.verify().problems == []


def test_no_two_keys_have_one_name_however_it_is_written(store, run):
    run(NameKey(KEY, "Zo\u00eb", 5))
    for same in ("Zo\u00eb", "ZOE\u0308", "zoe\u0308"):
        with pytest.raises(NameTaken, match=KEY.hex()):
            run(NameKey(OTHER, same, 6))
    assert run(NameKey(KEY, "zoe\u0308", 7)) == "Zo\u00eb", "the same key may write it otherwise"
    assert called(store) == {KEY: "zo\u00eb"}
    assert store.verify().problems == []


def test_there_are_so_many_names_and_no_more(store, run, monkeypatch):
    monkeypatch.setattr(names, "MAX_PETNAMES", 2)
    run(NameKey(b"1" * 32, "one", 0))
    run(NameKey(b"2" * 32, "two", 0))
    with pytest.raises(TooManyNames, match="peer unname"):
        run(NameKey(b"3" * 32, "three", 0))
    assert run(NameKey(b"2" * 32, "second", 0)) == "two"


@pytest.mark.parametrize(
    "name", ["alice", "Al Smith", "Zo\u00eb", "\u5f20\u4f1f", "7up", "bob@pc", "a/b", "deadbee"]
)
def test_what_is_a_name(name):
    assert check_petname(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " alice",
        "alice ",
        "-alice",
        ".",
        "deadbeef",
        "DEADBEEF01",
        "a\tb",
        "a\nb",
        "a\x1b[2Jb",
        "a\u202eb",
        "a\u200bb",
        "a\u00a0b",
        "\u0308a",
        "127.0.0.1:4365",
        "a\ud800b",
    ],
)
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match="name"):
        check_petname(name)


def test_a_name_has_so_many_characters_and_no_more():
    longest = "z" * MAX_PETNAME_CHARACTERS
    assert check_petname(longest) == longest
    with pytest.raises(ValueError, match="1 to 64 characters, not 65"):
        check_petname(longest + "z")


def test_the_longest_name_fits_a_key_of_the_table(store, run):
    """Folding makes three characters of this one, and LMDB's keys end at 511 bytes."""
    longest = "\u0390" * MAX_PETNAME_CHARACTERS
    assert len(folded(longest).encode()) < 510
    run(NameKey(KEY, longest, 0))
    assert called(store) == {KEY: longest}


@pytest.mark.parametrize(
    ("key", "data", "problem"),
    [
        (b"k" + KEY, b"short", "names: the record 6b6b"),
        (b"k" + KEY, None, f"names: the two records of {KEY.hex()} do not fit together"),
        (b"nalice", None, f"names: the two records of {KEY.hex()} do not fit together"),
        (b"nbob", OTHER, f"names: the two records of {OTHER.hex()} do not fit together"),
    ],
)
def test_verify_names_records_that_are_wrong(store, run, key, data, problem):
    run(NameKey(KEY, "alice", 5))
    with store.environment.write() as txn:
        database = store.environment.databases["names"]
        if data is None:
            assert txn.delete(key, db=database)
        else:
            txn.put(key, data, db=database)
    assert any(problem in one for one in store.verify().problems)


def without(store: Store, *databases: str) -> None:
    """Make of a store one from before these databases."""
    for name in databases:
        database = store.environment.databases.pop(name)
        with store.environment.write() as txn:
            txn.drop(database)


def test_a_store_from_before_has_none(tmp_path):
    store = Store.open(tmp_path / "store", durable=False)
    without(store, "names", "pending")
    store.snapshot(tmp_path / "older")
    store.close()
    snapshot = Store.open_readonly(tmp_path / "older")
    assert (snapshot.names(), snapshot.pending(KEY)) == ([], [])
    assert snapshot.verify().ok
    snapshot.close()
    restore_store(tmp_path / "older", tmp_path / "new", node_key=None)
    again = Store.open(tmp_path / "new")
    WriterInline(again).submit(NameKey(KEY, "alice", 5), lambda _: None)
    assert called(again) == {KEY: "alice"}
    again.close()


def naming(path, snapshot=None, **given):
    store = Store.open(path, durable=False)
    for name, key in given.items():
        WriterInline(store).submit(NameKey(key, name, 5, takes=True), lambda _: None)
    if snapshot is not None:
        store.snapshot(snapshot)
    store.close()


def names_at(path):
    store = Store.open(path, durable=False)
    assert store.verify().problems == []
    found = called(store)
    store.close()
    return found


def test_names_come_back_with_a_backup_and_those_given_since_win(tmp_path):
    naming(tmp_path / "store", tmp_path / "snapshot", alice=KEY, carol=b"c" * 32)
    restore_store(tmp_path / "snapshot", tmp_path / "new", node_key=None)
    assert names_at(tmp_path / "new") == {KEY: "alice", b"c" * 32: "carol"}
    naming(tmp_path / "store", bob=KEY, alice=OTHER)
    restore_store(tmp_path / "snapshot", tmp_path / "store", node_key=None, replace=True)
    assert names_at(tmp_path / "store") == {KEY: "bob", OTHER: "alice", b"c" * 32: "carol"}


def test_another_nodes_names_are_not_taken(tmp_path):
    """Whoever gives a snapshot away could else say who is who on the new node."""
    naming(tmp_path / "store", tmp_path / "snapshot", alice=KEY)
    seed_store(tmp_path / "snapshot", tmp_path / "new", feeds=None, now=10.0)
    naming(tmp_path / "other", alice=OTHER)
    seed_store(tmp_path / "snapshot", tmp_path / "other", feeds=None, now=10.0, replace=True)
    assert names_at(tmp_path / "new") == {}
    assert names_at(tmp_path / "other") == {OTHER: "alice"}


def test_keys_are_found_by_their_beginning_wherever_they_stand(store, run, feed):
    issuer, trustee, denied, named, noisy = (bytes([0xAB, 0xCD, n]) + bytes(29) for n in range(5))
    link = LinkRecord(issuer=issuer, trustee=trustee, expires=9e9, first_seen=1,
                      introduced_by=b"x" * 32, raw=b"raw")  # fmt: skip
    run(PutLinks(feed, (link,)))
    run(DenyKey(denied, 0))
    run(NameKey(named, "abcd", 0))
    run(RememberNoise(noisy, 0))
    assert store.keys_beginning("abcd") == {issuer, trustee, denied, named, noisy}
    assert store.keys_beginning("abcd0") == {issuer, trustee, denied, named, noisy}
    assert store.keys_beginning("abcd01") == {trustee}
    assert store.keys_beginning(trustee.hex()) == {trustee}
    assert store.keys_beginning(feed.hex()[:8]) == {feed}
    assert store.keys_beginning("abce") == set()


def test_an_invitation_is_pending_until_the_key_comes(store, run, feed):
    assert run(PutPending(feed, KEY, 5)) is True
    assert run(PutPending(feed, OTHER, 6)) is True
    assert store.pending(feed) == [
        PendingRecord(feed_key=feed, key=KEY, invited_at=5),
        PendingRecord(feed_key=feed, key=OTHER, invited_at=6),
    ]
    assert store.pending(OTHER) == []
    assert store.verify().problems == []
    assert run(DropPending(feed, [KEY, b"z" * 32])) == 1
    assert [one.key for one in store.pending(feed)] == [OTHER]
    run(PutFeed(OTHER, {}))
    run(PutPending(OTHER, KEY, 7))
    run(DropFeed(feed))
    assert store.pending(feed) == []
    assert [one.key for one in store.pending(OTHER)] == [KEY], "of another feed"


def test_so_many_invitations_of_a_feed_are_pending_and_no_more(store, run, feed, monkeypatch):
    monkeypatch.setattr(pending, "MAX_LINKS_PER_ISSUER", 2)
    assert [run(PutPending(feed, key * 32, 0)) for key in (b"1", b"2", b"3")] == [True, True, False]
    assert len(store.pending(feed)) == 2


def test_verify_names_a_pending_record_that_cannot_be_read(store):
    with store.environment.write() as txn:
        txn.put(KEY, b"short", db=store.environment.databases["pending"])
    assert store.verify().problems == [f"pending: the record {KEY.hex()} cannot be read"]
