"""What an operator finds in the log: who came and went, and what is to be done."""

from __future__ import annotations

import pytest
from nodes import Nodes, RealNode, real_nodes, wait_until


@pytest.fixture
def nodes(tmp_path):
    with real_nodes(tmp_path) as made:
        yield made


def told(node: RealNode, words: str) -> list[str]:
    """The levels of the log's lines that have these words."""
    lines = node.log_path.read_text().splitlines()
    return [line.split("#", 1)[1].split("]")[0] for line in lines if words in line and "#" in line]


def wait_for(node: RealNode, words: str) -> list[str]:
    wait_until(lambda: told(node, words), 30, f"{words!r} is in the log")
    return told(node, words)


def test_who_came_and_went_and_what_is_to_be_done(nodes: Nodes) -> None:
    owner = nodes.make("owner", feed="words").start()
    member = nodes.invited(owner, "member", expires="8s")
    assert wait_for(owner, ": connected") == ["info"]
    assert wait_for(member, ": connected") == ["info"]
    assert told(member, "is joined") == ["info"]
    # Its links came a moment after the feed.
    assert told(member, "no unexpired chain") == []
    assert wait_for(member, "may not write to") == ["error"]
    assert member.command("put", "--feed", owner.feed_key.hex(), "late").returncode == 5
    assert wait_for(member, "A put into") == ["error"]
    assert wait_for(owner, "a link of its chain has expired")[0] == "info"
    assert owner.feed_key.hex() not in member.log_path.read_text()
    line = owner.command("invite", member.key.hex()).stdout
    assert member.command("join", "-", stdin=line).returncode == 0
    assert wait_for(member, "again") == ["info"]
    wait_until(lambda: len(told(owner, ": connected")) == 2, 30, "it is back")
    member.stop()
    assert wait_for(owner, ": gone") == ["info"]
    left = owner.command("feed", "leave", "words", "--delete-key", "--yes")
    assert left.returncode == 0, left.stderr
    assert told(owner, "is left") == ["info"]
