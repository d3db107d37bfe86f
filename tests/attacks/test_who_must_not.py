"""Who has what, and must not what: lines of the table in docs/wire.md that no other file does.

Real nodes, and somebody who speaks the protocol by code of his own.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time

import pytest
from attacker import DATA, HANDSHAKE, Connection, Ended, KeyPair, hashed, values_of
from nodes import wait_until
from noise_peer import NoiseConnection
from told import closings

OWNER = KeyPair(bytes(range(32)))
FEED = OWNER.public
VALUES = [b"secret %02d" % number for number in range(20)]

each_stream = pytest.mark.parametrize("kind", [Connection, NoiseConnection])


@pytest.fixture
def owner(nodes):
    node = nodes.make("owner", seed=OWNER.seed).start()
    node.put(*VALUES)
    return node


def secure(node, key, chain, kind=Connection):
    wire = kind.dial(("127.0.0.1", node.port))
    wire.shake_hands(FEED, key, chain)
    if kind is NoiseConnection:
        wire.protect()
    return wire


def tries_to_read_and_write(wire) -> list[bytes]:
    """The values that it gets."""
    with contextlib.suppress(Ended):
        wire.send_request()
        wire.send_data([b"written by him"])
    return [v for kind, body in wire.wait_for_end() if kind == DATA for v in values_of(body)]


def test_a_stranger_who_knows_the_discovery_key_gets_two_messages_that_he_cannot_read(owner):
    """It is in no record of the DHT as it is; but who has it can make a node answer its Open."""
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.use(os.urandom(32))  # he does not know the feed's key
        wire.send_open(discovery_key=hashed(FEED))
        wire.receive_open()
        wire.send_frame(os.urandom(200))
        got = b""
        with contextlib.suppress(ConnectionError):
            while data := wire.socket.recv(65_536):
                got += data
        got = wire._in.apply(got) if wire._in else got
    assert len(got) < 500, "a Handshake at most, in a keystream that he cannot make"
    for secret in (FEED, VALUES[0]):
        assert secret not in got
    assert owner.values() == VALUES


def chains(key):
    """What somebody without a sound chain may show."""
    other = KeyPair.random()
    long = [KeyPair.random() for _ in range(5)]
    steps = [OWNER, *long]
    return {
        "none": [],
        "signed by himself": [key.link(key.public)],
        "of another feed": [other.link(key.public)],
        "for another key": [OWNER.link(other.public)],
        "that has ended": [OWNER.link(key.public, expires=time.time() - 2)],
        "that never ends": [OWNER.link(key.public, expires=float("inf"))],
        "that is no number": [OWNER.link(key.public, expires=float("nan"))],
        "of six": [
            *(one.link(next_.public) for one, next_ in itertools.pairwise(steps)),
            long[-1].link(key.public),
        ],
        "out of order": [other.link(key.public), OWNER.link(other.public)],
        "with a bit flipped": [bytes([*OWNER.link(key.public)[:136], 0])],
    }


@pytest.mark.parametrize("which", chains(OWNER))
def test_who_has_the_feeds_key_and_no_sound_chain_reads_and_writes_nothing(owner, which):
    key = KeyPair.random()
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.use(FEED)
        wire.send_open()
        wire.receive_open()
        with contextlib.suppress(Ended):
            wire.send_handshake(key, chains(key)[which])
        assert tries_to_read_and_write(wire) == []
    assert owner.values() == VALUES
    wait_until(lambda: {"untrusted", "expired"} & set(closings(owner)), 10, "it is told")


@each_stream
def test_who_was_a_member_writes_and_reads_nothing_once_his_link_has_ended(owner, kind):
    key = KeyPair.random()
    with secure(owner, key, [OWNER.link(key.public, expires=time.time() + 2.5)], kind) as wire:
        wire.send_data([b"in time"])
        owner.wait_for_count(FEED, len(VALUES) + 1)
        begun = time.monotonic()
        wire.wait_for_end()
        assert time.monotonic() - begun < 10
    assert closings(owner)["expired"] == 1
    assert owner.values() == sorted([*VALUES, b"in time"])


@each_stream
def test_who_is_denied_is_out_here_and_writes_on_where_he_is_not(nodes, owner, kind):
    """What the page says of `deny`, and no more: it is of this node alone."""
    other = nodes.invited(owner, "other")
    key = KeyPair.random()
    chain = [OWNER.link(key.public)]
    with secure(owner, key, chain, kind) as wire:
        wire.send_data([b"before"])
        owner.wait_for_count(FEED, len(VALUES) + 1)
        denied = owner.command("trust", "deny", key.public.hex())
        assert denied.returncode == 0, denied.stderr
        wire.wait_for_end()
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.shake_hands(FEED, key, chain)
        assert tries_to_read_and_write(wire) == []
    with secure(other, key, chain, kind) as wire:
        wire.send_data([b"elsewhere"])
        other.wait_for_count(FEED, len(VALUES) + 2)
    owner.wait_for_count(FEED, len(VALUES) + 2)
    assert owner.values() == sorted([*VALUES, b"before", b"elsewhere"])


def test_somebody_on_the_path_cuts_signed_bytes_into_other_values_and_adds_none(owner):
    """The lengths are not covered. It is done here with a member's signature, as he would."""
    member = KeyPair.random()
    signature = member.data_signature(FEED, [b"ab", b"c"])
    with secure(owner, member, [OWNER.link(member.public)]) as wire:
        wire.send_data([b"a", b"bc"], signature=signature)
        owner.wait_for_count(FEED, len(VALUES) + 2)
        for values in ([b"ab", b"c", b"d"], [b"abc"], [b"ab", b"d"]):
            wire.send_data(values, signature=signature)
        wait_until(lambda: owner.peers()[0]["strikes"] == 3, 10, "the strikes")
    assert owner.values() == sorted([*VALUES, b"a", b"bc"])


