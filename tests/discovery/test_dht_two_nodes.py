"""A DHT of two: each holds what the other one put, and reads it from its own store."""

from __future__ import annotations

import os

import pytest
from simnet import SimNetwork

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.items import MAX_SEQ, immutable_target, sign_item
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.keys import Identity

OWNER = Identity(b"o" * 32)
SALT = b"s"
#: The longest that mainline (Rust) puts: 1,000 bytes, 1,005 with their length.
LONGEST = b"1000:" + b"x" * 1_000


class Pair:
    """Two nodes that know each other and nobody else."""

    def __init__(self) -> None:
        self.network = SimNetwork(seed=5)
        self.one, self.other = self.node("9.0.0.1"), self.node("9.0.0.2")
        assert self.network.wait(self.other.bootstrap([Address("9.0.0.1", 6881)])) == 1
        self.network.run(5.0)
        assert self.one.status().nodes == 1

    def node(self, host: str) -> DhtNode:
        node = DhtNode(
            self.network.reactor(host), DhtSettings(), random_bytes=self.network.random_bytes
        )
        node.listen(6881)
        return node

    def wait(self, deferred):
        return self.network.wait(deferred)


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.mark.parametrize("value", [b"9:its value", LONGEST], ids=["short", "longest"])
def test_a_mutable_item_of_the_other(pair: Pair, value: bytes) -> None:
    item = sign_item(OWNER, salt=SALT, seq=MAX_SEQ, value=value)
    assert pair.wait(pair.one.put_mutable(item)).found
    found = pair.wait(pair.other.get_mutable(OWNER.public_key, SALT))
    assert found.items == (item,)
    assert found.holding == 1


def test_each_finds_both_records(pair: Pair) -> None:
    """As the topic tracker has it: one key for both, and different values."""
    items = [
        sign_item(OWNER, salt=SALT, seq=MAX_SEQ, value=value) for value in (b"3:one", b"5:other")
    ]
    assert pair.wait(pair.one.put_mutable(items[0])).found
    report = pair.wait(pair.other.put_mutable(items[1]))
    assert report.found
    assert report.others == (items[0],)
    for node in (pair.one, pair.other):
        found = pair.wait(node.get_mutable(OWNER.public_key, SALT))
        assert set(found.items) == set(items)
        assert found.holding == 2


@pytest.mark.parametrize("value", [b"l1:ai2ee", LONGEST], ids=["short", "longest"])
def test_an_immutable_item_of_the_other(pair: Pair, value: bytes) -> None:
    assert pair.wait(pair.one.put_immutable(value)).found
    assert pair.wait(pair.other.get_immutable(immutable_target(value))).value == value


def test_a_peer_announced_by_the_other(pair: Pair) -> None:
    info_hash = os.urandom(20)
    assert pair.wait(pair.one.announce_peer(info_hash, 80)).stored == 1
    assert pair.wait(pair.other.get_peers(info_hash)).peers == (Address("9.0.0.1", 80),)


def test_nothing_is_found_where_nothing_was_put(pair: Pair) -> None:
    found = pair.wait(pair.other.get_mutable(OWNER.public_key, SALT))
    assert (found.items, found.holding) == ((), 0)
    assert pair.wait(pair.other.get_immutable(b"t" * 20)).value is None
    assert pair.wait(pair.other.get_peers(b"t" * 20)).peers == ()
