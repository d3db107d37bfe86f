"""`wait-synced` with the npm reference, which has no digest to compare: Sync alone shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Nodes, real_nodes
from npm_peer import NpmPeer
from test_real_nodes import ALICE, FEED, OWNER, Meeting, numbered

StartNpm = Callable[[], NpmPeer]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


@pytest.mark.parametrize("dialler", ["ours", "npm"])
def test_both_get_what_they_lack_and_are_seen_to_be_in_sync(
    nodes: Nodes, npm: StartNpm, dialler: str
) -> None:
    def before(meeting: Meeting) -> None:
        meeting.node.put(*numbered(300), feed=FEED)
        meeting.peer.bulk_insert(numbered(300, start=200))

    meeting = Meeting(nodes, npm, dialler=dialler, before=before)
    done = meeting.node.command(
        "wait-synced", ALICE.public_key.hex()[:16], "--feed", FEED.hex(), "--timeout", "60"
    )
    assert done.returncode == 0, done.stderr
    assert b"by Sync alone: 500 values" in done.stdout
    assert meeting.node.values(FEED) == meeting.peer.values() == numbered(500)
    (peer,) = meeting.node.peers(FEED)
    assert (peer["in_sync"], peer["in_sync_by"]) == (True, "sync")
    assert peer["extensions"] == []
    assert meeting.refusals() == []


def test_a_node_that_only_asks_is_never_said_to_be_in_sync(nodes: Nodes, npm: StartNpm) -> None:
    meeting = Meeting(nodes, npm, raw=True)
    done = meeting.node.command(
        "wait-synced", ALICE.public_key.hex(), "--feed", FEED.hex(), "--timeout", "12"
    )
    assert done.returncode == 6, "a bare stream sends no Sync: nothing shows what it holds"
    assert b"no digest to compare" in done.stderr
    assert OWNER.public_key == FEED
