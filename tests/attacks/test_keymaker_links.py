"""A member makes keys and links: what a denial ends, and the room for links that he takes."""

from __future__ import annotations

import time

import pytest
from attacker import KeyPair
from keymaker import Keymaker, Sub
from nodes import wait_until

SEED = bytes(range(32))


@pytest.fixture
def owner(nodes):
    node = nodes.make("owner", seed=SEED).start()
    node.put(b"a value")
    return node


@pytest.fixture
def mallory(owner):
    return Keymaker(owner.key, KeyPair(SEED))


def deny(node, key: KeyPair) -> None:
    with node.client() as client:
        client.deny(key.public.hex())


def has_value_of(node, sub: Sub) -> bool:
    return b"of " + sub.key.public in node.values()


def links_of(node, feed: bytes) -> list[dict]:
    with node.client() as client:
        return client.links(feed=feed.hex())


def test_a_denial_ends_what_was_shortened_before(owner, mallory):
    """He has the owner itself give his keys links of their own: they are denied with him."""
    (sub,) = mallory.subs(1)
    short = mallory.shortened(owner.port, sub)
    assert len(short.chain) == 1
    assert mallory.is_let_in(owner.port, short)
    assert has_value_of(owner, short)
    below = short.below()
    assert mallory.is_let_in(owner.port, below)
    deny(owner, mallory.key)
    for escaped in (short, below, short.below(), sub, mallory.member):
        fresh = [value for value in owner.values() if value.startswith(b"of ")]
        assert not mallory.is_let_in(owner.port, escaped)
        assert [value for value in owner.values() if value.startswith(b"of ")] == fresh
    owner.stop()
    owner.start()
    assert not mallory.is_let_in(owner.port, short), "after a restart too"
    with owner.client() as client:
        client.allow(mallory.key.public.hex())
    assert mallory.is_let_in(owner.port, short)


def test_a_denial_closes_the_connections_of_what_was_shortened(owner, mallory):
    (sub,) = mallory.subs(1)
    short = mallory.shortened(owner.port, sub)
    with mallory.connect(owner.port, short) as wire:
        owner.wait_for_peers(owner.key, 1)
        deny(owner, mallory.key)
        wire.wait_for_end()
    owner.wait_for_peers(owner.key, 0)


def test_a_link_that_another_member_gave_falls_with_its_chain(nodes, owner, mallory):
    """Bob shortens the way of a key of his: where he is denied, so is the key, and Bob is not."""
    bob = nodes.invited(owner, "bob")
    owner.wait_for_peers(owner.key, 1)
    (deep,) = mallory.subs(1, depth=2)
    short = mallory.shortened(bob.port, deep)
    assert len(short.chain) == 2
    assert mallory.is_let_in(owner.port, short)
    deny(owner, mallory.key)
    assert not mallory.is_let_in(owner.port, short)
    owner.wait_for_peers(owner.key, 1)
    # Bob has denied nobody: there the key goes on until its link ends.
    assert mallory.is_let_in(bob.port, short)


def test_a_node_that_never_met_him_denies_what_was_shortened(nodes, owner, mallory):
    """The link itself says what it leaves out: no memory of the longer chain is needed."""
    (sub,) = mallory.subs(1)
    short = mallory.shortened(owner.port, sub)
    bob = nodes.invited(owner, "bob")
    deny(bob, mallory.key)
    bob.wait_for_count(owner.key, 1)
    assert not mallory.is_let_in(bob.port, short)
    assert mallory.is_let_in(owner.port, short)


def test_keys_by_the_hundred_take_no_room_for_links(nodes, owner, mallory):
    """The owner gives his branch few links, invites and renews on; a denial clears up."""
    subs = [*mallory.subs(200), *mallory.subs(100, depth=2, expires=1e300)]
    for sub in subs:
        with mallory.connect(owner.port, sub):
            pass
    ours = owner.key.hex()
    keys = {sub.key.public.hex() for sub in subs}
    stored = links_of(owner, owner.key)
    given = [link for link in stored if link["issuer"] == ours and link["trustee"] in keys]
    assert 0 < len(given) <= 32
    ends = {link["expires"] for link in stored}
    assert max(ends) <= time.time() + 3_600, "none outlives the link that he was given"
    bob = nodes.invited(owner, "bob")
    renewed = owner.command("trust", "renew", bob.key.hex(), "--expires", "60d")
    assert renewed.returncode == 0, renewed.stderr
    to_bob = [link for link in links_of(owner, owner.key) if link["trustee"] == bob.key.hex()]
    assert len(to_bob) == 1, "the renewed link is in the place of the older one"
    deny(owner, mallory.key)

    def left() -> list[dict]:
        his, stored = {mallory.key.public.hex(), *keys}, links_of(owner, owner.key)
        return [link for link in stored if {link["issuer"], link["trustee"]} & his]

    wait_until(lambda: len(left()) == 1, 30, "only the link to him is left")
    assert [link["trustee"] for link in left()] == [mallory.key.public.hex()]
