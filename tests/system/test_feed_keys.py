"""Feeds with keys of their own, between real nodes: made, invited to, handed over, moved."""

from __future__ import annotations

import json
import os
import stat
import time

import pytest

from hyperbloom.exit_codes import ExitCode
from hyperbloom.feed_keys import FeedKeys
from hyperbloom.keys import Identity, load_key_file


def said(done) -> str:
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def form_of(node, name: str) -> dict:
    with node.client() as client:
        return dict(client.feed(name))


def key_files(node) -> list:
    return sorted((node.folder / "feed-keys").iterdir())


@pytest.fixture
def owner(nodes):
    return nodes.make("owner", feed="words").start()


def test_a_first_feed_has_a_key_of_its_own(nodes, owner):
    with owner.client() as client:
        (form,) = client.feeds()
    assert form["key"] == owner.feed_key.hex() != owner.key.hex()
    assert (form["alias"], form["trust"]) == ("words", "owner")
    assert (form["own"], form["owner"]) == (False, True)
    # Nothing in use yet: the only feed there is.
    assert said(owner.command("put", "a", "b")) == "2 new, 0 known in words\n"
    assert "no feed" in owner.command("count", "--feed", "own").stderr.decode()
    assert owner.stop()
    owner.start()
    assert owner.values() == [b"a", b"b"]


def test_owner_and_member_keep_it_the_same(nodes, owner):
    owner.put(b"of the owner")
    member = nodes.invited(owner, "member")
    feed = owner.feed_key
    member.wait_for_count(feed, 1)
    member.put(b"of the member", feed=feed)
    owner.wait_for_count(feed, 2)
    # The owner proves itself by the feed's key; its own inserts bear the node's.
    assert {peer["key"] for peer in member.peers(feed)} == {feed.hex()}
    assert {peer["key"] for peer in owner.peers(feed)} == {member.key.hex()}
    assert said(owner.command("values", "--by", owner.key.hex())) == "of the owner\n"
    assert said(owner.command("values", "--by", member.key.hex())) == "of the member\n"
    there = said(member.command("values", "--by", feed.hex(), "--feed", feed.hex()))
    assert there == "of the owner\n"
    members = json.loads(said(owner.command("trust", "show", "--json")))["members"]
    assert [one["key"] for one in members] == [feed.hex(), member.key.hex()]
    # Left out, the member's only feed in use is meant.
    assert said(member.command("count")) == "2\n"
    assert "cannot deny itself" in owner.command("trust", "deny", feed.hex()).stderr.decode()


def test_a_tombstone_of_the_owner_is_the_owners(nodes, owner):
    owner.put(b"good", b"bad")
    member = nodes.invited(owner, "member")
    feed = owner.feed_key
    member.wait_for_count(feed, 2)
    said(member.command("feed", "join", "-", "--tombstones", "owner", stdin=feed.hex().encode()))
    said(owner.command("forget", "bad", "--publish", "--yes"))
    deadline = time.monotonic() + 30
    while b"bad" in member.values(feed):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_key_is_kept_where_nobody_else_reads_it(owner):
    said(owner.command("feed", "create", "second"))
    for path in key_files(owner):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        public = load_key_file(path).public_key.hex()
        assert public[:16] not in path.name
    assert stat.S_IMODE((owner.folder / "feed-keys").stat().st_mode) == 0o700
    refused = owner.command("feed", "create", "second")
    assert (refused.returncode, len(key_files(owner))) == (ExitCode.FAILED, 2)
    assert "names another feed" in refused.stderr.decode()
    # Killed at any moment: what has a key is there again.
    owner.kill()
    owner.start()
    assert form_of(owner, "second")["trust"] == "owner"
    (owner.folder / "feed-keys").chmod(0o755)
    owner.process.terminate()
    owner.process.wait(20)
    with pytest.raises(AssertionError, match="chmod 700"):
        owner.start()


def test_a_key_that_came_to_disk_before_its_feed_makes_one_at_the_start(owner):
    """What a kill between the two writes of `feed create` leaves: a key, and no feed."""
    assert owner.stop()
    pair = Identity(os.urandom(32))
    FeedKeys(owner.folder / "feed-keys").write(pair, "second")
    owner.start()
    form = form_of(owner, "second")
    assert (form["key"], form["trust"], form["count"]) == (pair.public_key.hex(), "owner", 0)


