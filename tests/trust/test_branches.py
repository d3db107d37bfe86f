"""Paths: whom a key answers to, also once the way to it was shortened."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hyperbloom.keys import Identity
from hyperbloom.trust import (
    Chain,
    Path,
    automatic_nonce,
    issue_link,
    mark_of,
    owner_chain,
    path_of,
    shortened_by,
)
from hyperbloom.trust.branch import MAX_SHORTENED, is_shortened_by
from hyperbloom.trust.format import LINK_FORMAT_DRAFT

OWNER, COORDINATOR, MEMBER, SUB = (Identity(bytes([byte]) * 32) for byte in b"ocms")


def chain_of(*holders: Identity) -> Chain:
    chain, issuer = Chain(OWNER.public_key), OWNER
    for holder in holders:
        link = issue_link(issuer, holder.public_key, expires=2e9, nonce=bytes(32))
        chain, issuer = chain.extended(link), holder
    return chain


def marks(*holders: Identity) -> Path:
    return tuple(mark_of(holder.public_key) for holder in holders)


def test_a_path_has_the_keys_below_the_feeds() -> None:
    chain = chain_of(COORDINATOR, MEMBER, SUB)
    assert path_of(chain) == marks(COORDINATOR, MEMBER, SUB)
    assert path_of(chain, own_key=OWNER.public_key) == marks(COORDINATOR, MEMBER, SUB)


def test_below_a_nodes_own_key_its_trustees_are_the_branches() -> None:
    chain = chain_of(COORDINATOR, MEMBER, SUB)
    assert path_of(chain, own_key=COORDINATOR.public_key) == marks(MEMBER, SUB)
    assert path_of(chain, own_key=MEMBER.public_key) == marks(SUB)


def test_the_owner_is_a_branch_of_its_own_in_every_dialect() -> None:
    assert path_of(Chain(OWNER.public_key)) == marks(OWNER)
    assert path_of(owner_chain(OWNER, format=LINK_FORMAT_DRAFT)) == marks(OWNER)


def test_a_path_is_never_empty() -> None:
    chain = chain_of(COORDINATOR, MEMBER)
    assert path_of(chain, own_key=MEMBER.public_key) == marks(COORDINATOR, MEMBER)


def shortened(chain: Chain, issuer: Identity, own: Chain) -> Chain:
    """The chain that a node with the chain ``own`` gives to the holder of another one."""
    nonce = automatic_nonce(path_of(chain, own_key=issuer.public_key)[:-1], chain.holder)
    return own.extended(issue_link(issuer, chain.holder, expires=2e9, nonce=nonce))


def test_a_shortened_chain_stays_in_the_branch_it_was_in() -> None:
    long = chain_of(COORDINATOR, MEMBER, SUB)
    short = shortened(long, OWNER, Chain(OWNER.public_key))
    assert len(short) == 1
    assert path_of(short) == path_of(long)
    # Another node than the owner shortens it: it is that node's, and below it the member's.
    other = Identity(b"t" * 32)
    short = shortened(long, other, chain_of(other))
    assert path_of(short) == marks(other, COORDINATOR, MEMBER, SUB)
    assert path_of(short, own_key=other.public_key) == path_of(long)


def test_a_chain_is_shortened_again_and_again() -> None:
    people = [Identity(bytes([number]) * 32) for number in range(1, 7)]
    root, chain, holders = Chain(OWNER.public_key), chain_of(people[0], people[1]), people[:2]
    for person in people[2:4]:
        chain = shortened(chain, OWNER, root)
        link = issue_link(holders[-1], person.public_key, expires=2e9, nonce=bytes(32))
        chain, holders = chain.extended(link), [*holders, person]
        assert path_of(chain) == marks(*holders)
    chain = shortened(chain, OWNER, root)
    assert path_of(chain) == marks(*people[:4])
    for person in people[4:]:
        link = issue_link(holders[-1], person.public_key, expires=2e9, nonce=bytes(32))
        chain, holders = chain.extended(link), [*holders, person]
    with pytest.raises(ValueError, match="leaves out 1 to 4 keys, not 5"):
        shortened(chain, OWNER, root)


KEYS = st.binary(min_size=32, max_size=32)


@given(st.lists(KEYS, min_size=1, max_size=MAX_SHORTENED), KEYS, KEYS, KEYS)
def test_a_nonce_names_the_keys_left_out_and_no_other(
    left_out: Sequence[bytes], trustee: bytes, other: bytes, random: bytes
) -> None:
    path = tuple(map(mark_of, left_out))
    nonce = automatic_nonce(path, trustee)
    link = issue_link(OWNER, trustee, expires=2e9, nonce=nonce)
    assert shortened_by(link) == path
    for key in left_out:
        assert is_shortened_by(nonce, trustee, {mark_of(key)})
    if other not in left_out:
        assert not is_shortened_by(nonce, trustee, {mark_of(other)})
    if other != trustee:
        # Marks that somebody has copied from another's link say nothing.
        copied = issue_link(OWNER, other, expires=2e9, nonce=nonce)
        assert shortened_by(copied) == ()
        assert not is_shortened_by(nonce, other, set(path))
    if random != nonce:
        assert shortened_by(issue_link(OWNER, trustee, expires=2e9, nonce=random)) == ()
