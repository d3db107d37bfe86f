"""Real twistd nodes and the command: feeds of older dialects, joined by name only."""

from __future__ import annotations

import pytest

from hyperbloom.exit_codes import ExitCode
from hyperbloom.keys import DRAFT_HASH_KEY, keyed_hash
from hyperbloom.wire import DIALECTS


def owner_of(nodes, dialect):
    owner = nodes.make(f"owner-{dialect}")
    table = f'[[feeds]]\nkey = "{owner.key.hex()}"\nalias = "old"\ndialect = "{dialect}"\n'
    owner.config_path.write_text(owner.config_path.read_text() + table)
    return owner.start()


def run(node, *command, code=0):
    done = node.command(*command)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize(("dialect", "expires"), [("1", "30d"), ("draft", "never")])
def test_an_older_dialect_from_the_invitation_to_the_values(nodes, dialect, expires):
    owner = owner_of(nodes, dialect)
    member = nodes.make("member").start()
    invited = run(owner, "invite", member.key.hex(), "--expires", expires)
    assert f"join --dialect {dialect}" in invited.stderr.decode()
    line = invited.stdout.decode().strip()

    joined = run(member, "join", line, "--dialect", dialect)
    for lack in DIALECTS[dialect].lacks:
        assert lack in joined.stderr.decode()
        assert lack in owner.log_path.read_text()
        assert lack in run(member, "status").stdout.decode()

    member.put(b"from the member", feed=owner.key)
    owner.put(b"from the owner")
    owner.wait_for_count(owner.key, 2)
    member.wait_for_count(owner.key, 2)
    assert member.digest(owner.key) == owner.digest(owner.key)
    # The dialect is kept with the feed.
    assert member.stop()
    member.start()
    member.wait_for_peers(owner.key, 1)
    with member.client() as client:
        assert client.feed(owner.key.hex())["dialect"] == dialect


def test_a_draft_feed_is_neither_joined_nor_invited_to_by_default(nodes):
    owner = owner_of(nodes, "draft")
    member = nodes.make("member").start()
    refused = run(owner, "invite", member.key.hex(), code=ExitCode.FAILED)
    assert "--expires never" in refused.stderr.decode()
    line = run(owner, "invite", member.key.hex(), "--expires", "never").stdout.decode().strip()
    refused = run(member, "join", line, code=ExitCode.REFUSED)
    assert "dialect 2" in refused.stderr.decode()
    assert "--dialect" in refused.stderr.decode()
    with member.client() as client:
        assert [feed["own"] for feed in client.feeds()] == [True]
    with owner.client() as client:
        discovery = client.feed(owner.key.hex())["discovery_key"]
    assert discovery == keyed_hash(owner.key, key=DRAFT_HASH_KEY).hex()
    shown = run(owner, "trust", "list").stdout.decode()
    assert "never expires" in shown


def test_a_feed_that_is_joined_keeps_its_dialect(nodes):
    owner = owner_of(nodes, "1")
    member = nodes.make("member").start()
    run(member, "feed", "join", owner.key.hex(), "--dialect", "1")
    run(member, "feed", "join", owner.key.hex(), "--alias", "again")
    refused = run(member, "feed", "join", owner.key.hex(), "--dialect", "2", code=ExitCode.FAILED)
    assert "leave it first" in refused.stderr.decode()
    with member.client() as client:
        form = client.feed("again")
    assert form["dialect"] == "1"
    assert form["lacks"] == list(DIALECTS["1"].lacks)
