"""The attackers' own Noise, held against the published vectors and against libsodium."""

from __future__ import annotations

import os

import pytest
from attacker import KeyPair
from nacl import bindings
from noise_by_hand import (
    LOW_ORDER,
    PROTOCOL,
    CipherState,
    Forged,
    Keys,
    NoiseMachine,
    diffie_hellman,
    is_marked,
    marked_nonce,
    x25519_private,
    x25519_public,
)


def machines(vector):
    """Both sides as a vector has them."""

    def side(name, initiator):
        def given(what):
            value = vector.get(f"{name}_{what}")
            return None if value is None else bytes.fromhex(value)

        keys = Keys(
            initiator=initiator,
            ephemeral=given("ephemeral"),
            prologue=given("prologue"),
            static=given("static"),
            remote_static=given("remote_static"),
            psks=[bytes.fromhex(psk) for psk in vector.get(f"{name}_psks", [])],
        )
        return NoiseMachine(keys, vector["protocol_name"])

    return side("init", True), side("resp", False)


def speak(vector):
    """All messages of a vector from one side to the other, in turns; the two machines."""
    initiator, responder = machines(vector)
    sender, receiver = initiator, responder
    for message in vector["messages"]:
        payload, sealed = (bytes.fromhex(message[key]) for key in ("payload", "ciphertext"))
        if sender.finished:
            assert sender.sending.encrypt(payload) == sealed
            assert receiver.receiving.decrypt(sealed) == payload
        else:
            assert sender.write(payload) == sealed
            assert receiver.read(sealed) == payload
        sender, receiver = receiver, sender
    return initiator, responder


def test_the_published_vectors(noise_vector):
    initiator, responder = speak(noise_vector)
    assert initiator.finished
    assert initiator.hash == responder.hash
    if "handshake_hash" in noise_vector:
        assert initiator.hash.hex() == noise_vector["handshake_hash"]


@pytest.mark.parametrize("side", ["init", "resp"])
@pytest.mark.parametrize("changed", ["prologue", "static", "remote_static", "psks"])
def test_sides_that_differ_do_not_agree(noise_vectors, side, changed):
    (vector,) = (it for it in noise_vectors if it["protocol_name"] == PROTOCOL)
    other = {"psks": ["22" * 32]}.get(changed, "11" * 32)
    initiator, responder = machines({**vector, f"{side}_{changed}": other})
    with pytest.raises(Forged):
        responder.read(initiator.write())


def test_keys_are_converted_as_libsodium_does():
    for _ in range(20):
        pair = KeyPair.random()
        secret = pair.seed + pair.public
        public = bindings.crypto_sign_ed25519_pk_to_curve25519(pair.public)
        private = bindings.crypto_sign_ed25519_sk_to_curve25519(secret)
        assert x25519_public(pair.public) == public
        assert bindings.crypto_scalarmult_base(x25519_private(pair.seed)) == public
        other = os.urandom(32)
        assert diffie_hellman(
            x25519_private(pair.seed), bindings.crypto_scalarmult_base(other)
        ) == (diffie_hellman(private, bindings.crypto_scalarmult_base(other)))


def test_points_of_small_order_give_zero():
    for point in LOW_ORDER:
        assert diffie_hellman(os.urandom(32), point) == bytes(32)


def test_a_mark_is_of_its_feed_and_of_its_chance():
    feed, nonce = os.urandom(32), marked_nonce(os.urandom(32))
    assert not is_marked(feed, nonce)
    nonce = marked_nonce(feed)
    assert is_marked(feed, nonce)
    for place in range(24):
        changed = bytearray(nonce)
        changed[place] ^= 1
        assert not is_marked(feed, bytes(changed))


def test_a_turned_key_opens_what_the_other_sealed_with_it():
    one, other = CipherState(bytes(32)), CipherState(bytes(32))
    one.rekey()
    with pytest.raises(Forged):
        other.decrypt(one.encrypt(b"later"))
    one.nonce = 0
    other.rekey()
    assert other.decrypt(one.encrypt(b"later")) == b"later"
