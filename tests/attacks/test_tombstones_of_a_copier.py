"""A member who copies a value to a node before its author reaches it, and takes it back there.

A value has no author, and who brought it first proves nothing. So he must not get it forgotten, at
a node that was told in older versions to follow members either.
"""

from __future__ import annotations

import pytest
from attacker import DATA, Connection, KeyPair, hashed, values_of
from nodes import RealNode

VALUE = b"said by the owner"
FEED = """
[[feeds]]
key = "{key}"
alias = "main"
peers = ["{address}"]
tombstones = "{whom}"
[sync]
retry_first = 0.1
retry_longest = 1.0
"""


def tombstone(key: KeyPair, feed: bytes, value: bytes) -> bytes:
    """The value that asks for another to be forgotten, signed by anybody."""
    signature = key.sign(hashed(b"hyperbloom-forget:1" + feed + value))
    parts = (key.public.hex(), signature.hex(), value.hex())
    return b"hyperbloom-forget:1:" + ":".join(parts).encode()


def copied(owner: RealNode, key: KeyPair, chain: list[bytes]) -> bytes:
    """What the member reads of the owner."""
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.shake_hands(owner.feed_key, key, chain)
        wire.send_request()
        while True:
            message_id, body = wire.receive()
            if message_id == DATA:
                return values_of(body)[0]


@pytest.mark.parametrize("whom", ["members", "owner"])
def test_who_copies_a_value_first_cannot_take_it_back(nodes, whom):
    owner, member = nodes.make("owner", feed="main").start(), KeyPair.random()
    with owner.client() as client:
        chain = [bytes.fromhex(client.issue_link(member.public, expires=4e9)["link"])]
    feed = owner.feed_key
    config = FEED.format(key=feed.hex(), address=owner.address, whom=whom)
    reader = nodes.invited(owner, "reader", config=config)
    assert reader.stop()
    owner.put(VALUE)
    copy = copied(owner, member, chain)
    assert owner.stop()

    reader.start()
    his = tombstone(member, feed, copy)
    with Connection.dial(("127.0.0.1", reader.port)) as wire:
        wire.shake_hands(feed, member, chain)
        wire.send_data([copy])
        reader.wait_for_count(feed, 1)
        wire.send_data([his])
        # Behind it: once this is there, the tombstone was read.
        wire.send_data([b"and more"])
        owner.start()
        reader.wait_for_peers(feed, 2)
        owner.wait_for_count(feed, 3)
        done = reader.command("wait-synced", owner.address, "--feed", "main", "--timeout", "60")
        assert done.returncode == 0, done.stderr
    assert reader.values(feed) == sorted([VALUE, his, b"and more"])
    assert owner.values(feed) == reader.values(feed)

    # The owner's own word is followed as before.
    told = owner.command("forget", "--publish", VALUE.decode())
    assert told.returncode == 0, told.stderr
    done = reader.command("wait-synced", owner.address, "--feed", "main", "--timeout", "60")
    assert done.returncode == 0, done.stderr
    assert VALUE not in reader.values(feed)


def test_a_configuration_from_before_is_read_as_the_safe_one_and_says_so(nodes):
    owner = nodes.make("owner", feed="main").start()
    config = FEED.format(key=owner.feed_key.hex(), address=owner.address, whom="members")
    reader = nodes.invited(owner, "reader", config=config)
    said = '[[feeds]] 1 tombstones: "members" is read as "owner"'
    assert reader.log_path.read_text().count(said) == 1
    assert reader.command("reload").returncode == 0
    assert reader.log_path.read_text().count(said) == 2
    checked = reader.command("config", "check")
    assert checked.returncode == 0, checked.stdout
    assert f"warning: {said}" in " ".join(checked.stdout.decode().split())
    with reader.client() as client:
        assert client.feed("main")["tombstones"] == "owner"
    done = reader.command("feed", "join", "main", "--tombstones", "members")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"'members' is not one of 'off', 'owner'" in done.stderr
