"""The npm packages' swarm: nodes that know only the feed's key meet by BEP-5 announcements."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import npm_peer
import pytest
from dht_peers import bittorrent_dht
from nodes import Nodes, real_nodes, wait_until

from hyperbloom.keys import Identity, discovery_key
from hyperbloom.trust import issue_link

OWNER = Identity(bytes([1]) * 32)
ALICE = Identity(bytes([2]) * 32)
FEED = OWNER.public_key
#: As npm hyperbloom's swarm names the feed.
INFO_HASH = hashlib.sha1(discovery_key(FEED)).hexdigest()
FIND_SECONDS = 60


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


@pytest.fixture
def dht() -> Iterator[npm_peer.NpmPeer]:
    """Three nodes of bittorrent-dht."""
    try:
        peer = bittorrent_dht()
    except npm_peer.UnavailableError as error:
        if os.environ.get("HYPERBLOOM_REQUIRE_NPM"):
            raise
        pytest.skip(str(error))
    with peer:
        yield peer


def config(ports: list[int]) -> str:
    bootstrap = json.dumps([f"127.0.0.1:{port}" for port in ports])
    return (
        f"[discovery]\nenabled = true\nbootstrap = {bootstrap}\nport = 0\n"
        'interface = "127.0.0.1"\nlan = "off"\n[discovery.swarm]\nretry_interval = 1\n'
    )


def test_a_node_of_the_npm_swarm_is_found_and_dialled(
    nodes: Nodes, dht: npm_peer.NpmPeer, npm: Callable[[], npm_peer.NpmPeer]
) -> None:
    ports = dht.call("start", count=3)["ports"]
    ours = nodes.make("ours", seed=OWNER.seed, config=config(ports)).start()
    ours.put(b"from the owner")
    link = issue_link(OWNER, ALICE.public_key, expires=4e9, nonce=bytes(32)).to_bytes()
    member = npm()
    member.node(seed=ALICE.seed, feed_key=FEED, chain=[link])
    member.insert(b"from the npm member")
    dht.call("announce", node=1, infoHash=INFO_HASH, port=member.listen())
    ours.wait_for_count(FEED, 2, FIND_SECONDS)
    assert ours.values(FEED) == [b"from the npm member", b"from the owner"]
    wait_until(lambda: member.count() == 2, FIND_SECONDS, "the member has both")
    with ours.client() as client:
        found = client.discovery(FEED.hex())["found"]
    assert [one["source"] for one in found if one["state"] == "joined"] == ["swarm"]


def test_a_node_of_the_npm_swarm_finds_ours(nodes: Nodes, dht: npm_peer.NpmPeer) -> None:
    ports = dht.call("start", count=3)["ports"]
    ours = nodes.make("ours", seed=OWNER.seed, config=config(ports)).start()
    ours.put(b"x")

    def found() -> bool:
        return ours.address in dht.call("peers", node=2, infoHash=INFO_HASH)["peers"]

    wait_until(found, FIND_SECONDS, "our announcement is found")