def test_ownership_is_handed_over_as_a_file(nodes, owner, tmp_path):
    owner.put(b"1")
    feed, file = owner.feed_key, tmp_path / "words.key"
    member = nodes.invited(owner, "member")
    member.wait_for_count(feed, 1)
    said(owner.command("feed", "key", "words", "--to", str(file)))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_key_file(file) == owner.pair
    precious = tmp_path / "precious"
    precious.write_text("mine")
    kept = owner.command("feed", "key", "words", "--to", str(precious))
    assert (kept.returncode, precious.read_text()) == (ExitCode.CONFIG, "mine")
    out = said(owner.command("feed", "key", "words", "--to", str(file), "--remove"))
    assert key_files(owner) == []
    assert owner.pair.seed.hex() not in out + owner.log_path.read_text()
    # It goes on as a member, by a chain of one link.
    form = form_of(owner, "words")
    assert (form["trust"], form["owner"], form["chain"]["links"]) == ("member", False, 1)
    owner.put(b"2", feed=feed)
    member.wait_for_count(feed, 2)
    assert {peer["key"] for peer in member.peers(feed)} == {owner.key.hex()}
    third = nodes.invited(owner, "third")
    third.wait_for_count(feed, 2)
    # And back again, while it runs.
    assert "owner of words" in said(owner.command("feed", "adopt", str(file)))
    assert form_of(owner, "words")["trust"] == "owner"
    owner.put(b"3", feed=feed)
    member.wait_for_count(feed, 3)


def test_another_node_becomes_the_owner(nodes, owner, tmp_path):
    file = tmp_path / "words.key"
    said(owner.command("feed", "key", "words", "--to", str(file), "--remove", "--expires", "1d"))
    other = nodes.make("other", feed="mine")
    # Its node does not run: it owns the feed from its start on.
    assert "next start" in said(other.command("feed", "adopt", str(file), "--alias", "words"))
    other.start()
    assert form_of(other, "words")["owner"]
    other.put(b"a", feed=owner.feed_key)
    wrong = other.command("feed", "adopt", str(other.folder / "identity.key"))
    assert "the node's own key" in wrong.stderr.decode()


def test_an_owner_leaves_no_key_behind_by_mistake(owner):
    refused = owner.command("feed", "leave", "words", "--yes")
    assert (refused.returncode, len(key_files(owner))) == (ExitCode.FAILED, 1)
    assert "--delete-key" in refused.stderr.decode()
    said(owner.command("feed", "leave", "words", "--yes", "--delete-key"))
    assert key_files(owner) == []
    assert "feed create NAME" in owner.command("count").stderr.decode()
    assert owner.stop()
    owner.start()
    assert json.loads(said(owner.command("feed", "list", "--json"))) == {"feeds": []}


class TestFromBefore:
    """A node whose feed has the node's own key goes on, and is told how to move."""

    def test_it_goes_on_and_is_marked(self, nodes):
        old = nodes.make("old").start()
        old.put(b"a")
        member = nodes.invited(old, "member")
        member.wait_for_count(old.key, 1)
        assert form_of(old, "own")["own"]
        assert "whoever knows the node's public key can read it" in said(old.command("status"))
        refused = old.command("feed", "key", "own", "--to", "x").stderr.decode()
        assert "the node's own: keep a copy of" in refused

    def test_its_values_move_and_it_is_left(self, nodes):
        old = nodes.make("old").start()
        values = [b"%05d" % i for i in range(20_000)]
        for start in range(0, len(values), 5_000):
            old.put(*values[start : start + 5_000])
        made = old.command("feed", "create", "words", "--from", "own")
        assert "words has 20000 values of own" in said(made)
        assert "new invitations" in made.stderr.decode()
        assert old.values(bytes.fromhex(form_of(old, "words")["key"])) == values
        old.put(b"later")
        assert "20001 values" in said(old.command("feed", "create", "words", "--from", "own"))
        said(old.command("feed", "leave", "own", "--yes"))
        assert old.stop()
        old.start()
        with old.client() as client:
            (form,) = client.feeds()
        assert (form["alias"], form["count"], form["own"]) == ("words", 20_001, False)

    def test_a_move_that_was_killed_goes_on(self, nodes):
        old = nodes.make("old").start()
        values = [b"%05d" % i for i in range(20_000)]
        for start in range(0, len(values), 5_000):
            old.put(*values[start : start + 5_000])
        with old.client() as client:
            form = client.create_feed("words")
            step = next(client.copy_values(source="own", feed=form["key"]))
        assert 0 < step["count"] < 20_000
        old.kill()
        old.start()
        said(old.command("feed", "create", "words", "--from", "own"))
        assert old.count(bytes.fromhex(form["key"])) == 20_000

    def test_tombstones_stay_behind(self, nodes):
        old = nodes.make("old").start()
        old.put(b"a", b"b")
        said(old.command("forget", "a", "--publish", "--yes"))
        said(old.command("feed", "create", "words", "--from", "own"))
        assert old.values(bytes.fromhex(form_of(old, "words")["key"])) == [b"b"]
