"""What the API relies on in a node, held against the real one and against the fake alike.

The other tests of the API run on the fake: what they show holds for a node because of these.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_node import FakeNode
from twisted.internet.defer import Deferred

sys.path.insert(0, str(Path(__file__).parent.parent / "replication"))

from sim import Network

from hyperbloom.api.served import ServedFeed, ServedNode
from hyperbloom.digests import element_sum, set_digest
from hyperbloom.keys import Identity, discovery_key
from hyperbloom.replication.feed.forgetting import Selection
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.feeds import UnknownFeed
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.replication.sync.wait_synced import UnknownPeer
from hyperbloom.store import StoreError
from hyperbloom.trust import ChainError, issue_link

OTHERS = Identity(b"o" * 32)
MEMBER = Identity(b"m" * 32)
VALUES = [b"b", b"a", b"c" * 100]


class Asked:
    """A node, and a way to wait for what it answers."""

    def __init__(self, node: ServedNode, settle: Callable[[], None]) -> None:
        self.node = node
        self.settle = settle

    def result(self, operation: Callable[[], Any]) -> Any:
        """What comes of it, raised or returned, at once or later."""
        asked = operation()
        if inspect.iscoroutine(asked):
            asked = Deferred.fromCoroutine(asked)
        outcome: list[Any] = []
        asked.addBoth(outcome.append)
        if not outcome:
            self.settle()
        (found,) = outcome
        if hasattr(found, "raiseException"):
            found.raiseException()
        return found

    @property
    def own(self) -> ServedFeed:
        return self.node.feeds[self.node.identity.public_key]

    def put(self, *values: bytes) -> Any:
        return self.result(lambda: self.own.insert(values))


@pytest.fixture(params=["real", "fake"])
def asked(request, tmp_path):
    if request.param == "fake":
        yield Asked(FakeNode(), lambda: None)
        return
    network = Network(tmp_path)
    one = network.add("one")
    yield Asked(one.node, lambda: network.run(1))
    network.close()


def test_values_are_stored_once_in_byte_order(asked):
    appended = asked.put(*VALUES, b"a")
    assert (appended.values, appended.first_seq, appended.top_seq) == (VALUES, 1, 3)
    assert asked.put(b"a", b"d").values == [b"d"]
    assert asked.own.values.has([b"d", b"e", b"a"]) == [True, False, True]
    page = asked.result(lambda: asked.own.values.read(b"", None, limit=2, max_bytes=1_000))
    assert (page.values, page.next_start) == ([b"a", b"b"], b"b\0")
    page = asked.result(lambda: asked.own.values.read(b"b", b"d", limit=2, max_bytes=1_000))
    assert (page.values, page.next_start) == ([b"b", b"c" * 100], None)
    page = asked.result(lambda: asked.own.values.read(b"c", None, limit=9, max_bytes=1))
    assert (page.values, page.next_start) == ([b"c" * 100], b"c" * 100 + b"\0")


def test_the_record_counts_what_is_there(asked):
    asked.put(*VALUES)
    record = asked.own.values.record()
    assert (record.count, record.bytes, record.top_seq) == (3, 102, 3)
    assert record.digest == set_digest(3, element_sum(VALUES))
    assert record.digest_left == 0


def test_no_value_is_empty(asked):
    with pytest.raises(ValueError, match="at least one byte"):
        asked.put(b"a", b"")
    assert asked.own.values.record().count == 0


def test_the_log_is_read_behind_a_number(asked):
    asked.put(*VALUES)
    first = asked.result(lambda: asked.own.values.log_after(0, limit=2, max_bytes=1_000))
    assert [(record.seq, record.value) for record in first.records] == [(1, b"b"), (2, b"a")]
    assert first.last_seq == 2
    assert {record.origin for record in first.records} == {asked.node.identity.public_key}
    rest = asked.result(lambda: asked.own.values.log_after(2, limit=2, max_bytes=1))
    assert [record.value for record in rest.records] == [b"c" * 100]
    none = asked.result(lambda: asked.own.values.log_after(3, limit=2, max_bytes=1_000))
    assert (none.records, none.last_seq) == ([], 3)


def test_the_log_says_of_which_life_it_is(asked):
    life = asked.own.values.life()
    asked.put(*VALUES)
    assert asked.own.values.life() == life
    assert life[0] >= 1
    assert life[1] == 0


def test_subscribers_hear_of_what_is_stored_until_they_leave(asked):
    heard: list[Any] = []
    leave = asked.own.values.subscribe(lambda stored, *_: heard.append(list(stored.values)))
    asked.put(b"a")
    leave()
    asked.put(b"b")
    assert heard == [[b"a"]]


def test_interest_is_taken_and_lost(asked):
    lose = asked.own.take_interest(b"a", None)
    assert lose() is None


def test_feeds_are_found_by_key_and_alias(asked):
    settings = FeedSettings(key=OTHERS.public_key, alias="others")
    asked.result(lambda: asked.node.join(settings))
    feed = asked.node.feeds[OTHERS.public_key]
    assert asked.node.resolve("others") is feed
    assert asked.node.resolve(OTHERS.public_key.hex()) is feed
    assert feed.settings == settings
    assert (feed.key, feed.discovery_key) == (settings.key, discovery_key(settings.key))
    with pytest.raises(UnknownFeed):
        asked.node.resolve("nobody")


def test_a_feed_that_is_joined_again_has_the_new_settings(asked):
    for alias in ("one", "two"):
        settings = FeedSettings(key=OTHERS.public_key, alias=alias)
        asked.result(lambda settings=settings: asked.node.join(settings))
    assert asked.node.feeds[OTHERS.public_key].settings.alias == "two"


def test_a_feed_that_is_left_is_gone(asked):
    asked.result(lambda: asked.node.join(FeedSettings(key=OTHERS.public_key)))
    asked.result(lambda: asked.node.leave(OTHERS.public_key))
    assert OTHERS.public_key not in asked.node.feeds


def test_who_has_no_chain_may_not_write(asked):
    asked.result(lambda: asked.node.join(FeedSettings(key=OTHERS.public_key)))
    feed = asked.node.feeds[OTHERS.public_key]
    assert feed.trust.chain is None
    with pytest.raises(NotTrusted):
        asked.result(lambda: feed.insert([b"a"]))
    with pytest.raises(NotTrusted):
        asked.result(
            lambda: feed.trust.issue_link(MEMBER.public_key, expires=asked.node.context.now() + 60)
        )


def test_a_chain_that_is_given_lets_write(asked):
    asked.result(lambda: asked.node.join(FeedSettings(key=OTHERS.public_key)))
    feed, ends = asked.node.feeds[OTHERS.public_key], asked.node.context.now() + 3_600
    own = asked.node.identity.public_key
    link = issue_link(OTHERS, own, expires=ends, nonce=bytes(32))
    chain = asked.result(lambda: feed.trust.add_links([link.to_bytes()]))
    assert (chain.holder, len(chain)) == (own, 1)
    assert feed.trust.chain is not None
    assert asked.result(lambda: feed.insert([b"a"])).values == [b"a"]
    (stored,) = feed.trust.links()
    assert (stored.issuer, stored.trustee) == (OTHERS.public_key, own)
    with pytest.raises(ChainError):
        asked.result(lambda: feed.trust.add_links([b"no link"]))


def test_who_is_issued_a_link_is_a_member(asked):
    ends = asked.node.context.now() + 3_600
    link = asked.result(lambda: asked.own.trust.issue_link(MEMBER.public_key, expires=ends))
    assert (link.public_key, link.expires) == (MEMBER.public_key, ends)
    (member,) = asked.own.trust.members()
    owner = asked.node.identity.public_key
    assert (member.key, member.depth, member.introduced_by) == (MEMBER.public_key, 1, owner)


def test_keys_are_denied_and_allowed(asked):
    assert asked.result(lambda: asked.node.deny(MEMBER.public_key, "spam")) is True
    assert asked.result(lambda: asked.node.deny(MEMBER.public_key, "spam")) is False
    assert [(one.key, one.reason) for one in asked.node.denied()] == [(MEMBER.public_key, "spam")]
    assert asked.result(lambda: asked.node.allow(MEMBER.public_key)) is True
    assert asked.result(lambda: asked.node.allow(MEMBER.public_key)) is False
    assert asked.node.denied() == []


def test_nobody_waits_for_a_peer_that_there_is_not(asked):
    with pytest.raises(UnknownPeer):
        asked.result(lambda: asked.node.wait_synced(asked.own.key, ["nobody:1"], timeout=1.0))


def test_what_is_not_there_is_not_forgotten(asked):
    step = asked.result(
        lambda: asked.own.forgetting.step(Selection(values=(b"x", b"y")), None, dry_run=True)
    )
    assert (step.count, step.absent, step.next) == (0, 2, None)
    figures = asked.own.forgetting.figures()
    assert (figures.count, figures.hashes) == (0, 0)


def test_a_snapshot_is_of_the_node_and_goes_into_a_new_folder(asked, tmp_path):
    asked.put(*VALUES)
    info = asked.node.store.snapshot(tmp_path / "copy")
    assert [(feed.key, feed.count) for feed in info.feeds] == [(asked.own.key, 3)]
    (tmp_path / "there").mkdir()
    with pytest.raises(StoreError):
        asked.node.store.snapshot(tmp_path / "there")


def test_a_node_that_works_says_so(asked):
    status = asked.node.status()
    assert status.public_key == asked.node.identity.public_key
    assert [feed.key for feed in status.feeds] == list(asked.node.feeds)
    assert asked.node.store_problem() is None
    assert [feed.key for feed in asked.node.traffic().feeds] == list(asked.node.feeds)
