"""The attacker himself: where he plays fair, nodes and recorded peers take him for a peer."""

from __future__ import annotations

import pytest
from attacker import DATA, Connection, KeyPair, KeyStream, Listener, values_of

VALUES = [b"value %04d" % number for number in range(300)]


def feed_of(dialect, key):
    return f'[[feeds]]\nkey = "{key.hex()}"\nalias = "f"\ndialect = "{dialect}"\n'


def read_all(wire, count):
    wire.send_request()
    found = []
    while len(found) < count:
        message_id, body = wire.receive()
        if message_id == DATA:
            found += values_of(body)
    return found


@pytest.mark.parametrize("dialect", ["2", "1", "draft"])
def test_an_invited_attacker_reads_and_writes_in_either_role(nodes, dialect):
    seed, key = bytes(range(32)), KeyPair.random()
    owner = KeyPair(seed)
    with Listener("127.8.0.1") as listener:
        peers = f'peers = ["{listener.address}"]\n[sync]\nretry_first = 0.1'
        node = nodes.make("owner", seed=seed, config=feed_of(dialect, owner.public) + peers).start()
        node.put(*VALUES)
        chain = [owner.link(key.public, dialect=dialect)]
        dialled = Connection.dial(("127.0.0.1", node.port), source="127.7.0.1")
        for number, wire in enumerate([dialled, listener.accept()]):
            with wire:
                seen = wire.shake_hands(owner.public, key, chain, dialect=dialect)
                assert seen.key == (owner.public if dialect == "draft" else None)
                assert sorted(read_all(wire, len(VALUES))) == VALUES + [b"written 0"] * number
                wire.send_data([b"written %d" % number])
                node.wait_for_count(owner.public, len(VALUES) + number + 1)
                assert b"written %d" % number in node.values()
            node.wait_for_peers(owner.public, 0)


def test_the_keystream_is_that_of_a_recorded_session(hyperbloom_vectors):
    session = hyperbloom_vectors["session"]
    feed = bytes.fromhex(session["feed"])
    chunks = [bytes.fromhex(chunk) for chunk in session["a_to_b"]]
    stream = KeyStream(feed, chunks[0][-24:])
    clear = b"".join(stream.apply(chunk) for chunk in chunks[1:])
    again = KeyStream(feed, chunks[0][-24:])
    assert again.apply(b"".join(chunks[1:])) == clear
    assert bytes.fromhex(session["a"]["id"]) in clear
