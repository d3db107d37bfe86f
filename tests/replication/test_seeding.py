"""What is taken of a feed from another node's snapshot: nothing that would steer this node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hyperbloom.keys import Identity
from hyperbloom.replication.feed.snapshot_import import taken_of
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import (
    AppendValues,
    PutFeed,
    Store,
    WriterInline,
)
from hyperbloom.store.records import FeedRecord, LinkRecord
from hyperbloom.store.restoring.seed import seed_store
from hyperbloom.store.tables.links import PutLinks
from hyperbloom.trust import issue_link

OWNER, MEMBER, STRANGER = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
FEED = OWNER.public_key
THEIRS = FeedSettings(
    key=FEED,
    alias="birds",
    mode="range",
    ranges=((b"a", b"c"),),
    peers=("10.0.0.1:22",),
    issue_links=False,
    retain_age=5.0,
    retain_values=6,
    retain_bytes=7,
    tombstones="owner",
)


def record(settings) -> FeedRecord:
    return FeedRecord(key=FEED, count=1, bytes=1, digest=bytes(32), top_seq=1, settings=settings)


def link(by: Identity, to: Identity, **wrong) -> LinkRecord:
    made = issue_link(by, to.public_key, expires=2e9, nonce=bytes(32))
    good = LinkRecord(
        issuer=by.public_key,
        trustee=to.public_key,
        expires=2e9,
        first_seen=1,
        introduced_by=FEED,
        raw=made.to_bytes(),
    )
    return replace(good, **wrong)


GENUINE = link(OWNER, MEMBER)
FORGED = [
    link(STRANGER, STRANGER, issuer=FEED),
    link(OWNER, MEMBER, trustee=STRANGER.public_key),
    link(OWNER, MEMBER, expires=3e9),
    link(OWNER, MEMBER, raw=GENUINE.raw[:-1] + b"\xff"),
    link(OWNER, MEMBER, raw=GENUINE.raw[:-1]),
    link(OWNER, MEMBER, raw=b"\x09" * len(GENUINE.raw)),
]


def test_settings_say_what_the_values_are_and_nothing_of_what_to_do():
    taken = FeedSettings.from_json(taken_of(record(THEIRS.to_json()), []).settings)
    assert taken == FeedSettings(key=FEED, alias="birds", mode="range", ranges=((b"a", b"c"),))


@pytest.mark.parametrize("forged", FORGED)
def test_a_link_that_nobody_signed_is_left_out(forged):
    taken = taken_of(record(THEIRS.to_json()), [forged, GENUINE])
    assert taken.links == (GENUINE,)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {**THEIRS.to_json(), "dialect": "9"},
        {**THEIRS.to_json(), "key": STRANGER.public_key.hex()},
    ],
)
def test_settings_that_are_none_are_refused(settings):
    with pytest.raises((ValueError, KeyError)):
        taken_of(record(settings), [])


def test_a_seeded_store_has_what_was_taken(tmp_path):
    store = Store.open(tmp_path / "theirs", durable=False)
    writer = WriterInline(store)
    for operation in (
        PutFeed(FEED, THEIRS.to_json()),
        AppendValues(FEED, [b"b"], FEED, 1),
        PutLinks(FEED, (GENUINE, FORGED[0])),
    ):
        writer.submit(operation, lambda _: None)
    store.snapshot(tmp_path / "taken")
    store.close()
    seed_store(tmp_path / "taken", tmp_path / "new", feeds=None, now=1.9e9, take=taken_of)
    new = Store.open(tmp_path / "new", create=False)
    assert new.links(FEED) == [GENUINE]
    assert new.feed(FEED).settings["peers"] == []
    assert new.feed(FEED).settings["tombstones"] == "off"
    new.close()