def test_a_data_of_one_feed_is_none_of_another(nodes):
    one, another = KeyPair.random(), KeyPair.random()
    config = "".join(f'[[feeds]]\nkey = "{feed.public.hex()}"\n' for feed in (one, another))
    node = nodes.make("of-two", config=config).start()
    with node.client() as client:
        for feed in (one, another):
            client.add_links([feed.link(node.key)], feed=feed.public.hex())
    member = KeyPair.random()
    signature = member.data_signature(one.public, [b"of one"])
    for feed, count in ((one, 1), (another, 0)):
        with Connection.dial(("127.0.0.1", node.port)) as wire:
            wire.shake_hands(feed.public, member, [feed.link(member.public)])
            wire.send_data([b"of one"], signature=signature)
            wire.drain(1.0)
        assert node.count(feed.public) == count


@each_stream
def test_who_lies_about_what_he_holds_keeps_nothing_from_others(nodes, owner, kind):
    """A node may take him for in sync, or not: what others put goes on to those who lack it."""
    other = nodes.invited(owner, "other")
    other.wait_for_count(FEED, len(VALUES))
    key = KeyPair.random()
    wire = kind.dial(("127.0.0.1", other.port))
    extensions = [b"split-replies", b"set-digest-1"]
    if kind is NoiseConnection:
        extensions.append(b"noise-1")
    with wire:
        wire.shake_hands(FEED, key, [OWNER.link(key.public)], extensions=extensions)
        if kind is NoiseConnection:
            wire.protect()
        for message_id, body in wire.drain(2.0):
            assert message_id != HANDSHAKE
            if message_id == 4365:
                wire.send(4366, body[:4] + os.urandom(8 + 32 + 8 + 32) + body[4:])
        owner.put(b"a new one")
        other.wait_for_count(FEED, len(VALUES) + 1)
    assert other.values(FEED) == owner.values()
