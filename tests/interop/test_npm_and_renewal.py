"""npm peers do not speak `renew-links`: a node that renews by itself leaves them alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Nodes, real_nodes
from npm_peer import NpmPeer

from hyperbloom.keys import Identity

MEMBER = Identity(bytes([2]) * 32)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def test_an_npm_member_whose_link_ends_soon_is_sent_nothing(
    nodes: Nodes, npm: Callable[[], NpmPeer]
) -> None:
    owner = nodes.make("owner", config="[trust]\nrenew_links = true\n").start()
    issued = owner.command("trust", "issue", MEMBER.public_key.hex(), "--expires", "1d")
    link = bytes.fromhex(issued.stdout.decode())
    owner.put(b"ours")
    peer = npm()
    peer.node(seed=MEMBER.seed, feed_key=owner.key, chain=[link])
    peer.insert(b"npm's")
    peer.connect_securely(owner.port)
    peer.until(has=[b"ours"])
    owner.wait_for_count(owner.key, 2)
    done = owner.command("trust", "renew", MEMBER.public_key.hex(), "--expires", "9d")
    assert b"its node does not take renewed links: invite it again" in done.stderr
    owner.put(b"later")
    peer.until(has=[b"later"])
    (connected,) = owner.peers(owner.key)
    assert connected["strikes"] == 0
    assert peer.events("error") == []
    assert "is renewed" not in owner.log_path.read_text()
    with owner.client() as client:
        assert len(client.links()) == 1, "the one that was renewed by hand, in place of the first"
