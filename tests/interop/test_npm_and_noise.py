"""npm peers do not speak `noise`: spoken to under `prefer`, refused with the cure by `require`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, real_nodes, wait_until
from npm_peer import NpmPeer

from hyperbloom.keys import Identity
from hyperbloom.trust import issue_link

OWNER, MEMBER = Identity(bytes([1]) * 32), Identity(bytes([2]) * 32)
FEED = OWNER.public_key


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def run(node: RealNode, *command: str) -> None:
    done = node.command(*command)
    assert done.returncode == 0, done.stderr


def why_refused(node: RealNode) -> str:
    """Waits until the node has refused somebody; the sentence that its operator sees."""

    def reasons() -> list[str]:
        with node.client() as client:
            refusals = client.status()["refusals"]
        return [one["reason"] for one in refusals if one["kind"] == "unprotected"]

    wait_until(reasons, 60, "a refusal")
    return reasons()[0]


@pytest.mark.parametrize("dialler", ["ours", "npm"])
@pytest.mark.parametrize("ours", ["owner", "member"])
def test_required_noise_refuses_an_npm_peer_and_says_what_to_do(
    nodes: Nodes, npm: Callable[[], NpmPeer], ours: str, dialler: str
) -> None:
    mine, theirs = (OWNER, MEMBER) if ours == "owner" else (MEMBER, OWNER)
    link = issue_link(OWNER, MEMBER.public_key, expires=4e9, nonce=bytes(32)).to_bytes()
    feed = f'[[feeds]]\nkey = "{FEED.hex()}"\nnoise = "require"\n'
    node = nodes.make("ours", seed=mine.seed, config=feed).start()
    if mine is MEMBER:
        run(node, "trust", "add", FEED.hex(), link.hex())
    node.put(b"ours", feed=FEED)
    peer = npm()
    peer.node(seed=theirs.seed, feed_key=FEED, chain=[link] if theirs is MEMBER else [])
    peer.insert(b"npm's")
    if dialler == "npm":
        peer.connect(node.port)
    else:
        run(node, "feed", "join", FEED.hex(), "--peer", f"127.0.0.1:{peer.listen()}")

    why = why_refused(node)
    assert "does not speak `noise`" in why
    assert 'set `noise = "prefer"` for this feed' in why
    assert why.encode() in node.command("status").stdout.replace(b"\n  ", b" ")
    assert peer.values() == [b"npm's"]
    assert node.values(FEED) == [b"ours"]
    # The cure that it names.
    run(node, "feed", "join", FEED.hex(), "--noise", "prefer")
    if dialler == "npm":
        peer.connect_securely(node.port)
    node.wait_for_count(FEED, 2)
    (connected,) = node.peers(FEED)
    assert connected["protected"] is False
