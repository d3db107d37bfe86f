"""A member who makes sub-keys until one begins like somebody else's key.

Whoever is meant by the first digits of a key must be nobody that he could make: neither is his key
let in, renamed, denied or forgotten in another's place, nor does it stand in for a peer that a
script waits for.
"""

from __future__ import annotations

import hashlib
import threading
import time

import pytest
from attacker import Connection, KeyPair
from nodes import RealNode, wait_until


def tried(number: int) -> KeyPair:
    """One of the keys that were tried: of 134,495 the first two with the same eight digits.

    Both were free to choose, which took two seconds; six digits of a given key take some minutes.
    """
    return KeyPair(hashlib.blake2b(b"begins alike %d" % number, digest_size=32).digest())


HONEST, PLANTED = tried(51_254), tried(134_494)
DIGITS = "273ccc5e"
EXPIRES = 4_000_000_000.0


def test_they_begin_alike():
    assert HONEST.public.hex()[:8] == PLANTED.public.hex()[:8] == DIGITS
    assert HONEST.public != PLANTED.public


class Scene:
    """An owner, and a member of its feed that has linked a key of his own making."""

    def __init__(self, owner: RealNode) -> None:
        self.owner, member = owner, KeyPair.random()
        with owner.client() as client:
            link = bytes.fromhex(client.issue_link(member.public, expires=EXPIRES)["link"])
        self.chain = [link, member.link(PLANTED.public)]

    def connect(self) -> Connection:
        """The key is a peer from now on, and its link is known."""
        wire = Connection.dial(("127.0.0.1", self.owner.port))
        wire.shake_hands(self.owner.feed_key, PLANTED, self.chain)
        return wire

    def links_to(self, key: KeyPair) -> int:
        """How many links to a key the owner has signed."""
        with self.owner.client() as client:
            links = client.links()
        signed = [link for link in links if link["issuer"] == self.owner.feed_key.hex()]
        return sum(link["trustee"] == key.public.hex() for link in signed)

    def refused(self, *words: str) -> str:
        """What the owner's command says that must not do it."""
        done = self.owner.command(*words)
        told = done.stderr.decode()
        assert (done.returncode, done.stdout) == (8, b""), (done.returncode, done.stdout, told)
        return told


@pytest.fixture
def scene(nodes) -> Scene:
    return Scene(nodes.make("owner", feed="main").start())


@pytest.mark.parametrize("count", [4, 6, 8])
def test_a_sub_key_is_nobody_whom_its_first_digits_mean(scene, count):
    owner, word = scene.owner, DIGITS[:count]
    with scene.connect() as wire:
        owner.wait_for_peers(owner.feed_key, 1)
        wire.send_data([b"spam"])
        owner.wait_for_count(owner.feed_key, 1)
        before = scene.links_to(PLANTED)
        for words in (
            ("invite", word),
            ("trust", "issue", word),
            ("trust", "deny", word),
            ("peer", "name", word, "honest"),
            ("values", "--by", word),
            ("forget", "--by", word, "--yes"),
            ("wait-synced", word, "--timeout", "1"),
        ):
            assert "its first 16 or more" in scene.refused(*words), words
        assert scene.links_to(PLANTED) == before
        with owner.client() as client:
            assert (client.denied(), client.names()) == ([], [])
        assert owner.values() == [b"spam"]
        owner.wait_for_peers(owner.feed_key, 1)


def test_nor_is_it_among_those_of_a_list(scene):
    """What the operator put there himself is no more easily meant."""
    owner, whole = scene.owner, PLANTED.public.hex()
    with scene.connect():
        owner.wait_for_peers(owner.feed_key, 1)
        assert owner.command("trust", "issue", whole).returncode == 0
        assert owner.command("peer", "name", whole, "his").returncode == 0
        assert owner.command("trust", "deny", "his").returncode == 0
    for words in (("trust", "allow"), ("trust", "renew"), ("peer", "unname")):
        assert "its first 16 or more" in scene.refused(*words, DIGITS)
        done = owner.command(*words, whole[:16])
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("word", [DIGITS, HONEST.public.hex()[:16], HONEST.public.hex(), "honest"])
def test_it_does_not_stand_in_for_whom_a_script_waits_for(scene, word):
    """It comes while the script waits, and shows itself in sync: it sends and lacks nothing."""
    owner = scene.owner
    owner.put(b"a value that the honest peer lacks")
    with owner.client() as client:
        client.invite(HONEST.public, expires=EXPIRES, name="honest")
    done = []
    waiting = threading.Thread(
        target=lambda: done.append(owner.command("wait-synced", word, "--timeout", "12"))
    )
    waiting.start()
    time.sleep(2)  # it has begun, or has been refused
    with scene.connect() as wire:
        wire.send_sync(b"\xff" * 8)
        wire.drain(3.0)
        # Nothing came of it for five seconds, and its own question is answered.
        wait_until(
            lambda: any(peer["in_sync"] for peer in owner.peers(owner.feed_key)), 10, "in sync"
        )
        waiting.join(240)
    (ended,) = done
    assert (ended.returncode, ended.stdout) == (8 if word == DIGITS else 6, b""), ended.stderr
    assert (b"is not connected" in ended.stderr) == (word != DIGITS)
