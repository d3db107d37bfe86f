"""Our node forgets and denies; the npm peer goes on as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Nodes, real_nodes, wait_until
from npm_peer import NpmPeer

from hyperbloom.keys import Identity
from hyperbloom.trust import issue_link

OWNER = Identity(bytes([1]) * 32)
ALICE = Identity(bytes([2]) * 32)
FEED = OWNER.public_key
VALUES = [b"%04d" % number for number in range(500)]
SYNCS = 20


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def meet(nodes: Nodes, npm: Callable[[], NpmPeer]):
    """Our node, the feed's owner, and an npm peer that holds VALUES."""
    config = "[sync]\ninterval = 0.2\njitter = 0"
    node = nodes.make("ours", seed=OWNER.seed, config=config).start()
    peer = npm()
    link = issue_link(OWNER, ALICE.public_key, expires=4e9, nonce=bytes(32)).to_bytes()
    peer.node(seed=ALICE.seed, feed_key=FEED, chain=[link])
    peer.bulk_insert(VALUES)
    peer.connect_securely(node.port)
    node.wait_for_count(FEED, len(VALUES))
    return node, peer


def test_what_is_forgotten_stays_away_and_is_not_sent_again(
    nodes: Nodes, npm: Callable[[], NpmPeer]
) -> None:
    node, peer = meet(nodes, npm)
    done = node.command("forget", "--start", "0100", "--end", "0200", "--yes")
    assert done.stdout == b"100 forgotten in own, 400 bytes\n", done.stderr
    (before,) = node.peers(FEED)
    seen = set()

    def synced() -> bool:
        seen.update(one["last_sync_sent"] for one in node.peers(FEED))
        return len(seen) > SYNCS

    wait_until(synced, 60, f"{SYNCS} syncs")
    (after,) = node.peers(FEED)
    assert after["values_in"] == before["values_in"]
    assert node.values(FEED) == VALUES[:100] + VALUES[200:]
    assert peer.count() == len(VALUES)


def test_a_denied_npm_peer_is_cut_off(nodes: Nodes, npm: Callable[[], NpmPeer]) -> None:
    node, peer = meet(nodes, npm)
    assert node.command("trust", "deny", ALICE.public_key.hex()).returncode == 0
    node.wait_for_peers(FEED, 0)
    peer.insert(b"late")
    peer.connect(node.port)
    with node.client() as client:
        wait_until(
            lambda: len([r for r in client.status()["refusals"] if r["kind"] == "denied"]) == 2,
            20,
            "refused twice",
        )
    assert b"late" not in node.values(FEED)
